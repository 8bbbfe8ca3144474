package attacks_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

const claimPath = "/kiel/groups/g/owners/t:0"

// Execution §2: a member is told to release, loses its connection, and releases; its session expires, another claims, and then
// the connection is back. There are two rules against it, and each is enough.
func TestReleaseOutlivesItsSession(t *testing.T) {
	withstood(t, bubble(t, zktest.Options{TickTime: time.Second}, func(w *world) *outcome {
		opts := options{session: session.Options{Timeout: 6 * time.Second}, handler: drainFor(time.Second)}
		old := w.member("b", opts)
		old.owns(5*time.Second, "0")
		heir := w.member("a", options{session: opts.session})
		w.within(5*time.Second, "b is told to release", func() bool { return old.journal.count(eventlog.Revoking) == 1 })
		link := w.net.Client("b")
		link.Refuse()
		link.Cut()
		heir.owns(10*time.Second, "0")
		time.Sleep(time.Second)
		link.Heal()
		time.Sleep(10 * time.Second)
		o := w.close()
		if n := heir.journal.count(eventlog.Lost); n > 0 {
			o.harmed(claimLost, "the heir's claim was removed by the release of a session that is over")
		}
		return o
	}))
}

// Negative control "one client across sessions", which is §2 as it was measured: a delete that waits for a connection, and a Sync
// after it, run in the session that comes next.
func TestRequestOutlivesItsSession(t *testing.T) {
	o := &outcome{harms: map[harm]string{}}
	synctest.Test(t, func(t *testing.T) {
		srv, network := zktest.StartVirtual(t, zktest.Options{TickTime: time.Second})
		link := network.Client("a")
		s, err := session.New([]string{zktest.VirtualAddress}, session.Options{Timeout: 6 * time.Second, Dial: link.Dial})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Run(ctx)
		}()
		defer func() {
			cancel()
			<-done
		}()
		inc, err := s.Incarnation(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := inc.EnsurePath(ctx, "/claims"); err != nil {
			t.Fatal(err)
		}
		if _, err := inc.Create(ctx, "/claims/p", nil, session.Ephemeral); err != nil {
			t.Fatal(err)
		}
		link.Refuse()
		link.Cut()
		time.Sleep(time.Second)
		deleted, synced := make(chan error, 1), make(chan error, 1)
		go func() { deleted <- inc.Delete(ctx, "/claims/p", -1) }()
		go func() { synced <- inc.Sync(ctx, "/claims") }()
		_, stood := poll(10*time.Second, func() bool { _, _, stands := srv.Get("/claims/p"); return !stands })
		if !stood {
			t.Fatal("the session does not expire")
		}
		if err := srv.Create("/claims/p", []byte("another's")); err != nil { // in the place of another's claim
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		link.Heal()
		time.Sleep(5 * time.Second)
		if _, _, stands := srv.Get("/claims/p"); !stands {
			o.harmed(claimLost, "the next owner's claim was removed by a request of a session that is over")
		}
		o.figure("delete", <-deleted)
		o.figure("sync", <-synced)
	})
	withstood(t, o)
}

// Negative control "bare delete as release": an operator removes the claim of a member that is about to release it and does not
// hear of that at once; the next owner claims. That two own it for a moment is the operator's doing; that the release then takes
// the claim from its owner would be ours.
func TestBareDeleteAsRelease(t *testing.T) {
	withstood(t, bubble(t, zktest.Options{}, func(w *world) *outcome {
		old := w.member("b", options{handler: drainFor(2 * time.Second)})
		old.owns(5*time.Second, "0")
		heir := w.member("a", options{})
		w.within(5*time.Second, "b is told to release", func() bool { return old.journal.count(eventlog.Revoking) == 1 })
		w.net.Client("b").BlackHole(zktest.ToClient)
		if err := w.srv.Delete(claimPath); err != nil {
			w.t.Fatal(err)
		}
		heir.owns(time.Second, "0")
		w.within(5*time.Second, "b releases", func() bool { return old.journal.count(eventlog.Releasing) == 1 })
		time.Sleep(100 * time.Millisecond)
		o := w.close()
		o.forgive(overlap)
		if heir.journal.count(eventlog.Lost) > 0 {
			o.harmed(claimLost, "the heir's claim was removed by the release of who owned it before")
		}
		return o
	}))
}
