package kazoo_test

import (
	"testing"

	"github.com/kielgo/kiel/session"
)

// A ready that a crash has left behind is no signal: kazoo's first member goes in alone.
func TestStaleReady(t *testing.T) {
	both(t, func(w *world) {
		w.create(w.path, "ready")
		one, two := w.double(w.client("client"), w.path, 2), w.double(w.client("client2"), w.path, 2)
		entering := w.enter(one)
		w.until("the first is in, and ready is not", func() bool {
			names := w.children(w.path)
			return len(names) == 1 && names[0] != "ready"
		})
		w.goOn(entering)
		if one.Participating() {
			w.Error("it went in alone")
		}
		second := w.enter(two).get(w)
		first := entering.get(w)
		w.wantUnset(session.Join(w.path, "ready"))
		leaving := w.leaveBarrier(first)
		w.goOn(leaving)
		w.leaveBarrier(second).get(w)
		leaving.get(w)
		w.wantList("children", w.children(w.path))
	})
}

// Beside a member it is not stale: who comes late goes in, and does not shut in the one who is inside.
func TestReadyBesideAMember(t *testing.T) {
	both(t, func(w *world) {
		w.create(w.path, "ready", "514e5a831836450cb1a56c741e990fd8")
		m := w.enter(w.double(w.client("client"), w.path, 3)).get(w)
		if len(w.children(w.path)) != 3 {
			w.Errorf("children %q", w.children(w.path))
		}
		leaving := w.leaveBarrier(m)
		w.goOn(leaving)
		w.remove(session.Join(w.path, "514e5a831836450cb1a56c741e990fd8"))
		leaving.get(w)
		w.wantList("children", w.children(w.path))
	})
}
