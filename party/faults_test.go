package party_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/zktest"
)

func TestCrashIsSeen(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.join("a"), w.join("b")
		before := b.joined()
		a.awaitNames(time.Second, "a", "b")
		w.Net.Client("b").Freeze()
		_, took := a.awaitNames(timeout+2*tick, "a")
		w.Logf("seen after %v", took)
		w.Net.Client("b").Heal()
		// It comes back by itself, in a new session.
		a.awaitNames(10*time.Second, "a", "b")
		after, _ := b.await(10*time.Second, "itself again", func(v *party.View) bool {
			m, ok := v.Member("b")
			return ok && v.Joined && m.Czxid != before
		})
		if !after.Incarnation.Trusted() {
			w.Error("joined under an incarnation that is over")
		}
	})
}

func TestRejoinsInNewSession(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.join("a"), w.join("b")
		b.joined()
		view, _ := a.awaitNames(time.Second, "a", "b")
		old, _ := view.Member("b")
		if !w.Srv.KillSession(old.Session) {
			w.Fatal("no such session")
		}
		view, _ = a.await(5*time.Second, "b in a new session", func(v *party.View) bool {
			m, ok := v.Member("b")
			return ok && m.Session != old.Session
		})
		if m, _ := view.Member("b"); m.Czxid <= old.Czxid {
			w.Errorf("czxid %d after %d", m.Czxid, old.Czxid)
		}
		b.await(time.Second, "itself", func(v *party.View) bool {
			m, ok := v.Member("b")
			return ok && v.Joined && m.Session == v.Incarnation.SessionID() && m.Session != old.Session
		})
	})
}

func TestCutKeepsZnode(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.join("a")
		czxid := a.joined()
		version := a.View().Version
		w.Net.Client("a").Cut()
		time.Sleep(3 * timeout)
		if stat, ok := w.stands("a"); !ok || stat.Czxid != czxid {
			w.Errorf("the znode is %+v, %v; had czxid %d", stat, ok, czxid)
		}
		if v := a.View(); v.Version != version || !v.Joined {
			w.Errorf("version %d became %s", version, show(v))
		}
		if age := time.Since(a.View().At); age > timeout+time.Second {
			w.Errorf("the view was read %v ago", age)
		}
	})
}

func TestTrustLostAndRegainedKeepsZnode(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.join("a")
		czxid := a.joined()
		first := a.View()
		w.Srv.FreezeClock() // the session lives on, but can't be proved to
		<-first.Incarnation.Context().Done()
		w.Srv.Thaw()
		view, _ := a.await(10*time.Second, "a new incarnation", func(v *party.View) bool { return v.Incarnation != first.Incarnation })
		if view.Incarnation.SessionID() != first.Incarnation.SessionID() {
			w.Fatal("it is another session")
		}
		if m, _ := view.Member("a"); !view.Joined || m.Czxid != czxid || view.Version != first.Version+1 {
			w.Errorf("czxid %d, now %d in %s", czxid, m.Czxid, show(view))
		}
	})
}

func TestOperatorDeletesMember(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.join("a"), w.join("b")
		before := a.joined()
		b.awaitNames(time.Second, "a", "b")
		time.Sleep(time.Minute)
		must(w, w.Srv.Delete(node("a")))
		again := func(v *party.View) bool {
			m, ok := v.Member("a")
			return ok && m.Czxid > before
		}
		_, took := b.await(time.Second, "a again", again)
		if took > 100*time.Millisecond {
			w.Errorf("came back after %v", took)
		}
		if view, _ := a.await(time.Second, "itself again", again); !view.Joined {
			w.Error("not joined")
		}
	})
}

func TestOperatorDeletesDirectory(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.join("a"), w.join("b")
		before := max(a.joined(), b.joined())
		for _, path := range []string{directory, "/kiel", "/kiel/groups/g"} {
			time.Sleep(time.Minute)
			must(w, w.Srv.Delete(path))
			for _, m := range []*member{a, b} {
				_, took := m.await(time.Second, "both again", func(v *party.View) bool {
					return v.Joined && len(v.Members) == 2 && v.Members[0].Czxid > before && v.Members[1].Czxid > before
				})
				if took > 500*time.Millisecond {
					w.Errorf("%s came back after %v", m.Name(), took)
				}
			}
			before = max(a.joined(), b.joined())
		}
	})
}

// TestServerLosesItsData: a wiped server is like a deleted directory.
func TestServerLosesItsData(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.join("a"), w.join("b")
		a.joined()
		b.joined()
		w.Srv.Restart(true)
		for _, m := range []*member{a, b} {
			m.await(time.Minute, "both again", func(v *party.View) bool {
				return v.Joined && v.Incarnation.Trusted() && len(v.Members) == 2
			})
		}
	})
}

func TestLostReplyOfCreate(t *testing.T) {
	for _, executed := range []bool{true, false} {
		t.Run(fmt.Sprintf("executed=%v", executed), func(t *testing.T) {
			inWorld(t, func(w *world) {
				must(w, w.Srv.Create(directory, nil))
				hit := 0
				var after []zktest.Op
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					if hit > 0 && strings.HasPrefix(r.Path, directory) {
						after = append(after, r.Op)
					}
					if hit < 3 && r.Path == node("a") && (r.Op == zktest.OpCreate || r.Op == zktest.OpCreate2) {
						hit++
						return zktest.Action{LoseReply: executed, Cut: !executed}
					}
					return zktest.Action{}
				})
				a := w.join("a")
				czxid := a.joined()
				w.unhook()
				if hit == 0 {
					w.Fatal("no reply was lost")
				}
				if executed && hit > 1 {
					w.Errorf("sent %d times", hit)
				}
				if after[0] != zktest.OpSync {
					w.Errorf("looked without a sync: %v", after)
				}
				time.Sleep(time.Minute)
				if stat, ok := w.stands("a"); !ok || stat.Czxid != czxid || stat.EphemeralOwner != w.sessionOf("a") {
					w.Errorf("znode %+v, %v", stat, ok)
				}
				must(w, a.stop())
				w.wantGone("a")
			})
		})
	}
}

func TestLostReplyOfDelete(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.member("a")
		w.Srv.LoseReply(1, func(r zktest.Request) bool { return r.Op == zktest.OpDelete })
		must(w, a.Leave(w.Context()))
		w.wantGone("a")
	})
}
