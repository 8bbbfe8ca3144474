package consumer_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/party"
)

// hanger is a handler whose Setup and Cleanup do what a test wants before they return.
type hanger struct {
	*recorder
	setup, cleanup func()
}

func (h hanger) Setup(s sarama.ConsumerGroupSession) error {
	if h.setup != nil {
		h.setup()
	}
	return h.recorder.Setup(s)
}

func (h hanger) Cleanup(s sarama.ConsumerGroupSession) error {
	if h.cleanup != nil {
		h.cleanup()
	}
	return h.recorder.Cleanup(s)
}

// gate is something to wait for, opened at the end of a bubble.
type gate struct {
	once    sync.Once
	c       chan struct{}
	waiting atomic.Int32
}

func newGate() *gate { return &gate{c: make(chan struct{})} }

func (g *gate) wait() {
	g.waiting.Add(1)
	<-g.c
}

func (g *gate) open() { g.once.Do(func() { close(g.c) }) }

const (
	hangLimit = 5 * time.Second // the floor of the limit after which a callback counts as stuck
	hangStop  = 10 * time.Second
)

// saysStuck checks that Errors says that a callback does not return.
func (m *member) saysStuck(callback string) {
	m.t.Helper()
	if err := errors.Join(m.errors()...); !errors.Is(err, ownership.ErrStuck) || !strings.Contains(err.Error(), callback+" has not returned") {
		m.t.Errorf("Errors does not say that %s is stuck: %v", callback, err)
	}
}

// An Observer that hangs with one partition holds up that one; this member says so and leaves, and does not wait for it longer
// than for anything else.
func TestObserverHangs(t *testing.T) {
	for _, kind := range []consumer.EventKind{consumer.Opened, consumer.Message, consumer.Committed} {
		t.Run(string(kind), func(t *testing.T) {
			inRig(t, 4, func(t *testing.T, r *rig) {
				hung := newGate()
				defer hung.open()
				var ill atomic.Bool
				a := r.member("a", func(o *consumer.Options) {
					o.RebalanceTimeout, o.StopTimeout = 2*time.Second, hangStop
					tell := o.Observer
					o.Observer = func(e consumer.Event) {
						if ill.Load() && e.Kind == kind && e.Partition == 0 {
							hung.wait()
						}
						tell(e)
					}
				})
				ill.Store(kind == consumer.Opened)
				a.start()
				others := []string{"t:1", "t:2", "t:3"}
				until(t, "a has all but maybe one", func() bool { return len(a.owns()) >= 3 && slices.Equal(a.owns()[len(a.owns())-3:], others) })
				ill.Store(true)
				r.produce(5, 0, 1, 2, 3)
				until(t, "it hangs", func() bool { return hung.waiting.Load() == 1 })
				time.Sleep(3 * time.Second)
				r.produce(5, 1, 2, 3)
				time.Sleep(1500 * time.Millisecond)
				for _, p := range []int32{1, 2, 3} {
					if n := r.committed(topic, p); n != 10 {
						t.Errorf("partition %d was committed up to %d beside an Observer that hangs with another", p, n)
					}
				}
				b := r.member("b", nil).start()
				began := time.Now()
				err := <-a.done
				if d := time.Since(began); d > hangLimit+time.Second+hangStop {
					t.Errorf("Consume returned after %v", d)
				}
				if !errors.Is(err, ownership.ErrStuck) || !strings.Contains(err.Error(), "Observer") {
					t.Errorf("Consume: %v", err)
				}
				a.saysStuck("Observer")
				until(t, "b has all", func() bool { return len(b.owns()) == 4 })
				until(t, "all messages", func() bool { return len(b.h.offsets(topic, 0))+len(a.h.offsets(topic, 0)) >= 5 && total(a, b) >= 35 })
				for _, p := range []int32{1, 2, 3} {
					if n := len(b.h.offsets(topic, p)); n != 0 {
						t.Errorf("b read %d messages of partition %d again", n, p)
					}
				}
				b.leave()
			})
		})
	}
}

// Close does not wait for an Observer longer than StopTimeout.
func TestCloseWhileTheObserverHangs(t *testing.T) {
	for _, kind := range []consumer.EventKind{consumer.Message, consumer.Committed} {
		t.Run(string(kind), func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				hung := newGate()
				defer hung.open()
				a := r.member("a", func(o *consumer.Options) {
					o.StopTimeout = hangStop
					tell := o.Observer
					o.Observer = func(e consumer.Event) {
						tell(e)
						if e.Kind == kind && e.Partition == 0 {
							hung.wait()
						}
					}
				})
				r.produce(5, 0, 1)
				a.start()
				until(t, "it hangs", func() bool { return hung.waiting.Load() == 1 })
				time.Sleep(2 * time.Second)
				a.closes(t, "Observer")
				events := len(a.log.events())
				hung.open()
				time.Sleep(20 * time.Second)
				if n := len(a.log.events()); n > events {
					t.Errorf("%d events after Consume had returned", n-events)
				}
			})
		})
	}
}

