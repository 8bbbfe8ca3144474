package consumer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// groupOn returns a group that has joined nothing, with its metrics in reg.
func groupOn(tb testing.TB, reg prometheus.Registerer, name string) (*Group, error) {
	tb.Helper()
	zk := idleSession(tb)
	return New(zk, []string{"kafka:9092"}, name, Options{Name: "m", Config: testConfig(), Registerer: reg})
}

// Groups of different names share a registerer. Of two of one name the second is refused until the first was closed, and the
// error says what to do.
func TestGroupsShareARegisterer(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	made := func(reg prometheus.Registerer, name string) *Group {
		t.Helper()
		g, err := groupOn(t, reg, name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return g
	}
	first, other := made(reg, "g"), made(reg, "h")
	_, err := groupOn(t, reg, "g")
	if err == nil || !strings.Contains(err.Error(), "WrapRegistererWith") {
		t.Errorf("a second group g: %v", err)
	}
	second := made(prometheus.WrapRegistererWith(prometheus.Labels{"client": "b"}, prometheus.NewRegistry()), "g")
	all, err := testutil.GatherAndCount(reg)
	if err != nil || all == 0 {
		t.Errorf("%d series, %v", all, err)
	}
	for _, g := range []*Group{first, first, second} {
		noerr.Want(t, g.Close())
	}
	if n, err := testutil.GatherAndCount(reg); err != nil || n != all/2 {
		t.Errorf("%d series when one of two groups was closed, of %d; %v", n, all, err)
	}
	noerr.Want(t, errors.Join(made(reg, "g").Close(), other.Close()))
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 0 {
		t.Errorf("%d series are left, %v", n, err)
	}
}

// A name that is taken by somebody else's metric is an error, and nothing of the group stays registered.
func TestMetricsThatAreTaken(t *testing.T) {
	for _, name := range []string{"kiel_consumer_errors_dropped_total", "kiel_members", "kiel_claims_total", "kiel_zk_bad_frames_total"} {
		reg := prometheus.NewRegistry()
		reg.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: "Mine.", ConstLabels: prometheus.Labels{"group": "g"}}))
		if _, err := groupOn(t, reg, "g"); err == nil {
			t.Errorf("%s: a conflict was not an error", name)
		}
		if n, err := testutil.GatherAndCount(reg); err != nil || n != 1 {
			t.Errorf("%s: %d series, %v", name, n, err)
		}
	}
}

// registered is a Registry that tells what is registered in it.
type registered struct {
	*prometheus.Registry

	all []prometheus.Collector
}

func (r *registered) Register(c prometheus.Collector) error {
	r.all = append(r.all, c)
	return r.Registry.Register(c)
}

// Everything has the label group from the beginning. Else each scrape would put it on, and describe each series anew.
func TestScrapeDescribesNothing(t *testing.T) {
	reg := &registered{Registry: prometheus.NewPedanticRegistry()}
	g, err := groupOn(t, reg, "g")
	noerr.Must(t, err)
	g.metrics.of("orders")
	const shared = "kiel_zk_proof_duration_seconds" // one histogram for all groups of the session, and it alone
	known, anew, all := map[*prometheus.Desc]bool{}, map[string]bool{}, 0
	for _, c := range reg.all {
		for d := range collected(c.Describe) {
			known[d] = true
			if text := d.String(); strings.Count(text, `group="g"`) != 1 {
				t.Errorf("has not the label group: %s", text)
			}
		}
		for m := range collected(c.Collect) {
			all++
			if !known[m.Desc()] {
				anew[m.Desc().String()] = true
			}
		}
	}
	for text := range anew {
		if !strings.Contains(text, shared) {
			t.Errorf("described anew: %s", text)
		}
	}
	assert.Equal(t, len(anew), 1, "descriptions that are made anew for %d series", all)
	noerr.Want(t, g.Close())
}

// collected returns what send sends.
func collected[T any](send func(chan<- T)) <-chan T {
	ch := make(chan T)
	go func() {
		defer close(ch)
		send(ch)
	}()
	return ch
}

// topicSeries returns the names of the series of a registry that have the label topic, with that label, and how many.
func topicSeries(t *testing.T, reg prometheus.Gatherer) (out []string) {
	t.Helper()
	families, err := reg.Gather()
	noerr.Must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "topic" {
					out = append(out, fmt.Sprintf("%s %s", strings.TrimPrefix(f.GetName(), "kiel_consumer_"), l.GetValue()))
				}
			}
		}
	}
	return out
}

