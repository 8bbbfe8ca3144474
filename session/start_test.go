package session_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/endless"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// options are those of a session with its own client side of the network.
func (w *world) options(name string) session.Options {
	return session.Options{
		Timeout: timeout,
		Dial:    w.net.Client(name).Dial,
		Logger:  slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("member", name),
	}
}

// started is Start, with a server that answers.
func (w *world) started(ctx context.Context) *session.Session {
	w.t.Helper()
	s, err := session.Start(ctx, []string{"zk:2181"}, w.options("a"))
	noerr.Must(w.t, err)
	return s
}

// inBubbles runs f once with each context that never ends.
func inBubbles(t *testing.T, f func(t *testing.T, w *world, ctx context.Context)) {
	t.Helper()
	for name, ctx := range endless.Contexts(t) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) { f(t, w, ctx) })
		})
	}
}

// A context that never ends does not end Run; Close does.
func TestRunOnEndlessContext(t *testing.T) {
	inBubbles(t, func(t *testing.T, w *world, ctx context.Context) {
		s := must[*session.Session](t)(session.New([]string{"zk:2181"}, w.options("a")))
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		inc := must[*session.Incarnation](t)(s.Incarnation(ctx))
		if _, err := inc.Create(ctx, "/e", nil, session.Ephemeral); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * timeout)
		if !inc.Trusted() || len(ran) > 0 {
			t.Fatalf("after ten session timeouts: trusted %v, Run ended: %v", inc.Trusted(), len(ran) > 0)
		}
		noerr.Want(t, s.Close(ctx))
		noerr.Want(t, <-ran)
		wantErr(t, "cause", context.Cause(inc.Context()), session.ErrClosed)
		if n := w.srv.Stats().Sessions; n != 0 {
			t.Errorf("%d sessions left on the server", n)
		}
	})
}

// Start with a context that never ends.
func TestStartOnEndlessContext(t *testing.T) {
	inBubbles(t, func(t *testing.T, w *world, ctx context.Context) {
		s := w.started(ctx)
		inc := s.Current()
		if inc == nil {
			t.Fatal("no trusted incarnation after Start")
		}
		time.Sleep(10 * timeout)
		if !inc.Trusted() {
			t.Error("trust was lost")
		}
		noerr.Want(t, s.Close(ctx))
	})
}

// Start returns with a trusted incarnation, and its session outlives the context.
func TestStart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		s := w.started(ctx)
		inc := s.Current()
		if inc == nil {
			t.Fatal("no trusted incarnation after Start")
		}
		cancel()
		time.Sleep(10 * timeout)
		if !inc.Trusted() {
			t.Error("the session ended with Start's context")
		}
		if err := s.Run(t.Context()); err == nil {
			t.Error("Run ran beside Start")
		}
		noerr.Want(t, errors.Join(s.Close(t.Context()), s.Close(t.Context())))
		synctest.Wait()
		wantErr(t, "cause", context.Cause(inc.Context()), session.ErrClosed)
		_, err := s.Incarnation(t.Context())
		wantErr(t, "Incarnation", err, session.ErrClosed)
		if n := w.srv.Stats().Sessions; n != 0 || s.Stats().State != "closed" {
			t.Errorf("%d sessions left on the server, state %s", n, s.Stats().State)
		}
	})
}

