package partitioner_test

import (
	"errors"
	"strings"
	"testing"
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
			inWorld(t, func(w *world) {
				w.Must(w.Srv.Create(blocker, nil))
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
				stands := len(w.left()) > 1
				if stands != tt.away || errors.Is(err, partitioner.ErrUnfinished) != stands {
					w.Errorf("something stands: %v, after %v: %v", stands, time.Since(start), err)
				}
				if err != nil && tt.opts.StopTimeout > 0 && !errors.Is(err, session.ErrClosed) {
					w.Errorf("got %v", err)
				}
				stop()
				time.Sleep(time.Minute)
				if list := w.left(); len(list) != 1 {
					w.Errorf("left: %q", list)
				}
			})
		})
	}
}

// The session's Run has ended, or was never called: Finish, too, returns ErrUnfinished if znodes may exist, and not if none was
// ever created.
func TestFinishAfterTheSession(t *testing.T) {
	for _, early := range []bool{true, false} {
		inWorld(t, func(w *world) {
			s, stop := recipetest.Stoppable(w, w.Net, "p0", session.Options{StopTimeout: time.Millisecond})
			m := w.memberIn(s, "p0", []string{"0"}, partitioner.Options{})
			if early {
				stop()
			}
			if err := m.Start(w.Context()); errors.Is(err, session.ErrClosed) != early || !early && err != nil {
				w.Errorf("start: %v", err)
			}
			if !early {
				w.Net.Client("p0").BlackHole(zktest.Both)
				stop()
			}
			err := m.Finish(w.Within(time.Minute))
			if errors.Is(err, partitioner.ErrUnfinished) == early || early && err != nil {
				w.Errorf("finish: %v", err)
			}
		})
	}
}

// The servers refuse the credentials of a member that has items. It has no session any more, so it fails at once, without a
// ReleaseSet.
func TestCredentialsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.join("p0", "0", "1")
		m.wantItems("0", "1")
		w.Refuse(zktest.ErrAuthFailed, func(r zktest.Request) bool { return r.Op == zktest.OpExists && strings.Contains(r.Path, "__lock__") })
		<-m.Snapshot().Changed()
		if now := m.Snapshot(); now.State != partitioner.Failure || !errors.Is(now.Err, session.ErrAuthFailed) {
			w.Errorf("state %v: %v", now.State, now.Err)
		}
		w.Srv.SetHook(nil)
	})
}
