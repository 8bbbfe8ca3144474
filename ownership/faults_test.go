package ownership_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// claims matches the multis that claim, releases those that release.
func claims(r zktest.Request) bool {
	return r.Op == opMulti && len(r.Ops) > 1 && strings.HasPrefix(r.Ops[1].Path, owners) && r.Ops[0].Op == 5
}

func releases(r zktest.Request) bool {
	return r.Op == opMulti && len(r.Ops) > 1 && strings.HasPrefix(r.Ops[1].Path, owners) && r.Ops[1].Op == 2
}

// The claim was made, but its answer is lost: it is found to be ours.
func TestLostReplyOfTheClaim(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.assign(map[string]string{"a": items(3)})
		a := w.join("a", memberOptions{})
		var made int64
		w.srv.LoseReply(1, func(r zktest.Request) bool { return claims(r) })
		a.owns(5*time.Second, items(3))
		_, stat, _ := w.srv.Get(owners + "/t:1")
		_, epoch, _ := w.srv.Get(epochs + "/t:1")
		made = stat.Czxid
		if a.token("t:1") != made || epoch.Version != 1 {
			t.Errorf("token %d, claim %d made %d times", a.token("t:1"), made, epoch.Version)
		}
		if got := w.srv.Stats().SessionsReattached; got == 0 {
			t.Error("no reply was lost")
		}
	})
}

// The claim was made, its answer is lost, and then the plan gives the partition to another: the claim is released, nobody waits
// for ever. It is found at once also on a server that has not heard of it yet.
func TestLostReplyOfTheClaimAndNewPlan(t *testing.T) {
	for name, behind := range map[string]bool{"up to date": false, "behind": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a, b := w.join("a", memberOptions{}), w.join("b", memberOptions{})
				time.Sleep(time.Second)
				w.srv.LoseReply(1, claims)
				w.srv.SetHook(func(r *zktest.Request) zktest.Action { // the answer is lost, and a can't come back yet
					if claims(*r) {
						a.client.Refuse()
					}
					return zktest.Action{}
				})
				a.brain.assign(map[kiel.Partition]string{part("t:0"): "a"})
				time.Sleep(100 * time.Millisecond)
				w.srv.SetHook(nil)
				if w.holder("t:0") == 0 {
					t.Fatal("the claim was not made")
				}
				if behind {
					w.lag(a)
				}
				w.assign(map[string]string{"b": "t:0"})
				time.Sleep(100 * time.Millisecond)
				a.client.Heal()
				b.owns(3*time.Second, "t:0")
				if got := w.journal.kinds("a", part("t:0")); strings.Contains(got, "claimed") {
					t.Errorf("events %q", got)
				}
			})
		})
	}
}

func TestLostReplyOfTheRelease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.owning("a", items(4), memberOptions{})
		b := w.join("b", memberOptions{})
		time.Sleep(time.Second)
		w.srv.LoseReply(1, releases)
		w.assign(map[string]string{"b": items(4)})
		b.owns(3*time.Second, items(4))
		if got := w.srv.Stats().SessionsReattached; got == 0 {
			t.Error("no reply was lost")
		}
	})
}

// A release that is late does not remove the claim of whoever came meanwhile.
func TestReleaseIsGuarded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0 t:1", memberOptions{})
		var once sync.Once
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if !releases(*r) || !slices.ContainsFunc(r.Ops, func(op zktest.Request) bool { return op.Path == owners+"/t:0" }) {
				return zktest.Action{}
			}
			once.Do(func() {
				_ = w.srv.Delete(owners + "/t:0")
				_ = w.srv.Set(epochs+"/t:0", []byte("another"))
				_ = w.srv.Create(owners+"/t:0", []byte("another"))
			})
			return zktest.Action{}
		})
		w.assign(map[string]string{})
		w.within(time.Second, "t:1 is released", func() bool { return w.holder("t:1") == 0 && a.owned() == "" })
		time.Sleep(time.Minute)
		if data, _, _ := w.srv.Get(owners + "/t:0"); string(data) != "another" {
			t.Errorf("claim of another: %q", data)
		}
	})
}

