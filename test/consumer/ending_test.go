package consumer_test

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
)

// An Observer that is slow, though not stuck, costs no commit: the next owner begins where this one stopped.
func TestSlowObserverCostsNoCommit(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(1, 0)
		a := r.member("a", func(o *consumer.Options) {
			tell := o.Observer
			o.Observer = func(e consumer.Event) {
				tell(e)
				if e.Kind == consumer.Message {
					time.Sleep(12 * time.Second) // longer than the last commit may take
				}
			}
			o.CommitInterval = time.Hour
		}).start()
		until(t, "it was read", func() bool { return a.h.count() == 1 })
		a.leave()
		if at := r.committed(topic, 0); at != 1 {
			t.Errorf("committed up to %d, want 1", at)
		}
		b := r.member("b", nil).start()
		time.Sleep(10 * time.Second)
		b.leave()
		if again := b.h.offsets(topic, 0); len(again) != 0 {
			t.Errorf("b read %v again", again)
		}
		r.check(false)
	})
}

// While ZooKeeper can't be reached the claims are not released in time, but every ConsumeClaim returns: Cleanup is called.
func TestCleanupWithoutZooKeeper(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(5, 0, 1)
		a := r.member("a", func(o *consumer.Options) { o.StopTimeout = 20 * time.Second }).start()
		until(t, "all was read", func() bool { return a.h.count() == 10 })
		a.net.Refuse()
		r.zk.CutAll()
		a.stop()
		err := <-a.done
		a.net.Heal()
		if !errors.Is(err, ownership.ErrStuck) {
			t.Errorf("Consume: %v", err)
		}
		if calls := a.h.called(); calls[len(calls)-1] != "cleanup" || len(a.owns()) != 0 {
			t.Errorf("called: %v", calls)
		}
	})
}

// Consume returns Setup's error at once, though the member can't leave. The member stays; that it could not leave is reported at
// the end.
func TestSetupFailsWithoutZooKeeper(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", func(o *consumer.Options) { o.StopTimeout = 20 * time.Second })
		a.h.setupErr = errors.New("no room")
		a.startWith(hanger{recorder: a.h, setup: func() {
			time.Sleep(5 * time.Second) // until there are claims
			a.net.Refuse()
			r.zk.CutAll()
		}}, topic)
		if err := <-a.done; !errors.Is(err, a.h.setupErr) || errors.Is(err, ownership.ErrStuck) {
			t.Errorf("Consume: %v", err)
		}
		if err := a.group.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		a.net.Heal()
		<-a.errs
		if err := errors.Join(a.errors()...); !errors.Is(err, ownership.ErrStuck) {
			t.Errorf("Errors: %v", err)
		}
		if calls := a.h.called(); !slices.Equal(calls, []string{"setup", "cleanup"}) {
			t.Errorf("called: %v", calls)
		}
	})
}

// When the session's Run ends, Consume ends with session.ErrClosed, and so do later calls.
func TestSessionIsClosed(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		a := r.member("a", nil).start()
		until(t, "the partition is open", func() bool { return len(a.owns()) == 1 })
		a.kill()
		if err := <-a.done; !errors.Is(err, session.ErrClosed) {
			t.Errorf("Consume: %v", err)
		}
		if calls := a.h.called(); calls[len(calls)-1] != "cleanup" {
			t.Errorf("called: %v", calls)
		}
		if err := <-a.start().done; !errors.Is(err, session.ErrClosed) {
			t.Errorf("Consume, again: %v", err)
		}
	})
}

// lazyDialer makes connections that do not close before a gate opens.
type lazyDialer struct {
	dialer
	hung *gate
}

func (d lazyDialer) Dial(network, address string) (net.Conn, error) {
	c, err := d.dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return lazyConn{c, d.hung}, nil
}

type lazyConn struct {
	net.Conn
	hung *gate
}

func (c lazyConn) Close() error {
	c.hung.wait()
	return c.Conn.Close()
}

// Connections of the user's that do not close are not waited for longer than for anything else.
func TestConnectionsThatDoNotClose(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(5, 0)
		hung := newGate()
		defer hung.open()
		a := r.member("a", func(o *consumer.Options) {
			o.StopTimeout = hangStop
			o.Config.Net.Proxy.Dialer = lazyDialer{dialer{r.knet}, hung}
		}).start()
		until(t, "all was read", func() bool { return a.h.count() == 5 })
		a.closes(t, "connections to Kafka")
		if calls := a.h.called(); calls[len(calls)-1] != "cleanup" {
			t.Errorf("called: %v", calls)
		}
	})
}