// closes checks that Close returns in time, and Consume with what is stuck.
func (m *member) closes(t *testing.T, callback string) {
	t.Helper()
	began := time.Now()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = m.group.Close()
	}()
	select {
	case <-closed:
	case <-time.After(hangStop + 100*time.Millisecond):
		t.Fatalf("Close has not returned after %v", time.Since(began))
	}
	if err := <-m.done; !errors.Is(err, ownership.ErrStuck) || !strings.Contains(err.Error(), callback) {
		t.Errorf("Consume: %v", err)
	}
}

// The membership may end while a callback of the user's hangs: StopTimeout counts from then on.
func TestNameTakenWhileSomethingHangs(t *testing.T) {
	for _, callback := range []string{"Observer", "Setup"} {
		t.Run(callback, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				hung := newGate()
				defer hung.open()
				a := r.member("a", func(o *consumer.Options) {
					o.RebalanceTimeout, o.StopTimeout = time.Hour, hangStop
					tell := o.Observer
					o.Observer = func(e consumer.Event) {
						tell(e)
						if callback == "Observer" && e.Kind == consumer.Message && e.Partition == 0 {
							hung.wait()
						}
					}
				})
				r.produce(5, 0, 1)
				h := hanger{recorder: a.h}
				if callback == "Setup" {
					h.setup = hung.wait
				}
				a.startWith(h, topic)
				until(t, "it hangs", func() bool { return hung.waiting.Load() == 1 })
				r.takeName("a")
				select {
				case err := <-a.done:
					if !errors.Is(err, party.ErrNameTaken) || !errors.Is(err, ownership.ErrStuck) {
						t.Errorf("Consume: %v", err)
					}
				case <-time.After(2 * hangStop):
					t.Fatal("Consume has not returned")
				}
			})
		})
	}
}

// A Setup or Cleanup that does not return is said to be stuck, and left behind. Others can have what this member has.
func TestSetupAndCleanupHang(t *testing.T) {
	t.Run("Setup", func(t *testing.T) {
		inRig(t, 4, func(t *testing.T, r *rig) {
			hung := newGate()
			defer hung.open()
			a := r.member("a", func(o *consumer.Options) { o.RebalanceTimeout, o.StopTimeout = 2*time.Second, hangStop })
			a.startWith(hanger{recorder: a.h, setup: hung.wait}, topic)
			until(t, "it hangs", func() bool { return hung.waiting.Load() == 1 })
			time.Sleep(hangLimit + 2*time.Second)
			a.saysStuck("Setup")
			b := r.member("b", nil).start()
			if d := until(t, "b has its half", func() bool { return len(b.owns()) == 2 }); d > 2*time.Second {
				t.Errorf("b had its half after %v", d)
			}
			a.closes(t, "Setup")
			until(t, "b has all", func() bool { return len(b.owns()) == 4 })
			if slices.Contains(a.h.called(), "cleanup") {
				t.Error("Cleanup was called beside Setup")
			}
			b.leave()
			hung.open()
			time.Sleep(time.Second)
			if calls := a.h.called(); !slices.Equal(calls, []string{"setup"}) {
				t.Errorf("called: %v", calls)
			}
		})
	})
	t.Run("Setup, while ctx ends", func(t *testing.T) {
		inRig(t, 1, func(t *testing.T, r *rig) {
			a := r.member("a", nil)
			a.startWith(hanger{recorder: a.h, setup: func() { time.Sleep(3 * time.Second) }}, topic)
			time.Sleep(2 * time.Second)
			a.leave() // waits for it
			if calls := a.h.called(); !slices.Equal(calls, []string{"setup", "cleanup"}) {
				t.Errorf("called: %v", calls)
			}
		})
	})
	t.Run("Cleanup", func(t *testing.T) {
		inRig(t, 4, func(t *testing.T, r *rig) {
			hung := newGate()
			defer hung.open()
			r.produce(5, 0, 1, 2, 3)
			a := r.member("a", func(o *consumer.Options) { o.RebalanceTimeout, o.StopTimeout = 2*time.Second, hangStop })
			a.startWith(hanger{recorder: a.h, cleanup: hung.wait}, topic)
			until(t, "20 messages", func() bool { return total(a) == 20 })
			b := r.member("b", nil).start()
			until(t, "b has its half", func() bool { return len(b.owns()) == 2 })
			go func() {
				until(t, "it hangs", func() bool { return hung.waiting.Load() == 1 })
				if d := until(t, "b has all", func() bool { return len(b.owns()) == 4 }); d > time.Second {
					t.Errorf("b had all after %v", d)
				}
			}()
			a.closes(t, "Cleanup")
			a.saysStuck("Cleanup")
			b.leave()
			r.check(false)
		})
	})
}
