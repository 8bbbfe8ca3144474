package queue_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Once All has got an entry, it goes on after the servers have refused for a while what Get needs, after pauses that grow.
func TestAllOutlastsRefusals(t *testing.T) {
	for name, refused := range map[string]func(r zktest.Request) bool{
		"reading an entry": func(r zktest.Request) bool {
			return r.Op == zktest.OpGetData && strings.HasPrefix(r.Path, path+"/entries/")
		},
		"listing":         is(zktest.OpGetChildren2),
		"taking an entry": func(r zktest.Request) bool { return isMulti(r) && r.Ops[0].Op == zktest.OpCheck },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				q := w.locking(w.Session("a"))
				w.put(q, "one", "two")
				count, until := 0, time.Time{}
				ctx := w.Within(5 * time.Minute)
				var got []string
				var errs []error
				for h, err := range q.All(ctx) {
					if err != nil {
						errs = append(errs, err)
						continue
					}
					if got = append(got, string(h.Value())); len(got) > 1 {
						break
					}
					until = time.Now().Add(time.Minute)
					w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
						if !refused(*r) || !time.Now().Before(until) {
							return zktest.Action{}
						}
						count++
						return zktest.Action{Err: zktest.ErrNoAuth}
					})
				}
				late := time.Since(until)
				w.Srv.SetHook(nil)
				synctest.Wait()
				if !slices.Equal(got, []string{"one", "two"}) || len(errs) != 0 {
					w.Errorf("got %q, errors %v", got, errs)
				}
				if count < 10 || count > 40 || late > 6*time.Second {
					w.Errorf("refused %d times in a minute; went on %v after it", count, late)
				}
			})
		})
	}
}

// An entry that a Get may not read stays where it is.
func TestGetRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.queue(w.Session("a"))
		w.put(q, "one")
		w.Steps(recipetest.Meets(zktest.Action{Err: zktest.ErrNoAuth}, is(zktest.OpGetData)))
		if value, err := q.Get(w.Context()); value != nil || !errors.Is(err, session.ErrNoAuth) {
			w.Errorf("got %q, %v", value, err)
		}
		value, err := q.Get(w.Context())
		w.wantValue(value, err, "one", nil)
	})
}

// Before the first entry a refusal ends All.
func TestAllRefusedFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.locking(w.Session("a"))
		w.put(q, "one")
		w.Steps(recipetest.Meets(zktest.Action{Err: zktest.ErrNoAuth}, is(zktest.OpGetData)))
		steps := 0
		for h, err := range q.All(w.Context()) {
			if steps++; h != nil || !errors.Is(err, session.ErrNoAuth) {
				w.Errorf("got %v, %v", h, err)
			}
		}
		if steps != 1 {
			w.Errorf("%d steps", steps)
		}
	})
}
