package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/zktest"
)

// logging returns options that log to the Log.
func logging() (*logtest.Log, ownership.Options) {
	log := new(logtest.Log)
	return log, ownership.Options{Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
}

// wantLines checks how many lines contain all of the parts, when all lines of this moment are written: a claim is owned a little
// before the line that says so.
func wantLines(t *testing.T, log *logtest.Log, want int, parts ...string) {
	t.Helper()
	synctest.Wait()
	if n := log.Count(parts...); n != want {
		t.Errorf("%d lines with %q, want %d; the log without level Debug:", n, parts, want)
		for line := range strings.Lines(log.String()) {
			if !strings.Contains(line, "level=DEBUG") {
				t.Log(line)
			}
		}
	}
}

// Up to 16 partitions that move at once have lines at level Info, which tell from whom, why, and to whom. More have them at level
// Debug.
func TestLinesOfMoves(t *testing.T) {
	for _, n := range []int{16, 17, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				log, opts := logging()
				at := "level=INFO"
				if n > 16 {
					at = "level=DEBUG"
				}
				w.assignFor(statuswrite.Reason(status.MemberGone, "z"), map[string]string{"a": items(n)})
				a, b := w.join("a", memberOptions{Options: opts, drain: time.Second}), w.join("b", memberOptions{})
				a.owns(20*time.Second, items(n))
				wantLines(t, log, n, at, "msg=claimed", " partition=t:", `reason="member-gone z" previous=""`)
				time.Sleep(time.Second)
				w.assignFor(joinedB, map[string]string{"b": items(n)})
				b.owns(20*time.Second, items(n))
				wantLines(t, log, n, at, "msg=revoking", " partition=t:", `next=b reason="member-joined b"`)
				wantLines(t, log, n, at, "msg=released", " partition=t:", " drained=1s")
				wantLines(t, log, map[bool]int{true: 48, false: 0}[n <= 16], "level=INFO")
				wantLines(t, log, 0, "level=WARN")
				wantLines(t, log, 0, "level=ERROR")
			})
		})
	}
}

// Each change has the level for its own number of partitions.
func TestLinesAreCountedByChange(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		log, opts := logging()
		a := w.owning("a", items(100), memberOptions{Options: opts})
		time.Sleep(time.Second)
		w.assign(map[string]string{"a": items(99)})
		a.owns(5*time.Second, items(99))
		w.assign(map[string]string{"a": items(100)})
		a.owns(5*time.Second, items(100))
		wantLines(t, log, 1, "level=INFO", "msg=revoking", "partition=t:99 ")
		wantLines(t, log, 1, "level=INFO", "msg=released", "partition=t:99 ")
		wantLines(t, log, 1, "level=INFO", "msg=claimed", "partition=t:99 ")
		wantLines(t, log, 3, "level=INFO")
		a.quit()
		<-a.done
		wantLines(t, log, 4, "level=INFO") // leaving
		wantLines(t, log, 101, "msg=released")
	})
}

// The end of trust of 1,000 claims is one warning that counts them, and one line tells when they are owned again: in the same
// session, and in the next one.
func TestLinesOfTrust(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		log, opts := logging()
		a := w.owning("a", items(1000), memberOptions{Options: opts})
		wantLines(t, log, 0, "msg=resumed")
		time.Sleep(time.Second)
		w.srv.SetHook(func(r *zktest.Request) zktest.Action { return zktest.Action{Ignore: proof(r)} })
		time.Sleep(15 * time.Second) // trust has ended
		w.srv.SetHook(nil)
		time.Sleep(10 * time.Second)
		a.owns(30*time.Second, items(1000))
		time.Sleep(time.Second)
		wantLines(t, log, 1, "level=WARN", `msg="session not trusted, partitions stopped"`, " partitions=1000")
		wantLines(t, log, 1, "level=INFO", "msg=resumed", " after=1", " partitions=1000")
		w.kill(a.sessionID())
		time.Sleep(10 * time.Second)
		a.owns(30*time.Second, items(1000))
		time.Sleep(time.Second)
		wantLines(t, log, 2, "level=WARN")
		wantLines(t, log, 2, "msg=resumed")
		wantLines(t, log, 2, "level=INFO")
		wantLines(t, log, 0, "level=ERROR")
	})
}

