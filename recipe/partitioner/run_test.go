package partitioner_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// running is a member in Run, whose function waits for the end of its context.
type running struct {
	*member
	cancel context.CancelFunc
	done   chan error
	calls  chan []string
	causes chan error
}

func (w *world) run(m *member, fn func(ctx context.Context, items []string) error) *running {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	r := &running{member: m, cancel: cancel, done: make(chan error, 1), calls: make(chan []string, 100), causes: make(chan error, 100)}
	if fn == nil {
		fn = func(ctx context.Context, items []string) error {
			r.calls <- items
			<-ctx.Done()
			r.causes <- context.Cause(ctx)
			return ctx.Err()
		}
	}
	go func() { r.done <- m.Run(ctx, fn) }()
	w.Cleanup(cancel)
	return r
}

func (r *running) wantCall(items ...string) {
	r.w.Helper()
	select {
	case got := <-r.calls:
		if !slices.Equal(got, items) {
			r.w.Fatalf("%s: called with %q, want %q", r.Identifier(), got, items)
		}
	case err := <-r.done:
		r.w.Fatalf("%s: Run has returned: %v", r.Identifier(), err)
	case <-time.After(time.Minute):
		r.w.Fatalf("%s: not called, state %v", r.Identifier(), r.State())
	}
}

func (r *running) wantCause(want error) {
	r.w.Helper()
	if got := <-r.causes; !errors.Is(got, want) {
		r.w.Errorf("%s: the context ended with %v, want %v", r.Identifier(), got, want)
	}
}

// stop ends Run.
func (r *running) stop() {
	r.w.Helper()
	r.cancel()
	if err := <-r.done; err != nil {
		r.w.Errorf("%s: %v", r.Identifier(), err)
	}
}

func TestRun(t *testing.T) {
	inWorld(t, func(w *world) {
		set := []string{"0", "1", "2"}
		one := w.run(w.member("p0", set, partitioner.Options{}), nil)
		one.wantCall("0", "1", "2")
		two := w.run(w.member("p1", set, partitioner.Options{}), nil)
		one.wantCause(partitioner.ErrMembersChanged)
		one.wantCall("0", "2")
		two.wantCall("1")
		w.Kill(two.session)
		two.wantCause(session.ErrSessionExpired)
		one.wantCause(partitioner.ErrMembersChanged)
		one.wantCall("0", "2")
		two.wantCall("1") // Run starts again by itself, in a new session
		two.stop()
		two.wantCause(context.Canceled)
		one.wantCause(partitioner.ErrMembersChanged)
		one.wantCall("0", "1", "2")
		one.stop()
		if !one.Failed() || !errors.Is(one.Snapshot().Err, partitioner.ErrFinished) {
			w.Errorf("%v, %v", one.State(), one.Snapshot().Err)
		}
		w.clean()
	})
}

// The function's error ends Run. After a function that returns early the member keeps its items until the set is divided again.
func TestRunFunctionReturns(t *testing.T) {
	inWorld(t, func(w *world) {
		var calls atomic.Int64
		one := w.run(w.member("p0", []string{"0"}, partitioner.Options{}), func(context.Context, []string) error {
			calls.Add(1)
			return nil
		})
		time.Sleep(time.Minute)
		if calls.Load() != 1 || !one.Acquired() {
			w.Errorf("%d calls, state %v", calls.Load(), one.State())
		}
		fault := errors.New("a fault")
		two := w.run(w.member("p1", []string{"0"}, partitioner.Options{}), func(context.Context, []string) error { return fault })
		if err := <-two.done; !errors.Is(err, fault) {
			w.Errorf("got %v", err)
		}
		one.stop() // perhaps while it waits for the lock again
		w.clean()
		for i, late := range []func(ctx context.Context) error{
			func(context.Context) error { return fault }, // after its context has ended, too
			func(ctx context.Context) error { return errors.Join(fault, ctx.Err()) },
		} {
			called := make(chan struct{})
			three := w.run(w.member(fmt.Sprint("late", i), []string{"0"}, partitioner.Options{}), func(ctx context.Context, _ []string) error {
				close(called)
				<-ctx.Done()
				return late(ctx)
			})
			<-called
			three.cancel()
			if err := <-three.done; !errors.Is(err, fault) {
				w.Errorf("late %d: got %v", i, err)
			}
			w.clean()
		}
	})
}

