package partitioner_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The harms that executions here do without the rule that answers them (test/mutants).
const (
	failsByItself = "a member fails beside what is left of itself"
	olderFails    = "the older of two namesakes fails"
	nobodys       = "an item is nobody's"
	restless      = "items go from hand to hand while members come and go"
)

// §15, ghosts: a member is restarted while its old znode, and its old locks, still exist.
func TestRestartBesideItsOldSelf(t *testing.T) {
	inWorld(t, func(w *world) {
		s, _ := recipetest.Stoppable(w, w.Net, "old", session.Options{Timeout: 30 * time.Second}) // longer than that of its new self
		old, err := s.Incarnation(w.Context())
		w.Must(err)
		w.Must(old.EnsurePath(w.Context(), path+"/party"))
		if _, err := old.Create(w.Context(), path+"/party/514e5a831836450cb1a56c741e990fd8-same", nil, session.Ephemeral); err != nil {
			w.Fatal(err)
		}
		held := w.locked(w.Session("old lock"), "0")
		w.Net.Client("old").BlackHole(zktest.Both) // it dies
		m := w.member("same", []string{"0", "1"}, partitioner.Options{})
		m.start()
		time.Sleep(time.Second)
		w.Must(held.Release(w.Context()))
		for i := 0; i < 60 && len(m.Items()) != 2 && !m.Failed(); i++ {
			time.Sleep(time.Second)
			m.releaseIfItMust()
		}
		if m.Failed() && errors.Is(m.Snapshot().Err, partitioner.ErrDuplicate) {
			w.Errorf(failsByItself+": %v", m.Snapshot().Err)
			return
		}
		m.wantItems("0", "1")
	})
}

// §15: two members have one identifier. The later one fails, after the time for which a dead member's znode can stand. The other
// one keeps all items.
func TestDuplicateIdentifier(t *testing.T) {
	for _, after := range []time.Duration{0, 30 * time.Second} { // the first has had the items for long
		inWorld(t, func(w *world) {
			first, second := namesakes(w, after)
			if first.Failed() && errors.Is(first.Snapshot().Err, partitioner.ErrDuplicate) {
				w.Fatalf(olderFails+": %v", first.Snapshot().Err)
			}
			second.failed(partitioner.ErrDuplicate)
			first.wantItems("a", "b", "c", "d")
		})
	}
}

// namesakes starts two members with one identifier, the second after a pause, and returns after the time in which one of them
// fails. The second has the longer boundary: it also notices later.
func namesakes(w *world, after time.Duration) (first, second *member) {
	w.Helper()
	set := []string{"a", "b", "c", "d"}
	first, second = w.member("same", set, partitioner.Options{}), w.memberIn(w.Session("other"), "same", set, partitioner.Options{TimeBoundary: time.Second})
	first.start()
	time.Sleep(after)
	start := time.Now()
	second.start()
	for time.Since(start) < time.Minute {
		for _, m := range []*member{first, second} {
			m.releaseIfItMust()
		}
		if d := time.Since(start); second.Failed() && d < 40*time.Second {
			w.Fatalf("failed after %v", d)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return first, second
}

// memberOr returns a member with these items. If New refuses them the member gets others.
func (w *world) memberOr(items, otherwise []string, order partitioner.Order) *member {
	w.Helper()
	s := w.Session("g")
	opts := partitioner.Options{Identifier: "g", TimeBoundary: boundary}
	p, err := partitioner.New(s, path, items, opts)
	if err != nil {
		opts.Order = order
		return w.memberIn(s, "g", otherwise, opts)
	}
	return &member{SetPartitioner: p, w: w, session: s}
}

// §15, order: 11 items, which Python has as int. If the Go member sorted them as text, both members would want four of them, and
// nobody would want four others. New refuses to guess.
func TestItemsInTheOrderOfPython(t *testing.T) {
	inWorld(t, func(w *world) {
		python, err := w.Session("python").Incarnation(w.Context())
		w.Must(err)
		add := func(dir, name string, mode session.Mode) {
			w.Must(python.EnsurePath(w.Context(), dir))
			if _, err := python.Create(w.Context(), dir+"/0123456789abcdef0123456789abcdef"+name, nil, mode); err != nil {
				w.Fatal(err)
			}
		}
		var items []string
		for i := range 11 {
			items = append(items, fmt.Sprint(i))
		}
		// kazoo's default function in Python, for the second of two members.
		owned := map[string]bool{}
		for i := 1; i < 11; i += 2 {
			owned[items[i]] = true
			add(path+"/locks/"+items[i], "__lock__", session.EphemeralSequential)
		}
		add(path+"/party", "-python", session.Ephemeral)
		m := w.memberOr(items, items, partitioner.OrderNumeric)
		m.start()
		time.Sleep(time.Minute)
		for _, item := range m.Items() {
			if owned[item] {
				w.Errorf("two have %s", item)
			}
			owned[item] = true
		}
		if len(owned) != len(items) {
			w.Errorf(nobodys+": %d of %d are owned", len(owned), len(items))
		}
	})
}

// §15: two items have one path, so one lock; and an item is named like a contender for another's lock. New refuses both sets.
func TestItemsInEachOthersWay(t *testing.T) {
	for what, items := range map[string][]string{"one path": {"a/b", "a//b"}, "like contender": {"a", "a/b__lock__0000000000"}} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				m := w.memberOr(items, []string{"a", "b"}, partitioner.OrderUnset)
				m.start()
				// Another member comes and goes, so that the locks are acquired twice.
				for range 2 {
					time.Sleep(10 * time.Second)
					w.Must(w.Srv.Create(guest, nil))
					time.Sleep(time.Second)
					m.releaseIfItMust()
					w.Must(w.Srv.Delete(guest))
					time.Sleep(time.Second)
					m.releaseIfItMust()
				}
				time.Sleep(time.Minute)
				if n := len(m.Items()); n != 2 {
					w.Errorf(nobodys+": %d of two are owned, %v; znodes:\n%s", n, m.State(), w.Srv.Dump())
				}
			})
		})
	}
}

// §15, churn: a member comes and goes every 0.45 s, and the boundary is 1 s. Nobody has any item then, as promised: that is
// better than work that is given up at once. After a boundary without changes every item belongs to exactly one member.
func TestChurn(t *testing.T) {
	inWorld(t, func(w *world) {
		set := []string{"0", "1", "2", "3", "4"}
		opts := partitioner.Options{TimeBoundary: time.Second}
		one, two := w.member("p0", set, opts), w.member("p1", set, opts)
		both := []*member{one, two}
		for _, m := range both {
			m.start()
		}
		time.Sleep(5 * time.Second)
		owned := 0
		changed := func(i int, err error) {
			w.Must(err)
			time.Sleep(25 * time.Millisecond)
			for _, m := range both {
				m.releaseIfItMust()
			}
			time.Sleep(200 * time.Millisecond)
			for _, m := range both {
				if i > 0 {
					owned += len(m.Items())
				}
			}
		}
		for i := range 60 {
			changed(i, w.Srv.Create(guest, nil))
			changed(i, w.Srv.Delete(guest))
		}
		if owned > 0 {
			w.Errorf(restless+": %d times, an item had an owner for a fifth of a second", owned)
		}
		time.Sleep(time.Second + 100*time.Millisecond)
		all := append(one.Items(), two.Items()...)
		slices.Sort(all)
		if !slices.Equal(all, set) {
			w.Errorf("owned: %q", all)
		}
	})
}
