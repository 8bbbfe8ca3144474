package stack_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

const (
	group   = "g"
	topic   = "t"
	timeout = 6 * time.Second // of sessions
	tick    = 2 * time.Second // of the server

	// crashBound is how long after a crash the partitions may be without an owner.
	crashBound = timeout + tick + time.Second
	// changeBound is the same after a join or a leave that was long expected.
	changeBound = 300 * time.Millisecond
)

// world is a server and the members on it, in a bubble.
type world struct {
	t   *testing.T
	srv *zktest.Server
	net *zktest.Network

	mu      sync.Mutex
	members []*member
	claims  map[string][]held       // all that handlers were given, by partition
	doubled []string                // partitions that two had at a time
	last    map[int32]time.Time     // work on each partition
	gap     map[int32]time.Duration // the longest time without
}

func newWorld(t *testing.T) *world {
	t.Helper()
	srv, network := zktest.StartVirtual(t, zktest.Options{TickTime: tick})
	return &world{t: t, srv: srv, net: network, claims: map[string][]held{}, last: map[int32]time.Time{}, gap: map[int32]time.Duration{}}
}

// held is a claim and who was given it.
type held struct {
	*member
	claim *ownership.Claim
}

// setup is what is special about a member.
type setup struct {
	session   session.Options
	allocator allocator.Options
	owner     ownership.Options
	handler   ownership.Handler // nil works until it is told to end
}

// member is a member of the group: a session, an allocator and an owner.
type member struct {
	*world
	name   string
	link   *zktest.Client
	dialer *handshakes
	zk     *session.Session
	alloc  *allocator.PartitionAllocator
	owner  *ownership.Owner
	reg    lasting
	log    *logbook

	quit  context.CancelFunc // ends the owner's Run
	ran   chan struct{}      // closed when that returned
	err   error              // its error
	close context.CancelFunc // ends the session's Run
	ended chan struct{}      // closed when that returned

	mu      sync.Mutex
	errs    []error
	calls   int           // of OnRebalance
	pieces  int           // of work
	opened  map[int32]int // how often
	over    bool          // Run has returned
	afterIt []string      // what was called after that
	exempt  bool          // an operator ended a session of its: overlaps are his
}

// join starts a member.
func (w *world) join(name string, s setup) *member {
	w.t.Helper()
	m := w.make(name, s)
	m.start()
	return m
}

// make makes a member that does not run.
func (w *world) make(name string, s setup) *member {
	w.t.Helper()
	m := &member{
		world: w, name: name, link: w.net.Client(fmt.Sprintf("%s#%d", name, len(w.members))), reg: lasting{prometheus.NewPedanticRegistry()}, log: &logbook{},
		ran: make(chan struct{}), ended: make(chan struct{}), opened: map[int32]int{},
	}
	m.dialer = &handshakes{dial: m.link.Dial}
	var err error
	s.session.Dial, s.session.Timeout, s.session.Logger = m.dialer.Dial, timeout, slog.New(m.log)
	if m.zk, err = session.New([]string{zktest.VirtualAddress}, s.session); err != nil {
		w.t.Fatal(err)
	}
	a, o := s.allocator, s.owner
	a.Logger, a.Registerer = slog.New(m.log), m.reg
	a.OnRebalance = func(ctx context.Context, r allocator.Rebalance) {
		m.rebalanced()
		if s.allocator.OnRebalance != nil {
			s.allocator.OnRebalance(ctx, r)
		}
	}
	a.OnError = func(ctx context.Context, err error) {
		m.note(err, false)
		if s.allocator.OnError != nil {
			s.allocator.OnError(ctx, err)
		}
	}
	if m.alloc, err = allocator.New(m.zk, group, name, a); err != nil {
		w.t.Fatal(err)
	}
	o.Logger, o.Registerer = slog.New(m.log), m.reg
	o.Observer = func(e ownership.Event) {
		m.called("Observer")
		if s.owner.Observer != nil {
			s.owner.Observer(e)
		}
	}
	o.OnError = func(err error) {
		m.note(err, true)
		if s.owner.OnError != nil {
			s.owner.OnError(err)
		}
	}
	handler := s.handler
	if handler == nil {
		handler = m.work
	}
	if m.owner, err = ownership.New(m.alloc, func(ctx context.Context, c *ownership.Claim) error {
		m.enter(c)
		return handler(ctx, c)
	}, o); err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members = append(w.members, m)
	return m
}

