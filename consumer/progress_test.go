package consumer

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/status"
)

// trackedPartition is newPartition with a tracker that starts at an offset.
func trackedPartition(t *testing.T, start int64) (*Partition, *fakeStream) {
	t.Helper()
	p, s, _ := newPartition(t)
	cm := offsets.NewCommitter(offsets.Options{Timeout: time.Second})
	p.tracker, p.start, p.pauses = cm.OpenStored(p.id, p.claim, sarama.Uuid{}, start, ""), start, &pauses{}
	return p, s
}

func TestStanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := trackedPartition(t, 3)
		check := func(when string, want status.Offsets) {
			t.Helper()
			assert.Equal(t, p.standing(time.Now()), want, "%s", when)
		}
		s.hwm, s.lag = -1, 0
		check("nothing was fetched", status.Offsets{Position: 3, Committed: 3, Marked: 3, End: -1})
		if at := p.firstMessage(); !at.IsZero() {
			t.Errorf("the first message came at %v", at)
		}
		s.send(3, 4, 7)
		s.hwm, s.lag = 20, 12
		first := time.Now()
		m := p.next()
		p.Mark(m)
		time.Sleep(time.Minute)
		check("one of three was handed out and marked", status.Offsets{
			Position: 4, Committed: 3, Marked: 4, Uncommitted: 1, End: 20, Lag: 16, LagSeconds: 60, OldestUncommitted: 60,
		})
		time.Sleep(30 * time.Second)
		check("the handler is still at it", status.Offsets{
			Position: 4, Committed: 3, Marked: 4, Uncommitted: 1, End: 20, Lag: 16, LagSeconds: 90, OldestUncommitted: 90, Stalled: 30,
		})
		p.next()
		p.next()
		p.Pause()
		check("all were", status.Offsets{Position: 8, Committed: 3, Marked: 4, Uncommitted: 5, End: 20, Lag: 12, OldestUncommitted: 90, Paused: true})
		if at := p.firstMessage(); !at.Equal(first) {
			t.Errorf("the first message came at %v, want %v", at, first)
		}
	})
}

func TestStandingOfWhatIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := trackedPartition(t, 0)
		p.tracker = offsets.NewCommitter(offsets.Options{Timeout: time.Second, MaxUnmarked: 2}).OpenStored(p.id, p.claim, sarama.Uuid{}, 0, "")
		p.log, p.metrics.heldBack = errlog.New(slog.New(slog.DiscardHandler)), prometheus.NewGauge(prometheus.GaugeOpts{Name: "h", Help: "H."})
		s.send(0, 1, 2, 3)
		p.next()
		p.Done(p.next())
		go func() {
			for range p.Messages() {
			}
		}()
		synctest.Wait()
		for _, held := range []bool{false, true} {
			assert.Equal(t, p.standing(time.Now()).HeldBack, held, "held back")
			time.Sleep(heldBackLimit)
		}
		p.end(nil)
		synctest.Wait()
	})
}

// stalls checks for how long the handler of a partition is stalled.
func stalls(t *testing.T, p *Partition, when string, want time.Duration) {
	t.Helper()
	synctest.Wait()
	assert.Equal(t, p.stalled(time.Now()), want, "%s: stalled for", when)
}

// A handler is stalled when it takes nothing though it has something, or something waits.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPartition(t)
		stalls(t, p, "there is nothing", 0)
		s.lag = 2
		stalls(t, p, "there is something, seen for the first time", 0)
		time.Sleep(time.Minute)
		stalls(t, p, "the handler has not asked", time.Minute)
		next := make(chan struct{})
		go func() {
			for range p.Messages() {
				<-next
			}
		}()
		stalls(t, p, "it waits for a batch", 0)
		s.lag = 0
		s.send(0, 1)
		stalls(t, p, "it has a message", 0)
		time.Sleep(2 * time.Minute)
		stalls(t, p, "it is slow", 2*time.Minute)
		next <- struct{}{}
		stalls(t, p, "it has taken another", 0)
		time.Sleep(time.Minute)
		stalls(t, p, "the last one takes long, too", time.Minute)
		next <- struct{}{}
		stalls(t, p, "it waits for the next batch", 0)
		time.Sleep(time.Hour)
		stalls(t, p, "it still does", 0)
		p.end(nil)
		synctest.Wait()
	})
}

// With a channel a handler is stalled when messages wait in the channel.
func TestStalledChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, _, _ := claimOn(t, 3)
		stalls(t, c.p, "there is nothing", 0)
		s.send(0, 1)
		stalls(t, c.p, "two messages are in the channel", 0)
		time.Sleep(time.Minute)
		stalls(t, c.p, "they still are", time.Minute)
		take(t, c, 0)
		stalls(t, c.p, "one was taken", 0)
		take(t, c, 1)
		time.Sleep(time.Hour)
		stalls(t, c.p, "the channel is empty", 0)
		s.send(2, 3, 4, 5, 6)
		stalls(t, c.p, "it is full", 0)
		time.Sleep(time.Minute)
		stalls(t, c.p, "it still is", time.Minute)
	})
}