// A claim that was lost, and is released when trust is back, has had no handler to wait for.
func TestLinesOfAReleaseAfterTrustEnded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		log, opts := logging()
		a := w.owning("a", "t:0", memberOptions{Options: opts})
		time.Sleep(time.Second)
		w.srv.SetHook(func(r *zktest.Request) zktest.Action { return zktest.Action{Ignore: proof(r)} })
		w.within(30*time.Second, "trust ends", func() bool { return a.owned() == "" })
		w.assign(nil)
		w.srv.SetHook(nil)
		w.within(30*time.Second, "released", func() bool { return log.Count("msg=released") > 0 })
		wantLines(t, log, 1, "msg=released", "partition=t:0 ", "drained=0s")
	})
}

// A server that does not answer while 1,000 partitions are claimed costs a few lines.
func TestLinesWithoutZooKeeper(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		log, opts := logging()
		a := w.owning("a", "t:0", memberOptions{Options: opts})
		time.Sleep(time.Second)
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if claims(*r) {
				a.client.BlackHole(zktest.Both)
			}
			return zktest.Action{}
		})
		w.assign(map[string]string{"a": items(1000)})
		time.Sleep(2 * time.Minute)
		w.srv.SetHook(nil)
		a.client.Heal()
		time.Sleep(10 * time.Second)
		a.owns(time.Minute, items(1000))
		time.Sleep(time.Second)
		if n := log.Count("level=WARN") + log.Count("level=ERROR") + log.Count("level=INFO"); n > 40 {
			t.Errorf("%d lines", n)
		}
		wantLines(t, log, 1, "msg=resumed")
	})
}

// Handlers of 1,000 partitions that fail, or panic, cost a few lines, and one says that they work again. OnError gets each. Of
// panics one line has the stack.
func TestLinesOfHandlers(t *testing.T) {
	for name, test := range map[string]struct {
		end   func() error
		kinds []string
	}{
		"error": {func() error { return errors.New("ouch") }, []string{"kind=handler"}},
		"panic": {func() error { panic("ouch") }, []string{"kind=handler", `kind="panic in handler"`}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				log, opts := logging()
				var well shared[bool]
				w.assign(map[string]string{"a": items(1000)})
				a := w.join("a", memberOptions{Options: opts, handler: func(ctx context.Context, _ *ownership.Claim) error {
					if well.get() {
						<-ctx.Done()
						return context.Cause(ctx)
					}
					return test.end()
				}})
				time.Sleep(time.Minute)
				well.set(true)
				time.Sleep(3 * time.Minute)
				for _, kind := range test.kinds {
					wantLines(t, log, 1, "level=ERROR", "msg=failed", kind)
					if n := log.Count("level=ERROR", kind); n < 4 || n > 12 {
						t.Errorf("%d lines of %s", n, kind)
					}
					wantLines(t, log, 1, "level=INFO", "msg=recovered", kind)
				}
				wantLines(t, log, len(test.kinds)-1, "stack=")
				if n := a.told(ownership.ErrHandler); n < 500 {
					t.Errorf("OnError was told %d times", n)
				}
			})
		})
	}
}

// Claims of 1,000 partitions that a third party deletes cost a few lines.
func TestLinesOfVanishedClaims(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		log, opts := logging()
		a := w.owning("a", items(1000), memberOptions{Options: opts})
		time.Sleep(time.Second)
		for i := range 1000 {
			w.journal.loosen(part(fmt.Sprintf("t:%d", i)))
			noerr.Must(t, w.srv.Delete(fmt.Sprintf("%s/t:%d", owners, i)))
		}
		time.Sleep(10 * time.Second)
		a.owns(10*time.Second, items(1000))
		wantLines(t, log, 16, "level=INFO", "msg=claimed", "reason=claim-vanished previous=a")
		if failed, all := log.Count("level=ERROR"), log.Count("level=INFO"); failed == 0 || failed > 4 || all > 20 {
			t.Errorf("%d errors, %d lines at level Info", failed, all)
		}
	})
}

