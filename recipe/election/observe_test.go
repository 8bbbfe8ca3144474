package election_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/election"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// observed is an Observe that goes on in the background.
type observed struct {
	names []string // of the leaders; "-" when there was none
	err   error
	done  chan struct{}
}

func (w *world) observe(ctx context.Context, e *election.Election) *observed {
	o := &observed{done: make(chan struct{})}
	go func() {
		defer close(o.done)
		for leader, err := range e.Observe(ctx) {
			switch {
			case err != nil:
				o.err = err
			case leader.Node == "":
				o.names = append(o.names, "-")
			default:
				o.names = append(o.names, leader.Identifier)
			}
		}
	}()
	return o
}

// Leaders come and go, the directory appears, and the observer's link and session break.
func TestObserve(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("observer")
		ctx, cancel := context.WithCancelCause(w.Context())
		o := w.observe(ctx, w.election(s, "observer"))
		wait()
		a := w.run(w.election(w.Session("one"), "one"))
		wait()
		if list := w.Srv.Children("/app"); !slices.Equal(list, []string{"election"}) {
			w.Errorf("children %q", list)
		}
		b := w.run(w.election(w.Session("two"), "two"))
		wait()
		w.Net.Client("observer").Cut()
		wait()
		a.answer <- nil
		wait()
		w.Kill(s)
		time.Sleep(5 * time.Second)
		b.answer <- nil
		wait()
		a = w.run(w.election(w.Session("one again"), "one"))
		wait()
		cancel(errTest)
		<-o.done
		if want := []string{"-", "one", "two", "-", "one"}; !slices.Equal(o.names, want) {
			w.Errorf("observed %q, want %q", o.names, want)
		}
		if !errors.Is(o.err, errTest) {
			w.Errorf("ended with %v", o.err)
		}
		a.answer <- nil
	})
}

// An observer watches the leader alone: new candidates don't wake it.
func TestObserverIsNotWokenByCandidates(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.run(w.election(w.Session("one"), "one"))
		wait()
		s := w.Session("observer")
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		o := w.observe(ctx, w.election(s, ""))
		wait()
		before := w.Srv.Stats().Requests[zktest.OpGetData]
		for range 3 {
			w.run(w.election(w.Session("more"), "more"))
			time.Sleep(10 * time.Millisecond)
		}
		// Each candidate reads its predecessor, and all but the first the leader.
		if n := w.Srv.Stats().Requests[zktest.OpGetData] - before; n > 5 {
			w.Errorf("%d reads", n)
		}
		cancel()
		<-o.done
		a.answer <- nil
	})
}

func TestObserveUntilTheSessionCloses(t *testing.T) {
	inWorld(t, func(w *world) {
		s, stop := w.stoppable("observer")
		o := w.observe(w.Context(), w.election(s, ""))
		wait()
		stop()
		<-o.done
		if !errors.Is(o.err, session.ErrClosed) {
			w.Errorf("ended with %v", o.err)
		}
	})
}

// When the loop breaks, no goroutine and no watch remains.
func TestObserveOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		e := w.election(w.Session("observer"), "")
		n := 0
		for leader, err := range e.Observe(w.Context()) {
			if n++; err != nil || leader.Node != "" {
				w.Errorf("%+v, %v", leader, err)
			}
			break
		}
		if n != 1 {
			w.Errorf("%d times", n)
		}
	})
}

// An ACL forbids reading the leader's znode: that hides the identifier and nothing else.
func TestObserveAnUnreadableLeader(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.run(w.election(w.Session("one"), "one"))
		wait()
		w.Refuse(zktest.ErrNoAuth, func(r zktest.Request) bool { return r.Op == zktest.OpGetData })
		ctx, cancel := context.WithCancelCause(w.Context())
		defer cancel(nil)
		e := w.election(w.Session("observer"), "")
		var seen []bool
		for leader, err := range e.Observe(ctx) {
			if err != nil {
				if !errors.Is(err, errTest) {
					w.Errorf("ended with %v", err)
				}
				break
			}
			if leader.Identifier != "" || (leader.Node != "") != (leader.Token != 0) {
				w.Errorf("%+v", leader)
			}
			if seen = append(seen, leader.Node != ""); leader.Node != "" {
				a.answer <- nil
			} else {
				cancel(errTest)
			}
		}
		if want := []bool{true, false}; !slices.Equal(seen, want) {
			w.Errorf("leaders seen: %v, want %v", seen, want)
		}
	})
}
