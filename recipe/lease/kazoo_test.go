package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
)

// The test cases of kazoo's test_lease.py, under their names: a new handle for each of its
// objects, its clock, and its durations.

const (
	here  = "this.host"
	other = "some.other.host"
)

// kazoo is a test case's clients and clock.
type kazoo struct {
	*world
	client, client2, client3 *session.Session
	clock                    *mockClock
	duration                 time.Duration
}

func asKazoo(t *testing.T, seconds int, test func(k *kazoo)) {
	t.Helper()
	inWorld(t, func(w *world) {
		test(&kazoo{
			world: w, client: w.session("1"), client2: w.session("2"), client3: w.session("3"),
			clock: newMockClock(), duration: time.Duration(seconds) * time.Second,
		})
	})
}

func (k *kazoo) opts(identifier string) lease.Options {
	return lease.Options{Identifier: identifier, Duration: k.duration, Skew: time.Second, Now: k.clock.Now}
}

// want makes a handle, and says whether it shall obtain the lease.
func (k *kazoo) want(obtained bool, s *session.Session, identifier string) {
	k.Helper()
	l := k.leaseIn(s, k.opts(identifier))
	if h := k.try(l); (h != nil) != obtained || l.Held() != obtained {
		k.Errorf("%s obtained: %v, want %v; held: %v", identifier, h != nil, obtained, l.Held())
	}
}

func TestRenew(t *testing.T) {
	asKazoo(t, 3, func(k *kazoo) {
		k.want(true, k.client, here)
		k.clock.forward(2)
		k.want(true, k.client, here)
	})
}

func TestBusy(t *testing.T) {
	asKazoo(t, 3, func(k *kazoo) {
		k.want(true, k.client, here)
		k.clock.forward(2)
		k.want(false, k.client2, other)
	})
}

func TestOvertake(t *testing.T) {
	asKazoo(t, 3, func(k *kazoo) {
		k.want(true, k.client, here)
		k.clock.forward(4)
		k.want(true, k.client2, other)
	})
}

func TestRenewNoOvertake(t *testing.T) {
	asKazoo(t, 3, func(k *kazoo) {
		k.want(true, k.client, here)
		k.clock.forward(2)
		k.want(true, k.client, here)
		k.clock.forward(2)
		k.want(false, k.client2, other)
	})
}

func TestOvertakerRenews(t *testing.T) {
	asKazoo(t, 3, func(k *kazoo) {
		k.want(true, k.client, here)
		k.clock.forward(4)
		k.want(true, k.client2, other)
		k.clock.forward(2)
		k.want(true, k.client2, other)
	})
}

func TestOvertakeRefuseFirst(t *testing.T) {
	asKazoo(t, 3, func(k *kazoo) {
		k.want(true, k.client, here)
		k.clock.forward(4)
		k.want(true, k.client2, other)
		k.clock.forward(2)
		k.want(false, k.client, here)
	})
}

func TestOldVersion(t *testing.T) {
	asKazoo(t, 3, func(k *kazoo) {
		newer := `{"version": 2, "holder": "this.host", "end": "1970-01-01T00:00:13"}`
		if err := k.srv.Create(node, []byte(newer)); err != nil {
			k.Fatal(err)
		}
		k.clock.forward(4)
		k.want(false, k.client2, other)
		k.want(false, k.client, here)
		if r := k.record(); r != newer {
			k.Errorf("record %s", r)
		}
	})
}

// any obtains one of some slots.
type anySlot struct{ *lease.MultiNonBlockingLease }

func (m anySlot) Obtain(ctx context.Context) (*lease.Held, error) { return m.ObtainAny(ctx) }

func (k *kazoo) wantAny(obtained bool, count int, s *session.Session, identifier string) {
	k.Helper()
	m, err := lease.NewMulti(s, path, count, k.opts(identifier))
	if err != nil {
		k.Fatal(err)
	}
	if h := k.try(anySlot{m}); (h != nil) != obtained || m.Held() != obtained {
		k.Errorf("%s obtained: %v, want %v; held: %v", identifier, h != nil, obtained, m.Held())
	}
}

func Test1Renew(t *testing.T) {
	asKazoo(t, 4, func(k *kazoo) {
		k.wantAny(true, 1, k.client, here)
		k.clock.forward(2)
		k.wantAny(true, 1, k.client, here)
	})
}

func Test1Reject(t *testing.T) {
	asKazoo(t, 4, func(k *kazoo) {
		k.wantAny(true, 1, k.client, here)
		k.clock.forward(2)
		k.wantAny(false, 1, k.client2, other)
	})
}

func Test2Renew(t *testing.T) {
	asKazoo(t, 7, func(k *kazoo) {
		k.wantAny(true, 2, k.client, here)
		k.clock.forward(2)
		k.wantAny(true, 2, k.client2, "host2")
		k.clock.forward(2)
		k.wantAny(true, 2, k.client, here)
		k.clock.forward(2)
		k.wantAny(true, 2, k.client2, "host2")
	})
}

func Test2Reject(t *testing.T) {
	asKazoo(t, 7, func(k *kazoo) {
		k.wantAny(true, 2, k.client, here)
		k.clock.forward(2)
		k.wantAny(true, 2, k.client2, "host2")
		k.clock.forward(2)
		k.wantAny(false, 2, k.client3, "host3")
	})
}

func Test2Handover(t *testing.T) {
	asKazoo(t, 4, func(k *kazoo) {
		k.wantAny(true, 2, k.client, here)
		k.clock.forward(2)
		k.wantAny(true, 2, k.client2, "host2")
		k.clock.forward(3)
		k.wantAny(true, 2, k.client3, "host3")
		k.clock.forward(2)
		k.wantAny(true, 2, k.client, here)
	})
}
