package kazoo_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
)

// unit is one of kazoo's seconds: holds here end by the real clock, too, and no case shall hang on that.
const unit = 10 * time.Second

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
	clients  []renter
	clock    *mockClock
	duration time.Duration
	slots    int // of which one is asked for; 0 is for a lease without slots
}

type renter struct {
	*client
	host string // the identifier
}

// step is one of a case's.
type step func(r *renters)

// rent runs a case in which a lease lasts so long.
func rent(t *testing.T, units int, steps ...step) {
	t.Helper()
	both(t, func(w *world) { newRenters(w, units, 0).do(steps) })
}

// rentAny runs a case in which there are so many slots.
func rentAny(t *testing.T, slots, units int, steps ...step) {
	t.Helper()
	both(t, func(w *world) { newRenters(w, units, slots).do(steps) })
}

func newRenters(w *world, units, slots int) *renters {
	w.Helper()
	return &renters{
		world: w,
		clients: []renter{
			{w.client("client"), "this.host"}, {w.client("client2"), "some.other.host"}, {w.client("client3"), "host3"},
		},
		clock:    &mockClock{now: time.Unix(10, 0)},
		duration: time.Duration(units) * unit,
		slots:    slots,
	}
}

func (r *renters) do(steps []step) {
	for _, do := range steps {
		do(r)
	}
}

// passed lets time pass.
func passed(units int) step { return func(r *renters) { r.clock.forward(units) } }

// obtains has a client ask for the lease and get it, refused ask and not get it. Clients count from one.
func obtains(number int) step { return func(r *renters) { r.want(true, number) } }
func refused(number int) step { return func(r *renters) { r.want(false, number) } }

func (r *renters) want(obtained bool, number int) {
	r.Helper()
	c := r.clients[number-1]
	what := fmt.Sprintf("client %d, at %v", number, r.clock.Now().Sub(time.Unix(10, 0)))
	opts := lease.Options{Identifier: c.host, Duration: r.duration, Skew: time.Second, Now: r.clock.Now}
	var h *lease.Held
	var ok, held bool
	if r.slots == 0 {
		l := must[*lease.NonBlockingLease](r.world)(lease.New(c.Session, r.path, opts))
		h, ok = try(r.world, l.Obtain, lease.ErrNotObtained)
		held = l.Held()
	} else {
		l := must[*lease.MultiNonBlockingLease](r.world)(lease.NewMulti(c.Session, r.path, r.slots, opts))
		h, ok = try(r.world, l.ObtainAny, lease.ErrNotObtained)
		held = l.Held()
	}
	if ok != obtained || held != obtained {
		r.Errorf("%s: obtained: %v, want %v; held: %v", what, ok, obtained, held)
	}
	if !ok {
		return
	}
	if record := r.data(h.Node()); !strings.Contains(record, `"holder": "`+c.host+`"`) {
		r.Errorf("%s has the lease, and the record is %s", what, record)
	}
}

func TestNonBlockingLease_Renew(t *testing.T) {
	rent(t, 3, obtains(1), passed(2), obtains(1))
}

func TestNonBlockingLease_Busy(t *testing.T) {
	rent(t, 3, obtains(1), passed(2), refused(2))
}

func TestNonBlockingLease_Overtake(t *testing.T) {
	rent(t, 3, obtains(1), passed(4), obtains(2))
}

func TestNonBlockingLease_RenewNoOvertake(t *testing.T) {
	rent(t, 3, obtains(1), passed(2), obtains(1), passed(2), refused(2))
}

func TestNonBlockingLease_OvertakerRenews(t *testing.T) {
	rent(t, 3, obtains(1), passed(4), obtains(2), passed(2), obtains(2))
}

func TestNonBlockingLease_OvertakeRefuseFirst(t *testing.T) {
	rent(t, 3, obtains(1), passed(4), obtains(2), passed(2), refused(1))
}

// Who writes another version of the record has the lease, to us for ever.
func TestNonBlockingLease_OldVersion(t *testing.T) {
	const newer = `{"version": 2, "holder": "this.host", "end": "1970-01-01T00:00:40"}`
	record := func(r *renters) string { return session.Join(r.path, "lease_holder") }
	rent(t, 3,
		func(r *renters) { r.set(record(r), newer) },
		passed(4), refused(2), refused(1),
		func(r *renters) {
			if got := r.data(record(r)); got != newer {
				r.Errorf("the record is %s", got)
			}
		})
}

func TestMultiNonBlockingLease_1Renew(t *testing.T) {
	rentAny(t, 1, 4, obtains(1), passed(2), obtains(1))
}

func TestMultiNonBlockingLease_1Reject(t *testing.T) {
	rentAny(t, 1, 4, obtains(1), passed(2), refused(2))
}

func TestMultiNonBlockingLease_2Renew(t *testing.T) {
	rentAny(t, 2, 7, obtains(1), passed(2), obtains(2), passed(2), obtains(1), passed(2), obtains(2))
}

func TestMultiNonBlockingLease_2Reject(t *testing.T) {
	rentAny(t, 2, 7, obtains(1), passed(2), obtains(2), passed(2), refused(3))
}

func TestMultiNonBlockingLease_2Handover(t *testing.T) {
	rentAny(t, 2, 4, obtains(1), passed(2), obtains(2), passed(3), obtains(3), passed(2), obtains(1))
}