// Start that fails returns why and leaves nothing behind: the bubble would not end.
func TestStartFails(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		if _, err := session.Start(t.Context(), nil, w.options("none")); err == nil {
			t.Error("started without servers")
		}
		w.net.Refuse()
		ctx, cancel := context.WithTimeoutCause(t.Context(), 7*time.Second, errEnough)
		defer cancel()
		began := time.Now()
		s, err := session.Start(ctx, []string{"zk:2181"}, w.options("late"))
		wantErr(t, "Start", err, errEnough)
		if took := time.Since(began); s != nil || took < 7*time.Second || took > 8*time.Second {
			t.Errorf("returned %v after %v", s, took)
		}
		if !strings.Contains(err.Error(), "zk:2181") || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%v: neither the servers nor the reason named", err)
		}
		synctest.Wait()
		w.net.Heal()

		ended, end := context.WithCancelCause(t.Context())
		end(errEnough)
		for range 20 {
			_, err = session.Start(ended, []string{"zk:2181"}, w.options("ended"))
			wantErr(t, "Start", err, errEnough)
		}
		if n := w.srv.Stats().SessionsCreated; n != 0 {
			t.Errorf("%d sessions were created for callers whose context had ended", n)
		}

		for range 20 { // the context ends before the session's loop begins, or after
			ends, end := context.WithCancelCause(t.Context())
			go end(errEnough)
			s, err = session.Start(ends, []string{"zk:2181"}, w.options("ends"))
			if err == nil {
				wantErr(t, "Close", s.Close(t.Context()), nil)
				continue
			}
			wantErr(t, "Start", err, errEnough)
			if strings.Contains(err.Error(), "Run was not called") {
				t.Fatalf("%v: Start calls it", err)
			}
		}

		opts := w.options("refused")
		opts.Auth = []session.Auth{{Scheme: "nonsense", Credential: []byte("secret")}}
		began = time.Now()
		s, err = session.Start(t.Context(), []string{"zk:2181"}, opts)
		wantErr(t, "Start", err, session.ErrAuthFailed)
		if took := time.Since(began); s != nil || took > time.Second {
			t.Errorf("returned %v after %v", s, took)
		}
	})
}

// Close waits for users until its own context ends, and says so if it ended the session under them.
func TestCloseWaitsForHolders(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.started(t.Context())
		inc, release := s.Current(), s.KeepOpen()
		closed := make(chan error, 2)
		go func() { closed <- s.Close(t.Context()) }()
		time.Sleep(10 * time.Second)
		if !inc.Trusted() || len(closed) > 0 {
			t.Fatal("closed though it is kept open")
		}
		release()
		noerr.Want(t, <-closed)

		s = w.started(t.Context())
		defer s.KeepOpen()()
		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, errEnough)
		defer cancel()
		began := time.Now()
		go func() { closed <- s.Close(t.Context()) }() // a patient one at the same time
		wantErr(t, "Close", s.Close(ctx), errEnough)
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("Close returned after %v", took)
		}
		if err := <-closed; err == nil {
			t.Error("the other Close says nothing")
		}
		if n := w.srv.Stats().Sessions; n != 0 {
			t.Errorf("%d sessions left on the server", n)
		}

		s = w.started(t.Context())
		defer s.KeepOpen()()
		began = time.Now()
		if err := s.Close(t.Context()); err == nil || time.Since(began) < 30*time.Second {
			t.Errorf("Close: %v after %v, want an error after StopTimeout", err, time.Since(began))
		}
	})
}

// Close with a context that has ended closes the session all the same.
func TestCloseWithEndedContext(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.started(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		noerr.Want(t, s.Close(ctx))
		if n := w.srv.Stats().Sessions; n != 0 {
			t.Errorf("%d sessions left on the server", n)
		}
	})
}

// Close in every state of the servers, from several goroutines beside all other calls.
func TestCloseInEveryPhase(t *testing.T) {
	for name, trouble := range map[string]func(w *world){
		"healthy":    func(*world) {},
		"refused":    func(w *world) { w.net.Refuse(); w.net.Cut() },
		"black hole": func(w *world) { w.net.BlackHole(zktest.Both) },
		"frozen":     func(w *world) { w.srv.Freeze() },
	} {
		for _, after := range []time.Duration{0, time.Millisecond, 700 * time.Millisecond, 20 * time.Second} {
			t.Run(name+" after "+after.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					s := w.started(t.Context())
					trouble(w)
					time.Sleep(after)
					began := time.Now()
					var calls sync.WaitGroup
					for range 3 {
						calls.Go(func() {
							noerr.Want(t, s.Close(t.Context()))
						})
						calls.Go(func() {
							for s.Stats().State != "closed" {
								s.KeepOpen()()
								s.GiveUp(errEnough)
								_, _ = s.Current(), s.Timeout()
								time.Sleep(time.Millisecond)
							}
						})
					}
					calls.Wait()
					if took := time.Since(began); took > 5*time.Second {
						t.Errorf("Close returned after %v", took)
					}
				})
			})
		}
	}
}

