package allocator_test

import (
	"testing"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// A snapshot tells which partitions members are to claim: those of members in Python are not among them.
func TestClaimable(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(partitions, `["t:0", "t:1", "t:2", "t:3"]`)
		a := w.start("a", allocator.Options{})
		a.ready()
		if n := len(a.Snapshot().Claimable()); n != 4 {
			w.Errorf("%d partitions are to be claimed, want 4", n)
		}
		noerr.Must(w, w.srv.Create(members+"/python", nil))
		sleep(settle)
		s := a.Snapshot()
		if len(s.Members) != 2 || len(s.Claimable()) != 2 {
			w.Errorf("of %v, %v are to be claimed", s.Mapping(), s.Claimable())
		}
		for _, p := range s.Claimable() {
			if owner, _ := s.Planned(p); owner != "a" {
				w.Errorf("%s, of %q, is to be claimed", p, owner)
			}
		}
	})
}