// start runs the session and the owner.
func (m *member) start() {
	life, end := context.WithCancel(context.Background())
	ctx, quit := context.WithCancel(context.Background())
	m.quit, m.close = quit, end
	go func() {
		defer close(m.ended)
		if err := m.zk.Run(life); err != nil {
			m.t.Errorf("%s: session: %v", m.name, err)
		}
	}()
	go func() {
		defer close(m.ran)
		m.err = m.owner.Run(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.over = true
	}()
}

// leave ends the member and waits until nothing of it runs.
func (m *member) leave() error {
	m.quit()
	<-m.ran
	m.close()
	<-m.ended
	return m.err
}

// end ends all members and says what was wrong.
func (w *world) end() {
	w.t.Helper()
	for _, m := range w.members {
		m.quit()
	}
	for _, m := range w.members {
		_ = m.leave()
		if len(m.afterIt) > 0 {
			w.t.Errorf("%s: called after Run had returned: %v", m.name, m.afterIt)
		}
	}
	if len(w.doubled) > 0 {
		w.t.Errorf("two owners: %v", w.doubled)
	}
}

// work is a handler that does a piece of work, and another one every 100 ms.
func (m *member) work(ctx context.Context, c *ownership.Claim) error {
	each := time.NewTicker(100 * time.Millisecond)
	defer each.Stop()
	for {
		if c.Trusted() && ctx.Err() == nil {
			m.worked(c.Partition())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-each.C:
		}
	}
}

func (m *member) worked(id int32) {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	m.pieces++
	now := time.Now()
	if last, ok := m.last[id]; ok {
		m.gap[id] = max(m.gap[id], now.Sub(last))
	}
	m.last[id] = now
}

// called notes that one of the owner's callbacks was called, and whether it may be.
func (m *member) called(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		m.afterIt = append(m.afterIt, what)
	}
}

func (m *member) rebalanced() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.over && !errors.Is(m.err, ownership.ErrStuck) {
		m.afterIt = append(m.afterIt, "OnRebalance")
	}
}

func (m *member) note(err error, owner bool) {
	if owner {
		m.called("OnError")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errs = append(m.errs, err)
}

// enter notes that a handler was given a claim; another's that is trusted at the same time is a fault.
func (m *member) enter(c *ownership.Claim) {
	m.called("handler")
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	p := fmt.Sprintf("%s:%d", c.Topic(), c.Partition())
	for _, h := range m.claims[p] {
		if h.member != m && !h.exempt && h.claim.Trusted() && c.Trusted() {
			m.doubled = append(m.doubled, fmt.Sprintf("%s: %s and %s", p, h.name, m.name))
		}
	}
	m.claims[p] = append(m.claims[p], held{m, c})
	m.opened[c.Partition()]++
}

// openings returns how often the member's handler was given each partition.
func (m *member) openings() map[int32]int {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	return maps.Clone(m.opened)
}

// owned returns what the member owns, sorted.
func (m *member) owned() (all []int32) {
	for _, info := range m.owner.Owned() {
		all = append(all, info.Partition)
	}
	return all
}

// share returns what the member's newest mapping gives to a member.
func (m *member) share(name string) []int32 {
	s := m.alloc.Snapshot()
	if s == nil {
		return nil
	}
	return s.Share(name)[topic]
}

// told returns the errors that callbacks were told and that are target.
func (m *member) told(target error) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, err := range m.errs {
		if errors.Is(err, target) {
			n++
		}
	}
	return n
}

func (m *member) errors() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(m.errs...)
}

// lasting is a registry that loses nothing: what a member has counted is read when it has ended.
type lasting struct{ *prometheus.Registry }

func (lasting) Unregister(prometheus.Collector) bool { return true }

// metric returns the sum of a metric's series that have the label, given as name=value; "" is any.
func (m *member) metric(name, label string) (sum float64) {
	m.t.Helper()
	families, err := m.reg.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, s := range f.GetMetric() {
			found := label == ""
			for _, l := range s.GetLabel() {
				found = found || l.GetName()+"="+l.GetValue() == label
			}
			if found {
				sum += s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// rebalances is how many mappings the member has applied.
func (m *member) rebalances() int { return int(m.metric("kiel_rebalances_total", "")) }

// killed ends a session as an operator would.
func (m *member) killed() {
	m.world.mu.Lock()
	m.exempt = true
	m.world.mu.Unlock()
	if inc := m.zk.Current(); inc != nil {
		m.srv.KillSession(inc.SessionID())
	}
}

// within waits until ok, at most d, and returns how long it took.
func (w *world) within(d time.Duration, what string, ok func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > d {
			w.t.Fatalf("not within %v: %s\n%s", d, what, w.state())
		}
		time.Sleep(max(time.Millisecond, time.Since(began)/100)) // exact to a hundredth
	}
	return time.Since(began)
}

func (w *world) state() string {
	var b strings.Builder
	for _, m := range w.members {
		fmt.Fprintf(&b, "%s: owns %v, is to own %v, told %v\n", m.name, m.owned(), m.share(m.name), m.errors())
	}
	return b.String()
}

// even says whether the members own all n partitions, each its share.
func even(n int, members ...*member) bool {
	all := 0
	for _, m := range members {
		owned := len(m.owner.Owned())
		if owned < n/len(members) || owned > (n+len(members)-1)/len(members) {
			return false
		}
		all += owned
	}
	return all == n
}

// seed is the first n partitions of the topic.
func seed(n int) map[string][]int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i)
	}
	return map[string][]int32{topic: ids}
}

// logbook keeps what is logged as a warning or worse.
type logbook struct {
	mu    sync.Mutex
	lines []string
}

func (l *logbook) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (l *logbook) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "stack" {
			line += " " + a.String()
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

func (l *logbook) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *logbook) WithGroup(string) slog.Handler      { return l }

// says returns how many lines hold the text.
func (l *logbook) says(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}