// A claim of this session that stands without our knowing is found by a sweep, be it the first or a later one.
func TestSweep(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, data := w.ownedBefore("t:0")
		for range 3 {
			noerr.Last(t)(a.ses.Current().Create(context.Background(), owners+"/t:0", data, session.Ephemeral))
			took := w.within(11*time.Second, "swept away", func() bool { return w.holder("t:0") == 0 })
			if took < time.Second {
				t.Errorf("gone after %v, not by the sweep", took)
			}
			time.Sleep(time.Second)
		}
	})
}

// ownedBefore returns a member that owned a partition and has released it, and what its claim held.
func (w *world) ownedBefore(item string) (a *member, data []byte) {
	w.t.Helper()
	a = w.owning("a", item, memberOptions{})
	data, _, _ = w.srv.Get(owners + "/" + item)
	w.assign(map[string]string{})
	w.within(time.Second, "released", func() bool { return w.holder(item) == 0 })
	time.Sleep(time.Second)
	return a, data
}

func TestSessionKilled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0 t:1", memberOptions{})
		before, ses, reads := a.token("t:0"), a.sessionID(), w.srv.Stats().Requests[opGet]
		w.kill(ses)
		took := w.within(10*time.Second, "owned again", func() bool { return a.token("t:0") > before && a.token("t:1") > before })
		t.Logf("owned again after %v", took)
		if a.token("t:0") <= before || a.sessionID() == ses {
			t.Errorf("token %d after %d", a.token("t:0"), before)
		}
		if n := w.srv.Stats().Requests[opGet] - reads; n > 0 {
			t.Errorf("%d claims of the old session were looked at", n)
		}
		w.wantEvents("a", "t:0", "joined claimed untrusted joined claimed")
	})
}

// A member that is cut off stops before the servers give its claims to others.
func TestBlackHole(t *testing.T) {
	for name, dir := range map[string]zktest.Direction{"both": zktest.Both, "to server": zktest.ToServer, "to client": zktest.ToClient} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var ended shared[time.Time]
				a := w.owning("a", items(5), memberOptions{handler: func(ctx context.Context, c *ownership.Claim) error {
					<-ctx.Done()
					if cause := context.Cause(ctx); errors.Is(cause, ownership.ErrLost) {
						ended.set(time.Now())
						if c.Trusted() || c.Context().Err() == nil {
							t.Error("trusted after trust was lost")
						}
						if !errors.Is(cause, session.ErrTrustLost) {
							t.Errorf("cause %v", cause)
						}
					}
					return nil
				}})
				b := w.join("b", memberOptions{})
				time.Sleep(20 * time.Second)
				a.client.BlackHole(dir)
				w.within(30*time.Second, "the claims expire", func() bool { return w.holder("t:0") == 0 })
				if ended.get().IsZero() {
					t.Fatal("the handlers were not ended before the claims went")
				}
				margin := time.Since(ended.get())
				t.Logf("margin %v", margin)
				if margin < 2*time.Second {
					t.Errorf("margin %v", margin)
				}
				w.assign(map[string]string{"b": items(5)})
				b.owns(time.Second, items(5))
				a.client.Heal()
				w.assign(map[string]string{"a": items(5)})
				a.owns(15*time.Second, items(5))
			})
		})
	}
}

// TestSuspendedDuringADrain: a machine is suspended for an hour while a handler drains. When the handler returns it could not
// commit any more, so its claim was lost, though nobody has noticed yet; it was not released in order.
func TestSuspendedDuringADrain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		start, suspended := time.Now(), atomic.Int64{}
		a := w.owning("a", "t:0", memberOptions{
			clock: func() (mono, wall time.Duration) {
				mono = time.Since(start)
				return mono, mono + time.Duration(suspended.Load())
			},
			handler: func(ctx context.Context, _ *ownership.Claim) error {
				<-ctx.Done()
				suspended.Store(int64(time.Hour))
				return nil
			},
		})
		w.assign(map[string]string{})
		w.within(15*time.Second, "released", func() bool { return w.holder("t:0") == 0 })
		if got, want := w.journal.kinds("a", part("t:0")), "joined claimed revoking untrusted"; got != want {
			t.Errorf("events %q, want %q", got, want)
		}
		if a.owned() != "" {
			t.Error("owned:", a.owned())
		}
	})
}

