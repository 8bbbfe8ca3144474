package attacks_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/wait"
	"github.com/kielgo/kiel/zktest"
)

// store is what a user may build: the offset of partition 0 in a znode, written in one multi with a check of the epoch.
type store struct {
	path    string
	compare bool // and only over what the writer has read or written last

	mu       sync.Mutex
	written  []commit       // what was accepted, in the order in which the answers came
	accepted map[string]int // by member
	refused  map[string]int
	compared int       // how many were refused by the comparison alone: the epoch's version was the right one
	newest   time.Time // when a commit was accepted last
}

// commit is one that was accepted, and the version that it gave the znode.
type commit struct {
	name    string
	offset  int64
	version int32
}

func newStore(path string, compare bool) *store {
	return &store{path: path, compare: compare, accepted: map[string]int{}, refused: map[string]int{}}
}

// handler commits one offset after the other.
func (s *store) handler(m *member) ownership.Handler {
	return func(ctx context.Context, c *ownership.Claim) error {
		data, stat, err := c.Incarnation().Get(ctx, s.path)
		if err != nil {
			return err
		}
		offset, _ := strconv.ParseInt(string(data), 10, 64)
		version := stat.Version
		ticker := time.NewTicker(pace)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return nil
			}
			if !c.Trusted() {
				continue
			}
			m.journal.act(c)
			if !s.compare {
				version = -1
			}
			results, err := c.Incarnation().Multi(context.WithoutCancel(ctx), // what came of it is to be known in any case
				session.CheckOp(c.EpochPath(), c.EpochVersion()), session.SetOp(s.path, []byte(fmt.Sprint(offset+1)), version))
			if err != nil {
				s.refuse(m.name, err)
				continue
			}
			offset++
			version = results[1].Stat.Version
			s.accept(commit{m.name, offset, version})
		}
	}
}

func (s *store) accept(c commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = append(s.written, c)
	s.accepted[c.name]++
	s.newest = time.Now()
}

func (s *store) refuse(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(err, session.ErrBadVersion) {
		return
	}
	s.refused[name]++
	if refusal, ok := errors.AsType[*session.MultiError](err); ok && refusal.Index == 1 {
		s.compared++
	}
}

// harm says which commit went back behind an earlier one. The server's order counts: an answer may be held up for long.
func (s *store) harm() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.written, func(a, b commit) int { return cmp.Compare(a.version, b.version) })
	for i := 1; i < len(s.written); i++ {
		if old, c := s.written[i-1], s.written[i]; c.offset < old.offset {
			return fmt.Sprintf("%s has written %d over %s's %d", c.name, c.offset, old.name, old.offset)
		}
	}
	return ""
}

func (s *store) count(name string) (accepted, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted[name], s.refused[name]
}

func (s *store) idle() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.newest)
}

// place is where the servers are: in memory, or real ones.
type place interface {
	on(name string, o options) options // fills in how a member reaches the servers
	member(name string, o options) *member
	hold(name string) // all that a member sends and is sent, until heal
	heal()
	close() *outcome
}

const versionTimeout = 6 * time.Second