// Run gives the items back when the function has returned, not when its context ends.
func TestRunWaitsForTheFunction(t *testing.T) {
	inWorld(t, func(w *world) {
		finish := make(chan struct{})
		one := w.run(w.member("p0", []string{"0"}, partitioner.Options{}), func(ctx context.Context, _ []string) error {
			<-ctx.Done()
			<-finish
			return nil
		})
		one.wait(partitioner.Acquired)
		two := w.run(w.member("o", []string{"0"}, partitioner.Options{}), nil)
		time.Sleep(time.Minute)
		one.cancel()
		time.Sleep(time.Minute)
		if len(two.calls) != 0 {
			w.Error("two have the item")
		}
		close(finish)
		two.wantCall("0")
		w.Check(<-one.done)
		two.stop()
		w.clean()
	})
}

func TestRunPanics(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.member("p0", []string{"0"}, partitioner.Options{})
		func() {
			defer func() {
				if recover() == nil {
					w.Error("the panic was swallowed")
				}
			}()
			_ = m.Run(w.Context(), func(context.Context, []string) error { panic("a fault") })
		}()
		w.clean()
	})
}

// The servers are frozen when Run's context ends: Run waits for one session timeout, returns ErrUnfinished, and goes on in the
// background. No znode is left once the servers are back, and Finish waits for that.
func TestRunEndsWithoutServers(t *testing.T) {
	fault := errors.New("a fault")
	for _, want := range []error{nil, fault} {
		inWorld(t, func(w *world) {
			m := w.member("p0", []string{"0", "1"}, partitioner.Options{})
			called := make(chan struct{})
			r := w.run(m, func(ctx context.Context, _ []string) error {
				close(called)
				<-ctx.Done()
				return want
			})
			<-called
			w.Net.Freeze()
			start := time.Now()
			r.cancel()
			r.unfinished(start, want)
			if err := m.Start(w.Within(time.Second)); !errors.Is(err, partitioner.ErrUnfinished) || !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("started beside what is left: %v", err)
			}
			w.Net.Heal()
			m.finish()
			w.clean()
			again := w.run(m, nil)
			again.wantCall("0", "1")
			again.stop()
			w.clean()
		})
	}
}

// The function fails, or a FAILURE lasts, while the servers are frozen: Run does not wait for longer than a session timeout,
// though its context lasts.
func TestRunFailsWithoutServers(t *testing.T) {
	fault := errors.New("a fault")
	for _, early := range []bool{true, false} {
		inWorld(t, func(w *world) {
			var failed time.Time
			fail := func() error {
				w.Net.Freeze()
				failed = time.Now()
				return fault
			}
			m := w.member("p0", []string{"0"}, partitioner.Options{Func: func(string, []string, []string) ([]string, error) {
				if early {
					return nil, fail()
				}
				return []string{"0"}, nil
			}})
			r := w.run(m, func(context.Context, []string) error { return fail() })
			r.wait(partitioner.Failure)
			r.unfinished(failed, fault)
			w.Net.Heal()
			m.finish()
			w.clean()
		})
	}
}

// unfinished checks that Run returns its function's error, if that is not nil, and ErrUnfinished, after one session timeout.
func (r *running) unfinished(since time.Time, fault error) {
	r.w.Helper()
	select {
	case err := <-r.done:
		limit := r.session.Timeout()
		if d := time.Since(since); !errors.Is(err, partitioner.ErrUnfinished) || fault != nil && !errors.Is(err, fault) || d != limit {
			r.w.Errorf("after %v, want %v: %v", d, limit, err)
		}
	case <-time.After(time.Hour):
		r.w.Fatal("Run has not returned within an hour")
	}
}

// Run refuses to run without a function.
func TestRunNeedsAFunction(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.member("p0", []string{"0"}, partitioner.Options{})
		if err := m.Run(w.Context(), nil); !errors.Is(err, recipe.ErrNoFunction) {
			w.Errorf("got %v", err)
		}
		m.start()
		m.wantItems("0")
	})
}