// Names that others wrote, as members or as owners, are cut wherever they are told.
func TestNamesOfOthersAreCut(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		log, opts := logging()
		long := strings.Repeat("n", 100_000)
		a := w.owning("a", "t:0 t:1", memberOptions{Options: opts})
		w.assign(map[string]string{long: "t:0 t:1"})
		a.owns(5*time.Second, "")
		holds := long[:5000] // what is read of a claim is bounded too
		noerr.Must(t, w.srv.Create(owners+"/t:1", fmt.Appendf(nil, `{"owner":%q,"version":1,"id":"x"}`, holds)))
		time.Sleep(time.Second)
		w.assignFor(goneA, map[string]string{"a": "t:0 t:1"})
		a.owns(5*time.Second, "t:0")
		for _, p := range a.owner.Status().Partitions {
			if len(p.WaitsFor) > 300 {
				t.Errorf("it waits for %d bytes", len(p.WaitsFor))
			}
		}
		noerr.Must(t, w.srv.Delete(owners+"/t:1"))
		a.owns(5*time.Second, "t:0 t:1")
		wantLines(t, log, 2, "msg=revoking", "next="+long[:statuswrite.MaxName]+" ")
		wantLines(t, log, 2, "msg=claimed", "previous="+long[:statuswrite.MaxName]+"\n")
		for line := range strings.Lines(log.String()) {
			if len(line) > 1000 {
				t.Errorf("a line has %d bytes: %.200s", len(line), line)
			}
		}
		for _, info := range a.owner.Owned() {
			if len(info.Previous) != statuswrite.MaxName {
				t.Errorf("%s:%d is owned, and %d bytes owned it before", info.Topic, info.Partition, len(info.Previous))
			}
		}
		e, _ := w.journal.last("a", ownership.Revoking, part("t:0"))
		if len(e.Next) != statuswrite.MaxName {
			t.Errorf("it goes to %d bytes", len(e.Next))
		}
	})
}

// A session that is lost while the claims are listed is no trouble of the list.
func TestALostSessionIsNoTroubleOfTheSweep(t *testing.T) {
	for name, lose := range map[string]func(*world, *member){
		"expired": func(w *world, m *member) { w.kill(m.sessionID()) },
		"silent":  func(_ *world, m *member) { m.client.BlackHole(zktest.Both) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				log, opts := logging()
				a := w.owning("a", "t:0", memberOptions{Options: opts})
				var lost atomic.Bool
				ses := a.sessionID()
				w.srv.SetHook(func(r *zktest.Request) zktest.Action {
					if r.Op != zktest.OpSync || r.Path != owners || lost.Swap(true) {
						return zktest.Action{}
					}
					time.AfterFunc(time.Millisecond, func() { lose(w, a) })
					return zktest.Action{Ignore: true}
				})
				w.within(time.Minute, "the claims are listed", func() bool { return lost.Load() })
				time.Sleep(time.Minute)
				a.client.Heal()
				w.within(time.Minute, "it is back", func() bool { return a.owned() == "t:0" && a.sessionID() != ses })
				time.Sleep(time.Minute)
				wantLines(t, log, 0, "kind=sweep")
				for _, trouble := range a.owner.Status().Troubles {
					t.Errorf("%+v", trouble)
				}
			})
		})
	}
}

// The line that tells that a member goes on counts the partitions that do, and those that don't because of a stuck handler.
func TestResumedCountsStuckHandlers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		log, opts := logging()
		opts.RebalanceTimeout = 5 * time.Second
		gate := make(chan struct{})
		a := w.owning("a", "t:0 t:1 t:2", memberOptions{
			Options: opts,
			handler: func(ctx context.Context, c *ownership.Claim) error {
				<-ctx.Done()
				if c.Partition() != 1 {
					<-gate
				}
				return nil
			},
		})
		w.kill(a.sessionID())
		time.Sleep(time.Minute)
		wantLines(t, log, 1, "msg=resumed", " partitions=1 stuck=2")
		close(gate)
		a.owns(5*time.Second, "t:0 t:1 t:2")
		wantLines(t, log, 1, "msg=resumed")
	})
}
