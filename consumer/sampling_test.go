package consumer

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
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

// With a channel the time between two receives counts, as long as the channel is full.
func TestReceivesAreSampled(t *testing.T) {
	for _, size := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			p, s, _ := newPartition(t)
			var handling, delay observed
			p.metrics.handling, p.metrics.delay = &handling, &delay
			c := newClaimChannel(p, size)
			s.put(0, 1, 2, 3, 4, 5)
			returned, fed := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(fed)
				c.feed(t.Context(), returned, func() {})
			}()
			synctest.Wait()
			for i := range 6 {
				take(t, c, int64(i))
				time.Sleep(time.Duration(i+1) * time.Second)
			}
			synctest.Wait()
			// Messages that find room tell nothing, nor does the first that finds none. The next one comes too soon after the
			// first.
			want := []float64{2, 3, 4, 5}[:4-size]
			handling.is(t, "the channel is full", want...)
			go func() {
				for range c.Messages() {
				}
			}()
			synctest.Wait()
			s.put(6)
			synctest.Wait()
			handling.is(t, "the handler waits")
			p.end(nil)
			close(returned)
			<-fed
		})
	}
}

// A message that finds room in the channel shows that the handler was quick. The next message that waits for room begins anew.
func TestReceivesBehindAnEmptyChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPartition(t)
		var handling, delay observed
		p.metrics.handling, p.metrics.delay = &handling, &delay
		c := newClaimChannel(p, 1)
		s.put(0, 1, 2, 3, 4, 5)
		after := func(d time.Duration) { // the next message is sent, and d later the handler takes one
			m := p.next()
			time.AfterFunc(d, func() { <-c.Messages() })
			if !c.send(m) {
				t.Error("not sent")
			}
			time.Sleep(sampleEvery) // another sample is due
		}
		c.send(p.next())
		after(time.Second)
		after(2 * time.Second)
		handling.is(t, "the channel is full", 2)
		<-c.Messages()
		c.send(p.next())
		after(3 * time.Second)
		handling.is(t, "a message found room before")
		after(4 * time.Second)
		handling.is(t, "the channel is full again", 4)
	})
}

// Without registered metrics nothing is sampled, but the time of the first message is known.
func TestNothingIsSampledWithoutMetrics(t *testing.T) {
	p, s, _ := newPartition(t)
	s.put(0)
	s.fail(errEndedInTest)
	for range p.Messages() {
		if p.sampler.running {
			t.Error("a sample runs")
		}
	}
	if p.firstMessage().IsZero() {
		t.Error("it is not known when the first message came")
	}
}
