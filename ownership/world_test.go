package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/clocks"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/zktest"
)

const (
	owners = "/kiel/groups/g/owners"
	epochs = "/kiel/groups/g/epochs"
)

// tb is what a world needs of a test.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Error(args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// world is a server, a network, and the members on it, inside a bubble.
type world struct {
	t       tb
	srv     *zktest.Server
	served  chan struct{}
	nw      *zktest.Network
	journal *journal
	members []*member
	owner   map[kiel.Partition]string
	reason  status.Reason // of owner
}

func newWorld(t tb) *world {
	t.Helper()
	w := &world{
		t: t, srv: zktest.NewServer(zktest.Options{}), nw: zktest.NewNetwork(), journal: newJournal(),
		served: make(chan struct{}), owner: map[kiel.Partition]string{},
	}
	l, err := w.nw.Listen("zk:2181")
	noerr.Must(t, err)
	go func() {
		defer close(w.served)
		_ = w.srv.Serve(l)
	}()
	return w
}

// close stops all members and checks the journal.
func (w *world) close() {
	w.t.Helper()
	for _, m := range w.members {
		m.quit()
		<-m.done
	}
	for _, m := range w.members {
		m.endSession()
	}
	for _, m := range w.members {
		<-m.ended
	}
	_ = w.srv.Close()
	<-w.served
	for _, fault := range w.journal.check() {
		w.t.Errorf("journal: %s", fault)
	}
}

// member is one member.
type member struct {
	w      *world
	name   string
	client *zktest.Client
	ses    *session.Session
	brain  *brain
	owner  *ownership.Owner
	opts   memberOptions

	quit       context.CancelFunc
	quitFor    context.CancelCauseFunc
	done       chan struct{}
	err        error // of Run, after done
	endSession context.CancelFunc
	ended      chan struct{}

	mu    sync.Mutex
	errs  []error
	drain time.Duration
	calls map[kiel.Partition]int
}

type memberOptions struct {
	ownership.Options
	session session.Options
	share   *member             // whose session is used too
	traffic *recipetest.Traffic // counts what arrives; its Connect is set by join
	handler ownership.Handler   // nil waits for its context, then drains
	drain   time.Duration
	clock   clocks.Clock // nil is the machine's

	unobserved bool // has no Observer, so the journal knows nothing of it
}

func (w *world) join(name string, opts memberOptions) *member {
	w.t.Helper()
	m := &member{
		w: w, name: name, client: w.nw.Client(name), opts: opts, drain: opts.drain,
		done: make(chan struct{}), ended: make(chan struct{}), calls: map[kiel.Partition]int{},
	}
	if os.Getenv("KIEL_TEST_LOG") != "" {
		opts.session.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	opts.session.Dial = m.client.Dial
	if opts.traffic != nil {
		opts.traffic.Connect = m.client.Dial
		opts.session.Dial = opts.traffic.Dial
	}
	var err error
	life, endSession := context.WithCancel(context.Background())
	if opts.clock != nil {
		life = clocks.With(life, opts.clock)
	}
	m.endSession = endSession
	if opts.share != nil {
		m.ses = opts.share.ses
		close(m.ended)
	} else {
		m.ses, err = session.New([]string{"zk:2181"}, opts.session)
		noerr.Must(w.t, err)
		go func() {
			defer close(m.ended)
			_ = m.ses.Run(life)
		}()
	}
	m.brain = newBrain(m.ses, "g", name)
	m.brain.assignFor(w.owner, w.reason)
	observer := opts.Observer
	opts.Observer = func(e ownership.Event) {
		w.journal.event(name, e)
		if observer != nil {
			observer(e)
		}
	}
	if opts.unobserved {
		opts.Observer = nil
	}
	onError := opts.OnError
	opts.OnError = func(err error) {
		m.mu.Lock()
		m.errs = append(m.errs, err)
		m.mu.Unlock()
		if onError != nil {
			onError(err)
		}
	}
	if os.Getenv("KIEL_TEST_LOG") != "" {
		opts.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	handler := opts.handler
	if handler == nil {
		handler = m.work
	}
	m.owner, err = ownership.NewFromSource(m.brain, func(ctx context.Context, c *ownership.Claim) error {
		defer w.journal.enter(name, c)()
		m.mu.Lock()
		m.calls[kiel.Partition{Topic: c.Topic(), ID: c.Partition()}]++
		m.mu.Unlock()
		return handler(ctx, c)
	}, opts.Options)
	noerr.Must(w.t, err)
	ctx, quit := context.WithCancelCause(context.Background())
	m.quit, m.quitFor = func() { quit(nil) }, quit
	go func() {
		defer close(m.done)
		m.err = m.owner.Run(ctx)
	}()
	w.members = append(w.members, m)
	return m
}

// owning has a member join and own these, as "t:0 t:1 …", which are all that there are.
func (w *world) owning(name, items string, opts memberOptions) *member {
	w.t.Helper()
	w.assign(map[string]string{name: items})
	m := w.join(name, opts)
	m.owns(5*time.Second, items)
	return m
}

// work is a handler that goes on until it is told to end, and then takes its time.
func (m *member) work(ctx context.Context, c *ownership.Claim) error {
	<-ctx.Done()
	m.mu.Lock()
	drain := m.drain
	m.mu.Unlock()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ownership.ErrRevoked):
		timer := time.NewTimer(drain)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.Context().Done():
		}
	case errors.Is(cause, ownership.ErrLost):
		if c.Trusted() {
			m.w.t.Errorf("%s: %s:%d is lost and trusted", m.name, c.Topic(), c.Partition())
		}
	default:
		m.w.t.Errorf("%s: cause %v", m.name, cause)
	}
	return nil
}

