package party_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/zktest"
)

var errRefused = errors.New("refused by the test")

// admittance notes the views that Options.Admit is called with, and refuses this member while a member of the name bad is there.
type admittance struct {
	bad   string
	views []string
}

func (a *admittance) admit(v *party.View) error {
	a.views = append(a.views, fmt.Sprintf("joined=%v %q", v.Joined, names(v)))
	if _, there := v.Member(a.bad); there {
		return fmt.Errorf("%w because of %q", errRefused, a.bad)
	}
	return nil
}

// askFor runs a member that is to be admitted.
func (w *world) askFor(name string, a *admittance) *member {
	w.Helper()
	return w.run(w.session(name), party.Options{Name: name, Admit: a.admit, Logger: logger(w)})
}

// refused checks that Run ends because the member was not admitted, and that no view has it among the members.
func (m *member) refused() {
	m.w.Helper()
	select {
	case <-m.done:
	case <-time.After(timeout):
		m.w.Fatalf("%s was admitted: %s", m.Name(), show(m.View()))
	}
	wantErr(m.w, m.err, party.ErrNotAdmitted)
	wantErr(m.w, m.err, errRefused)
	if !strings.Contains(m.err.Error(), directory) {
		m.w.Errorf("the error does not name the directory: %v", m.err)
	}
	m.w.wantGone(m.Name())
}

func TestRefusedMemberDoesNotJoin(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.member("a")
		before, _, _ := w.Srv.Get(directory)
		_, stat, _ := w.Srv.Get(directory)
		b := w.askFor("b", &admittance{bad: "a"})
		b.refused()
		if _, after, _ := w.Srv.Get(directory); after.Cversion != stat.Cversion {
			w.Errorf("%d children were created and deleted in %q", after.Cversion-stat.Cversion, before)
		}
		if b.View() != nil {
			w.Errorf("it has the view %s", show(b.View()))
		}
		a.calm()
	})
}

func TestAdmittedMemberIsAskedOnceForEachView(t *testing.T) {
	inWorld(t, func(w *world) {
		a, asked := w.member("a"), &admittance{bad: "bad"}
		b := w.askFor("b", asked)
		b.joined()
		time.Sleep(10 * timeout)
		w.member("c")
		b.awaitNames(time.Second, "a", "b", "c")
		must(w, a.stop())
		b.awaitNames(time.Second, "b", "c")
		must(w, b.stop())
		const want = `joined=false ["a"], joined=true ["a" "b"], joined=true ["a" "b" "c"], joined=true ["b" "c"]`
		if got := strings.Join(asked.views, ", "); got != want {
			w.Errorf("asked with %s\nwant %s", got, want)
		}
	})
}

// TestRefusedAtOnce is red if a member that is refused because of what came while it joined publishes a view, or stays.
func TestRefusedAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		asked := &admittance{bad: "first"}
		came := false
		b := w.run(w.session("b"), party.Options{Name: "b", Admit: func(v *party.View) error {
			err := asked.admit(v)
			if !came { // the other creates its znode after this member has read, and before it creates its own
				came = true
				must(w, w.Srv.Create(node("first"), nil))
			}
			return err
		}})
		b.refused()
		if b.View() != nil {
			w.Errorf("it has the view %s", show(b.View()))
		}
		if got := strings.Join(asked.views, ", "); got != `joined=false [], joined=true ["b" "first"]` {
			w.Errorf("asked with %s", got)
		}
	})
}

// TestAdmittedInEachSession is red if a member that joins again in a new session is not asked for, or if one whose znode stands
// counts as one that has not joined.
func TestAdmittedInEachSession(t *testing.T) {
	inWorld(t, func(w *world) {
		asked := &admittance{bad: "bad"}
		b := w.askFor("b", asked)
		b.joined()
		first := b.View()
		w.Srv.FreezeClock()
		<-first.Incarnation.Context().Done()
		w.Srv.Thaw()
		b.await(10*time.Second, "a new incarnation", func(v *party.View) bool { return v.Incarnation != first.Incarnation })
		for _, view := range asked.views[1:] {
			if view != `joined=true ["b"]` {
				w.Errorf("in the same session asked with %s", view)
			}
		}
		must(w, w.Srv.Create(node("other"), nil))
		b.awaitNames(time.Second, "b", "other")

		cversion := func() int32 { _, stat, _ := w.Srv.Get(directory); return stat.Cversion }
		asked.bad = "other"
		w.Net.Client("b").BlackHole(zktest.Both)
		time.Sleep(3 * timeout)
		gone := cversion()
		w.Net.Client("b").Heal()
		b.refused()
		if cversion() != gone {
			w.Error("it joined before it was refused")
		}
	})
}

// TestAdmitWithoutDirectory is red if the first member of a directory that does not exist is not admitted.
func TestAdmitWithoutDirectory(t *testing.T) {
	inWorld(t, func(w *world) {
		asked := &admittance{}
		w.askFor("a", asked).joined()
		if got := strings.Join(asked.views, ", "); got != `joined=false [], joined=true ["a"]` {
			w.Errorf("asked with %s", got)
		}
	})
}
