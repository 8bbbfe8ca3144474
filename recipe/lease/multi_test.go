package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/zktest"
)

func (w *world) multi(name string, count int) *lease.MultiNonBlockingLease {
	w.Helper()
	m, err := lease.NewMulti(w.session(name), path, count, lease.Options{Identifier: name, Duration: time.Minute})
	w.Must(err)
	return m
}

// all obtains all slots, or none.
func (w *world) all(m *lease.MultiNonBlockingLease) []*lease.Held {
	w.Helper()
	list, err := m.ObtainAll(w.Context())
	if err != nil && !errors.Is(err, lease.ErrNotObtained) {
		w.Fatal(err)
	}
	for _, h := range list {
		w.Cleanup(h.Detach)
	}
	return list
}

func (w *world) wantSlots(m *lease.MultiNonBlockingLease, want ...string) {
	w.Helper()
	slots, err := m.Slots(w.Context())
	if err != nil || len(slots) != len(want) || m.Len() != len(want) {
		w.Fatalf("%+v, %v", slots, err)
	}
	for i, s := range slots {
		if s.Path != path+"/"+string(rune('0'+i)) || s.Taken != (want[i] != "") || s.Taken && s.Record.Holder != want[i] {
			w.Errorf("slot %d: %+v, want %q", i, s, want[i])
		}
	}
}

func TestSlots(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.multi("a", 2), w.multi("b", 2), w.multi("c", 2)
		w.wantSlots(a, "", "")
		ha := w.obtain(anySlot{a})
		hb := w.obtain(anySlot{b})
		w.wantSlots(c, "a", "b")
		_, err := c.ObtainAny(w.Context())
		taken, ok := errors.AsType[*lease.TakenError](err)
		if !errors.Is(err, lease.ErrNotObtained) || !ok || taken.Record.Holder != "a" || c.Held() {
			w.Errorf("got %v", err)
		}
		if again := w.obtain(anySlot{a}); again != ha {
			w.Error("a second hold of one slot")
		}
		w.release(ha)
		w.wantSlots(c, "", "b")
		w.release(hb)
		w.wantSlots(c, "", "")
		if a.Held() || b.Held() {
			w.Error("still held")
		}
	})
}

// As in kazoo: who has a higher slot takes a lower one that has become free, and has both.
func TestLowerSlotFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.multi("a", 2), w.multi("b", 2)
		ha := w.obtain(anySlot{a})
		hb := w.obtain(anySlot{b})
		w.release(ha)
		lower := w.obtain(anySlot{b})
		if lower == hb || !hb.Valid() {
			w.Errorf("slots %s and %s", lower.Path(), hb.Path())
		}
		w.wantSlots(b, "b", "b")
		w.Check(hb.Renew(w.Context()))
	})
}

func TestObtainAll(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.multi("a", 3), w.multi("b", 3)
		all := w.all(a)
		if len(all) != 3 {
			w.Fatalf("%d slots", len(all))
		}
		w.wantSlots(b, "a", "a", "a")
		if w.all(b) != nil || b.Held() {
			w.Error("obtained twice")
		}
		w.wantSlots(b, "a", "a", "a")
		w.release(all[0])
		w.release(all[1])
		if w.all(b) != nil {
			w.Error("obtained with one missing")
		}
		w.wantSlots(b, "", "", "a") // what was obtained is given back

		one := w.obtain(anySlot{b})
		if w.all(b) != nil || !one.Valid() {
			w.Error("what it had before was given back, too")
		}
		w.wantSlots(b, "b", "", "a")
		w.release(all[2])
		if again := w.all(b); len(again) != 3 || again[0] != one {
			w.Error("not obtained when free")
		}
	})
}

// The caller gives up in the middle: the slot that it surely had is given back, and the one of unknown outcome is its
// identifier's.
func TestGivingUpObtainAll(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.multi("a", 3)
		client := w.Net.Client("a")
		writes := 0
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if isRecord(*r) {
				if writes++; writes == 2 {
					client.BlackHole(zktest.ToClient)
				}
			}
			return zktest.Action{}
		})
		if _, err := a.ObtainAll(w.Within(2 * time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v", err)
		}
		w.Srv.SetHook(nil)
		client.Heal()
		time.Sleep(15 * time.Second)
		w.wantSlots(a, "", "a", "")
		if all, err := a.ObtainAll(w.Context()); err != nil || len(all) != 3 {
			w.Errorf("again: %v", err)
		}
	})
}
