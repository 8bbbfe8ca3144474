package party_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
)

func TestJoinAndLeaveAreSeen(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.join("host1:4711")
		a.joined()
		b := w.join("host2:815")
		view, _ := a.awaitNames(time.Second, "host1:4711", "host2:815")
		if m, ok := view.Member("host2:815"); !ok || string(m.Data) != "record of host2:815" || m.Err != nil ||
			m.Session != w.sessionOf("host2:815") || m.Czxid == 0 || m.Mzxid != m.Czxid {
			w.Errorf("member is %+v", m)
		}
		if _, ok := view.Member("host2:81"); ok {
			w.Error("a member nobody knows")
		}
		b.awaitNames(time.Second, "host1:4711", "host2:815")
		must(w, b.stop())
		w.wantGone("host2:815")
		_, took := a.awaitNames(time.Second, "host1:4711")
		if took > 100*time.Millisecond {
			w.Errorf("leaving was seen after %v", took)
		}
		if _, stat, ok := w.Srv.Get(directory); !ok || stat.EphemeralOwner != 0 {
			w.Errorf("the directory is %v, %v", stat, ok)
		}
	})
}

func TestFirstViewHoldsUs(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.join("a")
		for view := range a.Updates(w.Context()) {
			if !view.Joined || view.Version != 1 || view.Incarnation == nil || !view.Incarnation.Trusted() || view.At.After(time.Now()) {
				w.Errorf("the first view is %s", show(view))
			}
			break
		}
	})
}

func TestNew(t *testing.T) {
	s, err := session.New([]string{"zk"}, session.Options{})
	must(t, err)
	for _, name := range []string{"", "host:4711", "a.b_c-d", strings.Repeat("x", 249)} {
		if _, err := party.New(s, directory, party.Options{Name: name}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{".", "..", "a/b", "../x", "a\x00", "a\nb", "\x1b[31m", "\u202e", "\uffff", "a\xff", "a b", "é", strings.Repeat("x", 250)} {
		_, err := party.New(s, directory, party.Options{Name: name})
		if !errors.Is(err, kiel.ErrInvalidName) || strings.ContainsAny(err.Error(), "\x00\n\x1b\u202e\uffff") {
			t.Errorf("%q: got %v", name, err)
		}
	}
	for _, path := range []string{"", "members", "/a/", "/a//b", "/a/../b", "/a\x00"} {
		if _, err := party.New(s, path, party.Options{}); !errors.Is(err, session.ErrInvalidPath) {
			t.Errorf("%q: got %v", path, err)
		}
	}
	_, err = party.New(s, "x", party.Options{Name: "a", Data: make([]byte, 64<<10+1)})
	wantErr(t, err, party.ErrRecordTooLarge)
	wantErr(t, err, session.ErrInvalidPath) // all faults at once
	if _, err := party.New(s, directory, party.Options{Data: []byte("x")}); err == nil {
		t.Error("an observer with a record was accepted")
	}
	if _, err := party.New(nil, directory, party.Options{}); err == nil {
		t.Error("a nil session was accepted")
	}
	p, err := party.New(s, directory, party.Options{Name: "a", Data: make([]byte, 64<<10)})
	must(t, err)
	if p.Path() != directory || p.Name() != "a" || p.View() != nil {
		t.Errorf("got %s, %s, %v", p.Path(), p.Name(), p.View())
	}
	must(t, p.Leave(t.Context())) // nothing to leave
}

func TestObserver(t *testing.T) {
	inWorld(t, func(w *world) {
		o := w.observe()
		view, _ := o.awaitNames(time.Second)
		if view.Joined {
			w.Error("joined without a name")
		}
		a := w.join("a")
		o.awaitNames(time.Second, "a")
		must(w, o.Leave(w.Context()))
		must(w, a.stop())
		o.awaitNames(time.Second)
		must(w, o.stop())
	})
}

func TestRunTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.member("a")
		wantErr(w, a.Run(w.Context()), kiel.ErrRunTwice)
		must(w, a.stop())
		wantErr(w, a.Run(w.Context()), kiel.ErrRunTwice)
	})
}

func TestUpdates(t *testing.T) {
	inWorld(t, func(w *world) {
		o := w.observe()
		// A slow reader skips, comes to the latest, and ends with Run.
		var seen []uint64
		var last *party.View
		done := make(chan struct{})
		go func() {
			defer close(done)
			for view := range o.Updates(context.WithoutCancel(w.Context())) {
				seen, last = append(seen, view.Version), view
				time.Sleep(20 * time.Second)
			}
		}()
		for i := range 30 {
			m := w.join(fmt.Sprintf("m%02d", i))
			m.joined()
			if i%3 > 0 {
				must(w, m.stop())
			}
			time.Sleep(time.Second)
		}
		newest := o.View()
		time.Sleep(time.Minute)
		if o.View().Version != newest.Version {
			w.Errorf("version %d became %d in calm", newest.Version, o.View().Version)
		}
		must(w, o.stop())
		<-done
		if last.Version != newest.Version || len(last.Members) != 10 || !slices.IsSorted(seen) || len(seen) > 10 {
			w.Errorf("saw versions %v, the newest is %d", seen, newest.Version)
		}
		// Ended before it began.
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		for range o.Updates(ctx) {
			w.Error("a view after the context ended")
		}
		// A late reader gets the last view.
		for view := range o.Updates(w.Context()) {
			if view.Version != newest.Version {
				w.Errorf("version %d", view.Version)
			}
		}
	})
}

func TestUpdatesEndsWithItsContext(t *testing.T) {
	s, err := session.New([]string{"zk"}, session.Options{})
	must(t, err)
	synctest.Test(t, func(t *testing.T) {
		p, err := party.New(s, directory, party.Options{})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range p.Updates(ctx) {
			t.Error("a view out of nothing")
		}
	})
}
