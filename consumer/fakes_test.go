package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/consumer/internal/topics"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/conntest"
	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

const sessionTimeout = 10 * time.Second

var errRevokedInTest = errors.New("revoked")

func line(what string, p kiel.Partition, n int64) string {
	return fmt.Sprintf("%s %s@%d", what, p, n)
}

func tp(topic string, id int32) kiel.Partition { return kiel.Partition{Topic: topic, ID: id} }

// fakeHolder is a claim that a test takes away.
type fakeHolder struct {
	p         kiel.Partition
	previous  string
	token     int64
	distrust  atomic.Bool
	asked     atomic.Int64                 // whether it is trusted
	onTrust   func(n int64) (after func()) // called at the nth such question; what it returns is, after the answer was found
	ctx       context.Context
	end       context.CancelCauseFunc
	work      context.Context
	endOfWork context.CancelCauseFunc
}

func newHolder(t *testing.T, p kiel.Partition) *fakeHolder {
	t.Helper()
	h := &fakeHolder{p: p, token: 7}
	h.ctx, h.end = context.WithCancelCause(t.Context())
	h.work, h.endOfWork = context.WithCancelCause(h.ctx)
	t.Cleanup(func() { h.end(nil) })
	return h
}

func (h *fakeHolder) Topic() string                     { return h.p.Topic }
func (h *fakeHolder) Partition() int32                  { return h.p.ID }
func (h *fakeHolder) Token() int64                      { return h.token }
func (h *fakeHolder) Version() uint64                   { return 3 }
func (h *fakeHolder) EpochPath() string                 { return "/epoch" }
func (h *fakeHolder) EpochVersion() int32               { return 5 }
func (h *fakeHolder) Incarnation() *session.Incarnation { return nil }
func (h *fakeHolder) Context() context.Context          { return h.ctx }
func (h *fakeHolder) Reason() status.Reason             { return statuswrite.Reason(status.SessionLost) }
func (h *fakeHolder) Previous() string                  { return h.previous }

func (h *fakeHolder) TrustedAt() (at time.Duration, trusted bool) {
	return time.Duration(time.Now().UnixNano()), h.Trusted()
}

func (h *fakeHolder) Trusted() bool {
	n := h.asked.Add(1) - 1
	var after func()
	if h.onTrust != nil {
		after = h.onTrust(n)
	}
	trusted := !h.distrust.Load()
	if after != nil {
		after()
	}
	return trusted
}

func (h *fakeHolder) revoke() { h.endOfWork(errRevokedInTest) }
func (h *fakeHolder) lose() {
	h.distrust.Store(true)
	h.end(offsets.ErrLost)
}

// errEndedInTest ends a stream by itself.
var errEndedInTest = errors.New("reading ended in a test")

// fakeStream is a stream that a test fills with messages.
type fakeStream struct {
	p        kiel.Partition
	messages chan sarama.ConsumerMessage
	ended    chan error
	paused   atomic.Bool
	onPause  func() // called before it is paused; nil for nothing
	epoch    int32  // of its batches
	sought   []int64
	closed   atomic.Bool
}

func newStream(p kiel.Partition) *fakeStream {
	return &fakeStream{p: p, messages: make(chan sarama.ConsumerMessage, 64), ended: make(chan error, 1), epoch: -1}
}

// Next returns all messages that there are.
func (s *fakeStream) Next(ctx context.Context) (fetch.Batch, error) {
	b := fetch.Batch{LeaderEpoch: s.epoch}
	for {
		select {
		case m := <-s.messages:
			b.Messages, b.Next = append(b.Messages, m), m.Offset+1
			continue
		default:
		}
		if len(b.Messages) > 0 {
			return b, nil
		}
		select {
		case m := <-s.messages:
			b.Messages, b.Next = append(b.Messages, m), m.Offset+1
		case err := <-s.ended:
			return b, err
		case <-ctx.Done():
			return b, context.Cause(ctx)
		}
	}
}

