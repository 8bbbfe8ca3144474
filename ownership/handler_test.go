package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
)

// A handler that does not return in time loses its claim: it is released all the same, and the partition is not taken again while
// the handler runs.
func TestStuckHandler(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		free := make(chan struct{})
		var first shared[*ownership.Claim]
		var ctxCause shared[error]
		a := w.owning("a", "t:0 t:1", memberOptions{
			Options: ownership.Options{RebalanceTimeout: 5 * time.Second},
			handler: func(ctx context.Context, c *ownership.Claim) error {
				<-ctx.Done()
				if c.Partition() == 0 {
					if first.get() == nil {
						first.set(c)
						ctxCause.set(context.Cause(ctx))
						<-free
					}
				}
				return nil
			},
		})
		b := w.join("b", memberOptions{})
		ses := a.sessionID()
		time.Sleep(time.Second)
		w.assign(map[string]string{"b": "t:0 t:1"})
		b.owns(time.Second, "t:1")
		took := b.owns(10*time.Second, "t:0 t:1")
		if took < 4500*time.Millisecond || took > 5500*time.Millisecond {
			t.Errorf("taken after %v", took)
		}
		claim := first.get()
		if claim.Trusted() || !errors.Is(context.Cause(claim.Context()), ownership.ErrLost) || !errors.Is(context.Cause(claim.Context()), ownership.ErrStuck) {
			t.Errorf("trusted %v, cause %v", claim.Trusted(), context.Cause(claim.Context()))
		}
		if !errors.Is(ctxCause.get(), ownership.ErrRevoked) {
			t.Errorf("handler's cause %v", ctxCause.get())
		}
		stuck, ok := errors.AsType[*ownership.StuckError](errors.Join(a.errors()...))
		if !ok || stuck.Partition != part("t:0") || stuck.For < 5*time.Second {
			t.Errorf("errors %v", a.errors())
		}
		w.wantEvents("a", "t:0", "joined claimed revoking lost")
		if a.sessionID() != ses {
			t.Error("the session was given up")
		}

		w.assign(map[string]string{"a": "t:0 t:1"})
		a.owns(time.Second, "t:1")
		time.Sleep(20 * time.Second)
		if a.owned() != "t:1" || w.holder("t:0") != 0 {
			t.Errorf("owns %q while the handler is stuck", a.owned())
		}
		if n := a.told(ownership.ErrStuck); n < 4 {
			t.Errorf("told %d times", n)
		}
		close(free)
		a.owns(time.Second, "t:0 t:1")
	})
}

// When the cause of Run's end says that a handler was to return before, the time that it has had counts. The others have theirs.
func TestStuckBeforeRunEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.assign(map[string]string{"a": "t:0 t:1 t:2"})
		free := make(chan struct{})
		defer close(free)
		a := w.join("a", memberOptions{
			Options: ownership.Options{RebalanceTimeout: 5 * time.Second},
			handler: func(context.Context, *ownership.Claim) error {
				<-free
				return nil
			},
		})
		a.owns(5*time.Second, "t:0 t:1 t:2")
		stuck := func(p string, d time.Duration) error { return &ownership.StuckError{Partition: part(p), For: d} }
		began := time.Now()
		a.quitFor(fmt.Errorf("test: %w", errors.Join(stuck("t:0", 5*time.Second), stuck("t:1", 2*time.Second))))
		for i, after := range []time.Duration{0, 3 * time.Second, 5 * time.Second} {
			id := fmt.Sprintf("t:%d", i)
			w.within(6*time.Second, id+" is released", func() bool { return w.holder(id) == 0 })
			if d := time.Since(began); d < after || d > after+100*time.Millisecond {
				t.Errorf("%s was released after %v", id, d)
			}
		}
		<-a.done
		if !errors.Is(a.err, ownership.ErrStuck) {
			t.Errorf("Run: %v", a.err)
		}
	})
}

// A handler that outlives the trust of its claim is stuck too.
func TestStuckAfterLoss(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.assign(map[string]string{"a": "t:0"})
		free := make(chan struct{})
		a := w.join("a", memberOptions{
			Options: ownership.Options{RebalanceTimeout: 5 * time.Second},
			handler: func(ctx context.Context, _ *ownership.Claim) error {
				<-ctx.Done()
				select {
				case <-free:
				default:
					<-free
				}
				return nil
			},
		})
		a.owns(5*time.Second, "t:0")
		noerr.Must(t, w.srv.Delete(owners+"/t:0"))
		w.within(6*time.Second, "told", func() bool { return a.told(ownership.ErrStuck) == 1 })
		if w.holder("t:0") != 0 {
			t.Error("claimed while the handler is stuck")
		}
		close(free)
		a.owns(time.Second, "t:0")
	})
}