// Run starts again after MaxPartitionTime; a duplicate identifier ends it.
func TestRunAfterFailure(t *testing.T) {
	inWorld(t, func(w *world) {
		blocker := path + "/locks/0/514e5a831836450cb1a56c741e990fd8__lock__0000000000"
		w.Must(w.Srv.Create(blocker, nil))
		one := w.run(w.member("same", []string{"0"}, partitioner.Options{MaxPartitionTime: 5 * time.Second}), nil)
		time.Sleep(12 * time.Second)
		if id := one.Snapshot().ID; id < 3 || id > 8 {
			w.Errorf("state %d", id)
		}
		w.Must(w.Srv.Delete(blocker))
		one.wantCall("0")
		two := w.run(w.memberIn(w.Session("other"), "same", []string{"0"}, partitioner.Options{}), nil)
		// The later member gets the error, also when the first one starts again meanwhile and is then the later one.
		var err error
		last := one
		select {
		case err = <-two.done:
		case err = <-one.done:
			last = two
		case <-time.After(2 * time.Minute):
		}
		var failed *partitioner.FailedError
		if !errors.Is(err, partitioner.ErrDuplicate) || !errors.As(err, &failed) {
			w.Errorf("got %v", err)
		}
		last.stop() // perhaps while it waits for the lock again
		time.Sleep(time.Second)
		w.clean()
	})
}

// Members join, leave, lose links, replies and sessions at random: two never work on an item, and after a boundary without
// changes each item has exactly one owner.
func TestRandomFaults(t *testing.T) {
	total := 0
	for seed := range uint64(4) {
		inWorld(t, func(w *world) { total += randomFaults(w, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d shares", total)
	if total < 100 {
		t.Errorf("only %d shares", total)
	}
}

func randomFaults(w *world, seed uint64) int {
	const clients = 4
	var (
		set   []string
		mu    sync.Mutex
		owner = map[string]func() error{} // by item: the Err of the context under which a function last had it
		count int
	)
	for i := range 11 {
		set = append(set, fmt.Sprint("item-", i))
	}
	fn := func(ctx context.Context, items []string) error {
		mu.Lock()
		for _, item := range items {
			if other := owner[item]; other != nil && other() == nil {
				w.Errorf("two have %s", item)
			}
			owner[item] = ctx.Err
		}
		count++
		mu.Unlock()
		<-ctx.Done()
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		return nil
	}
	members := make([]*member, clients)
	runs := make([]*running, clients)
	for i := range clients {
		members[i] = w.member(fmt.Sprint(i), set, partitioner.Options{TimeBoundary: 500 * time.Millisecond, MaxPartitionTime: 30 * time.Second})
	}
	heal := func() {
		for i := range clients {
			w.Net.Client(fmt.Sprint(i)).Heal()
		}
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 100 {
		time.Sleep(time.Duration(rnd.IntN(4000)) * time.Millisecond)
		i := rnd.IntN(clients)
		client := w.Net.Client(fmt.Sprint(i))
		switch rnd.IntN(7) {
		case 0:
			client.Cut()
		case 1:
			client.BlackHole([]zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.Both}[rnd.IntN(3)])
		case 2:
			heal()
		case 3:
			op := []zktest.Op{zktest.OpCreate, zktest.OpDelete}[rnd.IntN(2)]
			w.Srv.LoseReply(rnd.IntN(3)+1, func(r zktest.Request) bool { return r.Op == op })
		case 4, 5:
			if runs[i] == nil {
				runs[i] = w.run(members[i], fn)
			}
		case 6:
			if runs[i] != nil {
				client.Heal()
				runs[i].stop()
				runs[i] = nil
			}
		}
	}
	w.Srv.LoseReply(0, nil)
	heal()
	for i := range clients {
		if runs[i] == nil {
			runs[i] = w.run(members[i], fn)
		}
	}
	time.Sleep(time.Minute)
	var all []string
	for _, m := range members {
		all = append(all, m.Items()...)
	}
	slices.Sort(all)
	slices.Sort(set)
	if !slices.Equal(all, set) {
		w.Errorf("after quiet owned: %q", all)
	}
	for _, r := range runs {
		r.stop()
	}
	time.Sleep(20 * time.Second)
	w.clean()
	return count
}