func (s *fakeStream) AskEnd(context.Context, time.Duration) {}
func (s *fakeStream) Freshen(time.Duration)                 {}
func (s *fakeStream) Reposition(offset int64)               { s.sought = append(s.sought, offset) }
func (s *fakeStream) HighWatermark() int64                  { return 99 }
func (s *fakeStream) Lag() (int64, time.Duration)           { return 0, 0 }
func (s *fakeStream) End() int64                            { return 99 }
func (s *fakeStream) FailingSince() time.Time               { return time.Time{} }
func (s *fakeStream) Resume()                               { s.paused.Store(false) }
func (s *fakeStream) Close()                                { s.closed.Store(true) }

func (s *fakeStream) Pause() {
	if s.onPause != nil {
		s.onPause()
	}
	s.paused.Store(true)
}

func (s *fakeStream) send(offsets ...int64) {
	for _, o := range offsets {
		s.messages <- sarama.ConsumerMessage{Topic: s.p.Topic, Partition: s.p.ID, Offset: o, Value: []byte("v")}
	}
}

// fakeBatches is a stream that a test fills with batches.
type fakeBatches struct {
	batches chan fetch.Batch
	ended   chan error
	lag     int64
	behind  time.Duration
	hwm     int64
	failing time.Time
	waits   []time.Duration // of the calls of Freshen
	sought  []int64
}

func (s *fakeBatches) Next(ctx context.Context) (fetch.Batch, error) {
	select {
	case b := <-s.batches:
		return b, nil
	default:
	}
	select {
	case b := <-s.batches:
		return b, nil
	case err := <-s.ended:
		return fetch.Batch{}, err
	case <-ctx.Done():
		return fetch.Batch{}, context.Cause(ctx)
	}
}

func (s *fakeBatches) Reposition(offset int64) {
	s.sought = append(s.sought, offset)
	for len(s.batches) > 0 {
		<-s.batches
	}
}

func (s *fakeBatches) Pause()                                       {}
func (s *fakeBatches) Resume()                                      {}
func (s *fakeBatches) AskEnd(_ context.Context, wait time.Duration) { s.waits = append(s.waits, wait) }

func (s *fakeBatches) Freshen(wait time.Duration)  { s.waits = append(s.waits, wait) }
func (s *fakeBatches) HighWatermark() int64        { return s.hwm }
func (s *fakeBatches) End() int64                  { return s.hwm }
func (s *fakeBatches) FailingSince() time.Time     { return s.failing }
func (s *fakeBatches) Lag() (int64, time.Duration) { return s.lag, s.behind }
func (s *fakeBatches) Close()                      {}
func (s *fakeBatches) fail(err error)              { s.ended <- err }
func (s *fakeBatches) put(offsets ...int64) {
	b := fetch.Batch{LeaderEpoch: -1}
	for _, o := range offsets {
		b.Messages = append(b.Messages, sarama.ConsumerMessage{Topic: "t", Offset: o, Value: []byte("v"), Timestamp: time.Now()})
		b.Next = o + 1
	}
	s.batches <- b
}

// newPartition returns a partition of a fake stream and claim.
func newPartition(t *testing.T) (*Partition, *fakeBatches, *fakeHolder) {
	t.Helper()
	h := &fakeHolder{p: tp("t", 0), token: 7}
	s := &fakeBatches{batches: make(chan fetch.Batch, 16), ended: make(chan error, 1)}
	ctx, end := context.WithCancelCause(t.Context())
	t.Cleanup(func() { end(nil) })
	return &Partition{
		ctx: ctx, end: end, id: h.p, claim: h, stream: s, tracker: &offsets.Tracker{}, countLate: func(kiel.Partition, int64) {},
		metrics: partitionMetrics{
			messages: prometheus.NewCounter(prometheus.CounterOpts{Name: "m_total", Help: "M."}),
			bytes:    prometheus.NewCounter(prometheus.CounterOpts{Name: "b_total", Help: "B."}),
		},
	}, s, h
}

// interceptorFunc is an interceptor.
type interceptorFunc func(*sarama.ConsumerMessage)

func (f interceptorFunc) OnConsume(m *sarama.ConsumerMessage) { f(m) }

