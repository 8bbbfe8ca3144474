package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/promtest"
	"github.com/kielgo/kiel/ownership"
)

// Behind an OnError that is slow a limited number of errors waits, the newest; the others are counted.
func TestSlowOnError(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		const n = 200
		free := make(chan struct{})
		w.assign(map[string]string{"a": items(n)})
		a := w.join("a", memberOptions{Options: ownership.Options{
			Registerer: reg,
			Accept:     func(p kiel.Partition) error { return fmt.Errorf("no %s", p) },
			OnError:    func(error) { <-free },
		}})
		time.Sleep(5 * time.Second)
		close(free)
		time.Sleep(time.Second)
		errs := a.errors()
		if len(errs) != 64 && len(errs) != 65 { // with the one that was told before the others
			t.Fatalf("told of %d errors", len(errs))
		}
		all := make([]kiel.Partition, n)
		for i := range all {
			all[i] = kiel.Partition{Topic: "t", ID: int32(i)}
		}
		kiel.SortPartitions(all)
		for i, err := range errs[len(errs)-64:] {
			if want := fmt.Sprint("no ", all[n-64+i]); !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
		promtest.Families(t, reg, fmt.Sprint("kiel_errors_dropped_total ", n-len(errs)))
	})
}

// Behind an Observer that is very slow a limited number of events waits, whatever happens meanwhile, and what it is told later is
// a true story.
func TestSlowObserver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const n = 5
		free := make(chan struct{})
		plan := map[string]string{"a": items(n)}
		w.assign(plan)
		blocked := false
		var since []time.Time
		a := w.join("a", memberOptions{Options: ownership.Options{RebalanceTimeout: time.Hour, Observer: func(e ownership.Event) {
			if e.Kind == ownership.Claimed && e.Partition == n-1 && !blocked {
				blocked = true
				<-free
			}
			if e.Kind == ownership.Untrusted {
				since = append(since, e.Since)
			}
		}}})
		time.Sleep(15 * time.Second)
		var lost time.Time
		for range 10 {
			for range 5 {
				w.assign(map[string]string{"a": items(n - 3)})
				time.Sleep(100 * time.Millisecond)
				w.assign(plan)
				time.Sleep(100 * time.Millisecond)
			}
			noerr.Want(t, w.srv.Delete(owners+"/t:0"))
			time.Sleep(5 * time.Second)
			w.srv.FreezeClock()
			w.within(15*time.Second, "trust ends", func() bool { return a.sessionID() == 0 })
			if lost.IsZero() {
				lost = time.Now()
			}
			w.srv.Thaw()
			w.within(15*time.Second, "trusted", func() bool { return a.sessionID() != 0 })
			time.Sleep(15 * time.Second)
		}
		waiting := ownership.Waiting(a.owner)
		t.Logf("%d events wait", waiting)
		if waiting > 4*n {
			t.Errorf("%d events wait for the observer of %d partitions", waiting, n)
		}
		close(free)
		a.owns(time.Second, items(n))
		if len(since) == 0 || since[0].After(lost) {
			t.Errorf("untrusted since %v, trust was lost first at %v", since, lost)
		}
	})
}

