package ownership_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

// A claim that vanishes now and then is no claim that vanishes in a row: it is made again at once.
func TestClaimThatVanishesNowAndThen(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.journal.loosen(part("t:0"))
		a := w.owning("a", "t:0", memberOptions{})
		for range 6 {
			time.Sleep(2 * time.Minute)
			noerr.Must(t, w.srv.Delete(owners+"/t:0"))
			time.Sleep(50 * time.Millisecond)
			if w.holder("t:0") == 0 {
				t.Error("not claimed again at once")
			}
			a.owns(time.Minute, "t:0")
		}
	})
}

// A partition that Accept refuses is told once, and once more when it was accepted in between.
func TestRefusedAgainIsToldAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var refuse atomic.Bool
		a := w.owning("a", "t:0", memberOptions{Options: ownership.Options{Accept: func(kiel.Partition) error {
			if refuse.Load() {
				return errors.New("not now")
			}
			return nil
		}}})
		for i := range 3 {
			refuse.Store(true)
			w.assign(map[string]string{"a": "t:0"})
			time.Sleep(time.Second)
			w.assign(map[string]string{"a": "t:0", "b": "t:1"})
			time.Sleep(time.Second)
			if n := a.told(ownership.ErrUnclaimed); n != i+1 {
				t.Errorf("told %d times after %d refusals", n, i+1)
			}
			refuse.Store(false)
			w.assign(map[string]string{"a": "t:0"})
			a.owns(5*time.Second, "t:0")
		}
	})
}

// A sweep does not look again at claims of another member, or at claims that were released.
func TestSweepsLookOnceAtWhatOthersHave(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.owning("a", "t:0 t:1 t:2", memberOptions{})
		b := w.join("b", memberOptions{})
		time.Sleep(time.Second)
		w.assign(map[string]string{"a": "t:0", "b": "t:1"})
		b.owns(time.Second, "t:1")
		time.Sleep(3 * timeout)
		var looks atomic.Int32
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Client == "a" && (r.Path == owners+"/t:1" || r.Path == owners+"/t:2") {
				looks.Add(1)
			}
			return zktest.Action{}
		})
		time.Sleep(10 * timeout)
		if n := looks.Load(); n > 0 {
			t.Errorf("looked %d times in ten session timeouts", n)
		}
	})
}
