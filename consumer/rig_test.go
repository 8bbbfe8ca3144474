package consumer

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/consumer/internal/topics"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/session"
)

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
	noerr.Must(t, err)
	keeper := promreg.NewRegistry(set.Registerer, "g")
	m, _ := promreg.New(keeper, "g", newMetrics)
	zk, err := session.New([]string{"zk:2181"}, session.Options{Timeout: sessionTimeout}) // for its timeout; it does not run
	noerr.Must(t, err)
	g := &Group{zk: zk, name: "g", settings: set, metrics: m, registerer: keeper, report: newReporter(set, m)}
	log := &journal{}
	r := &rig{
		group: g, log: log, ids: map[string]sarama.Uuid{"t": {1}},
		store: &offsets.MemoryStore{OnStored: func(c offsets.OffsetCommit) { log.add("commit", c.Partition, c.Offset) }},
		fetch: &fakeFetcher{last: 1 << 40, streams: make(chan *fakeStream, 64), log: log},
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
	noerr.Must(t, err)
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

// idleSession returns a Session that does not run.
func idleSession(tb testing.TB) *session.Session {
	tb.Helper()
	s, err := session.New([]string{"nowhere.invalid:2181"}, session.Options{Timeout: sessionTimeout})
	noerr.Must(tb, err)
	return s
}

// logged has the membership log to the Log that it returns.
func (r *rig) logged() *logtest.Log {
	said := &logtest.Log{}
	r.logTo(slog.NewTextHandler(said, nil))
	return said
}

// newOpening returns an opening of p in the newest session.
func (r *rig) newOpening(t *testing.T, p kiel.Partition) *opening {
	t.Helper()
	return &opening{member: r.membership, claim: newHolder(t, p), tp: p, session: r.session.session}
}

// errors returns what was reported since it was called last.
func (r *rig) errors() (errs []error) {
	for {
		select {
		case err := <-r.group.report.Errors():
			errs = append(errs, err)
		default:
			return errs
		}
	}
}

func (r *rig) reportsNothing(t *testing.T) {
	t.Helper()
	if errs := r.errors(); len(errs) > 0 {
		t.Errorf("reported %v", errs)
	}
}

// owned opens a partition as ownership does, and returns what own returns.
func (r *rig) owned(h *fakeHolder) <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.own(h.work, h) }()
	return done
}

// opened is owned, but returns when the partition's stream is open, which gets messages.
func (r *rig) opened(h *fakeHolder, offsets ...int64) (*fakeStream, <-chan error) {
	done := r.owned(h)
	s := <-r.fetch.streams
	if len(offsets) > 0 {
		s.send(offsets...)
	}
	return s, done
}

// release revokes the partition and waits for the end of own, which must find no fault.
func (h *fakeHolder) release(t *testing.T, own <-chan error) {
	t.Helper()
	h.revoke()
	assert.Error(t, <-own, nil, "own")
}
