package recipes_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/wait"
)

var (
	givenSeed = flag.Uint64("seed", 0, "run the schedule of this seed alone; 0 draws the first of many")
	schedules = flag.Int("schedules", 100, "how many schedules are run, with seeds that follow each other")
)

// Contenders of both languages, two of each on one path, get and give back what one recipe offers, while Python processes are
// killed and stopped, and links of Go contenders are cut, fall silent, and lose replies. Never do more hold something than may;
// whoever waits gets it; when all is over nothing is left and everybody gets it again.
func TestRandomSchedules(t *testing.T) {
	const atOnce = 24
	first, n := cmp.Or(*givenSeed, rand.Uint64N(1<<32)), *schedules
	if *givenSeed != 0 && n == 100 {
		n = 1
	}
	t.Attr("seed", fmt.Sprint(first))
	a := newArena(t)
	tally := &tally{counts: make(map[string]int)}
	seeds := make(chan uint64)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for seed := range seeds {
				a.runSchedule(seed, tally)
			}
		})
	}
	began := time.Now()
	for i := range n {
		seeds <- first + uint64(i)
	}
	close(seeds)
	wg.Wait()
	t.Attr("schedules-took", time.Since(began).Round(time.Second).String())
	var said []string
	for _, what := range slices.Sorted(maps.Keys(tally.counts)) {
		said = append(said, fmt.Sprintf("%s %d", what, tally.counts[what]))
	}
	t.Attr("schedules", strings.Join(said, ", "))
	if n < 100 {
		return
	}
	for _, f := range allFaults() {
		if tally.counts[f] == 0 {
			t.Errorf("never: %s", f)
		}
	}
	if lost := tally.counts["lost by itself"]; lost > n/10 {
		t.Errorf("%d Python contenders lost their connection by themselves: too few took part", lost)
	}
	if holds := tally.counts["holds of go"]; holds < 5*n {
		t.Errorf("only %d holds of Go", holds)
	}
	if holds := tally.counts["holds of python"]; holds < 3*n {
		t.Errorf("only %d holds of Python", holds)
	}
}

type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *tally) add(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what] += n
}

func (c *tally) join(other *tally) {
	for what, n := range other.counts {
		c.add(what, n)
	}
}

// schedule is a plan that is carried out.
type schedule struct {
	*arena
	*plan
	*tally
	seed   uint64
	path   string
	claims claims

	timeout time.Duration // of sessions

	mu    sync.Mutex
	story []string
	wrong []string
	put   map[string]bool // into a queue, for certain
	got   map[string]bool // out of it, by somebody

	holders map[string]bool // who ever held something
	died    bool            // one of them has lost its session
}

func (a *arena) schedule(p *plan, path string) *schedule {
	return &schedule{
		arena: a, plan: p, tally: &tally{counts: make(map[string]int)}, path: path, timeout: sessionTimeout,
		put: make(map[string]bool), got: make(map[string]bool), holders: make(map[string]bool),
	}
}

func (a *arena) runSchedule(seed uint64, tally *tally) {
	s := a.schedule(draw(seed), fmt.Sprintf("/schedules/%d", seed))
	s.seed = seed
	defer tally.join(s.tally)
	if s.kind == ofPartitioner {
		s.partition()
	} else {
		s.contend()
	}
	s.allGone()
	limit := 1
	if s.kind == ofSemaphore {
		limit = leases
	}
	// A Python that was starved is one that was stopped: it takes leases from whoever has got them since.
	if s.kind != ofLease || s.counts["lost by itself"] == 0 {
		s.wrong = append(s.wrong, s.claims.judge(limit)...)
	}
	if !s.died {
		s.wrong = append(s.wrong, "nobody died")
	}
	if len(s.wrong) == 0 {
		return
	}
	for _, m := range s.members {
		s.story = append(s.story, fmt.Sprintf("%s: %v", m.Name, m.faults))
	}
	const again = "go test -run '^TestRandomSchedules$' ./test/interop/recipes -args -seed="
	a.Errorf("%s, seed %d\n%s\nthe same again: %s%d\nwhat happened:\n%s",
		kindName(s.kind), seed, strings.Join(s.wrong, "\n"), again, seed, strings.Join(s.story, "\n"))
}

