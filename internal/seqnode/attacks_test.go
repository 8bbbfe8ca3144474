package seqnode_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

var errBusy = errors.New("busy")

// §4 of the attacks on recipes: the reply to the create is lost, and the next server lags behind and does not have the contender
// yet. A Sync makes the server catch up, and so does a write, but no write of the session itself succeeds in time.
func TestLostReplyAndALaggingServer(t *testing.T) {
	const ownWay = "in its own way"
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session()
		noerr.Must(t, w.node(s, "").Remove(t.Context()))
		if err := w.Srv.Create("/before", nil); err != nil { // the directory as the lagging server sees it
			t.Fatal(err)
		}
		lost, lags, misled := false, false, false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case r.Op == zktest.OpCreate && !lost:
				lost, lags = true, true
				return zktest.Action{LoseReply: true}
			case lags && r.Op == zktest.OpMulti: // the session's proof of life
				return zktest.Action{Err: zktest.ErrThrottled}
			case r.Op == zktest.OpSync || r.Op == zktest.OpCreate:
				lags = false
			case lags && r.Op == zktest.OpGetChildren2 && r.Path == "/d":
				r.Path, misled = "/before", true
			}
			return zktest.Action{}
		})
		dir := seqnode.NewDir(s, "/d", seqnode.Options{Word: "-n-", Rivals: []string{"-n-"}, Data: []byte("ours")})
		n, err := dir.Create(t.Context())
		noerr.Must(t, err)
		_, err = n.First(t.Context(), errBusy)
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); ok && blocked.Identifier == "ours" {
			t.Errorf(ownWay+": made twice; misled by the server: %v; %v", misled, err)
		} else if err != nil {
			t.Error(err)
		}
		noerr.Want(t, n.Remove(t.Context()))
	})
}

// §4 of the attacks on recipes: the session was given up, and the server does not know it yet. In the next session the reply to a
// create is lost. If the contender of the old session were taken for the new one, it would be deleted with that session, under
// the new hold.
func TestLostReplyBesideAnOldSession(t *testing.T) {
	const twoFirst = "two are first"
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session()
		dir := seqnode.NewDir(s, "/d", seqnode.Options{Word: "-n-", Rivals: []string{"-n-"}})
		old, err := dir.Create(t.Context())
		noerr.Must(t, err)
		inc := s.Current()
		lost := false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpCreate && !lost {
				lost = true
				return zktest.Action{LoseReply: true}
			}
			return zktest.Action{Cut: r.Op == zktest.OpCloseSession}
		})
		s.GiveUp(errors.New("test"))
		<-inc.Context().Done()
		n, err := dir.Create(t.Context())
		noerr.Must(t, err)
		if _, _, ok := w.Srv.Get(old.Path()); !ok || !lost {
			t.Fatal("the old contender is gone already, or no reply was lost: nothing was tested")
		}
		noerr.Last(t)(n.Wait(t.Context()))
		time.Sleep(30 * time.Second)
		other := w.node(s, "other")
		if _, err := other.First(w.Context(), errBusy); err == nil {
			t.Errorf(twoFirst+": %s was, and now %s is", n.Path(), other.Path())
		} else if !errors.Is(err, errBusy) {
			t.Error(err)
		}
		for _, n := range []*seqnode.Node{old, n, other} {
			if err := n.Remove(t.Context()); err != nil && !errors.Is(err, session.ErrSessionExpired) {
				t.Error(err)
			}
		}
		w.Srv.SetHook(nil)
	})
}
