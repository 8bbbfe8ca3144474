package session_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// rotated is the ACL of a check path after a rotation that left the credentials of a member out. Anybody may mend it.
func rotated() []session.ACL {
	return append(session.WorldACL(session.PermAdmin), session.DigestACL(session.PermAll, "new", "password")...)
}

// setACL changes an ACL as an operator does.
func setACL(t *testing.T, inc *session.Incarnation, path string, acl []session.ACL) {
	t.Helper()
	noerr.Last(t)(session.Raw(inc).SetACL(path, acl, -1))
}

// A member whose proofs are refused gives its session up after 2 T, since pings would keep its ephemeral znodes for ever. The
// session goes on trying, and is trusted again when the ACL is mended.
func TestProofsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		var log bytes.Buffer
		operator := w.start("operator", nil).incarnation()
		m := w.start("a", func(o *session.Options) {
			o.CheckPath = "/check"
			o.Auth, o.ACL = digest("ann", "geheim"), session.WorldACL(session.PermAll)
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		noerr.Last(t)(operator.Create(ctx, "/check", nil, session.Persistent))
		inc := m.incarnation()
		noerr.Last(t)(inc.Create(ctx, "/e", nil, session.Ephemeral))
		created := w.srv.Stats().SessionsCreated
		time.Sleep(timeout)

		began := time.Now()
		setACL(t, operator, "/check", rotated())
		there, _, gone, err := operator.ExistsW(ctx, "/e")
		for ; there && err == nil && time.Since(began) < 10*timeout; there, _, gone, err = operator.ExistsW(ctx, "/e") {
			<-gone.C()
		}
		if took := time.Since(began); err != nil || there || took < 2*timeout || took > 2*timeout+timeout/3+time.Second {
			t.Fatalf("the ephemeral znode: there %v, %v, after %v, want about %v", there, err, took, 2*timeout)
		}
		wantErr(t, "cause", context.Cause(inc.Context()), session.ErrTrustLost)
		_, _, err = inc.Get(ctx, "/")
		wantErr(t, "Get", err, session.ErrSessionExpired)
		if errors.Is(err, session.ErrAuthFailed) || !session.Retryable(err) || !strings.Contains(err.Error(), "/check can't be read") {
			t.Errorf("%v: want an error that says why and is worth a retry with the next incarnation", err)
		}
		time.Sleep(10 * timeout)
		if n := w.srv.Stats().SessionsCreated - created; n < 4 || n > 6 {
			t.Errorf("%d sessions in 12 session timeouts, want one in two", n)
		}
		// Not a multiple of the times at which a session is given up: in that instant the newest error is that its connection was
		// closed.
		patience, cancel := context.WithTimeout(ctx, timeout+timeout/7)
		defer cancel()
		_, err = m.Incarnation(patience)
		wantErr(t, "Incarnation", err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "/check can't be read") {
			t.Errorf("%v: it does not say why", err)
		}

		setACL(t, operator, "/check", session.WorldACL(session.PermAll))
		began = time.Now()
		again := m.incarnation()
		if took := time.Since(began); took > timeout/3+time.Second {
			t.Errorf("back after %v", took)
		}
		if _, err := again.Create(ctx, "/e", nil, session.Ephemeral); err != nil {
			t.Error(err)
		}
		noerr.Want(t, m.stop())
		if text := log.String(); !strings.Contains(text, "session given up") || strings.Contains(text, "geheim") ||
			strings.Count(text, "proof of life refused") > 7 {
			t.Errorf("log:\n%s", text)
		}
	})
}

