package consumer

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

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
				s.put(0, 1, 2, 3, 4, 5, 6)
				time.Sleep(time.Hour)
			}
			s.fail(errEndedInTest)
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
		s.put(0, 1, 2)
		s.fail(errEndedInTest)
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
			s.put(0, 1, 2, 3, 4, 5)
			for i := range int64(6) {
				handle(i, time.Duration(i+1)*time.Second)
			}
			handling.is(t, "slow messages", 1, 2, 3, 4, 5, 6)
			for i := range int64(3) {
				time.Sleep(time.Hour)
				s.put(6 + i)
				handle(6+i, 20*time.Millisecond)
			}
			handling.is(t, "the handler waits for a message", .02, .02, .02)
			time.Sleep(time.Hour)
			s.put(9)
			handle(9, time.Millisecond)
			s.put(10)
			handle(10, time.Millisecond)
			handling.is(t, "quick messages", .001)
			time.Sleep(sampleEvery)
			s.put(11)
			take(t, c, 11)
			time.Sleep(time.Second)
			s.put(12)
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
			s.put(i)
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
		s.put(0, 1)
		s.put(2, 3, 4, 5, 6, 7)
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
	s.put(0)
	s.fail(errEndedInTest)
	for range p.Messages() {
		if p.reading.sampler.running {
			t.Error("a sample runs")
		}
	}
	if p.firstMessage().IsZero() {
		t.Error("it is not known when the first message came")
	}
}