// A handler that returns while the partition is owned is called again, under the same claim, after a growing pause.
func TestHandlerReturns(t *testing.T) {
	for name, ret := range map[string]error{"nil": nil, "error": errors.New("boom")} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.assign(map[string]string{"a": "t:0"})
				type call struct {
					at    time.Time
					token int64
				}
				var all shared[[]call]
				a := w.join("a", memberOptions{handler: func(ctx context.Context, c *ownership.Claim) error {
					all.set(append(all.get(), call{time.Now(), c.Token()}))
					if len(all.get()) < 6 {
						return ret
					}
					<-ctx.Done()
					return nil
				}})
				w.within(time.Minute, "six calls", func() bool { return len(all.get()) == 6 })
				calls := all.get()
				for i := 1; i < 6; i++ {
					pause := calls[i].at.Sub(calls[i-1].at)
					if least := 100 * time.Millisecond << (i - 1); pause < least || pause > 2*least+time.Millisecond {
						t.Errorf("pause %d: %v", i, pause)
					}
					if calls[i].token != calls[0].token {
						t.Errorf("calls %v", calls)
					}
				}
				if n := a.told(ownership.ErrHandler); n != 5 {
					t.Errorf("told %d times: %v", n, a.errors())
				}
				if ret != nil && a.told(ret) != 5 {
					t.Errorf("errors %v", a.errors())
				}
				w.wantEvents("a", "t:0", "joined claimed")
			})
		})
	}
}

// An error that a handler returns after revocation is reported, the context's is not.
func TestErrorAfterRevocation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		boom := errors.New("boom")
		a := w.owning("a", "t:0 t:1 t:2", memberOptions{handler: func(ctx context.Context, c *ownership.Claim) error {
			<-ctx.Done()
			return []error{boom, ctx.Err(), context.Cause(ctx)}[c.Partition()]
		}})
		w.assign(map[string]string{})
		a.owns(time.Second, "")
		time.Sleep(time.Second)
		if errs := a.errors(); len(errs) != 1 || !errors.Is(errs[0], boom) || !strings.Contains(errs[0].Error(), "t:0") {
			t.Errorf("errors %v", errs)
		}
	})
}

// Leaving: the member znode goes first, then each partition as soon as it is drained, then the allocator.
func TestLeave(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var revoked atomic.Int64
		a := w.owning("a", "t:0 t:1", memberOptions{handler: func(ctx context.Context, c *ownership.Claim) error {
			<-ctx.Done()
			revoked.Add(1)
			time.Sleep(time.Duration(c.Partition()) * 5 * time.Second)
			return nil
		}})
		b := w.join("b", memberOptions{})
		time.Sleep(time.Second)

		may := make(chan struct{})
		a.brain.leaveIn = may
		stopped := make(chan error, 1)
		go func() { stopped <- a.owner.Stop(context.Background()) }()
		time.Sleep(time.Second)
		if revoked.Load() != 0 {
			t.Error("revoked before the member znode was gone")
		}
		w.assign(map[string]string{"b": "t:0 t:1"})
		close(may)
		b.owns(time.Second, "t:0")
		b.owns(6*time.Second, "t:0 t:1")
		noerr.Want(t, <-stopped)
		select {
		case <-a.brain.done:
		default:
			t.Error("the allocator runs on")
		}
		w.wantEvents("a", "t:1", "joined claimed revoking releasing left")
		if err := a.owner.Run(context.Background()); !errors.Is(err, kiel.ErrRunTwice) || err.Error() != "ownership: run was called before" {
			t.Errorf("second run: %v", err)
		}
	})
}

// Without ZooKeeper the member znode can't be removed; the handlers are told all the same, in time.
func TestLeaveWithoutZooKeeper(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.assign(map[string]string{"a": "t:0"})
		a := w.join("a", memberOptions{Options: ownership.Options{StopTimeout: 8 * time.Second}})
		a.brain.leaveIn = make(chan struct{}) // as long as ctx allows
		a.owns(5*time.Second, "t:0")
		began := time.Now()
		w.srv.Down()
		a.quit()
		<-a.done
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("run returned after %v", took)
		}
		if !errors.Is(a.err, ownership.ErrStuck) { // its claim could not be released
			t.Errorf("run: %v", a.err)
		}
		w.srv.Restart(false)
		w.within(15*time.Second, "the claim goes with its session", func() bool { return w.holder("t:0") == 0 })
	})
}