func (s *schedule) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.story = append(s.story, fmt.Sprintf("%12v ", s.now())+fmt.Sprintf(format, args...))
}

func (s *schedule) bad(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// problems are those that were found so far.
func (s *schedule) problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrong
}

// contend has the members contend, and afterwards one of each language once more.
func (s *schedule) contend() {
	var wg sync.WaitGroup
	for _, m := range s.members {
		wg.Go(func() {
			if m.python {
				s.python(m)
			} else {
				s.golang(m)
			}
		})
	}
	wg.Wait()
	s.allGone()
	if s.Context().Err() != nil || len(s.wrong) > 0 {
		return
	}
	last := op{N: 1, Make: s.members[0].ops[0].Make, Mode: "wait", Parts: 1, Pause: 0.005, Seconds: 2}
	if s.kind == ofLockingQueue {
		put := func(who string) op { return op{N: 1, Make: "Put", Text: who + ", at last"} }
		last.N, last.Make, last.Mode, last.Seconds = 2, "Get", "consume", 30
		s.golang(&member{Name: "go, at last", ops: []op{{Make: "Drain"}, put("go"), last}})
		s.python(&member{Name: "python, at last", python: true, ops: []op{put("python"), last}})
		for value := range s.put {
			if !s.got[value] {
				s.bad("nobody ever got %q", value)
			}
		}
		return
	}
	s.golang(&member{Name: "go, at last", ops: []op{last}})
	s.python(&member{Name: "python, at last", python: true, ops: []op{last}})
	for _, who := range []string{"go, at last", "python, at last"} {
		if !s.holders[who] {
			s.bad("%s, never got it", who)
		}
	}
}

// golang is a Go contender.
func (s *schedule) golang(m *member) {
	l, err := s.linked(s.timeout)
	if err != nil {
		s.bad("%s: %v", m.Name, err)
		return
	}
	defer func() {
		if err := l.end(); err != nil {
			s.bad("%s: %v", m.Name, err)
		}
	}()
	take, err := taker(l.Session, s.kind, s.path, m.Name)
	if err != nil {
		s.bad("%s: %v", m.Name, err)
		return
	}
	for _, o := range m.ops {
		if o.Make == "Drain" {
			s.drain(l.Session)
			continue
		}
		s.fault(m, l, "ask", o.N)
		h, err := s.ask(take, o)
		switch {
		case err != nil && o.Mode == "wait" && s.kind != ofLease:
			s.bad("%s waited for its operation %d: %v", m.Name, o.N, err)
			return
		case err != nil && !s.mayFail(o, err):
			s.bad("%s, operation %d: %v", m.Name, o.N, err)
		case err != nil:
			s.tell("%s, operation %d: %v", m.Name, o.N, err)
		case h == nil:
			s.tell("%s put %q", m.Name, o.Text)
			s.mu.Lock()
			s.put[o.Text] = true
			s.mu.Unlock()
		default:
			s.fault(m, l, "got", o.N)
			s.hold(m, h, o)
		}
		wait.Pass(s, seconds(o.Rest))
	}
}