// Proofs without an answer change nothing, and one that is accepted ends what was refused before.
func TestProofsRefusedInBetween(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		var answer atomic.Pointer[zktest.Action]
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op != zktest.OpMulti {
				return zktest.Action{}
			}
			return *answer.Load()
		})
		accepted, refused, ignored := &zktest.Action{}, &zktest.Action{Err: zktest.ErrNoAuth}, &zktest.Action{Ignore: true}
		for _, phase := range []struct {
			answer *zktest.Action
			d      time.Duration
		}{
			{refused, timeout * 3 / 2},
			{accepted, timeout / 3},
			{refused, timeout * 3 / 2},
			{ignored, 10 * timeout},
			{accepted, timeout / 3},
			{refused, timeout * 3 / 2},
			{ignored, 4 * timeout},
			{refused, timeout * 3 / 2},
			{accepted, timeout},
		} {
			answer.Store(phase.answer)
			time.Sleep(phase.d)
		}
		if again := m.incarnation(); again.SessionID() != inc.SessionID() {
			t.Error("the session was given up")
		}
		answer.Store(refused)
		time.Sleep(timeout * 5 / 2)
		answer.Store(accepted)
		if again := m.incarnation(); again.SessionID() == inc.SessionID() {
			t.Error("the session was not given up")
		}
	})
}

// Credentials that servers refuse on each new connection count as well: each connect request renews the session.
func TestCredentialsRefusedLater(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		operator := w.start("operator", nil).incarnation()
		m := w.start("a", func(o *session.Options) { o.Auth, o.ACL = digest("ann", "x"), session.WorldACL(session.PermAll) })
		inc := m.incarnation()
		noerr.Last(t)(inc.Create(ctx, "/e", nil, session.Ephemeral))
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpAuth {
				return zktest.Action{Err: zktest.ErrAuthFailed}
			}
			return zktest.Action{}
		})
		m.link.Cut()
		time.Sleep(3*timeout + 2*tick)
		if there, _, err := operator.Exists(ctx, "/e"); err != nil || there {
			t.Errorf("the ephemeral znode of who is refused: there %v, %v", there, err)
		}
		time.Sleep(10 * timeout)
		w.srv.SetHook(nil)
		if again := m.incarnation(); again.SessionID() == inc.SessionID() {
			t.Error("the same session")
		}
	})
}

// One server alone refuses proofs, since its configuration maps credentials to other identities. The session goes on, by another
// server, before trust ends.
func TestProofsRefusedByOneServer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		second := must[net.Listener](t)(w.net.Listen("zk2:2181"))
		served := make(chan struct{})
		go func() { defer close(served); _ = w.srv.Serve(second) }()
		defer func() { _ = w.srv.Close(); <-served }()
		var server, wrong atomic.Value
		server.Store("")
		wrong.Store("none")
		opts := w.options("a")
		dial := opts.Dial
		opts.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			server.Store(address)
			return dial(ctx, network, address)
		}
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpMulti && server.Load() == wrong.Load() {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		s := must[*session.Session](t)(session.Start(t.Context(), []string{"zk:2181", "zk2:2181"}, opts))
		defer func() { _ = s.Close(t.Context()) }()
		inc := s.Current()
		time.Sleep(timeout)
		wrong.Store(server.Load())
		time.Sleep(5 * timeout)
		if !inc.Trusted() {
			t.Errorf("trust was lost: %v", context.Cause(inc.Context()))
		}
	})
}

// Servers that demand SASL, or a scheme that was not given, close each session with an answer of their own.
func TestServersDemandOtherCredentials(t *testing.T) {
	for name, c := range map[string]struct {
		auth []session.Auth
		says string
	}{
		"none given":   {nil, "none are given"},
		"digest given": {[]session.Auth{{Scheme: "digest", Credential: []byte("user:secret")}}, "given are [digest:user:***]"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.srv.SetHook(func(r *zktest.Request) zktest.Action {
					if r.Op == zktest.OpMulti {
						return zktest.Action{Err: -124}
					}
					return zktest.Action{}
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := session.Start(ctx, []string{zktest.VirtualAddress}, session.Options{Auth: c.auth, Dial: w.net.Client("a").Dial})
				wantErr(t, "Start", err, session.ErrAuthFailed)
				for _, part := range []string{"SASL, which is not supported yet", c.says} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%v does not say %q", err, part)
					}
				}
			})
		})
	}
}