// A handler that never returns does not keep Run, nor its partition.
func TestStopWithStuckHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		free := make(chan struct{})
		defer w.close()
		defer close(free)
		var claim shared[*ownership.Claim]
		a := w.owning("a", "t:0 t:1", memberOptions{
			Options: ownership.Options{StopTimeout: 10 * time.Second},
			handler: func(ctx context.Context, c *ownership.Claim) error {
				<-ctx.Done()
				if c.Partition() == 0 {
					claim.set(c)
					<-free
				}
				return nil
			},
		})
		b := w.join("b", memberOptions{})
		ses := a.sessionID()
		time.Sleep(time.Second)
		began := time.Now()
		w.assign(map[string]string{"b": "t:0 t:1"})
		a.quit()
		b.owns(time.Second, "t:1")
		<-a.done
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("run returned after %v", took)
		}
		stuck, ok := errors.AsType[*ownership.StuckError](a.err)
		if !ok || !errors.Is(a.err, ownership.ErrStuck) || stuck.Partition != part("t:0") {
			t.Errorf("run: %v", a.err)
		}
		if claim.get().Trusted() {
			t.Error("trusted after run returned")
		}
		b.owns(time.Second, "t:0 t:1")
		if a.sessionID() != ses {
			t.Error("the session was given up")
		}
	})
}

// Stop returns when its context ends; Run goes on leaving.
func TestStopGivesUpWaiting(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0", memberOptions{drain: 3 * time.Second})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := a.owner.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stop: %v", err)
		}
		if err := a.owner.Stop(context.Background()); err != nil || w.holder("t:0") != 0 {
			t.Errorf("stop: %v, holder %x", err, w.holder("t:0"))
		}
	})
}

func TestStopBeforeRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join("a", memberOptions{})
		o, err := ownership.NewFromSource(newBrain(a.ses, "h", "x"), a.work, ownership.Options{})
		noerr.Must(t, err)
		noerr.Want(t, o.Stop(context.Background()))
		noerr.Want(t, o.Run(context.Background()))
		if err := o.Run(context.Background()); !errors.Is(err, kiel.ErrRunTwice) {
			t.Errorf("second run: %v", err)
		}
	})
}

// An allocator that ends by itself takes the owner along, in order.
func TestAllocatorFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		taken := errors.New("name taken")
		a := w.owning("a", "t:0", memberOptions{drain: 2 * time.Second})
		a.brain.fail <- taken
		began := time.Now()
		<-a.done
		if !errors.Is(a.err, taken) || time.Since(began) < 2*time.Second {
			t.Errorf("run: %v after %v", a.err, time.Since(began))
		}
		w.wantEvents("a", "t:0", "joined claimed revoking releasing left")
	})
}

// The session waits for the owner; when it can't wait longer, all ends.
func TestSessionCloses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0", memberOptions{})
		a.endSession()
		time.Sleep(5 * time.Second)
		if a.owned() != "t:0" {
			t.Error("the session did not wait for its holder")
		}
		<-a.ended
		select {
		case <-a.done:
		case <-time.After(20 * time.Second):
			t.Fatal("run goes on without a session")
		}
		if a.err == nil {
			t.Error("run: nil")
		}
	})
}

// An observer that never returns is reported.
func TestStuckObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		free := make(chan struct{})
		w.assign(map[string]string{"a": "t:0"})
		a := w.join("a", memberOptions{Options: ownership.Options{
			StopTimeout: 10 * time.Second,
			Observer: func(e ownership.Event) {
				if e.Kind == ownership.Claimed {
					<-free
				}
			},
		}})
		time.Sleep(time.Second)
		began := time.Now()
		a.quit()
		<-a.done
		if took := time.Since(began); took > 10*time.Second || !errors.Is(a.err, ownership.ErrStuck) {
			t.Errorf("run returned %v after %v", a.err, took)
		}
		close(free)
		synctest.Wait()
		w.journal.entries = nil // what it saw is cut off
		w.close()
	})
}
