package consumer

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/status"
)

// trackedPartition is newPartition with a tracker that starts at an offset.
func trackedPartition(t *testing.T, start int64) (*Partition, *fakeBatches) {
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
			if got := p.standing(time.Now()); got != want {
				t.Errorf("%s: %+v, want %+v", when, got, want)
			}
		}
		s.hwm, s.lag = -1, 0
		check("nothing was fetched", status.Offsets{Position: 3, Committed: 3, Marked: 3, End: -1})
		if at := p.firstMessage(); !at.IsZero() {
			t.Errorf("the first message came at %v", at)
		}
		s.put(3, 4, 7)
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
		s.put(0, 1, 2, 3)
		p.next()
		p.Done(p.next())
		go func() {
			for range p.Messages() {
			}
		}()
		synctest.Wait()
		for _, held := range []bool{false, true} {
			if got := p.standing(time.Now()).HeldBack; got != held {
				t.Errorf("held back is %v, want %v", got, held)
			}
			time.Sleep(heldBackLimit)
		}
		p.end(nil)
		synctest.Wait()
	})
}

// A handler is stalled when it takes nothing though it has something, or something waits.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPartition(t)
		looks := func(when string, want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := p.stalled(time.Now()); got != want {
				t.Errorf("%s: stalled for %v, want %v", when, got, want)
			}
		}
		looks("there is nothing", 0)
		s.lag = 2
		looks("there is something, seen for the first time", 0)
		time.Sleep(time.Minute)
		looks("the handler has not asked", time.Minute)
		next := make(chan struct{})
		go func() {
			for range p.Messages() {
				<-next
			}
		}()
		looks("it waits for a batch", 0)
		s.lag = 0
		s.put(0, 1)
		looks("it has a message", 0)
		time.Sleep(2 * time.Minute)
		looks("it is slow", 2*time.Minute)
		next <- struct{}{}
		looks("it has taken another", 0)
		time.Sleep(time.Minute)
		looks("the last one takes long, too", time.Minute)
		next <- struct{}{}
		looks("it waits for the next batch", 0)
		time.Sleep(time.Hour)
		looks("it still does", 0)
		p.end(nil)
		synctest.Wait()
	})
}

// With a channel a handler is stalled when messages wait in the channel.
func TestStalledChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, _, _ := claimOn(t, 3)
		looks := func(when string, want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := c.p.stalled(time.Now()); got != want {
				t.Errorf("%s: stalled for %v, want %v", when, got, want)
			}
		}
		looks("there is nothing", 0)
		s.put(0, 1)
		looks("two messages are in the channel", 0)
		time.Sleep(time.Minute)
		looks("they still are", time.Minute)
		take(t, c, 0)
		looks("one was taken", 0)
		take(t, c, 1)
		time.Sleep(time.Hour)
		looks("the channel is empty", 0)
		s.put(2, 3, 4, 5, 6)
		looks("it is full", 0)
		time.Sleep(time.Minute)
		looks("it still is", time.Minute)
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
			s.put(0)
			p.Mark(<-c.Messages())
			look("it has marked all", 1, 0, 0, 0)
			time.Sleep(time.Hour)
			look("it waits", 1, 0, 0, 0)
			s.put(1)
			<-c.Messages() // and hangs
			look("it has the last message", 2, 0, 0, 0)
			time.Sleep(time.Minute)
			look("it has had it for a minute", 2, 0, 0, time.Minute)
			for i := range 12 {
				if i < 3 || size > 12 { // more would not be fetched into a small channel
					s.put(int64(3 + 2*i)) // with gaps
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
			s.put(10*i, 10*i+1, 10*i+2)
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
		if n := len(c.batches); n != 10 {
			t.Errorf("%d batches are known, want 10", n)
		}
		s.put(200)
		synctest.Wait()
		if n := len(c.batches); n != 1 {
			t.Errorf("%d batches are known when nothing of the others stands in the channel", n)
		}
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
			s.put(0, 1)
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
			if got := p.stalled(time.Now()); got != c.want {
				t.Errorf("%s: stalled for %v, want %v", name, got, c.want)
			}
			p.end(nil)
			synctest.Wait()
		})
	}
}
