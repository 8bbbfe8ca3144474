package party_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// refuse has the server refuse a client's requests of these kinds, until unhook. It returns how many there were.
func (w *world) refuse(client string, ops ...zktest.Op) *int {
	n := new(int)
	w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
		if r.Client != client || !slices.Contains(ops, r.Op) || !strings.HasPrefix(r.Path, directory) {
			return zktest.Action{}
		}
		*n++
		return zktest.Action{Err: zktest.ErrNoAuth}
	})
	return n
}

// runs fails if Run has returned.
func (m *member) runs() {
	m.w.Helper()
	select {
	case <-m.done:
		m.w.Fatalf("%s: Run has ended: %v", m.Name(), m.err)
	default:
	}
}

func refusedView(v *party.View) bool { return errors.Is(v.Err, session.ErrNoAuth) }

// A member whose reading is refused stays one, says why its view does not change, tries again after pauses that grow, and goes on
// when it is allowed to.
func TestReadingRefusedLater(t *testing.T) {
	inWorld(t, func(w *world) {
		reg := prometheus.NewPedanticRegistry()
		a := w.run(w.session("a"), party.Options{Name: "a", Registerer: reg})
		czxid := a.joined()
		n := w.refuse("a", zktest.OpGetChildren2)
		stop := w.hold("b", node("b"), "")
		defer stop()
		v, _ := a.await(timeout, "the refusal", refusedView)
		if !v.Joined || len(v.Members) != 1 || !strings.Contains(v.Err.Error(), directory) {
			w.Errorf("%s, %v", show(v), v.Err)
		}
		time.Sleep(time.Minute)
		a.runs()
		if now := a.View(); now.Version != v.Version {
			w.Errorf("version %d became %d, though nothing has changed", v.Version, now.Version)
		}
		w.unhook()
		if *n < 10 || *n > 35 {
			w.Errorf("refused %d times within a minute", *n)
		}
		if got := testutil.ToFloat64(one{reg, "kiel_membership_refusals_total"}); int(got) != *n {
			w.Errorf("counted %v refusals of %d", got, *n)
		}
		v, _ = a.await(timeout, "b", func(v *party.View) bool { return len(v.Members) == 2 })
		if m, _ := v.Member("a"); v.Err != nil || m.Czxid != czxid {
			w.Errorf("%+v", v)
		}
	})
}

// one is the only metric of a name in a registry.
type one struct {
	*prometheus.Registry
	name string
}

func (o one) Collect(ch chan<- prometheus.Metric) { o.Registry.Collect(ch) }

// A member that may not create its znode again is not joined, sees who is, and joins as soon as it may.
func TestRejoinRefused(t *testing.T) {
	for name, lose := range map[string]func(w *world, a *member){
		"expired": func(w *world, _ *member) { w.Srv.KillSession(w.sessionOf("a")) },
		"deleted": func(w *world, _ *member) { must(w, w.Srv.Delete(node("a"))) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a, b := w.member("a"), w.member("b")
				w.refuse("a", zktest.OpCreate, zktest.OpCreate2)
				lose(w, a)
				v, _ := a.await(timeout, "the refusal", func(v *party.View) bool { return refusedView(v) && !slices.Contains(names(v), "a") })
				if v.Joined || !v.Incarnation.Trusted() {
					w.Errorf("%s, %v", show(v), v.Err)
				}
				must(w, b.stop())
				a.await(timeout+5*time.Second, "nobody", func(v *party.View) bool { return refusedView(v) && len(v.Members) == 0 })
				a.runs()
				w.unhook()
				v, _ = a.await(5*time.Second, "itself", func(v *party.View) bool { return v.Joined })
				if v.Err != nil {
					w.Errorf("joined, and still %v", v.Err)
				}
				must(w, a.stop())
			})
		})
	}
}

// A refusal to create a znode that still exists is none.
func TestCreateRefusedThoughJoined(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.member("a")
		first := a.View()
		w.refuse("a", zktest.OpCreate, zktest.OpCreate2)
		w.Srv.FreezeClock() // the session lives on, but can't be proved to
		<-first.Incarnation.Context().Done()
		w.Srv.Thaw()
		v, _ := a.await(10*time.Second, "a new incarnation", func(v *party.View) bool { return v.Incarnation != first.Incarnation })
		if !v.Joined || v.Err != nil {
			w.Errorf("%s, %v", show(v), v.Err)
		}
		w.unhook()
	})
}

// With Rejoin the first attempt may be refused, too; without, that ends Run.
func TestRejoinOption(t *testing.T) {
	inWorld(t, func(w *world) {
		must(w, w.Srv.Create(directory, nil))
		w.refuse("a", zktest.OpCreate, zktest.OpCreate2, zktest.OpGetChildren2)
		s := w.session("a")
		first := w.run(s, party.Options{Name: "a"})
		<-first.done
		wantErr(w, first.err, session.ErrNoAuth)

		a := w.run(s, party.Options{Name: "a", Rejoin: true})
		v, _ := a.await(timeout, "the refusal", refusedView)
		if v.Incarnation != nil || v.Joined || len(v.Members) != 0 {
			w.Errorf("%+v", v)
		}
		time.Sleep(time.Minute)
		a.runs()
		w.unhook()
		a.await(5*time.Second, "itself", func(v *party.View) bool { return v.Joined && v.Err == nil && v.Incarnation.Trusted() })
	})
}