// A callback that panics, or ends its goroutine as a failing test does, costs its call, and is reported. The log has the stack
// once for each callback.
func TestCallbacksFail(t *testing.T) {
	toldOfPanics := []string{
		"ownership: callback panicked or ended its goroutine: Observer: observer of claimed",
		"ownership: callback panicked or ended its goroutine: Observer: observer of releasing",
		"ownership: u:0: partition not claimed: callback panicked or ended its goroutine: Accept: picky",
		"ownership: t:0: handler returned while the partition is owned: callback panicked or ended its goroutine: handler of t:0: boom",
		"ownership: callback panicked or ended its goroutine: handler of t:1: context canceled",
	}
	for name, test := range map[string]struct {
		fail func(err error)
		told []string
	}{
		"panics with a text":   {func(err error) { panic(err.Error()) }, toldOfPanics},
		"panics with an error": {func(err error) { panic(err) }, toldOfPanics},
		"ends its goroutine": {func(error) { runtime.Goexit() }, []string{
			"ownership: callback panicked or ended its goroutine: Observer: runtime.Goexit was called",
			"ownership: u:0: partition not claimed: callback panicked or ended its goroutine: Accept: runtime.Goexit was called",
			"ownership: t:0: handler returned while the partition is owned: callback panicked or ended its goroutine: handler of t:0: runtime.Goexit was called",
			"ownership: callback panicked or ended its goroutine: handler of t:1: runtime.Goexit was called",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.assign(map[string]string{"a": "t:0 t:1 u:0"})
				var calls, errs atomic.Int32
				log, opts := logging()
				a := w.join("a", memberOptions{
					Options: ownership.Options{
						Logger:   opts.Logger,
						Observer: func(e ownership.Event) { test.fail(fmt.Errorf("observer of %s", e.Kind)) },
						OnError: func(err error) {
							errs.Add(1)
							test.fail(err)
						},
						Accept: func(p kiel.Partition) error {
							if p.Topic == "u" {
								test.fail(errors.New("picky"))
							}
							return nil
						},
					},
					handler: func(ctx context.Context, c *ownership.Claim) error {
						if c.Partition() == 0 {
							calls.Add(1)
							test.fail(errors.New("boom"))
						}
						<-ctx.Done()
						test.fail(ctx.Err())
						return nil
					},
				})
				b := w.join("b", memberOptions{})
				a.owns(5*time.Second, "t:0 t:1")
				w.within(5*time.Second, "called again", func() bool { return calls.Load() > 2 })
				w.assign(map[string]string{"a": "t:0", "b": "t:1 u:0"})
				b.owns(2*time.Second, "t:1 u:0")
				a.quit()
				<-a.done
				noerr.Want(t, a.err)
				all := fmt.Sprint(errors.Join(a.errors()...))
				for _, want := range test.told {
					if !slices.Contains(strings.Split(all, "\n"), want) {
						t.Errorf("not told of %q", want)
					}
				}
				if a.told(ownership.ErrUnclaimed) != 1 || a.told(ownership.ErrCallback) < 5 || a.told(ownership.ErrHandler) < 2 || errs.Load() < 5 {
					t.Errorf("OnError was called %d times, with %s", errs.Load(), all)
				}
				for _, callback := range []string{"Observer", "OnError", "Accept", "handler"} {
					kind := fmt.Sprintf(`kind="panic in %s"`, callback)
					wantLines(t, log, 1, "msg=failed", kind, "callback panicked", "callback_test.go")
					wantLines(t, log, 1, kind, "stack=")
				}
			})
		})
	}
}

// Stop in a callback waits for itself, until that counts as stuck; the others get what the member has.
func TestStopInACallback(t *testing.T) {
	for _, name := range []string{"Observer", "Accept", "OnError", "handler"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var a *member
				var ill shared[bool]
				stop := func(callback string) {
					if callback == name && ill.get() {
						_ = a.owner.Stop(context.Background())
					}
				}
				w.assign(map[string]string{"a": "t:0 t:1", "b": "t:2"})
				a = w.join("a", memberOptions{
					Options: ownership.Options{
						StopTimeout: 10 * time.Second,
						Observer:    func(ownership.Event) { stop("Observer") },
						Accept:      func(kiel.Partition) error { stop("Accept"); return nil },
						OnError:     func(error) { stop("OnError") },
					},
					handler: func(ctx context.Context, _ *ownership.Claim) error {
						<-ctx.Done()
						stop("handler")
						return errors.New("something to tell")
					},
				})
				b := w.join("b", memberOptions{})
				a.owns(5*time.Second, "t:0 t:1")
				ill.set(true)
				w.assign(map[string]string{"a": "t:1", "b": "t:0 t:2"})
				w.within(10*time.Second+100*time.Millisecond, "Run has returned", func() bool { return !isOpen(a.done) })
				if !errors.Is(a.err, ownership.ErrStuck) {
					t.Errorf("Run: %v", a.err)
				}
				w.assign(map[string]string{"b": "t:0 t:1 t:2"})
				b.owns(time.Second, "t:0 t:1 t:2")
				if name == "Observer" {
					w.journal.forget("a")
				}
			})
		})
	}
}

