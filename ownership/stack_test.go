package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// full is a member with a real allocator.
type full struct {
	*member
	alloc *allocator.PartitionAllocator
}

func (w *world) joinFull(name string, partitions []int32, opts ownership.Options, change ...func(*allocator.Options)) *full {
	w.t.Helper()
	return w.joinFullWith(name, session.Options{}, partitions, opts, change...)
}

func (w *world) joinFullWith(name string, zk session.Options, partitions []int32, opts ownership.Options, change ...func(*allocator.Options)) *full {
	w.t.Helper()
	client := w.nw.Client(name)
	zk.Dial = client.Dial
	ses, err := session.New([]string{"zk:2181"}, zk)
	noerr.Must(w.t, err)
	allocation := allocator.Options{Seed: map[string][]int32{"t": partitions}, Registerer: opts.Registerer}
	for _, f := range change {
		f(&allocation)
	}
	alloc, err := allocator.New(ses, "g", name, allocation)
	noerr.Must(w.t, err)
	m := &full{member: &member{w: w, name: name, client: client, ses: ses, done: make(chan struct{}), ended: make(chan struct{})}, alloc: alloc}
	opts.Observer = func(e ownership.Event) { w.journal.event(name, e) }
	opts.OnError = func(err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.errs = append(m.errs, err)
	}
	m.owner, err = ownership.New(alloc, func(ctx context.Context, c *ownership.Claim) error {
		defer w.journal.enter(name, c)()
		return m.work(ctx, c)
	}, opts)
	noerr.Must(w.t, err)
	life, endSession := context.WithCancel(context.Background())
	ctx, quit := context.WithCancel(context.Background())
	m.endSession, m.quit = endSession, quit
	go func() {
		defer close(m.ended)
		_ = ses.Run(life)
	}()
	go func() {
		defer close(m.done)
		m.err = m.owner.Run(ctx)
	}()
	w.members = append(w.members, m.member)
	return m
}

// Members with real allocators join, fall silent, come back, and leave.
func TestWithAllocator(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const n = 12
		seed := ids(n)
		balanced := func(d time.Duration, what string, members ...*full) {
			t.Helper()
			took := w.within(d, what, func() bool {
				all := 0
				for _, m := range members {
					owned := len(m.owner.Owned())
					if owned != n/len(members) {
						return false
					}
					all += owned
				}
				return all == n
			})
			t.Logf("%s: all owned after %v", what, took)
		}
		reg := prometheus.NewPedanticRegistry()
		a := w.joinFull("a", seed, ownership.Options{Registerer: reg})
		balanced(10*time.Second, "first member", a)
		time.Sleep(10 * time.Second)
		b := w.joinFull("b", seed, ownership.Options{})
		balanced(2*time.Second, "second member", a, b)
		time.Sleep(10 * time.Second)
		c := w.joinFull("c", seed, ownership.Options{})
		balanced(2*time.Second, "third member", a, b, c)
		time.Sleep(10 * time.Second)

		b.client.BlackHole(zktest.Both)
		balanced(13*time.Second, "silent member", a, c)
		b.client.Heal()
		balanced(13*time.Second, "member is back", a, b, c)
		time.Sleep(10 * time.Second)

		before := tokens(a, b, c)
		w.srv.FreezeClock()
		w.within(15*time.Second, "trust ends", func() bool { return a.owned()+b.owned()+c.owned() == "" })
		w.srv.Thaw()
		balanced(5*time.Second, "trust regained", a, b, c)
		time.Sleep(20 * time.Second)
		if got := tokens(a, b, c); got != before {
			t.Errorf("claims\n%s\nwere\n%s", got, before)
		}

		w.kill(a.sessionID())
		balanced(13*time.Second, "session killed", a, b, c)
		time.Sleep(10 * time.Second)

		// The stages of a rebalance are in one metric, whoever measures them.
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Errorf("lint: %v, %v", problems, err)
		}
		if n, err := testutil.GatherAndCount(reg, "kiel_rebalance_duration_seconds"); err != nil || n < 3 {
			t.Errorf("%d stages, %v", n, err)
		}

		began := time.Now()
		noerr.Want(t, b.owner.Stop(context.Background()))
		t.Logf("stop took %v", time.Since(began))
		balanced(time.Second, "member left", a, c)

		if got := w.srv.Children("/kiel/groups/g/members"); strings.Join(got, " ") != "a c" {
			t.Errorf("members %v", got)
		}
	})
}

// While handlers finish, the time that the allocator has to stop does not run: its callback may wait for them.
func TestAllocatorStopsAfterSlowHandlers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const drain = 10 * time.Second
		finished := make(chan struct{})
		a := w.joinFull("a", []int32{0, 1}, ownership.Options{StopTimeout: 20 * time.Second}, func(o *allocator.Options) {
			o.StopTimeout = drain / 2
			o.OnRebalance = func(_ context.Context, r allocator.Rebalance) {
				if len(r.Removed) > 0 {
					<-finished
				}
			}
		})
		a.drain = drain
		a.owns(5*time.Second, "t:0 t:1")
		time.Sleep(5 * time.Second)
		time.AfterFunc(drain, func() { close(finished) })
		began := time.Now()
		noerr.Want(t, a.owner.Stop(context.Background()))
		if d := time.Since(began); d > drain+100*time.Millisecond {
			t.Errorf("stop took %v", d)
		}
	})
}

// tokens returns what members own, with the tokens.
func tokens(members ...*full) string {
	var b strings.Builder
	for _, m := range members {
		for _, info := range m.owner.Owned() {
			fmt.Fprintf(&b, "%s %s:%d %d\n", m.name, info.Topic, info.Partition, info.Token)
		}
	}
	return b.String()
}

// TestEndedBefore asks a session and an owner to end before the owner has begun, often, for without the rule it depends on who
// comes first.
func TestEndedBefore(t *testing.T) {
	for range 200 {
		synctest.Test(t, endBefore)
	}
}

func endBefore(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	ses, err := session.New([]string{"zk:2181"}, session.Options{Dial: w.nw.Client("m").Dial})
	noerr.Must(t, err)
	alloc, err := allocator.New(ses, "g", "m", allocator.Options{})
	noerr.Must(t, err)
	owner, err := ownership.New(alloc, func(context.Context, *ownership.Claim) error { return nil }, ownership.Options{})
	noerr.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ses.Run(ctx) }()
	noerr.Last(t)(ses.Incarnation(ctx))
	cancel()
	noerr.Must(t, <-ended)
	noerr.Must(t, owner.Run(ctx))
	noerr.Must(t, owner.Stop(t.Context()))
	if err := alloc.Ready(t.Context()); !errors.Is(err, allocator.ErrStopped) {
		t.Fatalf("ready: %v", err)
	}
}