// A session that was closed before Run does not run.
func TestCloseBeforeRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := must[*session.Session](t)(session.New([]string{"zk:2181"}, w.options("a")))
		waiting := make(chan error, 1)
		go func() { _, err := s.Incarnation(t.Context()); waiting <- err }()
		synctest.Wait()
		noerr.Want(t, errors.Join(s.Close(t.Context()), s.Close(t.Context())))
		wantErr(t, "Incarnation", <-waiting, session.ErrClosed)
		noerr.Want(t, s.Run(t.Context()))
		wantErr(t, "a second Run", s.Run(t.Context()), kiel.ErrRunTwice)
		if n := w.srv.Stats().SessionsCreated; n != 0 {
			t.Errorf("%d sessions made", n)
		}
	})
}

// Close returns the error that ended Run.
func TestCloseAfterFailure(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", func(o *session.Options) {
			o.Auth = []session.Auth{{Scheme: "nonsense", Credential: []byte("secret")}}
		})
		_, err := m.Incarnation(t.Context())
		wantErr(t, "Incarnation", err, session.ErrAuthFailed)
		if text := err.Error(); !strings.Contains(text, "nonsense") || strings.Contains(text, "secret") {
			t.Error(err)
		}
		wantErr(t, "Close", m.Close(t.Context()), session.ErrAuthFailed)
	})
}

// A Session whose Run was never called says so.
func TestRunWasNotCalled(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var log bytes.Buffer
		opts := w.options("a")
		opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s := must[*session.Session](t)(session.New([]string{"zk:2181"}, opts))
		wait := func(d time.Duration) error {
			ctx, cancel := context.WithTimeoutCause(t.Context(), d, errEnough)
			defer cancel()
			_, err := s.Incarnation(ctx)
			return err
		}
		err := wait(4 * time.Second)
		wantErr(t, "Incarnation", err, errEnough)
		if !strings.Contains(err.Error(), "Run was not called") {
			t.Errorf("%v: it does not say that Run was not called", err)
		}
		if log.Len() > 0 {
			t.Errorf("logged after 4 s: %s", &log)
		}
		var waiters sync.WaitGroup
		for range 3 {
			waiters.Go(func() { _ = wait(20 * time.Second) })
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "zk:2181") {
			t.Errorf("%d warnings after 5 s: %s", n, &log)
		}
		waiters.Wait()
		if n := strings.Count(log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings after 20 s: %s", n, &log)
		}
	})
}

// A Session whose Run is called late, but within 5 s, warns of nothing.
func TestRunWasCalledLate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var log bytes.Buffer
		opts := w.options("a")
		opts.ACL = session.WorldACL(session.PermAll)
		opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		w.net.Refuse()
		s := must[*session.Session](t)(session.New([]string{"zk:2181"}, opts))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		waiting := make(chan error, 1)
		go func() { _, err := s.Incarnation(ctx); waiting <- err }()
		time.Sleep(4 * time.Second)
		m := run(t, s, nil)
		err := <-waiting
		wantErr(t, "Incarnation", err, context.DeadlineExceeded)
		noerr.Want(t, m.stop())
		if strings.Contains(err.Error(), "Run was not called") || strings.Contains(log.String(), "Run was not called") {
			t.Errorf("%v\n%s", err, &log)
		}
	})
}