// assign tells all members who owns what, as "member" to "t:0 t:1 …".
func (w *world) assign(plan map[string]string) { w.assignFor(status.Reason{}, plan) }

// assignFor is assign with the reason for which partitions move.
func (w *world) assignFor(reason status.Reason, plan map[string]string) {
	w.owner, w.reason = map[kiel.Partition]string{}, reason
	for name, items := range plan {
		for item := range strings.FieldsSeq(items) {
			w.owner[part(item)] = name
		}
	}
	for _, m := range w.members {
		m.brain.assignFor(maps.Clone(w.owner), reason)
	}
}

// wantEvents checks what a member was told of a partition, as "joined claimed …".
func (w *world) wantEvents(name, item, want string) {
	w.t.Helper()
	if got := w.journal.kinds(name, part(item)); got != want {
		w.t.Errorf("events %q, want %q", got, want)
	}
}

func part(item string) kiel.Partition {
	p, err := kiel.ParsePartition(item)
	if err != nil {
		panic(err)
	}
	return p
}

// within waits until ok, at most d, and returns how long it took.
func (w *world) within(d time.Duration, what string, ok func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > d {
			w.t.Fatalf("not within %v: %s\n%s", d, what, w.state())
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// state describes the members, for messages.
func (w *world) state() string {
	var b strings.Builder
	for _, m := range w.members {
		fmt.Fprintf(&b, "%s owns %v, errors %v\n", m.name, m.owned(), m.errors())
	}
	b.WriteString(w.srv.Dump())
	return b.String()
}

// owned returns what a member owns, as "t:0 t:1".
func (m *member) owned() string {
	var items []string
	for _, info := range m.owner.Owned() {
		items = append(items, fmt.Sprintf("%s:%d", info.Topic, info.Partition))
	}
	return strings.Join(items, " ")
}

// owns waits until a member owns exactly the items.
func (m *member) owns(d time.Duration, items string) time.Duration {
	m.w.t.Helper()
	return m.w.within(d, fmt.Sprintf("%s owns %q", m.name, items), func() bool { return m.owned() == items })
}

func (m *member) token(item string) int64 {
	p := part(item)
	for _, info := range m.owner.Owned() {
		if info.Topic == p.Topic && info.Partition == p.ID {
			return info.Token
		}
	}
	return 0
}

func (m *member) errors() []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.errs)
}

// told counts the errors of a kind that OnError got.
func (m *member) told(target error) int {
	n := 0
	for _, err := range m.errors() {
		if errors.Is(err, target) {
			n++
		}
	}
	return n
}

func (m *member) sessionID() int64 {
	if inc := m.ses.Current(); inc != nil {
		return inc.SessionID()
	}
	return 0
}

// kill ends a session as an operator would; what its member does until it hears of that is the operator's fault.
func (w *world) kill(ses int64) {
	w.journal.mu.Lock()
	if _, again := w.journal.exempt[ses]; !again { // a member that is cut off knows its session after its end, too
		w.journal.exempt[ses] = time.Now()
	}
	w.journal.mu.Unlock()
	w.srv.KillSession(ses)
}

// holder returns the session that holds a claim, 0 when nobody does.
func (w *world) holder(item string) int64 {
	_, stat, ok := w.srv.Get(owners + "/" + item)
	if !ok {
		return 0
	}
	return stat.EphemeralOwner
}

// items returns "t:0 t:1 …", n of them, sorted as Owned sorts.
func items(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("t:%d", i)
	}
	return strings.Join(list, " ")
}

// ids returns 0, 1 … n-1.
func ids(n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(i)
	}
	return list
}

// shared is a value that handlers and the test share.
type shared[T any] struct {
	mu sync.Mutex
	v  T
}

func (s *shared[T]) set(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v = v
}

func (s *shared[T]) get() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.v
}

// inWorld runs a test in a bubble, with a world of its own.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		test(t, w)
	})
}
