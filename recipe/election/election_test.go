package election_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/election"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

var errTest = errors.New("test")

// kazoo's test_election: three stand, the first leads, the second gives up, the function of the third fails, and the first leads
// again.
func TestElection(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("client")
		one, two, three := w.election(s, "one"), w.election(w.Session("two"), "two"), w.election(w.Session("three"), "three")
		a := w.run(one)
		wait()
		b := w.run(two)
		wait()
		c := w.run(three)
		wait()
		w.wantIdentifiers(one, "one", "two", "three")
		if len(a.leads) != 1 || len(b.leads) != 0 || len(c.leads) != 0 {
			w.Fatalf("lead: %d, %d, %d", len(a.leads), len(b.leads), len(c.leads))
		}
		if !one.Leading() || two.Leading() {
			w.Error("Leading says otherwise")
		}

		b.stop(errTest)
		err := <-b.done
		blocked, ok := errors.AsType[*recipe.BlockedError](err)
		if !errors.Is(err, errTest) || !ok || blocked.Identifier != "one" || len(b.leads) != 0 {
			w.Errorf("two: %v", err)
		}
		wait()
		w.wantIdentifiers(one, "one", "three")

		a.answer <- nil
		if err := <-a.done; err != nil {
			w.Errorf("one: %v", err)
		}
		<-c.leads
		w.wantIdentifiers(one, "three")

		a = w.run(one)
		wait()
		w.wantIdentifiers(one, "three", "one")
		if len(a.leads) != 0 {
			w.Error("two leaders")
		}
		c.answer <- errTest
		if err := <-c.done; !errors.Is(err, errTest) {
			w.Errorf("three: %v", err)
		}
		<-a.leads
		w.wantIdentifiers(one, "one")
		a.answer <- nil
		if err := <-a.done; err != nil {
			w.Errorf("one: %v", err)
		}
		w.wantIdentifiers(one)
	})
}

func TestBadFunc(t *testing.T) {
	inWorld(t, func(w *world) {
		err := w.election(w.Session("client"), "").Run(w.Context(), nil)
		if !errors.Is(err, recipe.ErrNoFunction) || !strings.HasPrefix(err.Error(), "election: run "+path+": ") {
			w.Errorf("got %v", err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	if _, err := election.New(nil, path, election.Options{}); err == nil {
		t.Error("no session is accepted")
	}
	inWorld(t, func(w *world) {
		s := w.Session("client")
		if _, err := election.New(s, "election", election.Options{}); !errors.Is(err, session.ErrInvalidPath) {
			w.Errorf("got %v", err)
		}
		if _, err := election.New(s, path, election.Options{Identifier: "\xff"}); err == nil {
			w.Error("an identifier that is no UTF-8 is accepted")
		}
	})
}

// The context of the function has the hold and the values of Run's context, and ends with Run's context. Run returns the
// function's error.
func TestContextOfTheFunction(t *testing.T) {
	type key struct{}
	inWorld(t, func(w *world) {
		e := w.election(w.Session("client"), "one")
		ctx, cancel := context.WithCancelCause(context.WithValue(w.Context(), key{}, "value"))
		err := e.Run(ctx, func(ctx context.Context) error {
			if ctx.Value(key{}) != "value" || ctx.Value("other") != nil {
				w.Errorf("values %v, %v", ctx.Value(key{}), ctx.Value("other"))
			}
			held := election.Hold(ctx)
			if held == nil || !held.Valid() {
				w.Fatal("no hold")
			}
			if _, stat, _ := w.Srv.Get(held.Node()); stat.Czxid != held.Token() {
				w.Errorf("token %d, czxid %d", held.Token(), stat.Czxid)
			}
			cancel(errTest)
			<-ctx.Done()
			if !held.Valid() {
				w.Error("the hold ended with the context")
			}
			return context.Cause(ctx)
		})
		if !errors.Is(err, errTest) {
			w.Errorf("got %v", err)
		}
		wait()
		w.wantIdentifiers(e)
		if election.Hold(w.Context()) != nil {
			w.Error("a hold without an election")
		}
	})
}

// The session of the leader expires: the context of its function ends, and the next candidate leads. kazoo's function would go
// on.
func TestSessionKilledWhileLeading(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("one")
		e := w.election(s, "one")
		a := w.run(e)
		ctx := <-a.leads
		b := w.run(w.election(w.Session("two"), "two"))
		wait()
		w.Kill(s)
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, session.ErrSessionExpired) {
			w.Errorf("ended with %v", cause)
		}
		if e.Leading() {
			w.Error("Leading goes on")
		}
		<-b.leads
		a.answer <- errTest
		if err := <-a.done; !errors.Is(err, errTest) {
			w.Errorf("got %v", err)
		}
		b.answer <- nil
	})
}

// The link of a candidate breaks while it waits, and the leader leaves meanwhile.
func TestReconnectWhileWaiting(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.run(w.election(w.Session("one"), "one"))
		wait()
		b := w.run(w.election(w.Session("two"), "two"))
		wait()
		client := w.Unplug("two")
		a.answer <- nil
		<-a.done
		wait()
		if len(b.leads) != 0 {
			w.Error("leads without a connection")
		}
		client.Heal()
		<-b.leads
		b.answer <- nil
	})
}