// oldCommit holds up a commit, has an operator delete all that there is of partition 0 and of its owner (a topic that is cleaned
// up), and lets the commit go on when another owns the partition. The new epoch has the version of the old one.
func oldCommit(t *testing.T, g *group, p place, compare bool) *outcome {
	s := newStore("/offset-of-"+g.name, compare)
	op := operator(g, p)
	if _, err := op.Create(t.Context(), s.path, []byte("0"), session.Persistent); err != nil {
		t.Fatal(err)
	}
	opts := options{session: session.Options{Timeout: versionTimeout}, handler: s.handler}
	p.member("a", opts)
	g.within(10*time.Second, "a commits", func() bool { n, _ := s.count("a"); return n > 5 })
	b := p.member("b", opts)
	g.within(10*time.Second, "b has joined", func() bool { return b.journal.count(eventlog.Joined) > 0 })
	p.hold("a")
	done, _ := s.count("a")
	wait.Pass(t, 10*pace) // a sends a commit, which is held up
	for _, path := range []string{g.path("members", "a"), g.path("owners", "t:0"), g.path("epochs", "t:0")} {
		if err := op.Delete(t.Context(), path, -1); err != nil {
			t.Fatal(err)
		}
	}
	b.owns(10*time.Second, "0")
	g.within(10*time.Second, "b commits", func() bool { n, _ := s.count("b"); return n > 5 })
	p.heal()
	g.within(10*time.Second, "a's commit comes back", func() bool {
		n, refused := s.count("a")
		return n > done || refused > 0
	})
	o := p.close()
	o.forgive(overlap) // the operator's doing
	o.figure("refused-by-comparison", s.compared)
	if harm := s.harm(); harm != "" {
		o.harmed(overwritten, "%s", harm)
	} else if s.compared == 0 {
		t.Error("no commit of the old owner had the right version of the epoch, so this shows nothing")
	}
	return o
}

// Execution §6: a version is no identity once the znode was deleted. The rule is for users' stores: check the epoch and compare
// the version of what is written; without the second the old owner's commit goes through.
func TestVersionIsNoIdentity(t *testing.T) {
	run := func(t *testing.T, compare bool) *outcome {
		return bubble(t, zktest.Options{TickTime: time.Second}, func(w *world) *outcome {
			return oldCommit(w.t, w.group, w, compare)
		})
	}
	t.Run("on", func(t *testing.T) { withstood(t, run(t, true)) })
	t.Run("off", func(t *testing.T) { broken(t, overwritten, run(t, false)) })
}

// foreignEpoch has an operator write the epoch of a partition that is owned. Its owner's commits are refused from then on.
func foreignEpoch(t *testing.T, g *group, p place) *outcome {
	s := newStore("/offset-of-"+g.name, true)
	op := operator(g, p)
	if _, err := op.Create(t.Context(), s.path, []byte("0"), session.Persistent); err != nil {
		t.Fatal(err)
	}
	a := p.member("a", options{session: session.Options{Timeout: versionTimeout}, handler: s.handler})
	g.within(10*time.Second, "a commits", func() bool { n, _ := s.count("a"); return n > 5 })
	token := a.token(0)
	if _, err := op.Set(t.Context(), g.path("epochs", "t:0"), []byte("an operator's"), -1); err != nil {
		t.Fatal(err)
	}
	took, claimed := poll(versionTimeout/2, func() bool { return a.token(0) > token })
	if claimed {
		_, claimed = poll(versionTimeout/2, func() bool { return s.idle() < 5*pace })
	}
	_, refused := s.count("a")
	o := p.close()
	o.figure("refused", refused)
	if !claimed {
		o.harmed(stalled, "%d commits were refused, and the claim stands", refused)
	} else {
		o.figure("claimed-again-after", took)
	}
	if a.journal.count(eventlog.Lost) == 0 && claimed {
		t.Error("the claim was not lost")
	}
	return o
}

// Execution §6: a holder that finds its epoch changed treats the claim as lost. If it does not, it owns what it can't write.
// (Package ownership tests what else operators do, in TestOperator.)
func TestClaimWhoseEpochChanged(t *testing.T) {
	withstood(t, bubble(t, zktest.Options{TickTime: time.Second}, func(w *world) *outcome {
		return foreignEpoch(w.t, w.group, w)
	}))
}

// operator returns a session of its own in which nobody is a member.
func operator(g *group, p place) *session.Incarnation {
	g.t.Helper()
	o := p.on("operator", options{})
	s, err := session.New(o.servers, session.Options{Dial: o.dial})
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx)
	}()
	g.t.Cleanup(func() {
		cancel()
		<-done
	})
	inc, err := s.Incarnation(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	return inc
}