// fakeFetcher opens fakeStreams between the offsets first and last.
type fakeFetcher struct {
	mu          sync.Mutex
	first, last int64
	times       map[time.Time]int64 // the offsets of the first messages that are not older
	opens       []int64
	streams     chan *fakeStream // each opened one
	fail        error
	cut         *fetch.TruncatedError // what was read under its epoch is not there; nil for no truncation
	epoch       int32                 // of the batches of streams that are opened, if not 0
	ready       int64                 // messages that a stream holds when it is opened
	onOpen      func(*fakeStream)     // called with a stream before it is returned; nil for nothing
	log         *journal
}

func (f *fakeFetcher) open(_ context.Context, p kiel.Partition, offset int64, leaderEpoch int32) (stream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opens = append(f.opens, offset)
	if f.fail != nil {
		return nil, f.fail
	}
	if f.cut != nil && offset > f.cut.Diverges && leaderEpoch == f.cut.Epoch {
		return nil, f.cut
	}
	if offset < f.first || offset > f.last {
		return nil, sarama.ErrOffsetOutOfRange
	}
	f.log.add("open", p, offset)
	s := newStream(p)
	s.epoch = cmp.Or(f.epoch, -1)
	for i := range f.ready {
		s.send(offset + i)
	}
	if f.onOpen != nil {
		f.onOpen(s)
	}
	f.streams <- s
	return s, nil
}

func (f *fakeFetcher) ends(_ context.Context, ps []kiel.Partition) map[kiel.Partition]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[kiel.Partition]int64{}
	for _, p := range ps {
		out[p] = f.last
	}
	return out
}

func (f *fakeFetcher) prepare([]kiel.Partition) {}
func (f *fakeFetcher) end()                     {}

func (f *fakeFetcher) logOffset(_ context.Context, _ kiel.Partition, from StartAt) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if from == Latest {
		return f.last, nil
	}
	return f.first, nil
}

func (f *fakeFetcher) at(_ context.Context, _ kiel.Partition, t time.Time) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if offset, ok := f.times[t]; ok {
		return offset, nil
	}
	return -1, nil
}

// journal records the order of what happens.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(what string, p kiel.Partition, n int64) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line(what, p, n))
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// handlerFunc is a handler of which only ConsumeClaim matters.
type handlerFunc func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error

func (handlerFunc) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handlerFunc) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (f handlerFunc) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	return f(s, c)
}

// rig is a membership on fakes, with one session that has begun; nothing claims but the test.
type rig struct {
	*membership
	store   *offsets.MemoryStore
	refuse  atomic.Pointer[error] // why the store stores nothing; nil when it does
	fetch   *fakeFetcher
	log     *journal
	group   *Group
	handler sarama.ConsumerGroupHandler
	session *groupSession // the newest
	ids     map[string]sarama.Uuid
	idsMu   sync.Mutex
	events  []Event
	evMu    sync.Mutex
}

func (r *rig) setID(topic string, id byte) {
	r.idsMu.Lock()
	defer r.idsMu.Unlock()
	r.ids[topic] = sarama.Uuid{id}
}

func (r *rig) kinds(p kiel.Partition) []string {
	r.evMu.Lock()
	defer r.evMu.Unlock()
	var out []string
	for _, e := range r.events {
		if e.Topic == p.Topic && e.Partition == p.ID {
			out = append(out, line(string(e.Kind), p, e.Offset))
		}
	}
	return out
}

// begin begins an incremental session, after the one that goes on, unless the member leaves.
func (r *rig) begin(ctx context.Context) bool {
	if r.driver.current() != nil {
		r.driver = newDriver(r.membership, time.Time{})
	}
	s := newConsumeSession(ctx, ctx, sessions.Kind{Hold: r.group.settings.kind().Hold})
	r.session = r.newGroupSession(s, r.handler)
	r.session.version = func() uint64 { return 3 }
	s.user = r.session
	r.driver.give(sessions.Input{What: sessions.Plan})
	begun := r.driver.begin(s)
	r.driver.give(sessions.Input{What: sessions.PauseOver})
	return begun
}

