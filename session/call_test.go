package session_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Requests that wait while the link is down must not run in the next session.
func TestRequestsDieWithTheirSession(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		// Run is late to notice the expiry, so that the old client has all the time it wants to go on.
		m := w.start("a", func(o *session.Options) { o.Logger = slog.New(slowHandler{o.Logger.Handler()}) })
		inc := m.incarnation()
		noerr.Last(t)(inc.Create(t.Context(), "/claim", nil, session.Ephemeral))
		m.link.Refuse()
		m.link.Cut()
		synctest.Wait() // until the client knows
		ours, raw := make(chan error, 1), make(chan error, 1)
		go func() { ours <- inc.Delete(t.Context(), "/claim", -1) }()
		go func() { raw <- session.Raw(inc).Delete("/claim", -1) }() // past our own gate, into go-zookeeper's queue
		synctest.Wait()
		w.srv.KillSession(inc.SessionID())
		noerr.Must(t, w.srv.Create("/claim", []byte("another's")))
		m.link.Heal()
		again := m.incarnation()
		err := <-ours
		wantErr(t, "queued Delete", err, session.ErrSessionExpired)
		if errors.Is(err, session.ErrUncertain) {
			t.Error("it was never sent")
		}
		if err := <-raw; err == nil {
			t.Error("a request queued in the old session ran in the new one")
		}
		if _, _, there := w.srv.Get("/claim"); !there {
			t.Errorf("another's claim is gone, session %x deleted it", again.SessionID())
		}
	})
}

// slowHandler takes 5 s to log that a session expired.
type slowHandler struct{ slog.Handler }

func (h slowHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "session expired" {
		time.Sleep(5 * time.Second)
	}
	return h.Handler.Handle(ctx, r)
}

func (h slowHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return slowHandler{h.Handler.WithAttrs(attrs)}
}

// A request whose caller gave up may still be carried out, and the error says so.
func TestCallerGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		m.link.Delay(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := inc.Create(ctx, "/a", nil, session.Ephemeral)
		wantErr(t, "Create", err, session.ErrUncertain)
		wantErr(t, "Create", err, context.DeadlineExceeded)
		if used, _ := session.EphemeralBytes(inc); used != len("/a")+4 {
			t.Errorf("what may exist takes %d bytes of the budget", used)
		}
		m.link.Delay(0)
		time.Sleep(2 * time.Second)
		if _, stat, there := w.srv.Get("/a"); !there || stat.EphemeralOwner != inc.SessionID() {
			t.Error("the request that was sent did not happen; this test tests nothing")
		}
		noerr.Must(t, inc.Delete(t.Context(), "/a", -1))
		if used, _ := session.EphemeralBytes(inc); used != 0 {
			t.Errorf("%d bytes in use", used)
		}

		// Nothing is sent while the link is down, so nothing is uncertain.
		m.link.Refuse()
		m.link.Cut()
		synctest.Wait()
		ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err = inc.Create(ctx, "/b", nil, session.Ephemeral)
		wantErr(t, "Create", err, context.DeadlineExceeded)
		if errors.Is(err, session.ErrUncertain) {
			t.Error("nothing was sent, but the outcome is called uncertain")
		}
		m.link.Heal()
		time.Sleep(time.Second)
		if _, _, there := w.srv.Get("/b"); there {
			t.Error("what was given up before it was sent happened")
		}
	})
}

func TestLostReplies(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		inc := w.start("a", nil).incarnation()
		lose := func(op zktest.Op) {
			w.srv.LoseReply(1, func(r zktest.Request) bool { return r.Op == op })
		}
		lose(zktest.OpCreate)
		_, err := inc.Create(ctx, "/a", nil, session.Ephemeral)
		wantErr(t, "Create", err, session.ErrUncertain)
		found, stat, err := inc.Exists(ctx, "/a")
		if err != nil || !found || stat.EphemeralOwner != inc.SessionID() {
			t.Errorf("%v, %+v, %v", found, stat, err)
		}
		lose(zktest.OpSetData)
		_, err = inc.Set(ctx, "/a", nil, 0)
		wantErr(t, "Set", err, session.ErrUncertain)
		lose(zktest.OpMulti)
		time.Sleep(timeout) // that hits a proof
		if !inc.Trusted() {
			t.Error("one lost proof ended trust")
		}
		lose(zktest.OpDelete)
		wantErr(t, "Delete", inc.Delete(ctx, "/a", -1), session.ErrUncertain)
		for _, op := range []zktest.Op{zktest.OpGetData, zktest.OpExists, zktest.OpGetChildren2, zktest.OpSync, zktest.OpGetACL} {
			lose(op)
		}
		lose(zktest.OpGetData)
		if _, _, err := inc.Get(ctx, "/"); err != nil {
			t.Errorf("a read whose reply was lost: %v", err)
		}
		lose(zktest.OpSync)
		noerr.Want(t, inc.Sync(ctx, "/"))
	})
}

// The server's codes that go-zookeeper does not know, and those that we treat in some way of our own.
func TestErrorCodes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inc := w.start("a", nil).incarnation()
		for code, c := range map[zktest.Error]struct {
			read, write error // nil: it is repeated and succeeds
		}{
			-1:   {session.ErrServer, session.ErrUncertain},
			-2:   {session.ErrRolledBack, session.ErrRolledBack},
			-4:   {nil, session.ErrUncertain},
			-7:   {nil, session.ErrUncertain},
			-102: {session.ErrNoAuth, session.ErrNoAuth},
			-103: {session.ErrBadVersion, session.ErrBadVersion},
			-114: {session.ErrInvalidACL, session.ErrInvalidACL},
			-115: {session.ErrAuthFailed, session.ErrAuthFailed},
			-118: {nil, nil},
			-122: {nil, session.ErrUncertain},
			-124: {session.ErrAuthFailed, session.ErrAuthFailed},
			-125: {session.ErrQuotaExceeded, session.ErrQuotaExceeded},
			-127: {nil, nil},
			-77:  {session.ErrServer, session.ErrServer},
		} {
			times := 0
			w.srv.SetHook(func(r *zktest.Request) zktest.Action {
				if times == 0 && (r.Op == zktest.OpGetData || r.Op == zktest.OpSetData) {
					times++
					return zktest.Action{Err: code}
				}
				return zktest.Action{}
			})
			if _, _, err := inc.Get(t.Context(), "/"); !errors.Is(err, c.read) {
				t.Errorf("Get with code %d: %v, want %v", code, err, c.read)
			}
			times = 0
			if _, err := inc.Set(t.Context(), "/", nil, -1); !errors.Is(err, c.write) {
				t.Errorf("Set with code %d: %v, want %v", code, err, c.write)
			}
		}
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpGetData {
				return zktest.Action{Err: -112}
			}
			return zktest.Action{}
		})
		_, _, err := inc.Get(t.Context(), "/")
		wantErr(t, "Get with code -112", err, session.ErrSessionExpired)
		elapsed(t, "context", inc.Context().Done(), time.Second)
	})
}
