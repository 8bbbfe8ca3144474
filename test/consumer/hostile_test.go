package consumer_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/wait"
)

type interceptor func(*sarama.ConsumerMessage)

func (f interceptor) OnConsume(m *sarama.ConsumerMessage) { f(m) }

// A callback of the user's may end its goroutine, as a failing test does: that ends the call and is reported; no message is lost.
func TestGoexitInCallbacks(t *testing.T) {
	t.Run("Observer", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			goexit(t, consumer.Options{Observer: func(consumer.Event) { runtime.Goexit() }}, "Observer")
		})
	})
	t.Run("interceptor", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := sarama.NewConfig()
			c.Consumer.Offsets.Initial = sarama.OffsetOldest
			c.Consumer.Interceptors = []sarama.ConsumerInterceptor{interceptor(func(*sarama.ConsumerMessage) { runtime.Goexit() })}
			goexit(t, consumer.Options{Config: c}, "")
		})
	})
	t.Run("ConsumeClaim", func(t *testing.T) {
		inRig(t, 2, func(t *testing.T, r *rig) {
			r.produce(5, 0, 1)
			a := r.member("a", func(o *consumer.Options) { o.ReopenPartition = true })
			left := 3
			a.h.before(func(c sarama.ConsumerGroupClaim, _ *sarama.ConsumerMessage) {
				if c.Partition() == 0 && left > 0 {
					left--
					runtime.Goexit()
				}
			})
			a.start()
			until(t, "all messages, one of them four times", func() bool { return total(a) == 13 })
			time.Sleep(time.Second)
			b := r.member("b", nil).start()
			until(t, "both have one", func() bool { return len(a.owns()) == 1 && len(b.owns()) == 1 })
			a.leave()
			b.leave()
			if err := errors.Join(a.errors()...); !errors.Is(err, consumer.ErrHandler) || !errors.Is(err, ownership.ErrCallback) {
				t.Errorf("errors: %v", err)
			}
			if r.committed(topic, 0) != 5 || r.committed(topic, 1) != 5 {
				t.Errorf("committed %d and %d of 5", r.committed(topic, 0), r.committed(topic, 1))
			}
		})
	})
	for _, name := range []string{"Setup", "Cleanup"} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				r.produce(5, 0)
				a := r.member("a", nil)
				h := hanger{recorder: a.h, cleanup: runtime.Goexit}
				if name == "Setup" {
					h = hanger{recorder: a.h, setup: runtime.Goexit}
				}
				a.startWith(h, topic)
				if name == "Cleanup" {
					until(t, "5 messages", func() bool { return total(a) == 5 })
					a.stop()
				}
				if err := <-a.done; !errors.Is(err, ownership.ErrCallback) || !strings.Contains(err.Error(), name) {
					t.Errorf("Consume: %v", err)
				}
			})
		})
	}
}

// goexit runs a member whose callbacks end their goroutines beside another.
func goexit(t *testing.T, sick consumer.Options, name string) {
	t.Helper()
	r := newRig(t, 4)
	a := r.member("a", func(o *consumer.Options) {
		if sick.Observer != nil {
			o.Observer = sick.Observer
		}
		if sick.Config != nil {
			o.Config.Consumer.Interceptors = sick.Config.Consumer.Interceptors
		}
	}).start()
	b := r.member("b", nil).start()
	until(t, "both have two", func() bool { return len(a.owns()) == 2 && len(b.owns()) == 2 })
	r.produce(5, 0, 1, 2, 3)
	until(t, "20 messages", func() bool { return total(a, b) == 20 })
	a.leave()
	until(t, "b has all", func() bool { return len(b.owns()) == 4 })
	b.leave()
	if got := total(a, b); got != 20 {
		t.Errorf("%d messages of 20", got)
	}
	if err := errors.Join(a.errors()...); name != "" && (!errors.Is(err, ownership.ErrCallback) || !strings.Contains(err.Error(), name)) {
		t.Errorf("errors: %v", err)
	}
}

