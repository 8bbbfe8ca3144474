package partitioner_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Start right after FAILURE waits until the earlier znodes are gone, and then starts again. So does Run.
func TestStartRightAfterFailure(t *testing.T) {
	for what, again := range map[string]func(m *member){
		"Start": (*member).start,
		"Run": func(m *member) {
			r := m.w.run(m, nil)
			r.wantCall("0")
			m.w.Cleanup(r.stop)
		},
	} {
		inWorld(t, func(w *world) {
			m := w.join("p0", "0")
			m.wantItems("0")
			w.Net.Client("p0").Delay(100 * time.Millisecond) // so that the deletes take some time
			if err := m.Finish(w.Within(10 * time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("finish: %v", err)
			}
			m.failed(partitioner.ErrFinished)
			again(m)
			m.wantItems("0")
			if list := w.Srv.Children(path + "/party"); len(list) != 1 {
				w.Errorf("%s: members %q", what, list)
			}
		})
	}
}

// The wait for the earlier znodes ends with its context.
func TestStartWaitsInVain(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.join("p0", "0")
		m.wantItems("0")
		w.Net.Freeze()
		within := func(call func(ctx context.Context) error) error {
			ctx := w.Within(time.Second)
			return call(ctx)
		}
		if err := within(m.Finish); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("Finish: %v", err)
		}
		for what, call := range map[string]func(context.Context) error{
			"Start": m.Start,
			"Run": func(ctx context.Context) error {
				return m.Run(ctx, func(context.Context, []string) error { return nil })
			},
		} {
			start := time.Now()
			err := within(call)
			if d := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, partitioner.ErrUnfinished) || d != time.Second {
				w.Errorf("%s: after %v: %v", what, d, err)
			}
		}
		w.Net.Heal()
		m.finish()
		w.clean()
		m.start()
		m.wantItems("0")
	})
}

// After a Start and its Finish a Run goes on: Finish and ReleaseSet refuse.
func TestRunAfterFinish(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.join("p0", "0")
		m.wantItems("0")
		m.finish()
		r := w.run(m, nil)
		r.wantCall("0")
		for _, call := range []func(context.Context) error{m.Finish, m.ReleaseSet} {
			if err := call(w.Context()); !errors.Is(err, partitioner.ErrNotStarted) {
				w.Errorf("got %v", err)
			}
		}
		m.wantItems("0")
		r.stop()
		w.clean()
	})
}

// The session expires while the function of Run is still at work. Until it returns we are no member.
func TestSessionExpiresUnderTheFunction(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.member("p0", []string{"0"}, partitioner.Options{})
		working, finish := make(chan struct{}), make(chan struct{})
		var calls atomic.Int64
		r := w.run(m, func(ctx context.Context, _ []string) error {
			if calls.Add(1) == 1 {
				close(working)
				<-finish
			}
			<-ctx.Done()
			return nil
		})
		<-working
		w.Net.Client("p0").BlackHole(zktest.Both)
		time.Sleep(20 * time.Second)
		w.Net.Client("p0").Heal()
		m.failed(session.ErrSessionExpired)
		time.Sleep(time.Minute)
		if !m.Failed() || calls.Load() != 1 {
			w.Errorf("%v, %d calls", m.State(), calls.Load())
		}
		w.clean()
		close(finish)
		m.wantItems("0")
		time.Sleep(time.Second)
		r.stop()
		if calls.Load() != 2 {
			w.Errorf("%d calls", calls.Load())
		}
	})
}

// The session expires when the function of Run has returned, because trust had ended. Run starts again.
func TestSessionExpiresAfterTheFunction(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.run(w.member("p0", []string{"0"}, partitioner.Options{}), nil)
		r.wantCall("0")
		w.Net.Client("p0").BlackHole(zktest.Both)
		r.wantCause(session.ErrTrustLost)
		time.Sleep(20 * time.Second)
		w.Net.Client("p0").Heal()
		r.wantCall("0")
		r.stop()
		w.clean()
	})
}

// The session expires in RELEASE. That is FAILURE, and we are no member any more, or others would leave a share to us.
func TestSessionExpiresInRelease(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.join("p0", "0")
		m.wantItems("0")
		w.Net.Client("p0").BlackHole(zktest.Both) // trust ends first
		m.wait(partitioner.Release)
		time.Sleep(20 * time.Second)
		w.Net.Client("p0").Heal()
		failed := func() {
			w.Helper()
			m.failed(session.ErrSessionExpired)
			if err := m.ReleaseSet(w.Context()); !errors.Is(err, session.ErrSessionExpired) {
				w.Errorf("released: %v", err)
			}
			m.failed(session.ErrSessionExpired)
		}
		failed()
		time.Sleep(10 * time.Second)
		w.clean()
		m.start()
		m.wantItems("0")

		w.join("p1", "0") // members change first
		m.wait(partitioner.Release)
		w.Kill(m.session)
		killed := time.Now()
		failed()
		if d := time.Since(killed); d > 5*time.Second {
			w.Errorf("failed after %v", d)
		}
	})
}

// The session expires during ReleaseSet.
func TestSessionExpiresDuringReleaseSet(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.join("p0", "0")
		m.wantItems("0")
		w.Net.Client("p0").BlackHole(zktest.Both)
		m.wait(partitioner.Release)
		time.AfterFunc(20*time.Second, w.Net.Client("p0").Heal)
		failed := &partitioner.FailedError{}
		if err := m.ReleaseSet(w.Context()); !errors.As(err, &failed) || !errors.Is(err, session.ErrSessionExpired) {
			w.Errorf("released: %v, state %v", err, m.State())
		}
	})
}

// The session is closed in RELEASE.
func TestSessionClosedInRelease(t *testing.T) {
	inWorld(t, func(w *world) {
		s, stop := w.sessionWith("p0")
		m := w.memberIn(s, "p0", []string{}, partitioner.Options{})
		w.Must(m.Start(w.Context()))
		m.wantItems()
		w.join("p1")
		m.wait(partitioner.Release)
		go stop()
		m.failed(session.ErrClosed)
		stop()
		if err := m.Finish(w.Context()); !errors.Is(err, partitioner.ErrUnfinished) {
			w.Errorf("finish: %v", err)
		}
	})
}
