package sharedset_test

import (
	"testing"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/zktest"
)

// Whether there is anything to do is judged after a Sync: a server that is behind shows a set that was.
func TestNothingToDoOnAServerThatIsBehind(t *testing.T) {
	for name, change := range map[string]func(w *world, s *sharedset.Set){
		"add":    func(w *world, s *sharedset.Set) { w.add(s, 1, "t:1") },
		"remove": func(w *world, s *sharedset.Set) { w.remove(s, 1, "t:2") },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.Write(path, `["t:0", "t:2"]`)
				w.Write("/behind", `["t:0", "t:1"]`) // the set as it was
				s := w.set("a", sharedset.Options{})
				synced := false
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					switch {
					case r.Op == zktest.OpSync:
						synced = true
					case !synced && r.Op == zktest.OpGetData && r.Path == path:
						r.Path = "/behind"
					}
					return zktest.Action{}
				})
				change(w, s)
			})
		})
	}
}