// A handler that hangs on a quiet topic is stalled, while messages enter the channel and when none does any more.
func TestStalledOnAQuietTopic(t *testing.T) {
	for _, size := range []int{0, 1, 256} {
		synctest.Test(t, func(t *testing.T) {
			p, s := trackedPartition(t, 0)
			c := feeding(t, p, size)
			look := func(when string, position, lag int64, behind, stalled time.Duration) {
				t.Helper()
				synctest.Wait()
				got := p.standing(time.Now())
				if got.Position != position || got.Lag != lag || got.LagSeconds != behind.Seconds() || got.Stalled != stalled.Seconds() {
					t.Errorf("channel of %d, %s: %+v, want position %d, lag %d for %v, stalled for %v", size, when, got, position, lag, behind, stalled)
				}
			}
			s.send(0)
			p.Mark(<-c.Messages())
			look("it has marked all", 1, 0, 0, 0)
			time.Sleep(time.Hour)
			look("it waits", 1, 0, 0, 0)
			s.send(1)
			<-c.Messages() // and hangs
			look("it has the last message", 2, 0, 0, 0)
			time.Sleep(time.Minute)
			look("it has had it for a minute", 2, 0, 0, time.Minute)
			for i := range 12 {
				if i < 3 || size > 12 { // more would not be fetched into a small channel
					s.send(int64(3 + 2*i)) // with gaps
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				p.stalled(time.Now())
			}
			s.lag = 9
			if size > 12 {
				look("twelve have come", 3, 9+23, time.Minute, 2*time.Minute)
			}
			if got := p.standing(time.Now()); got.Stalled != 120 || got.LagSeconds != 60 || got.Position != 3 {
				t.Errorf("channel of %d, messages have come: %+v", size, got)
			}
			<-c.Messages()
			look("it has taken one", 5, p.standing(time.Now()).Lag, 55*time.Second, 0)
		})
	}
}

// A message in the channel that is not of the newest batch is found, with its timestamp or that of one before it.
func TestWhatStandsInTheChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := trackedPartition(t, 0)
		c := feeding(t, p, 100)
		began := time.Now()
		for i := range int64(10) {
			s.send(10*i, 10*i+1, 10*i+2)
			time.Sleep(time.Second)
		}
		for taken := range int64(30) {
			synctest.Wait()
			offset, at, waits := p.upcoming(p.cursor.Load())
			if want := 10*(taken/3) + taken%3; offset != want || !waits || at.Sub(began) != time.Duration(taken/3)*time.Second {
				t.Errorf("after %d messages: %d of %v, want %d", taken, offset, at.Sub(began), want)
			}
			<-c.Messages()
		}
		assert.Equal(t, len(c.batches), 10, "batches that are known")
		s.send(200)
		synctest.Wait()
		assert.Equal(t, len(c.batches), 1, "batches that are known when nothing of the others stands in the channel")
	})
}

// A handler that marks nothing, or takes messages in a loop, is not seen to have a message in hand. A handler that uses Done is.
func TestStalledByWhatIsNotMarked(t *testing.T) {
	for name, c := range map[string]struct {
		channel bool
		mark    func(p *Partition, m *sarama.ConsumerMessage)
		want    time.Duration
	}{
		"a channel, nothing marked":           {true, func(*Partition, *sarama.ConsumerMessage) {}, 0},
		"a channel, the first message marked": {true, func(p *Partition, m *sarama.ConsumerMessage) { p.Mark(m) }, time.Minute},
		"a loop, the first message marked":    {false, func(p *Partition, m *sarama.ConsumerMessage) { p.Mark(m) }, 0},
		"a loop, the first message done":      {false, func(p *Partition, m *sarama.ConsumerMessage) { p.Done(m) }, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, s := trackedPartition(t, 0)
			p.tracker = offsets.NewCommitter(offsets.Options{Timeout: time.Second, MaxUnmarked: 9}).OpenStored(p.id, p.claim, sarama.Uuid{}, 0, "")
			s.send(0, 1)
			takes := func(m *sarama.ConsumerMessage) {
				if m.Offset == 0 {
					c.mark(p, m)
				}
			}
			if c.channel {
				ch := feeding(t, p, 8)
				takes(<-ch.Messages())
				takes(<-ch.Messages())
			} else {
				go func() {
					for m := range p.Messages() {
						takes(m)
					}
				}()
			}
			synctest.Wait()
			p.stalled(time.Now())
			time.Sleep(time.Minute)
			assert.Equal(t, p.stalled(time.Now()), c.want, "%s: stalled for", name)
			p.end(nil)
			synctest.Wait()
		})
	}
}