// endSession ends the session alone, as a handler that returns does, and waits until its call may return.
func (r *rig) endSession() {
	d := r.driver
	d.mu.Lock()
	s := d.call
	d.state.Exiting = true
	d.step(sessions.Input{What: sessions.PauseOver}, nil)
	d.mu.Unlock()
	<-s.returned
}

// newRig starts the committer and the reader, which end with the test.
func newRig(t *testing.T, h handlerFunc, change func(*Options)) *rig {
	t.Helper()
	opts := Options{Name: "m", Config: testConfig()}
	if change != nil {
		change(&opts)
	}
	set, err := newSettings([]string{"kafka:9092"}, "g", opts)
	if err != nil {
		t.Fatal(err)
	}
	keeper := promreg.NewRegistry(set.Registerer, "g")
	m, _ := promreg.New(keeper, "g", newMetrics)
	zk, err := session.New([]string{"zk:2181"}, session.Options{Timeout: sessionTimeout}) // for its timeout; it does not run
	if err != nil {
		t.Fatal(err)
	}
	g := &Group{zk: zk, name: "g", settings: set, metrics: m, registerer: keeper, report: newReporter(set, m)}
	log := &journal{}
	r := &rig{
		group: g, log: log, ids: map[string]sarama.Uuid{"t": {1}},
		store: &offsets.MemoryStore{OnStored: func(c offsets.OffsetCommit) { log.add("commit", c.Partition, c.Offset) }},
		fetch: &fakeFetcher{last: 1 << 40, streams: make(chan *fakeStream, 16), log: log},
	}
	r.store.Refuse = func(offsets.OffsetCommit) error {
		if err := r.refuse.Load(); err != nil {
			return *err
		}
		return nil
	}
	var running sync.WaitGroup
	load := func([]string) (map[string]topics.Info, error) {
		r.idsMu.Lock()
		defer r.idsMu.Unlock()
		out := map[string]topics.Info{}
		for topic, id := range maps.All(r.ids) {
			out[topic] = topics.Info{ID: id, Partitions: []int32{0, 1}}
		}
		return out, nil
	}
	list, err := topiclist.Parse([]string{"t"})
	if err != nil {
		t.Fatal(err)
	}
	c := g.emptyMembership(t.Context(), list)
	cat := topics.New(topics.Options{Names: list.Names, Load: load, Calls: &kafkaconn.Calls{}, Reporter: g.report, Logger: c.log})
	c.fetcher, c.catalog, c.logOffset, c.at = r.fetch, cat, r.fetch.logOffset, r.fetch.at
	r.membership = c
	r.logTo(slog.DiscardHandler)
	c.users = newCallbacks(usercall.Limit(set.RebalanceTimeout), c.log, g.log, g.report.Send, func(error) {})
	c.observer = func(e Event) {
		r.evMu.Lock()
		defer r.evMu.Unlock()
		r.events = append(r.events, e)
	}
	c.committer = offsets.NewCommitter(offsets.Options{
		Store: r.store, Abort: func() {}, Auto: set.autoCommit, Interval: set.CommitInterval, Timeout: sessionTimeout,
		MaxUnmarked: set.MaxUnmarked, CurrentID: cat.ID, Place: c.place, Notify: c.notifyCommitted, Count: c.countCommit,
		Report: func(err error, p kiel.Partition) { c.report.FailedOf(p, reporting.KindCommit, err) },
		Logger: slog.New(slog.DiscardHandler), Errors: g.log,
	})
	c.reader = offsets.NewReader(r.store)
	ctx, cancel := context.WithCancel(context.Background())
	r.handler = h
	r.begin(ctx)
	g.setMember(c)
	running.Go(func() { c.committer.Run(ctx) })
	running.Go(func() { c.reader.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		c.leave(nil)
		c.endDeadline()
		c.endLife()
		running.Wait()
		c.background.Wait()
		r.fetch.end()
	})
	return r
}

// logTo has the membership log to h.
func (r *rig) logTo(h slog.Handler) {
	log := slog.New(h)
	r.group.log = errlog.New(log)
	r.report.Log, r.report.Logger = r.group.log, log
	r.membership.log, r.openLog = log, reporting.NewOpenLog(log)
}

func testConfig() *sarama.Config { return conntest.Config() }
