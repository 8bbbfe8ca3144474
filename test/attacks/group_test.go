package attacks_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
)

// group is the members of one group, wherever their ZooKeeper is, and what they did.
type group struct {
	t       *testing.T
	name    string
	now     func() int64
	members []*member
	others  []eventlog.Log // of processes of their own
}

func newGroup(t *testing.T, name string, now func() int64) *group {
	return &group{t: t, name: name, now: now}
}

func (g *group) path(parts ...string) string {
	return strings.Join(append([]string{"/kiel/groups/" + g.name}, parts...), "/")
}

// options of a member. What is left out is the default.
type options struct {
	servers   []string
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	session   session.Options
	allocator allocator.Options
	ownership ownership.Options
	handler   func(m *member) ownership.Handler // nil: acts until it is told to end
}

// seeded returns options with partition 0 in the seed, if there is none.
func (o options) seeded() options {
	if o.allocator.Seed == nil {
		o.allocator.Seed = map[string][]int32{topic: {0}}
	}
	return o
}

// member is one member of a group: a session, an allocator and an owner.
type member struct {
	g       *group // nil in a process of its own
	name    string
	session *session.Session
	alloc   *allocator.PartitionAllocator
	owner   *ownership.Owner
	journal *journal
	stop    func() // idempotent

	mu   sync.Mutex
	errs []error
}

// start starts a member of a group. It runs until stop is called.
func start(group string, j *journal, log *slog.Logger, o options) (*member, error) {
	m := &member{name: j.name, journal: j}
	if o.session.Logger == nil {
		o.session.Logger = log
	}
	o.session.Dial, o.allocator.Logger, o.ownership.Logger = o.dial, log, log
	o.ownership.Observer = j.observe
	o.ownership.OnError = func(err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.errs = append(m.errs, err)
	}
	if o.handler == nil {
		o.handler = func(m *member) ownership.Handler { return m.act }
	}
	var err error
	if m.session, err = session.New(o.servers, o.session); err != nil {
		return nil, err
	}
	if m.alloc, err = allocator.New(m.session, group, m.name, o.allocator); err != nil {
		return nil, err
	}
	if m.owner, err = ownership.New(m.alloc, o.handler(m), o.ownership); err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = m.session.Run(life) })
	wg.Go(func() { _ = m.owner.Run(context.Background()) })
	m.stop = sync.OnceFunc(func() {
		_ = m.owner.Stop(context.Background())
		end()
		wg.Wait()
	})
	return m, nil
}

// join starts a member that ends with the test, or before.
func (g *group) join(name string, o options) *member {
	g.t.Helper()
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("KIEL_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(g.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("of", name)
	}
	m, err := start(g.name, newJournal(name, g.now), log, o)
	if err != nil {
		g.t.Fatal(err)
	}
	m.g = g
	g.t.Cleanup(m.stop)
	g.members = append(g.members, m)
	return m
}

const (
	pace  = 20 * time.Millisecond // of handlers
	topic = "t"
)

// act is a handler that acts until it is told to end.
func (m *member) act(ctx context.Context, c *ownership.Claim) error {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m.journal.act(c)
		case <-ctx.Done():
			return nil
		}
	}
}

// drainFor returns handlers that act, and go on acting for d after they were told to finish.
func drainFor(d time.Duration) func(m *member) ownership.Handler {
	return func(m *member) ownership.Handler {
		return func(ctx context.Context, c *ownership.Claim) error {
			_ = m.act(ctx, c)
			rest, cancel := context.WithTimeout(c.Context(), d)
			defer cancel()
			return m.act(rest, c)
		}
	}
}

// owned returns what a member owns, as "0 1".
func (m *member) owned() string {
	var ids []string
	for _, info := range m.owner.Owned() {
		ids = append(ids, fmt.Sprint(info.Partition))
	}
	return strings.Join(ids, " ")
}

// token returns the token of a partition that a member owns, else 0.
func (m *member) token(id int32) int64 {
	for _, info := range m.owner.Owned() {
		if info.Partition == id {
			return info.Token
		}
	}
	return 0
}

// sessionID returns the ZooKeeper session, 0 while none is trusted.
func (m *member) sessionID() int64 {
	if inc := m.session.Current(); inc != nil {
		return inc.SessionID()
	}
	return 0
}

// owns waits until a member owns exactly these partitions.
func (m *member) owns(within time.Duration, ids string) time.Duration {
	m.g.t.Helper()
	return m.g.within(within, fmt.Sprintf("%s owns %q", m.name, ids), func() bool { return m.owned() == ids })
}

// within waits until ok, and fails the test when that takes too long.
func (g *group) within(d time.Duration, what string, ok func() bool) time.Duration {
	g.t.Helper()
	took, done := poll(d, ok)
	if !done {
		g.t.Fatalf("not within %v: %s\n%s", d, what, g.state())
	}
	return took
}

// poll waits until ok, or for d.
func poll(d time.Duration, ok func() bool) (took time.Duration, done bool) {
	ticker := time.NewTicker(pace / 2)
	defer ticker.Stop()
	began := time.Now()
	for !ok() {
		if time.Since(began) > d {
			return d, false
		}
		<-ticker.C
	}
	return time.Since(began), true
}

// state describes the members, for messages.
func (g *group) state() string {
	var b strings.Builder
	for _, m := range g.members {
		m.mu.Lock()
		fmt.Fprintf(&b, "%s owns %q, session %+v, errors %v\n", m.name, m.owned(), m.session.Stats(), m.errs)
		m.mu.Unlock()
		for _, e := range m.journal.events() {
			if e.Event != eventlog.Message && e.Event != eventlog.Snapshot {
				fmt.Fprintf(&b, "  %v %s %s\n", time.Duration(e.T), e.Event, partitionOf(e))
			}
		}
	}
	return b.String()
}

func partitionOf(e eventlog.Event) string {
	if e.Partition == nil {
		return ""
	}
	return fmt.Sprint(*e.Partition)
}

// end stops all members, all at once, and judges what they did.
func (g *group) end() *outcome {
	var wg sync.WaitGroup
	for _, m := range g.members {
		wg.Go(m.stop)
	}
	wg.Wait()
	logs := slices.Clone(g.others)
	for _, m := range g.members {
		logs = append(logs, eventlog.Log{Name: m.name, Events: m.journal.events()})
	}
	return judge(logs)
}