// A handler that marks late: the first message that waits is in an older batch than the one at hand, so its age is not known.
func TestAgeOfTheFirstThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := trackedPartition(t, 0)
		s.send(0, 1)
		p.next()
		if at := p.timestampAt(0); at.IsZero() || !p.timestampAt(5).IsZero() {
			t.Errorf("the first message is of %v", at)
		}
		p.next()
		time.Sleep(time.Hour)
		s.send(2, 3)
		p.next()
		if at := p.timestampAt(0); !at.IsZero() {
			t.Errorf("the first message that waits is said to be of %v, an hour too late", at)
		}
	})
}

// A scrape finds the message that was taken from the batch and is not in the channel yet; then the partition ends.
func TestCountedAndNeverReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := trackedPartition(t, 0)
		c := newClaimChannel(p, 4)
		s.send(0, 1)
		if p.next() == nil { // as feed does, right before send
			t.Fatal("none")
		}
		c.count()
		c.empty() // send has found the context ended
		assert.Equal(t, testutil.ToFloat64(p.metrics.messages), 0, "messages that are counted when none was received")
	})
}

// A partition may be claimed again before the end of the claim before is noticed, which must not drop what is known of the new
// one.
func TestEndOfTheClaimBefore(t *testing.T) {
	var l shutPartitions
	before, after := &opening{tp: tp("t", 0), claim: &fakeHolder{}}, &opening{tp: tp("t", 0), claim: &fakeHolder{}}
	l.claimed(before)
	l.claimed(after)
	l.found(after, 7)
	l.found(before, 3) // as an opening that is late
	l.gaveUp(before.tp, before.claim)
	if s := l.all[after.tp]; s == nil || s.claim != after.claim || s.committed() != 7 {
		t.Errorf("%+v is left", s)
	}
	l.gaveUp(after.tp, after.claim)
	if len(l.all) > 0 {
		t.Error("it is kept without a claim")
	}
}

// Messages that are done alone are committed as far as there is no hole, and a full window holds the next messages back.
func TestDoneFillsAWindow(t *testing.T) {
	for name, batches := range map[string]bool{"messages": false, "batches": true} {
		t.Run(name, func(t *testing.T) { testWindow(t, batches) })
	}
}

func testWindow(t *testing.T, batches bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t, tp("t", 0))
		got := make(chan *sarama.ConsumerMessage, 64)
		parts, start := make(chan *Partition, 1), make(chan struct{})
		r := newRunRig(t, func(_ context.Context, p *Partition) error {
			parts <- p
			<-start
			if batches {
				for b := range p.Batches() {
					_ = append(b, sarama.ConsumerMessage{Offset: -1}) // changes no message behind
					for i := range b {
						got <- &b[i]
					}
				}
				return nil
			}
			for m := range p.Messages() {
				got <- m
			}
			return nil
		}, func(o *Options) { o.MaxUnmarked, o.CommitInterval = 4, time.Second })
		log := r.logged()
		r.observer, r.fetch.ready = nil, 10
		done := r.owned(h)
		p := <-parts
		p.Done(&sarama.ConsumerMessage{Topic: "t", Offset: -1}) // from now on the window counts
		close(start)
		var ms []*sarama.ConsumerMessage
		expect := func(n int) {
			t.Helper()
			synctest.Wait()
			for len(got) > 0 {
				ms = append(ms, <-got)
			}
			if len(ms) != n {
				t.Fatalf("%d messages were handed out, want %d", len(ms), n)
			}
			for i, m := range ms {
				if m.Offset != int64(i) {
					t.Fatalf("message %d has offset %d", i, m.Offset)
				}
			}
		}
		expect(4)
		p.Done(ms[2])
		p.Done(ms[1])
		expect(4)
		time.Sleep(2 * time.Second)
		assert.Equal(t, r.store.Get(tp("t", 0)).Offset, 0, "stored before 0 is done")
		p.Done(ms[0])
		expect(7)
		time.Sleep(2 * time.Second)
		assert.Equal(t, r.store.Get(tp("t", 0)).Offset, 3, "stored")
		heldBack := r.metrics.heldBack.WithLabelValues("t")
		time.Sleep(heldBackLimit - 5*time.Second)
		synctest.Wait()
		if testutil.ToFloat64(heldBack) != 0 || strings.Contains(log.String(), "held back") {
			t.Errorf("reported too early: %s", log.String())
		}
		time.Sleep(2 * heldBackLimit)
		synctest.Wait()
		if testutil.ToFloat64(heldBack) != 1 || strings.Count(log.String(), "held back") != 1 || !strings.Contains(log.String(), "the one at 3 is") {
			t.Errorf("reported %v: %s", testutil.ToFloat64(heldBack), log.String())
		}
		p.Mark(ms[6])
		expect(10)
		if testutil.ToFloat64(heldBack) != 0 {
			t.Error("it is still reported")
		}
		if !strings.Contains(log.String(), "msg=recovered kind=held-back") {
			t.Errorf("logged no end: %s", log.String())
		}
		h.release(t, done)
		assert.Equal(t, r.store.Get(tp("t", 0)).Offset, 7, "stored at the end")
	})
}
