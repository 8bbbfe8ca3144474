package zones_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/zones"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Read returns the zones as they are, none if there is no znode, and why they can't be read.
func TestRead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		inc, err := w.Session("reader").Incarnation(w.Context())
		noerr.Must(t, err)
		read := func() (map[kiel.Partition]string, error) { return zones.Read(w.Context(), inc, path) }
		if got, err := read(); err != nil || len(got) != 0 {
			t.Errorf("without a znode: %v, %v", got, err)
		}
		want := map[kiel.Partition]string{{Topic: "t", ID: 1}: "a"}
		noerr.Must(t, w.zones("a").Update(w.Context(), set(want)))
		if got, err := read(); err != nil || !maps.Equal(got, want) {
			t.Errorf("got %v, %v", got, err)
		}
		w.Write(path, "nonsense")
		if got, err := read(); !errors.Is(err, zones.ErrUnreadable) || got != nil {
			t.Errorf("of nonsense: %v, %v", got, err)
		}
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Path == path && r.Op == zktest.OpGetData {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		if got, err := read(); !errors.Is(err, session.ErrNoAuth) || got != nil {
			t.Errorf("without the right to: %v, %v", got, err)
		}
	})
}
