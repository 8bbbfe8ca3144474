package allocator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/zktest"
)

// TestRestoredFromABackup: partitions that were added after the backup are in the set again soon, whatever the members can see of
// the restore; a partition that was removed before the backup stays removed, and so does one that an operator removes while no
// member has a session.
func TestRestoredFromABackup(t *testing.T) {
	for _, opts := range []zktest.RestoreOptions{{}, {ForgetSessions: true}, {Elect: true}, {Elect: true, ForgetSessions: true}} {
		for _, down := range []time.Duration{0, 2 * time.Second, time.Minute} {
			t.Run(fmt.Sprintf("%+v/%v", opts, down), func(t *testing.T) {
				inWorld(t, func(w *world) {
					seed := allocator.Options{Seed: map[string][]int32{"t": ids(4)}}
					a, b := w.start("a", seed), w.start("b", seed)
					a.ready()
					b.ready()
					sleep(settle) // both have seen the whole seed in the set
					remove(w, b, 3)
					sleep(settle)
					backup := w.srv.Backup()
					noerr.Must(w, a.AddPartitions(w.Context(), map[string][]int32{"t": {4, 5}}))
					remove(w, a, 2)
					sleep(time.Minute)
					w.agree(allocfn.RoundRobin(), []string{"a", "b"}, []string{"t:0", "t:1", "t:4", "t:5"})

					w.srv.Down()
					sleep(down)
					w.srv.Restore(backup, opts)
					sleep(8*timeout + settle) // servers turn members away, until they ask anew whether their session lives
					w.agree(allocfn.RoundRobin(), []string{"a", "b"}, []string{"t:0", "t:1", "t:2", "t:4", "t:5"})

					// Nothing is added again that is removed now.
					w.srv.Down()
					sleep(down)
					w.srv.Restart(false)
					noerr.Must(w, w.srv.Set(partitions, []byte(`["t:0", "t:1"]`)))
					sleep(5 * time.Minute)
					w.agree(allocfn.RoundRobin(), []string{"a", "b"}, []string{"t:0", "t:1"})
				})
			})
		}
	}
}

func remove(t recipetest.TB, n *node, id int32) {
	t.Helper()
	noerr.Must(t, n.RemovePartitions(t.Context(), map[string][]int32{"t": {id}}))
}