// mayFail reports whether that is an error with which an operation ends in spite of all that is guaranteed.
func (s *schedule) mayFail(o op, err error) bool {
	may := refusals
	if s.kind == ofLease || o.Make == "Put" { // they are not repeated
		may = append(slices.Clip(may), session.ErrUncertain, session.ErrTrustLost, session.ErrSessionExpired, lease.ErrClockSkew)
	}
	return slices.ContainsFunc(may, func(r error) bool { return errors.Is(err, r) })
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// ask gets something; a lease for which we wait is asked for again and again.
func (s *schedule) ask(take func(context.Context, op) (*hold, error), o op) (*hold, error) {
	limit := silence
	if o.Mode == "timeout" || s.kind == ofLockingQueue {
		limit = seconds(o.Seconds)
	}
	if o.Make == "Put" {
		limit = silence
	}
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	defer cancel()
	for {
		h, err := take(ctx, o)
		if err == nil || s.kind != ofLease || o.Mode != "wait" || ctx.Err() != nil {
			return h, err
		}
		wait.Pass(s, 50*time.Millisecond)
	}
}

// hold says that something is held, for as long as it is, and gives it back.
func (s *schedule) hold(m *member, h *hold, o op) {
	s.tell("%s, operation %d: holds %q", m.Name, o.N, h.what)
	s.holds(m, "go", h.text)
	began := s.now()
	for part := range o.Parts + 1 {
		at := s.now()
		if !h.valid() {
			s.tell("%s, operation %d: lost it", m.Name, o.N)
			s.add("holds of go that were lost", 1)
			break
		}
		s.claims.add(claim{who: m.Name, what: h.what, shared: h.shared, session: h.session, began: began, last: at})
		if part < o.Parts {
			wait.Pass(s, seconds(o.Pause))
		}
	}
	ctx, cancel := context.WithTimeout(s.Context(), silence)
	defer cancel()
	if h.consume != nil && o.Mode == "consume" {
		err := h.consume(ctx)
		s.tell("%s, operation %d: consumed: %v", m.Name, o.N, err)
		if err == nil {
			s.consumed(h.what, s.now())
		}
		return
	}
	err := h.release(ctx)
	s.tell("%s, operation %d: released: %v", m.Name, o.N, err)
	if err != nil && s.kind != ofLockingQueue {
		s.bad("%s, operation %d: release: %v", m.Name, o.N, err)
	}
}

// holds says that a contender has got something.
func (s *schedule) holds(m *member, language, text string) {
	s.add("holds of "+language, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders[m.Name], s.got[text] = true, true
}

// consumed says that an entry of a queue is nobody's any more.
func (s *schedule) consumed(what string, at time.Duration) {
	s.claims.add(claim{who: "nobody", what: what, began: at, last: math.MaxInt64})
}

// drain empties the queue.
func (s *schedule) drain(ses *session.Session) {
	q, err := queue.NewLocking(ses, s.path, queue.Options{})
	ctx, cancel := context.WithTimeout(s.Context(), silence)
	defer cancel()
	for err == nil {
		var h *queue.Held
		if h, err = q.TryGet(ctx); err != nil {
			break
		}
		s.mu.Lock()
		s.got[string(h.Value())] = true
		s.mu.Unlock()
		err = h.Consume(ctx)
	}
	var blocked *recipe.BlockedError
	if !errors.Is(err, queue.ErrEmpty) || errors.As(err, &blocked) {
		s.bad("draining the queue: %v", err)
	}
}

// await waits for a condition; what it waits for in vain is wrong.
func (s *schedule) await(what string, limit time.Duration, ok func() (bool, error)) {
	for began := time.Now(); ; wait.Pass(s, 100*time.Millisecond) {
		fine, err := ok() // an error may be the end of the session with which we look, and pass
		switch {
		case fine:
			return
		case s.Context().Err() != nil || time.Since(began) > limit:
			s.bad("not within %v: %s (%v)", limit, what, err)
			return
		}
	}
}

// allGone waits until no ephemeral znode is left.
func (s *schedule) allGone() {
	s.await("everything is gone", 30*time.Second, func() (bool, error) { return s.gone(s.path, s.path+"-__lock__") })
}

// gone reports whether there is no ephemeral znode below these paths.
func (s *schedule) gone(paths ...string) (bool, error) {
	inc, err := s.s.Incarnation(s.Context())
	if err != nil {
		return false, err
	}
	for _, at := range paths {
		_, stat, err := inc.Get(s.Context(), at)
		switch {
		case errors.Is(err, session.ErrNoNode):
			continue
		case err != nil:
			return false, err
		case stat.EphemeralOwner != 0:
			return false, nil
		}
		children, _, err := inc.Children(s.Context(), at)
		if err != nil {
			return false, err
		}
		for i, child := range children {
			children[i] = session.Join(at, child)
		}
		if fine, err := s.gone(children...); err != nil || !fine {
			return false, err
		}
	}
	return true, nil
}
