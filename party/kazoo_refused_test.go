package party_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// refuseKazoo has the server refuse all requests about znodes of members that may be refused.
func (w *world) refuseKazoo(may func(r *zktest.Request) bool) {
	w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
		if strings.Contains(r.Path, "p1") || strings.Contains(r.Path, "__party__") {
			if may(r) {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
		}
		return zktest.Action{}
	})
}

func anyRequest(*zktest.Request) bool { return true }

// A first Join that is refused returns the error, although it can't be seen whether the znode exists. It is deleted when it can
// be seen, and the next Join waits for that.
func TestKazooJoinRefusedAfterTheCreate(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		p := in(w.session("a"), "p1")
		creates := 0 // the first one finds no directory
		w.refuseKazoo(func(r *zktest.Request) bool {
			if r.Op == zktest.OpCreate {
				creates++
			}
			return creates > 1 && r.Op == zktest.OpExists
		})
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		wantErr(w, p.Join(ctx), session.ErrNoAuth)
		short, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		wantErr(w, p.Join(short), context.DeadlineExceeded)
		w.unhook()
		must(w, p.Leave(w.Context()))
		wantMembers(w, p)
		must(w, p.Join(w.Context()))
		wantMembers(w, p, "p1")
	})
}

// A member of which no znode exists leaves without a request: it was never created, or it was created in a session that is over.
func TestKazooLeaveRefused(t *testing.T) {
	bothKinds(t, func(w *world, in func(*session.Session, string) crowd) {
		leave := func(p crowd) {
			ctx, cancel := context.WithTimeout(w.Context(), time.Second)
			defer cancel()
			noerr.Want(w, p.Leave(ctx))
		}
		s := w.session("a")
		p := in(s, "p1")
		w.refuseKazoo(anyRequest)
		wantErr(w, p.Join(w.Context()), session.ErrNoAuth)
		leave(p)
		w.unhook()

		must(w, p.Join(w.Context()))
		w.refuseKazoo(anyRequest)
		w.Srv.KillSession(w.sessionOf("a"))
		time.Sleep(time.Minute)
		leave(p)
		w.unhook()
	})
}
