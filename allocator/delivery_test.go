package allocator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// slowRig has an OnRebalance that waits for a token before it returns.
func slowRig(t *testing.T) (r *rig, token chan struct{}) {
	t.Helper()
	token = make(chan struct{})
	r = newRig(t, func(o *Options) {
		note := o.OnRebalance
		o.OnRebalance = func(ctx context.Context, b Rebalance) {
			note(ctx, b)
			<-token
		}
	})
	return r, token
}

func TestSlowCallbackGetsWhatFollowsMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, token := slowRig(t)
		r.begin("t:0", "t:1")
		if got := r.told(); got != "+t:0 t:1 -" {
			t.Error(got)
		}
		for _, items := range [][]string{{"t:1"}, {"t:1", "t:2"}, {"t:3"}} {
			sleep(time.Minute)
			r.partitions(items...)
		}
		r.want(status.TopicGrew, "t:3") // the loop goes on
		if got := r.told(); got != "" {
			t.Error("two calls at once:", got)
		}
		token <- struct{}{}
		if got := r.told(); got != "+t:3 -t:0 t:1" {
			t.Error("not the difference from what was delivered last:", got)
		}
		token <- struct{}{}
		synctest.Wait()
		close(token)
		r.stop()
		if got := r.told(); got != "+ -t:3" {
			t.Error(got)
		}
	})
}

func TestCallbackThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, token := slowRig(t)
		r.begin("t:0")
		r.told()
		start := time.Now()
		if err := r.stop(); !errors.Is(err, ErrStuck) || time.Since(start) != defaultStopTimeout {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		close(token) // it returns after all: nothing may be called any more
		if got := r.told(); got != "" {
			t.Error("a call after Run returned:", got)
		}
	})
}

func TestCallbackContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 10)
		r := newRig(t, func(o *Options) {
			o.OnRebalance = func(ctx context.Context, b Rebalance) {
				if len(b.Added) > 0 {
					<-ctx.Done()
					causes <- context.Cause(ctx)
				} else {
					time.Sleep(time.Millisecond)
					causes <- ctx.Err() // of the call about the loss, and of the last one
				}
			}
		})
		r.begin("t:0")
		r.lose(session.ErrTrustLost)
		if err := <-causes; !errors.Is(err, session.ErrTrustLost) {
			t.Error(err)
		}
		select {
		case err := <-causes:
			noerr.Want(t, err)
		case <-time.After(time.Minute):
			_ = r.stop()
			t.Fatal("the callback was not told of the loss")
		}
		r.incarnate()
		r.join("b")
		r.partitions("t:0")
		noerr.Want(t, r.stop())
		if err := <-causes; !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
		noerr.Want(t, <-causes)
	})
}

func TestCallbackMayStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = newRig(t, func(o *Options) {
			o.OnRebalance = func(ctx context.Context, _ Rebalance) {
				ctx, cancel := context.WithCancel(ctx) // as a function does that the callback calls
				defer cancel()
				noerr.Want(t, r.Stop(ctx))
			}
		})
		r.run()
		start := time.Now()
		r.join("b")
		r.partitions("t:0")
		if err := <-r.ran; err != nil || time.Since(start) != 0 {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

func TestOnErrorMayStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = newRig(t, func(o *Options) {
			o.OnError = func(ctx context.Context, _ error) {
				noerr.Want(t, r.Stop(ctx))
			}
		})
		start := time.Now()
		r.begin("nonsense")
		if err := <-r.ran; err != nil || time.Since(start) > time.Minute/2 {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

// A callback that calls Stop with another context than its own waits for itself, but not for ever: Run gives the callback up.
func TestCallbackStopsWithAnotherContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		stopped := make(chan error, 1)
		r = newRig(t, func(o *Options) {
			o.StopTimeout = 5 * time.Second
			o.OnRebalance = func(context.Context, Rebalance) { stopped <- r.Stop(t.Context()) }
		})
		r.run()
		start := time.Now()
		r.join("b")
		r.partitions("t:0")
		if err := <-r.ran; !errors.Is(err, ErrStuck) || time.Since(start) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		noerr.Want(t, <-stopped)
	})
}

// The context of a callback that has returned is one like others: Stop waits for Run.
func TestStopAfterTheCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := make(chan context.Context, 1)
		r := newRig(t, func(o *Options) {
			o.OnRebalance = func(ctx context.Context, b Rebalance) {
				if len(b.Added) > 0 {
					kept <- context.WithoutCancel(ctx)
				} else if len(b.Removed) > 0 {
					time.Sleep(time.Second) // Run waits for the last call
				}
			}
		})
		r.begin("t:0")
		noerr.Want(t, errors.Join(r.Stop(<-kept), stillRuns(r)))
		<-r.ran
	})
}

// The callback of one allocator waits for another one's end.
func TestCallbackStopsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := newRig(t, func(*Options) {})
		other.begin("t:0")
		stopped := make(chan error, 1)
		r := newRig(t, func(o *Options) {
			o.OnRebalance = func(ctx context.Context, _ Rebalance) {
				select {
				case stopped <- errors.Join(other.Stop(context.WithoutCancel(ctx)), stillRuns(other)):
				default:
				}
			}
		})
		r.begin("t:0")
		noerr.Want(t, <-stopped)
		r.stop()
	})
}