// A function that panics, or ends its goroutine, leaves nothing behind.
func TestFunctionThatDoesNotReturn(t *testing.T) {
	for what, end := range map[string]func(){"panic": func() { panic(errTest) }, "Goexit": runtime.Goexit} {
		inWorld(t, func(w *world) {
			e := w.election(w.Session("client"), "one")
			done := make(chan any, 1)
			go func() {
				defer func() { done <- recover() }()
				_ = e.Run(w.Context(), func(context.Context) error { end(); return nil })
			}()
			got := <-done
			if what == "panic" && got != errTest { //nolint:errorlint // what was recovered
				w.Errorf("recovered %v", got)
			}
			w.wantIdentifiers(e)
		})
	}
}

// The sequence numbers of the directory have come to their end.
func TestNumbersAtTheirEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Must(errors.Join(w.Srv.Create(path, nil), w.Srv.SetCreates(path, math.MaxInt32)))
		err := w.election(w.Session("client"), "").Run(w.Context(), func(context.Context) error { return nil })
		if !errors.Is(err, lock.ErrSequenceExhausted) || len(w.Srv.Children(path)) > 0 {
			w.Errorf("got %v; left: %q", err, w.Srv.Children(path))
		}
	})
}

// Other znodes under the path neither lead nor block a candidate.
func TestForeignChildren(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, name := range []string{"lease_holder", "x__rlock__0000000000", "_c_x-lock-0000000000"} {
			w.Must(w.Srv.Create(path+"/"+name, nil))
		}
		e := w.election(w.Session("client"), "one")
		w.Check(e.Run(w.Context(), func(context.Context) error { w.wantIdentifiers(e, "one"); return nil }))
	})
}

// Hold of election and Hold of lock each return their own hold when the leader has both.
func TestLockOfTheLeader(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("one")
		other := recipetest.Must[*lock.Lock](w)(lock.New(s, "/app/other", lock.Options{}))
		err := w.election(s, "one").Run(w.Context(), func(ctx context.Context) error {
			leads := election.Hold(ctx)
			if lock.Hold(ctx) != nil {
				w.Error("the leadership is a lock's")
			}
			return other.Do(ctx, func(ctx context.Context) error {
				if election.Hold(ctx) != leads || lock.Hold(ctx) == leads || lock.Hold(ctx) == nil {
					w.Errorf("leadership %v, lock %v", election.Hold(ctx).Node(), lock.Hold(ctx).Node())
				}
				return nil
			})
		})
		w.Check(err)
	})
}