// Close in a callback waits for itself, until it counts as stuck; the others get what the member has.
func TestCloseInACallback(t *testing.T) {
	for _, name := range []string{"Setup", "Cleanup", "Opened", "Message", "Committed", "Claimed", "Revoking", "Releasing", "interceptor"} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 4, func(t *testing.T, r *rig) {
				var a *member
				in := func(where string) {
					if strings.EqualFold(where, name) {
						_ = a.group.Close()
					}
				}
				a = r.member("a", func(o *consumer.Options) {
					o.StopTimeout = hangStop
					tell := o.Observer
					o.Observer = func(e consumer.Event) {
						tell(e)
						in(string(e.Kind))
					}
					o.Config.Consumer.Interceptors = []sarama.ConsumerInterceptor{interceptor(func(*sarama.ConsumerMessage) { in("interceptor") })}
				})
				r.produce(5, 0, 1, 2, 3)
				a.startWith(hanger{recorder: a.h, setup: func() { in("Setup") }, cleanup: func() { in("Cleanup") }}, topic)
				time.Sleep(2 * time.Second)
				b := r.member("b", nil).start()
				time.Sleep(5 * time.Second)
				a.stop()
				began := time.Now()
				err := <-a.done
				if d := time.Since(began); d > hangStop+100*time.Millisecond {
					t.Errorf("Consume returned after %v", d)
				}
				if !errors.Is(err, ownership.ErrStuck) {
					t.Errorf("Consume: %v", err)
				}
				if d := until(t, "b has all", func() bool { return len(b.owns()) == 4 }); d > time.Second {
					t.Errorf("b had all after %v", d)
				}
				until(t, "all messages", func() bool { return total(a, b) >= 20 })
				b.leave()
			})
		})
	}
}

// An interceptor that hangs holds up its partition, and not the end.
func TestInterceptorHangs(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		hung := newGate()
		defer hung.open()
		r.produce(5, 0, 1)
		a := r.member("a", func(o *consumer.Options) {
			o.RebalanceTimeout, o.StopTimeout = 2*time.Second, hangStop
			o.Config.Consumer.Interceptors = []sarama.ConsumerInterceptor{interceptor(func(m *sarama.ConsumerMessage) {
				if m.Partition == 0 {
					hung.wait()
				}
			})}
		}).start()
		until(t, "the others are read", func() bool { return len(a.h.offsets(topic, 1)) == 5 })
		time.Sleep(hangLimit + 2*time.Second)
		a.saysStuck("an interceptor")
		a.closes(t, "an interceptor")
		b := r.member("b", nil).start()
		until(t, "b has the rest", func() bool { return len(b.h.offsets(topic, 0)) == 5 })
		b.leave()
		r.check(false)
	})
}

// stuckDialer never connects.
type stuckDialer struct{ hung *gate }

func (d stuckDialer) Dial(string, string) (net.Conn, error) {
	d.hung.wait()
	return nil, net.ErrClosed
}

// The dialer of the configuration is the user's too. Not in a bubble: sarama holds a mutex while it dials, and the time of a
// bubble stands still for who waits for that.
func TestDialerHangs(t *testing.T) {
	zk, err := session.New([]string{"nowhere:2181"}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	hung := newGate()
	defer hung.open()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Net.Proxy.Enable = true
	config.Net.Proxy.Dialer = stuckDialer{hung}
	g, err := consumer.New(zk, []string{"nowhere:9092"}, group, consumer.Options{Config: config, StopTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- g.Consume(context.Background(), []string{topic}, &recorder{}) }()
	wait.Until(t, 10*time.Second, func() bool { return hung.waiting.Load() > 0 }, func() string { return "it does not dial" })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = g.Close()
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("Close does not return")
	}
	if err := <-done; !errors.Is(err, ownership.ErrStuck) {
		t.Errorf("Consume: %v", err)
	}
}