func stillRuns(r *rig) error {
	select {
	case <-r.done:
		return nil
	default:
		return errors.New("Stop returned while Run went on")
	}
}

// ends are how a callback may fail: t.FailNow ends the goroutine.
var ends = map[string]func(){"ouch": func() { panic("ouch") }, "Goexit": runtime.Goexit}

// A callback that fails is reported, and called again at the next change.
func TestCallbackFails(t *testing.T) {
	for says, end := range ends {
		bubble.Run(t, says, func(t *testing.T) {
			r := newRig(t, func(o *Options) {
				note := o.OnRebalance
				o.OnRebalance = func(ctx context.Context, b Rebalance) {
					note(ctx, b)
					end()
				}
			})
			r.begin("t:0")
			if err := r.failed(); !errors.Is(err, ErrCallback) || !strings.Contains(err.Error(), says) {
				t.Error(err)
			}
			r.partitions("t:1")
			sleep(time.Minute)
			if got := r.told(); got != "+t:0 -, +t:1 -t:0" {
				t.Error(got)
			}
			if n := testutil.ToFloat64(r.metrics.callbackFailed); n != 2 {
				t.Errorf("counted %v failed calls", n)
			}
			noerr.Want(t, r.stop())
		})
	}
}

// A rebalance that was taken with an error is delivered all the same when OnError fails.
func TestOnErrorFails(t *testing.T) {
	for name, end := range ends {
		bubble.Run(t, name, func(t *testing.T) {
			calls := 0
			r := newRig(t, func(o *Options) {
				o.OnError = func(context.Context, error) {
					calls++
					end()
				}
			})
			r.begin("nonsense", "t:0")
			sleep(time.Minute)
			r.partitions("rubbish", "t:0", "t:1")
			if got := r.told(); calls != 2 || got != "+t:0 -, +t:1 -" {
				t.Errorf("%d calls, told %q", calls, got)
			}
			r.stop()
		})
	}
}

// The panics of a callback at each rebalance are logged as errors of one kind. OnError gets each; of the function's equal panics
// it gets the first.
func TestPanicsAtEachRebalanceAreCoalesced(t *testing.T) {
	const rebalances = 100
	for name, test := range map[string]struct {
		change func(*Options)
		told   int
	}{
		"OnRebalance": {func(o *Options) { o.OnRebalance = func(context.Context, Rebalance) { panic("ouch") } }, rebalances},
		"Func": {func(o *Options) {
			o.PythonFunc, o.Func = "mine", failing("mine", func(allocfn.Input) (allocfn.Assignment, error) { panic("ouch") })
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := new(logtest.Log)
				r := newRig(t, func(o *Options) {
					o.Logger = slog.New(slog.NewTextHandler(log, nil))
					test.change(o)
				})
				r.begin("t:0")
				for i := range rebalances {
					sleep(300 * time.Millisecond)
					r.partitions(fmt.Sprint("t:", i+1))
				}
				sleep(time.Minute)
				r.locked(func() {
					if n := len(r.errs); n < test.told {
						t.Errorf("told of %d errors: %v", n, r.errs)
					}
				})
				kind := fmt.Sprintf(`kind="panic in %s"`, name)
				if stacks, lines := log.Count("stack="), log.Count(kind); stacks != 1 || lines < 2 || lines > 5 || log.Count(kind, "msg=failed", "ouch", "delivery_test.go") != 1 {
					t.Errorf("%d stacks, %d lines for %d panics in 30 s:\n%s", stacks, lines, rebalances, log)
				}
				r.stop()
			})
		})
	}
}

func TestErrorsBehindASlowCallbackAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token, told := make(chan struct{}), 0
		log := slog.New(slog.DiscardHandler)
		d := newDelivery(Options{OnError: func(context.Context, error) { <-token; told++ }}, nil, log, errlog.New(log), nil)
		d.life, d.stopping = t.Context(), t.Context()
		d.error(errors.New("the first"))
		synctest.Wait() // its call is under way
		for range 10 * maxErrors {
			d.error(errors.New("x"))
		}
		close(token)
		<-d.calls.Close()
		if told != 1+maxErrors {
			t.Errorf("told of %d errors", told)
		}
	})
}

// Without callbacks nothing waits for one, and no goroutine for what waits.
func TestNothingIsDeliveredToNobody(t *testing.T) {
	d := newDelivery(Options{}, nil, nil, nil, nil)
	d.error(errors.New("x"))
	d.snapshot(&Snapshot{})
	select {
	case <-d.calls.Close():
	default:
		t.Error("something waits")
	}
}

func TestCallbackThatDoesNotReturnIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, token := slowRig(t)
		r.begin("t:0")
		count := func() float64 {
			return testutil.ToFloat64(r.metrics.callbackFailed)
		}
		sleep(callbackTimeout - time.Second)
		if n := count(); n != 0 {
			t.Errorf("counted %v too early", n)
		}
		sleep(time.Hour)
		if n := count(); n != 1 {
			t.Errorf("counted %v", n)
		}
		close(token)
		r.stop()
	})
}