// Without Observer nothing can be handed over, without Accept no plan is acted on: a member whose call does not return
// leaves, so that the others get what it has. Without OnError all goes on.
func TestCallbackThatNeverReturns(t *testing.T) {
	for name, leaves := range map[string]bool{"Observer": true, "Accept": true, "OnError": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var free sync.Once
				var stuck atomic.Bool
				gate := make(chan struct{})
				open := func() { free.Do(func() { close(gate) }) }
				defer w.close()
				defer open()
				reg := prometheus.NewPedanticRegistry()
				var ill shared[bool]
				stall := func(callback string) {
					if callback == name && ill.get() && !stuck.Swap(true) {
						<-gate
					}
				}
				w.assign(map[string]string{"a": "t:0 t:1", "b": "t:2"})
				a := w.join("a", memberOptions{Options: ownership.Options{
					RebalanceTimeout: 5 * time.Second, StopTimeout: 10 * time.Second, Registerer: lasting{reg},
					Observer: func(ownership.Event) { stall("Observer") },
					Accept:   func(kiel.Partition) error { stall("Accept"); return nil },
					OnError:  func(error) { stall("OnError") },
				}})
				b := w.join("b", memberOptions{})
				a.owns(5*time.Second, "t:0 t:1")
				ill.set(true)
				if name == "OnError" { // is told of this
					w.journal.loosen(part("t:0"))
					noerr.Must(t, w.srv.Delete(owners+"/t:0"))
					time.Sleep(time.Second)
				}
				w.assign(map[string]string{"a": "t:1", "b": "t:0 t:2"})
				b.owns(17*time.Second, "t:0 t:2")
				time.Sleep(10 * time.Second)
				promtest.Families(t, reg, "kiel_rebalance_errors_total stage=claim:0 stage=handler:1 stage=revoke:0")
				if !leaves {
					open()
					synctest.Wait()
					w.assign(map[string]string{"a": "t:0 t:1", "b": "t:2"})
					a.owns(time.Second, "t:0 t:1")
				} else {
					w.within(10*time.Second, "Run has returned", func() bool { return !isOpen(a.done) })
					if !errors.Is(a.err, ownership.ErrStuck) || !strings.Contains(a.err.Error(), name+" has not returned") {
						t.Errorf("Run: %v", a.err)
					}
				}
				synctest.Wait()
				if n := a.told(ownership.ErrStuck); n == 0 {
					t.Errorf("errors %v", a.errors())
				}
				if name == "Observer" {
					w.journal.forget("a")
				}
			})
		})
	}
}

// However little time handlers have, a callback that is merely slow is not stuck.
func TestSlowCallbackWithAShortRebalanceTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.assign(map[string]string{"a": "t:0"})
		a := w.join("a", memberOptions{Options: ownership.Options{
			RebalanceTimeout: 10 * time.Millisecond,
			Observer:         func(ownership.Event) { time.Sleep(4 * time.Second) },
		}})
		a.owns(20*time.Second, "t:0")
		w.assign(map[string]string{})
		a.owns(20*time.Second, "")
		if len(a.errors()) > 0 || !isOpen(a.done) {
			t.Errorf("errors %v", a.errors())
		}
	})
}

func isOpen(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// When Run has returned, Accept is not called any more, though a call of it was stuck before other partitions were asked about.
func TestAcceptAfterRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		free := make(chan struct{})
		var calls atomic.Int64
		w.assign(map[string]string{"a": items(5)})
		a := w.join("a", memberOptions{Options: ownership.Options{
			RebalanceTimeout: 5 * time.Second, StopTimeout: 5 * time.Second,
			Accept: func(kiel.Partition) error {
				calls.Add(1)
				<-free
				return nil
			},
		}})
		time.Sleep(time.Second)
		a.quit()
		<-a.done
		close(free)
		synctest.Wait()
		if n := calls.Load(); n != 1 {
			t.Errorf("Accept was called %d times", n)
		}
	})
}
