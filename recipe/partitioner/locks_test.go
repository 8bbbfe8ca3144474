package partitioner_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/partitioner"
)

// many returns a set of n items.
func many(n int) []string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf("item-%03d", i)
	}
	return items
}

// all picks all items for each member: the members disagree about their shares.
func all(_ string, _, items []string) ([]string, error) { return items, nil }

// own returns the number of contenders of a member's session.
func (w *world) own(m *member) int {
	w.Helper()
	n, owner := 0, fmt.Sprintf("%#x", m.session.Stats().SessionID)
	for _, line := range w.contenders() {
		if strings.Contains(line, owner) {
			n++
		}
	}
	return n
}

// A member acquires the locks of many items at once. One lock takes three round trips, or seven when its directory is missing.
func TestManyLocksAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		const items, way = 300, 10 * time.Millisecond
		m := w.member("p0", many(items), partitioner.Options{})
		w.Net.Client("p0").Delay(way)
		m.start()
		for round, limit := range []time.Duration{2 * time.Second, time.Second} {
			start := time.Now()
			m.wait(partitioner.Acquired)
			if took := time.Since(start); took > limit {
				w.Errorf("round %d: acquired %d items after %v, want at most %v", round, items, took, limit)
			}
			if n := w.own(m); n != items || !m.Allocation().Valid() {
				w.Errorf("round %d: %d contenders stand", round, n)
			}
			m.releaseSet()
		}
	})
}

// A member that waits for a lock holds none of those behind it in the order of its share, and acquires them afterwards.
func TestNothingIsHeldBehindALockThatIsWaitedFor(t *testing.T) {
	inWorld(t, func(w *world) {
		items := many(150)
		var others []*lock.Held
		other := w.Session("other")
		for _, at := range []int{20, 21, 90, 149} {
			others = append(others, w.locked(other, items[at]))
		}
		m := w.join("p0", items...)
		for i, want := range []int{21, 22, 91, 150} { // the locks in front, and the one that it waits for
			time.Sleep(10 * time.Second)
			if n := w.own(m); n != want || !m.Allocating() {
				w.Errorf("%v with %d contenders, want ALLOCATING with %d", m.State(), n, want)
			}
			w.Must(others[i].Release(w.Context()))
		}
		m.wantItems(items...)
	})
}

// Two members want the same items, and start at the same time. One acquires all of them, however their requests meet, and then
// the other.
func TestMembersWhoDisagreeDoNotBlockEachOther(t *testing.T) {
	for i := range 8 {
		inWorld(t, func(w *world) {
			opts := partitioner.Options{Func: all}
			both := []*member{w.member("p0", many(100), opts), w.member("p1", many(100), opts)}
			for k, m := range both {
				w.Net.Client(m.Identifier()).Delay(time.Duration(1+(i>>k)%3) * time.Millisecond)
				go func() {
					w.Check(m.Start(w.Context()))
				}()
			}
			time.Sleep(20 * time.Second)
			first, second := both[0], both[1]
			if second.Acquired() {
				first, second = second, first
			}
			if !first.Acquired() || second.Acquired() {
				w.Errorf("%d: %v and %v, want one of them ACQUIRED", i, first.State(), second.State())
			}
			first.finish()
			second.wait(partitioner.Acquired)
			second.finish()
			w.clean()
		})
	}
}

// The members change while a member acquires many locks: it gives back what it has, and acquires its new share.
func TestMembersChangeWhileManyLocksAreAcquired(t *testing.T) {
	inWorld(t, func(w *world) {
		items := many(400)
		m := w.member("p0", items, partitioner.Options{TimeBoundary: 10 * time.Second})
		w.Net.Client("p0").Delay(10 * time.Millisecond)
		m.start()
		time.Sleep(10*time.Second + 300*time.Millisecond)
		if n := w.own(m); n == 0 || n == len(items) || !m.Allocating() {
			w.Fatalf("%v with %d contenders: the test proves nothing", m.State(), n)
		}
		w.Must(w.Srv.Create(guest, nil))
		time.Sleep(time.Second)
		if n := w.own(m); n != 0 {
			w.Errorf("%d contenders stand after the members have changed", n)
		}
		m.wait(partitioner.Acquired)
		if n := w.own(m); n != len(items)/2 || len(m.Items()) != n {
			w.Errorf("%d contenders for %d items, want %d", n, len(m.Items()), len(items)/2)
		}
	})
}
