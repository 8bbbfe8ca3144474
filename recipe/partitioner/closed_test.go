package partitioner_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// One context ends the session and the partitioner, which waits for a lock. While the servers can be reached no znode is left
// when Run returns; while they can't be reached, Run returns ErrUnfinished.
func TestOneContextForAll(t *testing.T) {
	for name, tt := range map[string]struct {
		opts session.Options
		away bool
	}{
		"servers there":                        {},
		"servers away":                         {away: true},
		"servers away, and the session closed": {away: true, opts: session.Options{StopTimeout: time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if err := w.Srv.Create(blocker, nil); err != nil {
					t.Fatal(err)
				}
				s, stop := recipetest.Stoppable(w, w.Net, "p0", tt.opts)
				r := w.run(w.memberIn(s, "p0", []string{"0", "1"}, partitioner.Options{}), nil)
				w.waits(r.member)
				if tt.away {
					w.Net.Client("p0").BlackHole(zktest.Both)
				} else {
					w.Net.Client("p0").Delay(50 * time.Millisecond)
				}
				start := time.Now()
				go stop()
				r.cancel()
				err := <-r.done
				stands := len(append(w.contenders(), w.Srv.Children(path+"/party")...)) > 1
				if stands != tt.away || errors.Is(err, partitioner.ErrUnfinished) != stands {
					t.Errorf("something stands: %v, after %v: %v", stands, time.Since(start), err)
				}
				if err != nil && tt.opts.StopTimeout > 0 && !errors.Is(err, session.ErrClosed) {
					t.Errorf("got %v", err)
				}
				stop()
				time.Sleep(time.Minute)
				if list := append(w.contenders(), w.Srv.Children(path+"/party")...); len(list) != 1 {
					t.Errorf("left: %q", list)
				}
			})
		})
	}
}

// The session's Run has ended, or was never called: Finish, too, returns ErrUnfinished if znodes may exist, and not if none was
// ever created.
func TestFinishAfterTheSession(t *testing.T) {
	for _, early := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			s, stop := recipetest.Stoppable(w, w.Net, "p0", session.Options{StopTimeout: time.Millisecond})
			m := w.memberIn(s, "p0", []string{"0"}, partitioner.Options{})
			if early {
				stop()
			}
			if err := m.Start(t.Context()); errors.Is(err, session.ErrClosed) != early || !early && err != nil {
				t.Errorf("start: %v", err)
			}
			if !early {
				w.Net.Client("p0").BlackHole(zktest.Both)
				stop()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := m.Finish(ctx)
			if errors.Is(err, partitioner.ErrUnfinished) == early || early && err != nil {
				t.Errorf("finish: %v", err)
			}
		})
	}
}

// The servers refuse the credentials of a member that has items. It has no session any more, so it fails at once, without a
// ReleaseSet.
func TestCredentialsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.join("p0", "0", "1")
		m.wantItems("0", "1")
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpExists && strings.Contains(r.Path, "__lock__") {
				return zktest.Action{Err: zktest.ErrAuthFailed}
			}
			return zktest.Action{}
		})
		<-m.Snapshot().Changed()
		if now := m.Snapshot(); now.State != partitioner.Failure || !errors.Is(now.Err, session.ErrAuthFailed) {
			t.Errorf("state %v: %v", now.State, now.Err)
		}
		w.Srv.SetHook(nil)
	})
}