// An observer that has read goes on, too.
func TestObserverRefusedLater(t *testing.T) {
	inWorld(t, func(w *world) {
		must(w, w.Srv.Create(directory, nil))
		o := w.observe()
		o.await(timeout, "nobody", func(*party.View) bool { return true })
		w.refuse("observer", zktest.OpGetChildren2)
		w.create(1, "")
		o.await(timeout, "the refusal", refusedView)
		w.unhook()
		o.await(5*time.Second, "the member", func(v *party.View) bool { return len(v.Members) == 1 && v.Err == nil })
	})
}

// While a member waits after a refusal, it ends at once with its context, and Leave and Refresh wake it.
func TestRefusalDelaysNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.member("a"), w.member("b")
		w.refuse("a", zktest.OpGetChildren2)
		stop := w.hold("c", node("c"), "")
		defer stop()
		a.await(timeout, "the refusal", refusedView)
		time.Sleep(time.Minute) // the pauses are long by now
		start := time.Now()
		must(w, a.Refresh(w.Context()))
		must(w, a.Leave(w.Context()))
		w.wantGone("a")
		must(w, a.stop())
		if took := time.Since(start); took > 100*time.Millisecond {
			w.Errorf("took %v", took)
		}

		w.refuse("b", zktest.OpGetChildren2, zktest.OpDelete)
		stop()
		b.await(timeout, "the refusal", refusedView)
		time.Sleep(time.Minute)
		start = time.Now()
		must(w, b.stop())
		if took := time.Since(start); took > 100*time.Millisecond {
			w.Errorf("took %v", took)
		}
		synctest.Wait()
		w.unhook()
	})
}

// A member that is refused for a while as it waits for its name does not wait longer for that.
func TestPatienceLastsThroughRefusals(t *testing.T) {
	inWorld(t, func(w *world) {
		w.member("x")
		b := w.run(w.session("second"), party.Options{Name: "x", Rejoin: true})
		b.await(time.Second, "that its name is held", func(v *party.View) bool { return v.NameHeld != nil })
		start := time.Now()
		time.Sleep(timeout / 2)
		w.refuse("second", zktest.OpExists)
		time.Sleep(2 * timeout)
		w.unhook()
		<-b.done
		wantErr(w, b.err, party.ErrNameTaken)
		if took := time.Since(start); took > b.session.MaxExpiry()+time.Second {
			w.Errorf("waited for %v", took)
		}
	})
}

// A second process of a name gives up in time although its session has reconnected as it waited.
func TestPatienceEndsAfterAReconnect(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.secondOf("x")
		time.Sleep(timeout)
		w.Net.Client("second").Cut()
		time.Sleep(timeout)
		start := time.Now()
		select {
		case <-b.done:
		case <-time.After(5 * time.Minute):
			w.Fatal("waits for ever")
		}
		wantErr(w, b.err, party.ErrNameTaken)
		if took := time.Since(start); took > b.session.MaxExpiry()+time.Second {
			w.Errorf("waited for %v after the reconnect", took)
		}
	})
}

// A member that may not list the members knows by its own znode alone whether it is still one: not when somebody has deleted the
// znode, and as before while the znode can't be read.
func TestOwnZnodeWhileTheListIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		also   []zktest.Op
		joined bool
	}{
		"stands":     {func(*world) {}, nil, true},
		"deleted":    {func(w *world) { must(w, w.Srv.Delete(node("a"))) }, nil, false},
		"unreadable": {func(*world) {}, []zktest.Op{zktest.OpGetData, zktest.OpExists}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a := w.member("a")
				first := a.View()
				w.refuse("a", append(c.also, zktest.OpGetChildren2)...)
				defer w.unhook()
				stop := w.hold("b", node("b"), "")
				defer stop()
				a.await(timeout, "the refusal", refusedView)
				c.change(w)
				time.Sleep(2 * timeout)
				a.runs()
				if v := a.View(); v.Joined != c.joined || !refusedView(v) || len(v.Members) != 1 {
					w.Errorf("in the same incarnation: %s, %v", show(v), v.Err)
				}

				w.Srv.FreezeClock() // the session lives on, but can't be proved to
				<-first.Incarnation.Context().Done()
				w.Srv.Thaw()
				time.Sleep(2 * timeout)
				a.runs()
				v := a.View()
				if v.Joined != c.joined || !refusedView(v) {
					w.Errorf("in the next incarnation: %s, %v", show(v), v.Err)
				}
				if c.joined && (v.Incarnation == first.Incarnation || !v.Incarnation.Trusted()) {
					w.Error("what it holds is not held under the trust of now")
				}
				if _, ok := w.stands("a"); ok != c.joined {
					w.Errorf("its znode exists: %v", ok)
				}
				w.unhook()
				v, _ = a.await(10*time.Second, "itself and b", func(v *party.View) bool { return v.Joined && v.Err == nil && len(v.Members) == 2 })
				if v.Incarnation == first.Incarnation {
					w.Error("in the first incarnation")
				}
			})
		})
	}
}
