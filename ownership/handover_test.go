package ownership_test

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		a := w.join("a", memberOptions{})
		w.assign(map[string]string{"a": items(6)})
		t.Logf("first claims after %v", a.owns(5*time.Second, items(6)))

		b := w.join("b", memberOptions{})
		b.brain.assign(w.owner)
		time.Sleep(time.Second)
		before := a.token("t:3")
		w.assign(map[string]string{"a": "t:0 t:1 t:2", "b": "t:3 t:4 t:5"})
		b.owns(time.Second, "t:3 t:4 t:5")
		a.owns(time.Second, "t:0 t:1 t:2")
		if after := b.token("t:3"); after <= before {
			t.Errorf("token %d after %d", after, before)
		}
		if got, want := w.journal.kinds("a", part("t:3")), "joined claimed revoking released"; got != want {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}
