package sharedset_test

import (
	"testing"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/zktest"
)

// The session ends right after a write without an answer, and the lock with it. When it is acquired again there is nothing left
// to change; the number is that of the write.
func TestSessionKilledAfterTheWrite(t *testing.T) {
	for op, want := range map[string]string{"add": `["t:0", "t:1", "t:2"]`, "remove": `["t:0"]`} {
		t.Run(op, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.Write(path, `["t:0"]`)
				s := w.set("a", sharedset.Options{})
				change := w.add
				if op == "remove" {
					w.add(s, 2, "t:1", "t:2")
					change = w.remove
				}
				_, before, _ := w.Srv.Get(path)
				written, killed := false, false
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					switch {
					case isWrite(r) && !written:
						written = true
						return zktest.Action{LoseReply: true}
					case written && !killed:
						killed = true
						w.Srv.KillSession(w.Srv.Sessions()[0].ID)
					}
					return zktest.Action{}
				})
				change(s, 2, "t:1", "t:2")
				w.wantData(want)
				if _, stat, _ := w.Srv.Get(path); stat.Version != before.Version+1 {
					w.Errorf("%d writes", stat.Version-before.Version)
				}
				if !killed {
					w.Error("the session has not ended: the test proves nothing")
				}
				w.wantNoContenders()
			})
		})
	}
}