// Trust that comes back in the same ZooKeeper session finds the claims where they were: same tokens, and new handlers when the
// old ones have returned.
func TestTrustRegained(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0 t:1", memberOptions{handler: func(ctx context.Context, c *ownership.Claim) error {
			<-ctx.Done()
			if c.Partition() == 1 {
				time.Sleep(20 * time.Second) // slower than trust comes back
			}
			return nil
		}})
		time.Sleep(15 * time.Second)
		tokens, ses := [2]int64{a.token("t:0"), a.token("t:1")}, a.sessionID()
		w.srv.FreezeClock()
		w.within(15*time.Second, "trust ends", func() bool { return a.owned() == "" })
		time.Sleep(time.Second)
		w.srv.Thaw()
		t.Logf("owned again after %v", a.owns(10*time.Second, "t:0"))
		took := a.owns(30*time.Second, "t:0 t:1")
		if took < 5*time.Second {
			t.Errorf("t:1 was opened after %v, while its old handler runs", took)
		}
		if got := [2]int64{a.token("t:0"), a.token("t:1")}; got != tokens || a.sessionID() != ses {
			t.Errorf("tokens %v, want %v; session %x, want %x", got, tokens, a.sessionID(), ses)
		}
		for _, item := range []string{"t:0", "t:1"} {
			if got, want := w.journal.kinds("a", part(item)), "joined claimed untrusted claimed"; got != want {
				t.Errorf("events of %s %q, want %q", item, got, want)
			}
		}
	})
}

// What trust regained finds no longer in the plan is released.
func TestTrustRegainedWithAnotherPlan(t *testing.T) {
	inWorld(t, func(_ *testing.T, w *world) {
		a, b := w.owning("a", "t:0 t:1", memberOptions{}), w.join("b", memberOptions{})
		time.Sleep(15 * time.Second)
		w.srv.FreezeClock()
		w.within(15*time.Second, "trust ends", func() bool { return a.owned() == "" })
		w.assign(map[string]string{"a": "t:0", "b": "t:1"})
		w.srv.Thaw()
		b.owns(10*time.Second, "t:1")
		a.owns(10*time.Second, "t:0")
	})
}

// An operator removes a claim, or writes an epoch: the claim is lost, and made again.
func TestOperator(t *testing.T) {
	for name, deed := range map[string]func(*world) error{
		"deletes the claim":  func(w *world) error { return w.srv.Delete(owners + "/t:0") },
		"writes the epoch":   func(w *world) error { return w.srv.Set(epochs+"/t:0", []byte("operator")) },
		"deletes the epoch":  func(w *world) error { return w.srv.Delete(epochs + "/t:0") },
		"deletes all epochs": func(w *world) error { return w.srv.Delete(epochs) },
		"deletes all claims": func(w *world) error { return w.srv.Delete(owners) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var cause shared[error]
				a := w.owning("a", "t:0 t:1", memberOptions{handler: func(ctx context.Context, c *ownership.Claim) error {
					<-ctx.Done()
					if c.Partition() == 0 && cause.get() == nil {
						cause.set(context.Cause(ctx))
						if c.Trusted() {
							t.Error("trusted")
						}
					}
					return nil
				}})
				time.Sleep(time.Second)
				before := a.token("t:0")
				noerr.Must(t, deed(w))
				took := w.within(time.Second, "claimed again", func() bool { return a.token("t:0") > before })
				t.Logf("claimed again after %v", took)
				if !errors.Is(cause.get(), ownership.ErrLost) {
					t.Errorf("cause %v", cause.get())
				}
				if a.told(ownership.ErrLost) == 0 {
					t.Errorf("errors %v", a.errors())
				}
				w.wantEvents("a", "t:0", "joined claimed lost claimed")
				a.owns(time.Second, "t:0 t:1")
				_, stat, _ := w.srv.Get(owners + "/t:0")
				_, epoch, _ := w.srv.Get(epochs + "/t:0")
				if stat.Czxid != epoch.Mzxid || stat.Czxid != a.token("t:0") {
					t.Errorf("owner %d, epoch %d, token %d", stat.Czxid, epoch.Mzxid, a.token("t:0"))
				}
			})
		})
	}
}

