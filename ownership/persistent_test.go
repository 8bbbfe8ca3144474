package ownership_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
)

// A persistent znode in the place of a claim can't go by itself: its member is told of it at once, and again and again, until an
// operator deletes it. Then the partition is owned at once.
func TestPersistentClaim(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, item := range []string{"t:1", "t:7"} {
			noerr.Must(t, w.srv.Create(owners+"/"+item, []byte(`{"owner":"x"}`)))
		}
		reg := prometheus.NewPedanticRegistry()
		w.assign(map[string]string{"a": items(3), "b": "t:3"})
		a := w.join("a", memberOptions{Options: ownership.Options{Registerer: reg}})
		b := w.join("b", memberOptions{})
		a.owns(5*time.Second, "t:0 t:2")
		b.owns(5*time.Second, "t:3")
		w.within(200*time.Millisecond, "a is told", func() bool { return a.told(ownership.ErrPersistentClaim) > 0 })
		wantUnclaimed(t, reg, unclaimed{persistent: 1})
		for _, want := range []string{fmt.Sprintf("%q", owners+"/t:1"), "delete"} {
			if err := a.errors()[0]; !strings.Contains(err.Error(), want) {
				t.Errorf("%q says nothing of %s", err, want)
			}
		}
		a.wantDisagreements("persistent-claim t:1")
		b.wantDisagreements()
		before := a.told(ownership.ErrPersistentClaim)
		time.Sleep(5 * time.Minute)
		if n := a.told(ownership.ErrPersistentClaim) - before; n < 5 || n > 40 {
			t.Errorf("told %d times in 5 minutes", n)
		}
		if len(b.errors()) > 0 {
			t.Errorf("b, whose partition it is not, is told %v", b.errors())
		}
		noerr.Must(t, w.srv.Delete(owners+"/t:1"))
		a.owns(100*time.Millisecond, items(3))
		wantUnclaimed(t, reg, unclaimed{})
		a.wantDisagreements()
		before = len(a.errors())
		time.Sleep(time.Minute)
		if errs := a.errors(); len(errs) > before {
			t.Errorf("told of %v after it is gone", errs[before:])
		}
	})
}

// A persistent znode counts only for the member whose partition it blocks, and only while it does.
func TestPersistentClaimOfAnother(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		noerr.Must(t, w.srv.Create(owners+"/t:1", nil))
		reg := prometheus.NewPedanticRegistry()
		w.assign(map[string]string{"a": items(2)})
		a := w.join("a", memberOptions{Options: ownership.Options{Registerer: reg}})
		a.owns(5*time.Second, "t:0")
		time.Sleep(time.Second)
		wantUnclaimed(t, reg, unclaimed{persistent: 1})
		w.assign(map[string]string{"a": "t:0"})
		time.Sleep(time.Second)
		wantUnclaimed(t, reg, unclaimed{})
		before := len(a.errors())
		time.Sleep(time.Minute)
		if errs := a.errors(); len(errs) > before {
			t.Errorf("told of %v, which is not a's", errs[before:])
		}
		// Its session goes, and the next one meets the same znode.
		w.assign(map[string]string{"a": items(2)})
		time.Sleep(time.Second)
		before = a.told(ownership.ErrPersistentClaim)
		w.kill(a.sessionID())
		a.owns(10*time.Second, "t:0")
		time.Sleep(time.Second)
		wantUnclaimed(t, reg, unclaimed{persistent: 1})
		if a.told(ownership.ErrPersistentClaim) == before {
			t.Error("not told in the next session")
		}
	})
}

// One short error names the first of many znodes that block partitions, and counts the others.
func TestManyPersistentClaims(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 1000 {
			noerr.Must(t, w.srv.Create(fmt.Sprintf("%s/t:%d", owners, i), nil))
		}
		reg := prometheus.NewPedanticRegistry()
		w.assign(map[string]string{"a": items(1001)})
		a := w.join("a", memberOptions{Options: ownership.Options{Registerer: reg}})
		a.owns(5*time.Second, "t:1000")
		time.Sleep(timeout + time.Second)
		wantUnclaimed(t, reg, unclaimed{persistent: 1000})
		errs := a.errors()
		if len(errs) > 3 {
			t.Errorf("told %d times", len(errs))
		}
		if last := errs[len(errs)-1].Error(); len(last) > 600 || !strings.Contains(last, "995 more") {
			t.Errorf("told %q", last)
		}
	})
}

// A claim of another session is waited for without such an error, and one that takes the place of a persistent znode ends it.
func TestForeignClaimIsNotPersistent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		other := w.join("other", memberOptions{})
		w.within(5*time.Second, "a session", func() bool { return other.sessionID() != 0 })
		inc := other.ses.Current()
		foreign := func() {
			noerr.Must(t, inc.EnsurePath(t.Context(), owners))
			noerr.Last(t)(inc.Create(t.Context(), owners+"/t:0", []byte(`{"owner":"other"}`), session.Ephemeral))
		}
		foreign()
		w.assign(map[string]string{"a": "t:0"})
		a := w.join("a", memberOptions{Options: ownership.Options{Registerer: reg}})
		time.Sleep(2 * time.Minute)
		if len(a.errors()) > 0 || a.owned() != "" {
			t.Errorf("owns %q, told %v", a.owned(), a.errors())
		}
		wantUnclaimed(t, reg, unclaimed{})

		w.srv.Freeze() // a must not claim it in between
		noerr.Must(t, errors.Join(w.srv.Delete(owners+"/t:0"), w.srv.Create(owners+"/t:0", nil)))
		w.srv.Thaw()
		w.within(time.Second, "told", func() bool { return a.told(ownership.ErrPersistentClaim) > 0 })
		wantUnclaimed(t, reg, unclaimed{persistent: 1})
		w.nw.Client("a").Delay(50 * time.Millisecond) // a sees nothing of what is in between
		noerr.Must(t, w.srv.Delete(owners+"/t:0"))
		foreign()
		time.Sleep(time.Second)
		wantUnclaimed(t, reg, unclaimed{})
		before := len(a.errors())
		time.Sleep(time.Minute)
		if errs := a.errors(); len(errs) > before {
			t.Errorf("told of %v", errs[before:])
		}
	})
}
