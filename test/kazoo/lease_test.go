package kazoo_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
)

const (
	thisHost  = "this.host"
	otherHost = "some.other.host"

	// unit is one of kazoo's seconds: holds here end by the real clock, too, and no case shall hang on that.
	unit = 10 * time.Second
)

// mockClock is kazoo's: it stands still.
type mockClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *mockClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *mockClock) forward(units int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Duration(units) * unit)
}

// renters are a case's clients and clock. Each asks with a new handle.
type renters struct {
	*world
	client1, client2, client3 *client
	clock                     *mockClock
	duration                  time.Duration
}

// rent runs a case in which leases last so long.
func rent(t *testing.T, units int, test func(r *renters)) {
	t.Helper()
	both(t, func(w *world) {
		test(&renters{
			world:   w,
			client1: w.client("client"), client2: w.client("client2"), client3: w.client("client3"),
			clock:    &mockClock{now: time.Unix(10, 0)},
			duration: time.Duration(units) * unit,
		})
	})
}

func (r *renters) opts(identifier string) lease.Options {
	return lease.Options{Identifier: identifier, Duration: r.duration, Skew: time.Second, Now: r.clock.Now}
}

// want says whether the lease shall be obtained.
func (r *renters) want(obtained bool, c *client, identifier string) {
	r.Helper()
	l := must[*lease.NonBlockingLease](r.world)(lease.New(c.Session, r.path, r.opts(identifier)))
	r.check(obtained, l.Obtain, l.Held, identifier)
}

// wantAny says whether one of count slots shall be obtained.
func (r *renters) wantAny(obtained bool, count int, c *client, identifier string) {
	r.Helper()
	l := must[*lease.MultiNonBlockingLease](r.world)(lease.NewMulti(c.Session, r.path, count, r.opts(identifier)))
	r.check(obtained, l.ObtainAny, l.Held, identifier)
}

type obtain = func(context.Context) (*lease.Held, error)

func (r *renters) check(obtained bool, f obtain, held func() bool, identifier string) {
	r.Helper()
	h, ok := try(r.world, f, lease.ErrNotObtained)
	if ok != obtained || held() != obtained {
		r.Errorf("%s obtained: %v, want %v; held: %v", identifier, ok, obtained, held())
	}
	if !ok {
		return
	}
	if record := r.data(h.Node()); !strings.Contains(record, `"holder": "`+identifier+`"`) {
		r.Errorf("%s has the lease, and the record is %s", identifier, record)
	}
}

func TestNonBlockingLease_Renew(t *testing.T) {
	rent(t, 3, func(r *renters) {
		r.want(true, r.client1, thisHost)
		r.clock.forward(2)
		r.want(true, r.client1, thisHost)
	})
}

func TestNonBlockingLease_Busy(t *testing.T) {
	rent(t, 3, func(r *renters) {
		r.want(true, r.client1, thisHost)
		r.clock.forward(2)
		r.want(false, r.client2, otherHost)
	})
}

func TestNonBlockingLease_Overtake(t *testing.T) {
	rent(t, 3, func(r *renters) {
		r.want(true, r.client1, thisHost)
		r.clock.forward(4)
		r.want(true, r.client2, otherHost)
	})
}

func TestNonBlockingLease_RenewNoOvertake(t *testing.T) {
	rent(t, 3, func(r *renters) {
		r.want(true, r.client1, thisHost)
		r.clock.forward(2)
		r.want(true, r.client1, thisHost)
		r.clock.forward(2)
		r.want(false, r.client2, otherHost)
	})
}

func TestNonBlockingLease_OvertakerRenews(t *testing.T) {
	rent(t, 3, func(r *renters) {
		r.want(true, r.client1, thisHost)
		r.clock.forward(4)
		r.want(true, r.client2, otherHost)
		r.clock.forward(2)
		r.want(true, r.client2, otherHost)
	})
}

func TestNonBlockingLease_OvertakeRefuseFirst(t *testing.T) {
	rent(t, 3, func(r *renters) {
		r.want(true, r.client1, thisHost)
		r.clock.forward(4)
		r.want(true, r.client2, otherHost)
		r.clock.forward(2)
		r.want(false, r.client1, thisHost)
	})
}

// Who writes another version of the record has the lease, to us for ever.
func TestNonBlockingLease_OldVersion(t *testing.T) {
	rent(t, 3, func(r *renters) {
		const newer = `{"version": 2, "holder": "this.host", "end": "1970-01-01T00:00:40"}`
		record := session.Join(r.path, "lease_holder")
		r.set(record, newer)
		r.clock.forward(4)
		r.want(false, r.client2, otherHost)
		r.want(false, r.client1, thisHost)
		if got := r.data(record); got != newer {
			r.Errorf("the record is %s", got)
		}
	})
}

func TestMultiNonBlockingLease_1Renew(t *testing.T) {
	rent(t, 4, func(r *renters) {
		r.wantAny(true, 1, r.client1, thisHost)
		r.clock.forward(2)
		r.wantAny(true, 1, r.client1, thisHost)
	})
}

func TestMultiNonBlockingLease_1Reject(t *testing.T) {
	rent(t, 4, func(r *renters) {
		r.wantAny(true, 1, r.client1, thisHost)
		r.clock.forward(2)
		r.wantAny(false, 1, r.client2, otherHost)
	})
}

func TestMultiNonBlockingLease_2Renew(t *testing.T) {
	rent(t, 7, func(r *renters) {
		r.wantAny(true, 2, r.client1, thisHost)
		r.clock.forward(2)
		r.wantAny(true, 2, r.client2, "host2")
		r.clock.forward(2)
		r.wantAny(true, 2, r.client1, thisHost)
		r.clock.forward(2)
		r.wantAny(true, 2, r.client2, "host2")
	})
}

func TestMultiNonBlockingLease_2Reject(t *testing.T) {
	rent(t, 7, func(r *renters) {
		r.wantAny(true, 2, r.client1, thisHost)
		r.clock.forward(2)
		r.wantAny(true, 2, r.client2, "host2")
		r.clock.forward(2)
		r.wantAny(false, 2, r.client3, "host3")
	})
}

func TestMultiNonBlockingLease_2Handover(t *testing.T) {
	rent(t, 4, func(r *renters) {
		r.wantAny(true, 2, r.client1, thisHost)
		r.clock.forward(2)
		r.wantAny(true, 2, r.client2, "host2")
		r.clock.forward(3)
		r.wantAny(true, 2, r.client3, "host3")
		r.clock.forward(2)
		r.wantAny(true, 2, r.client1, thisHost)
	})
}
