package ownership

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/recipetest"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// still is an allocator that does nothing.
type still struct {
	Source
	ses *session.Session
}

func (s still) Session() *session.Session { return s.ses }
func (still) Group() string               { return "g" }
func (still) Name() string                { return "a" }
func (still) GroupPath() string           { return "/kiel/groups/g" }

// The answer to a claim proves it in the incarnation in which it was sent. In a later one somebody may have ended the claim meanwhile,
// while nothing was watched: it is looked at.
func TestAnswerOfAnEarlierIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{})
		ses, err := session.New([]string{zktest.VirtualAddress}, session.Options{Dial: nw.Client("a").Dial})
		if err != nil {
			t.Fatal(err)
		}
		recipetest.Run(t, ses)
		incarnation := func() *session.Incarnation {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			inc, err := ses.Incarnation(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return inc
		}
		was := incarnation()
		srv.SetHook(func(r *zktest.Request) zktest.Action { return zktest.Action{Ignore: r.Op == zktest.OpMulti} })
		<-was.Context().Done()
		srv.SetHook(nil)
		now := incarnation()
		if was.SessionID() != now.SessionID() {
			t.Fatal("the ZooKeeper session has ended")
		}
		o, err := newOwner(scripted{still{ses: ses}}, func(context.Context, *Claim) error { return nil }, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for answered, looks := range map[*session.Incarnation]bool{was: true, now: false} {
			l := newLoop(t.Context(), o)
			l.inc, l.zk, l.life, l.watch = now, now, t.Context(), l.wire.Watch(now)
			l.plan = l.o.source.(scripted).plan(&Plan{Incarnation: now})
			p := l.part(kiel.Partition{Topic: "t"})
			p.want, p.origin.reason.Code = true, "started"
			p.own(claims.Finding{ID: p.id, Fate: claims.Ours, Token: 1}, answered)
			l.step(p)
			if looks && (p.busy != looking || p.claim != nil) {
				t.Errorf("with an answer of an earlier incarnation, it is owned without a look: %+v", p)
			}
			if !looks && p.claim == nil {
				t.Errorf("with an answer of this incarnation, it is not owned: %+v", p)
			}
		}
	})
}