// Somebody replaces a claim and leaves the epoch alone. By the time the member looks there is a claim again, but not its own.
func TestReplacedClaimIsLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0", memberOptions{})
		time.Sleep(time.Second)
		replaced := make(chan struct{})
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpExists && r.Path == owners+"/t:0" {
				<-replaced
			}
			return zktest.Action{}
		})
		data, _, _ := w.srv.Get(owners + "/t:0")
		noerr.Must(t, errors.Join(w.srv.Delete(owners+"/t:0"), w.srv.Create(owners+"/t:0", data)))
		close(replaced)
		w.within(time.Second, "lost", func() bool { return a.owned() == "" && a.told(ownership.ErrLost) == 1 })
		noerr.Must(t, w.srv.Delete(owners+"/t:0"))
		a.owns(time.Second, "t:0")
		w.wantEvents("a", "t:0", "joined claimed lost claimed")
	})
}

// A claim that somebody has removed is looked for, and made again. It is not taken for standing and opened over and over.
func TestLostClaimIsNotOpenedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0", memberOptions{})
		time.Sleep(time.Second)
		before := a.token("t:0")
		var reads atomic.Int32
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			read := (r.Op == zktest.OpExists || r.Op == zktest.OpGetData) && r.Path == owners+"/t:0"
			return zktest.Action{Ignore: read && reads.Add(1) > 20} // or time would stand still
		})
		defer w.srv.SetHook(nil)
		noerr.Must(t, w.srv.Delete(owners+"/t:0"))
		w.within(time.Second, "claimed again", func() bool { return a.token("t:0") > before })
		if n := reads.Load(); n > 5 {
			t.Errorf("the claim was read %d times", n)
		}
	})
}

// All data of the servers is lost: everything is made again.
func TestServerRestartsEmpty(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", items(3), memberOptions{})
		w.journal.mu.Lock()
		for i := range int32(3) {
			w.journal.loose[kiel.Partition{Topic: "t", ID: i}] = true
		}
		w.journal.mu.Unlock()
		w.srv.Restart(true)
		w.within(time.Minute, "lost", func() bool { return a.owned() == "" })
		t.Logf("owned again after %v", a.owns(time.Minute, items(3)))
	})
}

// A third party deletes each claim as soon as it stands: it is claimed again after pauses, which do not become long.
func TestClaimThatVanishesAgainAndAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.journal.loosen(part("t:0"))
		a := w.owning("a", "t:0", memberOptions{})
		began, before := time.Now(), requests(w)
		for time.Since(began) < 10*time.Second {
			if w.holder("t:0") != 0 {
				_ = w.srv.Delete(owners + "/t:0")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if _, epoch, _ := w.srv.Get(epochs + "/t:0"); epoch.Version < 20 || epoch.Version > 60 {
			t.Errorf("claimed %d times in 10 s", epoch.Version)
		}
		if n := requests(w) - before; n > 400 {
			t.Errorf("%d requests in 10 s", n)
		}
		if took := a.owns(30*time.Second, "t:0"); took > time.Second {
			t.Errorf("owned %v after it is left alone", took)
		}
	})
}

// Trust that is regained says nothing of the plan: Accept takes its time over the first one.
func TestTrustRegainedBeforeAPlan(t *testing.T) {
	inWorld(t, func(_ *testing.T, w *world) {
		var slow atomic.Bool
		a := w.owning("a", "t:0 t:1", memberOptions{Options: ownership.Options{Accept: func(kiel.Partition) error {
			if slow.Load() {
				time.Sleep(3 * time.Second)
			}
			return nil
		}}})
		b := w.join("b", memberOptions{})
		time.Sleep(15 * time.Second)
		w.srv.FreezeClock()
		w.within(15*time.Second, "trust ends", func() bool { return a.owned() == "" })
		slow.Store(true)
		w.assign(map[string]string{"a": "t:0", "b": "t:1"})
		w.srv.Thaw()
		b.owns(20*time.Second, "t:1")
		a.owns(10*time.Second, "t:0")
		w.wantEvents("a", "t:1", "joined claimed untrusted")
	})
}