// measured returns a rig whose group has metrics.
func measured(t *testing.T) (*rig, *metrics, *prometheus.Registry) {
	t.Helper()
	r := newRig(t, nil, nil)
	reg := prometheus.NewPedanticRegistry()
	m, set := promreg.New(promreg.NewRegistry(reg, "g"), "g", newMetrics)
	noerr.Must(t, set.Complete())
	m.observed = true
	m.gauges.group.Store(r.group)
	return r, m, reg
}

// Topics of the set may have any name. Prometheus takes UTF-8 alone, and each series once.
func TestTopicsWithOddNames(t *testing.T) {
	r, m, reg := measured(t)
	odd := []string{"a\xff", "a\xfe"}
	for _, topic := range odd {
		p, _ := trackedPartition(t, 0)
		p.id = kiel.Partition{Topic: topic}
		r.session.session.opened(p)
		p.metrics = m.of(topic)
		p.metrics.delay.Observe(1)
		m.handlerFailed(topic, actionReopen)
	}
	got := topicSeries(t, reg)
	for _, name := range []string{"messages_total", "handler_duration_seconds", "message_age_seconds", "lag_messages", "lag_seconds", "paused_partitions", "handler_stalled_seconds"} {
		assert.Equal(t, len(slices.DeleteFunc(slices.Clone(got), func(s string) bool { return s != name+" a?" })), 1, "series of %s: %q", name, got)
	}
}

// A topic that is gone leaves no series.
func TestTopicIsForgotten(t *testing.T) {
	r, m, reg := measured(t)
	var open []*Partition
	for _, topic := range []string{"stays", "goes"} {
		p, _ := trackedPartition(t, 0)
		p.id = kiel.Partition{Topic: topic}
		p.metrics = m.of(topic)
		m.handlerFailed(topic, actionReopen)
		m.resets.WithLabelValues(topic, reasonNone)
		m.stuck.WithLabelValues(topic)
		m.missing.WithLabelValues(topic)
		r.session.session.opened(p)
		open = append(open, p)
	}
	before := topicSeries(t, reg)
	for _, p := range open {
		r.session.session.closed(p, false)
	}
	m.forget("goes")
	after := topicSeries(t, reg)
	want := slices.DeleteFunc(before, func(s string) bool {
		return strings.HasSuffix(s, " goes") || strings.HasPrefix(s, "lag_") || strings.HasPrefix(s, "uncommitted_")
	})
	assert.Slices(t, after, want, "series")
}

// observed are the seconds that an Observer was given.
type observed []float64

func (o *observed) Observe(v float64) { *o = append(*o, v) }

func (o *observed) is(t *testing.T, what string, want ...float64) {
	t.Helper()
	if !slices.EqualFunc(*o, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
		t.Errorf("%s: observed %v, want %v", what, *o, want)
	}
	*o = nil
}

// A handler that takes longer than sampleEvery is measured each time, a quicker one once in sampleEvery. What it waits for a
// batch does not count.
func TestHandlerIsSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPartition(t)
		var handling, delay observed
		p.metrics.handling, p.metrics.delay = &handling, &delay
		go func() { // four batches, an hour apart
			for range 4 {
				s.send(0, 1, 2, 3, 4, 5, 6)
				time.Sleep(time.Hour)
			}
			s.ended <- errEndedInTest
		}()
		n := 0
		for range p.Messages() {
			n++
			time.Sleep(time.Duration(n) * 20 * time.Millisecond)
			if n == 7 {
				break
			}
		}
		handling.is(t, "slow messages", .02, .04, .06, .08, .1, .12, .14)
		delay.is(t, "slow messages", 0, .02, .06, .12, .2, .3, .42)
		for range p.Messages() {
			n++
			time.Sleep(4 * time.Millisecond)
			if n == 14 {
				break
			}
		}
		handling.is(t, "quick messages", .004, .004, .004)
		delay.is(t, "quick messages", 0, .012, .024)
		for range p.Batches() {
			time.Sleep(time.Minute)
		}
		handling.is(t, "batches", 60, 60)
		delay.is(t, "batches", 0, 0)
	})
}

