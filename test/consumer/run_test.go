package consumer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
)

// Members that run functions share partitions with members that have handlers of sarama's shape, and hand them over.
func TestRun(t *testing.T) {
	inRig(t, 6, func(t *testing.T, r *rig) {
		r.produce(50)
		a := r.member("a", nil).run()
		until(t, "300 messages", func() bool { return total(a) == 300 })
		b, c := r.member("b", nil).start(), r.member("c", nil).run()
		until(t, "each has its share", func() bool { return len(a.owns()) == 2 && len(b.owns()) == 2 && len(c.owns()) == 2 })
		r.produce(50)
		until(t, "600 messages", func() bool { return total(a, b, c) == 600 })
		a.leave()
		until(t, "the others have all", func() bool { return len(b.owns())+len(c.owns()) == 6 })
		r.produce(50)
		until(t, "900 messages", func() bool { return total(a, b, c) == 900 })
		b.leave()
		c.leave()
		for _, p := range r.all {
			if at := r.committed(topic, p); at != 150 {
				t.Errorf("committed %d of partition %d", at, p)
			}
		}
		for _, e := range slices.Concat(a.errors(), c.errors()) {
			t.Errorf("reported %v", e)
		}
		r.check(false)
	})
}

// A handler learns whether it may finish its work: after a revocation it may, after a loss it may not.
func TestHowAHandlerOfRunEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(m *member)
		want error
		at   int64
	}{
		"revoked": {func(m *member) { m.stop() }, ownership.ErrRevoked, 1},
		"lost":    {func(m *member) { m.net.Freeze() }, ownership.ErrLost, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				r.produce(2, 0)
				a := r.member("a", nil)
				var once sync.Once
				a.runWith(func(ctx context.Context, p *consumer.Partition) error {
					once.Do(func() {
						for m := range p.Messages() {
							c.end(a)
							<-ctx.Done()
							a.h.take(m)
							p.Mark(m) // late
						}
						if cause := context.Cause(ctx); !errors.Is(cause, c.want) {
							t.Errorf("the context ended with %v", cause)
						}
						if trusted := errors.Is(c.want, ownership.ErrRevoked); p.Trusted() != trusted || (p.Context().Err() == nil) != trusted {
							t.Errorf("trusted: %v, the claim's context: %v", p.Trusted(), context.Cause(p.Context()))
						}
					})
					<-ctx.Done()
					return ctx.Err()
				})
				time.Sleep(time.Minute)
				if at := r.committed(topic, 0); at != c.at {
					t.Errorf("committed %d, want %d", at, c.at)
				}
				a.net.Heal()
				a.leave()
				if n := a.h.count(); n != 1 {
					t.Errorf("%d messages were handed out", n)
				}
			})
		})
	}
}

// A handler that fails ends Run, which returns its error, or Consume, which returns nil and reports it. What was marked is
// committed, in the other partitions, too.
func TestHandlerErrorEndsTheCall(t *testing.T) {
	boom := errors.New("boom")
	for name, start := range map[string]func(a *member){
		"Run": func(a *member) {
			a.runWith(func(_ context.Context, p *consumer.Partition) error {
				for m := range p.Messages() {
					a.h.take(m)
					p.Mark(m)
					if p.ID() == 1 && m.Offset == 4 {
						return boom
					}
				}
				return nil
			})
		},
		"Consume": func(a *member) {
			a.h.each = func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) error {
				s.MarkMessage(m, "")
				if c.Partition() == 1 && m.Offset == 4 {
					return boom
				}
				return nil
			}
			a.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 3, func(t *testing.T, r *rig) {
				r.produce(10, 0, 2)
				a := r.member("a", func(o *consumer.Options) { o.CommitInterval = time.Hour })
				start(a)
				until(t, "the others were read", func() bool { return a.h.count() == 20 })
				r.produce(10, 1)
				err := <-a.done
				if name == "Consume" {
					if err != nil || len(a.errors()) != 1 {
						t.Fatalf("returned %v, reported %v", err, a.errors())
					}
					err = a.errors()[0]
				}
				ce, ok := errors.AsType[*sarama.ConsumerError](err)
				if !ok || ce.Partition != 1 || !errors.Is(ce, boom) || errors.Is(ce, consumer.ErrHandler) != (name == "Run") {
					t.Errorf("the error is %v", err)
				}
				for p, want := range []int64{10, 5, 10} {
					if at := r.committed(topic, int32(p)); at != want {
						t.Errorf("partition %d: committed %d, want %d", p, at, want)
					}
				}
			})
		})
	}
}

// stopClock is a clock that may leap, as if the process had stood still.
type stopClock struct {
	mu   sync.Mutex
	leap time.Duration
	base time.Time
}

func (c *stopClock) now() (mono, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.base) + c.leap, time.Duration(time.Now().UnixNano()) + c.leap
}

func (c *stopClock) stop(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leap += d
}

// A process that was stopped for twice its session timeout at any moment hands out one message at most when it goes on, or what
// stood in the channel, and commits nothing that is marked then: the next opening begins at what was marked before.
func TestStoppedForLong(t *testing.T) {
	const timeout = 10 * time.Second
	for name, most := range map[string]int64{
		"Run":     1,
		"Consume": 16 + 1, // what stood in the channel, and what was about to enter it
	} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Attr("seed", strconv.FormatUint(seed, 10))
			rnd, stops := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1)) // of the handler and of the test
			inRig(t, 1, func(t *testing.T, r *rig) {
				r.produce(30_000, 0)
				var mu sync.Mutex
				var late, marked int64
				stopped, openings := false, 0
				clock := &stopClock{base: time.Now()}
				a := r.clocked("a", clock.now, func(o *consumer.Options) {
					o.Config.ChannelBufferSize = 16
					o.CommitInterval = 10 * time.Millisecond
					o.Observer = func(e consumer.Event) {
						if e.Kind == consumer.Opened {
							mu.Lock()
							defer mu.Unlock()
							if stopped {
								if late > most {
									t.Errorf("seed %d: %d messages after stop %d", seed, late, openings)
								}
								if e.Offset > marked {
									t.Errorf("seed %d: opened at %d after stop %d, but %d was marked before", seed, e.Offset, openings, marked)
								}
							}
							stopped, late, openings = false, 0, openings+1
						}
					}
				})
				work := func(m *sarama.ConsumerMessage, mark func()) {
					mu.Lock()
					defer mu.Unlock()
					was := stopped
					if d := rnd.Int64N(3); d > 0 {
						mu.Unlock()
						time.Sleep(time.Duration(d) * time.Millisecond)
						mu.Lock()
					}
					if was {
						late++
					}
					if !stopped {
						marked = m.Offset + 1
					}
					mark()
				}
				if name == "Run" {
					a.runWith(func(_ context.Context, p *consumer.Partition) error {
						for m := range p.Messages() {
							work(m, func() { p.Mark(m) })
						}
						return nil
					})
				} else {
					a.h.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) error {
						work(m, func() { s.MarkMessage(m, "") })
						return nil
					}
					a.start()
				}
				for i := range 100 {
					until(t, "it is open", func() bool {
						mu.Lock()
						defer mu.Unlock()
						return openings == i+1
					})
					time.Sleep(time.Duration(stops.Int64N(int64(100 * time.Millisecond))))
					mu.Lock()
					stopped = true
					clock.stop(2 * timeout)
					mu.Unlock()
				}
				a.leave()
			})
		})
	}
}
