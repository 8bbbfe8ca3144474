package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/conntest"
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

// fakeStream is a stream that a test fills with batches.
type fakeStream struct {
	p       kiel.Partition
	batches chan fetch.Batch
	ended   chan error
	paused  atomic.Bool
	closed  atomic.Bool
	onPause func() // called before it is paused; nil for nothing
	epoch   int32  // of its batches
	hwm     int64
	lag     int64
	behind  time.Duration
	failing time.Time
	waits   []time.Duration // of the calls of Freshen
	sought  []int64
}

func newStream(p kiel.Partition) *fakeStream {
	return &fakeStream{p: p, batches: make(chan fetch.Batch, 64), ended: make(chan error, 1), epoch: -1, hwm: 99}
}

func (s *fakeStream) Next(ctx context.Context) (fetch.Batch, error) {
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

func (s *fakeStream) Reposition(offset int64) {
	s.sought = append(s.sought, offset)
	for len(s.batches) > 0 {
		<-s.batches
	}
}

func (s *fakeStream) AskEnd(_ context.Context, wait time.Duration) { s.waits = append(s.waits, wait) }

func (s *fakeStream) Freshen(wait time.Duration)  { s.waits = append(s.waits, wait) }
func (s *fakeStream) HighWatermark() int64        { return s.hwm }
func (s *fakeStream) End() int64                  { return s.hwm }
func (s *fakeStream) Lag() (int64, time.Duration) { return s.lag, s.behind }
func (s *fakeStream) FailingSince() time.Time     { return s.failing }
func (s *fakeStream) Resume()                     { s.paused.Store(false) }
func (s *fakeStream) Close()                      { s.closed.Store(true) }

func (s *fakeStream) Pause() {
	if s.onPause != nil {
		s.onPause()
	}
	s.paused.Store(true)
}

// send has the stream return a batch of messages.
func (s *fakeStream) send(offsets ...int64) {
	b := fetch.Batch{LeaderEpoch: s.epoch}
	for _, o := range offsets {
		b.Messages = append(b.Messages, sarama.ConsumerMessage{Topic: s.p.Topic, Partition: s.p.ID, Offset: o, Value: []byte("v"), Timestamp: time.Now()})
		b.Next = o + 1
	}
	s.batches <- b
}

// newPartition returns a partition of a fake stream and claim.
func newPartition(t *testing.T) (*Partition, *fakeStream, *fakeHolder) {
	t.Helper()
	h, s := &fakeHolder{p: tp("t", 0), token: 7}, newStream(tp("t", 0))
	s.hwm = 0
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
	if f.ready > 0 {
		s.send(upTo(offset, f.ready)...)
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

func testConfig() *sarama.Config { return conntest.Config() }

// upTo returns n offsets from first on.
func upTo(first, n int64) (all []int64) {
	for i := range n {
		all = append(all, first+i)
	}
	return all
}

func TestMain(m *testing.M) { conntest.Main(m) }