// A message without a timestamp has no delay, and one from the future has none either.
func TestDelayNeedsATimestamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPartition(t)
		var handling, delay observed
		p.metrics.handling, p.metrics.delay = &handling, &delay
		s.send(0, 1, 2)
		s.ended <- errEndedInTest
		first := true
		for b := range p.Messages() {
			if first {
				batch := p.cursor.Load().messages
				batch[1].Timestamp, batch[2].Timestamp = time.Time{}, time.Now().Add(time.Hour)
			}
			first = false
			time.Sleep(time.Second)
			_ = b
		}
		delay.is(t, "timestamps", 0, 0)
		handling.is(t, "timestamps", 1, 1, 1)
	})
}

// With a channel the time from one mark to the next counts, or from the moment when a message came into the empty channel,
// however large the channel is.
func TestMarksAreSampled(t *testing.T) {
	for _, size := range []int{0, 2, 256} {
		synctest.Test(t, func(t *testing.T) {
			p, s := trackedPartition(t, 0)
			var handling, delay observed
			p.metrics.handling, p.metrics.delay = &handling, &delay
			c := feeding(t, p, size)
			handle := func(offset int64, d time.Duration) {
				take(t, c, offset)
				time.Sleep(d)
				p.tracker.Mark(offset+1, "")
			}
			s.send(0, 1, 2, 3, 4, 5)
			for i := range int64(6) {
				handle(i, time.Duration(i+1)*time.Second)
			}
			handling.is(t, "slow messages", 1, 2, 3, 4, 5, 6)
			for i := range int64(3) {
				time.Sleep(time.Hour)
				s.send(6 + i)
				handle(6+i, 20*time.Millisecond)
			}
			handling.is(t, "the handler waits for a message", .02, .02, .02)
			time.Sleep(time.Hour)
			s.send(9)
			handle(9, time.Millisecond)
			s.send(10)
			handle(10, time.Millisecond)
			handling.is(t, "quick messages", .001)
			time.Sleep(sampleEvery)
			s.send(11)
			take(t, c, 11)
			time.Sleep(time.Second)
			s.send(12)
			synctest.Wait()
			time.Sleep(time.Second)
			p.tracker.Mark(12, "")
			handling.is(t, "another message came meanwhile", 2)
			handle(12, 3*time.Second)
			handling.is(t, "the message that came meanwhile", 3)
		})
	}
}

// A handler that marks one message in ten is measured for ten at a time, from the first mark on.
func TestMarksOfSeveralAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := trackedPartition(t, 0)
		var handling, delay observed
		p.metrics.handling, p.metrics.delay = &handling, &delay
		c := feeding(t, p, 256)
		for i := range int64(30) {
			s.send(i)
			take(t, c, i)
			time.Sleep(time.Second)
			if i%10 == 9 {
				p.tracker.Mark(i+1, "")
			}
		}
		handling.is(t, "ten at a time", 10, 10, 10)
	})
}

// Messages that stand in the channel were not received.
func TestReceivedMessagesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := trackedPartition(t, 0)
		owned, revoke := context.WithCancelCause(p.ctx)
		p.ctx, p.end = context.WithCancelCause(owned)
		c := newClaimChannel(p, 4)
		returned, fed := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(fed)
			c.feed(owned, returned, func() {})
		}()
		is := func(when string, messages, bytes float64) {
			t.Helper()
			synctest.Wait()
			c.count()
			if m, b := testutil.ToFloat64(p.metrics.messages), testutil.ToFloat64(p.metrics.bytes); m != messages || b != bytes {
				t.Errorf("%s: %v messages of %v bytes, want %v of %v", when, m, b, messages, bytes)
			}
		}
		is("at first", 0, 0)
		s.send(0, 1)
		s.send(2, 3, 4, 5, 6, 7)
		is("the channel is full", 0, 0)
		for i := range int64(3) {
			take(t, c, i)
		}
		is("three were received", 3, 3)
		revoke(errRevokedInTest)
		<-fed
		is("the others were taken back", 3, 3)
	})
}

// Without registered metrics nothing is sampled, but the time of the first message is known.
func TestNothingIsSampledWithoutMetrics(t *testing.T) {
	p, s, _ := newPartition(t)
	s.send(0)
	s.ended <- errEndedInTest
	for range p.Messages() {
		if p.reading.sampler.running {
			t.Error("a sample runs")
		}
	}
	if p.firstMessage().IsZero() {
		t.Error("it is not known when the first message came")
	}
}
