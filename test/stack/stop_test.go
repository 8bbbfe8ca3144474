package stack_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

const (
	schedules = 80
	// sessionEnd is how long a session may take to end when nobody holds it.
	sessionEnd = 6 * time.Second
)

// faults are what may be wrong when somebody is stopped, by name; each ends what it began.
func faults() map[string]func(w *world, m *member) (heal func()) {
	net := func(begin func(c *zktest.Client)) func(*world, *member) func() {
		return func(_ *world, m *member) func() { begin(m.link); return m.link.Heal }
	}
	return map[string]func(w *world, m *member) func(){
		"none":         func(*world, *member) func() { return func() {} },
		"nobody there": net(func(c *zktest.Client) { c.Refuse(); c.Cut() }),
		"black hole":   net(func(c *zktest.Client) { c.BlackHole(zktest.Both) }),
		"deaf":         net(func(c *zktest.Client) { c.BlackHole(zktest.ToClient) }),
		"slow":         net(func(c *zktest.Client) { c.Delay(300 * time.Millisecond) }),
		"cut":          net(func(c *zktest.Client) { c.Cut() }),
		"silent handshakes": func(w *world, _ *member) func() {
			w.srv.SilentHandshakes(true)
			w.srv.CutAll()
			return func() { w.srv.SilentHandshakes(false) }
		},
		"refused handshakes": func(w *world, _ *member) func() {
			w.srv.RefuseHandshakes(true)
			w.srv.CutAll()
			return func() { w.srv.RefuseHandshakes(false) }
		},
		"frozen": func(w *world, _ *member) func() { w.srv.Freeze(); return w.srv.Thaw },
		"paused": func(w *world, _ *member) func() { w.srv.FreezeClock(); return w.srv.Thaw },
		"everything down": func(w *world, _ *member) func() {
			w.srv.Down()
			return func() { w.srv.Restart(false) }
		},
		"data lost": func(w *world, _ *member) func() {
			w.mu.Lock()
			for _, m := range w.members {
				m.exempt = true // nothing can prevent that others claim at once
			}
			w.mu.Unlock()
			w.srv.Restart(true)
			return func() {}
		},
		"killed": func(_ *world, m *member) func() { m.killed(); return func() {} },
		"garbage": func(w *world, m *member) func() {
			w.srv.Set(m.alloc.PartitionsPath(), []byte("{"))
			return func() {}
		},
		"operator": func(w *world, m *member) func() {
			w.srv.Delete(m.alloc.MembersPath() + "/" + m.name)
			return func() {}
		},
	}
}

// lives are what else happens around the moment of stopping, so that it falls into a rebalance.
func lives() map[string]func(w *world, seed int) {
	return map[string]func(w *world, n int){
		"alone": func(*world, int) {},
		"join":  func(w *world, n int) { w.join("b"+strconv.Itoa(n), setup{}) },
		"leave": func(w *world, _ int) {
			for _, m := range w.members {
				if m.name == "b" {
					m.quit()
				}
			}
		},
		"grow": func(w *world, _ int) {
			for _, m := range w.members {
				if m.name == "c" {
					go m.alloc.AddPartitions(context.Background(), map[string][]int32{"u": {0, 1, 2, 3, 4, 5, 6, 7}})
				}
			}
		},
	}
}

// pick draws one of a map's keys.
func pick[V any](r *rand.Rand, m map[string]V) string {
	keys := slices.Sorted(maps.Keys(m))
	return keys[r.IntN(len(keys))]
}

// moment draws a time to wait: often in the first instants, where all goes quickly, and now and then for so long that trust ends.
func moment(r *rand.Rand, longest time.Duration) time.Duration {
	switch r.IntN(5) {
	case 0, 1:
		return upTo(r, 50*time.Millisecond)
	case 2:
		return upTo(r, 2*time.Second)
	case 3:
		return upTo(r, longest)
	}
	return longest/3 + upTo(r, longest*2/3)
}

func upTo(r *rand.Rand, longest time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(longest)))
}

// eachSchedule runs f in a bubble for each of the seeds, of which it prints those that fail, or for the replayed one. Faults take
// turns.
func eachSchedule(t *testing.T, f func(t *testing.T, r *rand.Rand, fault string)) {
	t.Helper()
	all := slices.Sorted(maps.Keys(faults()))
	n := schedules
	if *replayed != 0 {
		n = 1
	}
	first := drawSeed(t)
	for i := range n {
		seed := first + uint64(i)
		ok := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, random(seed), all[seed%uint64(len(all))]) })
		})
		if !ok {
			t.Logf("failed with seed %d", seed)
		}
	}
}

// A member stops within its deadline, whatever is under way and whatever is wrong, and leaves nothing behind: neither a goroutine
// (the bubble would not end) nor a call nor a znode.
func TestStopInEveryPhase(t *testing.T) {
	hit := phases{}
	var slowest time.Duration
	eachSchedule(t, func(t *testing.T, r *rand.Rand, fault string) {
		w := newWorld(t)
		w.net.Delay(time.Duration(r.IntN(3)) * 5 * time.Millisecond)
		defer w.end()
		for _, name := range []string{"b", "c"} {
			w.join(name, setup{allocator: allocator.Options{Seed: seed(24)}})
		}
		time.Sleep(moment(r, 20*time.Second))

		slow := []time.Duration{0, 0, 50 * time.Millisecond, 2 * time.Second}
		callback, draining, computing := slow[r.IntN(len(slow))], slow[r.IntN(len(slow))], slow[r.IntN(len(slow))]
		var mu sync.Mutex
		calling, calls := 0, 0
		inside, after := r.IntN(6) == 0, r.IntN(4) // it stops itself, inside a callback, after so many
		timeout := time.Duration(5+r.IntN(11)) * time.Second
		var a *member
		call := func(ctx context.Context) {
			mu.Lock()
			calling++
			mu.Unlock()
			time.Sleep(callback)
			mu.Lock()
			calling--
			calls++
			stops := inside && calls > after
			mu.Unlock()
			if stops {
				_ = a.alloc.Stop(ctx) // of Run too, which ends with the allocator
			}
		}
		fn := allocfn.RoundRobin()
		assign := fn.Assign
		fn.Assign = func(in allocfn.Input) (allocfn.Assignment, error) {
			time.Sleep(computing)
			return assign(in)
		}
		a = w.make("a", setup{
			allocator: allocator.Options{
				Seed: seed(24), StopTimeout: timeout, Func: fn,
				OnRebalance: func(ctx context.Context, _ allocator.Rebalance) { call(ctx) },
				OnError:     func(ctx context.Context, _ error) { call(ctx) },
			},
			owner: ownership.Options{StopTimeout: timeout, Observer: func(e ownership.Event) {
				if e.Kind == ownership.Snapshot {
					call(context.Background())
				}
			}},
			handler: func(ctx context.Context, c *ownership.Claim) error {
				_ = a.work(ctx, c)
				time.Sleep(draining)
				return nil
			},
		})
		life := pick(r, lives())
		order := r.Perm(3)
		underWay := r.IntN(4) == 0 // so that it has something to hand over
		if underWay {
			order, fault, life, draining = []int{1, 0, 2}, "none", "join", 2*time.Second
		}
		heal := func() {}
		for _, what := range order {
			switch what {
			case 0:
				a.start()
			case 1:
				heal = faults()[fault](w, a)
			case 2:
				lives()[life](w, 1)
			}
			if underWay && what == 2 {
				time.Sleep(upTo(r, draining))
			} else {
				time.Sleep(moment(r, 12*time.Second))
			}
		}
		mu.Lock()
		under := calling > 0
		mu.Unlock()
		hit.look(a, under, fault)

		began := time.Now()
		stopped := make(chan error, 1)
		if r.IntN(2) == 0 {
			a.quit()
			close(stopped)
		} else {
			ctx, cancel := context.WithTimeout(context.Background(), timeout+time.Second)
			defer cancel()
			go func() { stopped <- a.owner.Stop(ctx) }()
		}
		<-a.ran
		took := time.Since(began)
		if took > timeout+50*time.Millisecond {
			t.Errorf("%s, %s: Run returned %v after the stop, allowed are %v: %v", fault, life, took, timeout, a.err)
		}
		slowest = max(slowest, took)
		if well := fault == "none" && !inside && callback < time.Second; well && a.err != nil {
			t.Errorf("%s: Run returned %v, though nothing was wrong", life, a.err)
		}
		if err := <-stopped; errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s, %s: Stop: %v", fault, life, err)
		}
		if s := a.alloc.Snapshot(); s != nil && s.Joined && closed(a.ran) && !errors.Is(a.err, ownership.ErrStuck) {
			t.Errorf("joined after Run has returned %v", a.err)
		}
		if owned := a.owned(); len(owned) > 0 {
			t.Errorf("owns %v after Run has returned", owned)
		}
		began = time.Now()
		a.close()
		<-a.ended
		if took := time.Since(began); took > sessionEnd {
			t.Errorf("%s, %s: the session's Run returned after %v", fault, life, took)
		}
		heal()
		w.net.Delay(0)
		_ = w.srv.Set(a.alloc.PartitionsPath(), []byte(`["t:0"]`)) // if there is a set
		time.Sleep(3 * timeout)
		if names := w.srv.Children(a.alloc.MembersPath()); slices.Contains(names, "a") {
			t.Errorf("%s: still a member: %v", fault, names)
		}
	})
	t.Attr("slowest_stop", slowest.String())
	hit.report(t, "dialling", "handshake", "session connecting", "session connected", "session suspended", "session lost", "joining", "not joined",
		"claiming", "handing over", "rebalancing", "settled", "inside a callback")
}

// The same for an allocator alone.
func TestStopAllocatorInEveryPhase(t *testing.T) {
	hit := phases{}
	var slowest time.Duration
	eachSchedule(t, func(t *testing.T, r *rand.Rand, fault string) {
		w := newWorld(t)
		defer w.end()
		w.join("b", setup{allocator: allocator.Options{Seed: seed(8)}})
		time.Sleep(moment(r, 5*time.Second))
		link := w.net.Client("a")
		dialer := &handshakes{dial: link.Dial}
		zk, err := session.New([]string{zktest.VirtualAddress}, session.Options{Dial: dialer.Dial, Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		limit := time.Duration(5+r.IntN(11)) * time.Second
		callback := []time.Duration{0, 50 * time.Millisecond, 2 * time.Second}[r.IntN(3)]
		inside := r.IntN(4) == 0
		var mu sync.Mutex
		calling, over := 0, false
		var a *allocator.PartitionAllocator
		a, err = allocator.New(zk, group, "a", allocator.Options{
			Seed: seed(8), StopTimeout: limit,
			OnRebalance: func(ctx context.Context, _ allocator.Rebalance) {
				mu.Lock()
				if over {
					t.Error("a call after Run had returned")
				}
				calling++
				mu.Unlock()
				time.Sleep(callback)
				if inside {
					_ = a.Stop(ctx)
				}
				mu.Lock()
				calling--
				mu.Unlock()
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		life := pick(r, lives())
		m := &member{world: w, name: "a", link: link, zk: zk, alloc: a} // for faults
		life0, end := context.WithCancel(context.Background())
		ctx, quit := context.WithCancel(context.Background())
		defer quit()
		ran, ended := make(chan error, 1), make(chan error, 1)
		heal := func() {}
		for _, what := range r.Perm(3) {
			switch what {
			case 0:
				go func() { ended <- zk.Run(life0) }()
				go func() {
					err := a.Run(ctx)
					mu.Lock()
					over = true
					mu.Unlock()
					ran <- err
				}()
			case 1:
				heal = faults()[fault](w, m)
			case 2:
				lives()[life](w, 1)
			}
			time.Sleep(moment(r, 12*time.Second))
		}
		mu.Lock()
		hit.session(zk, dialer, fault)
		switch s := a.Snapshot(); {
		case calling > 0:
			hit["inside a callback"]++
		case s == nil:
			hit["joining"]++
		case !s.Joined:
			hit["not joined"]++
		default:
			hit["joined"]++
		}
		mu.Unlock()
		began := time.Now()
		if r.IntN(2) == 0 {
			quit()
		} else if err := a.Stop(context.Background()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		err = <-ran
		well := fault == "none" && !inside && callback < time.Second
		if err != nil && (well || !errors.Is(err, allocator.ErrStuck)) {
			t.Errorf("%s, %s: Run: %v", fault, life, err)
		}
		took := time.Since(began)
		if slowest = max(slowest, took); took > limit+100*time.Millisecond {
			t.Errorf("%s, %s: Run returned after %v, allowed are %v", fault, life, took, limit)
		}
		began = time.Now()
		end()
		if err := <-ended; err != nil {
			t.Errorf("session: %v", err)
		}
		if took := time.Since(began); took > sessionEnd {
			t.Errorf("%s, %s: the session's Run returned after %v", fault, life, took)
		}
		heal()
		time.Sleep(3 * timeout)
		if names := w.srv.Children(a.MembersPath()); slices.Contains(names, "a") {
			t.Errorf("%s: still a member: %v", fault, names)
		}
	})
	t.Attr("slowest_stop", slowest.String())
	hit.report(t, "dialling", "handshake", "session connecting", "session connected", "session suspended", "session lost", "joining", "not joined",
		"joined", "inside a callback")
}

// The same for a session alone, which somebody may hold, and which makes requests.
func TestStopSessionInEveryPhase(t *testing.T) {
	hit := phases{}
	var slowest time.Duration
	eachSchedule(t, func(t *testing.T, r *rand.Rand, fault string) {
		w := newWorld(t)
		link := w.net.Client("a")
		dialer := &handshakes{dial: link.Dial}
		limit := time.Duration(1+r.IntN(10)) * time.Second
		zk, err := session.New([]string{zktest.VirtualAddress}, session.Options{
			Dial: dialer.Dial, Timeout: timeout, StopTimeout: limit, Chroot: []string{"", "/some/where"}[r.IntN(2)],
		})
		if err != nil {
			t.Fatal(err)
		}
		a, err := allocator.New(zk, group, "a", allocator.Options{}) // for the paths
		if err != nil {
			t.Fatal(err)
		}
		m := &member{world: w, name: "a", link: link, zk: zk, alloc: a}
		held := r.IntN(4) == 0
		release := func() {}
		if held {
			release = zk.KeepOpen()
		}
		ctx, quit := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		heal := func() {}
		var calls sync.WaitGroup
		for _, what := range r.Perm(2) {
			if what == 0 {
				go func() { ran <- zk.Run(ctx) }()
				for i := range r.IntN(4) { // requests, which end with the session at the latest
					calls.Go(func() {
						for n := range 1000 {
							inc, err := zk.Incarnation(context.Background())
							if err != nil {
								return
							}
							_, err = inc.Create(context.Background(), fmt.Sprintf("/%d-%d", i, n), nil, session.Ephemeral)
							if errors.Is(err, session.ErrClosed) {
								return
							}
							time.Sleep(10 * time.Millisecond)
						}
					})
				}
			} else {
				heal = faults()[fault](w, m)
			}
			time.Sleep(moment(r, 12*time.Second))
		}
		hit.session(zk, dialer, fault)
		began := time.Now()
		quit()
		allowed := sessionEnd
		if held {
			hit["held"]++
			allowed += limit
		}
		if err := <-ran; err != nil {
			t.Errorf("%s: Run: %v", fault, err)
		}
		took := time.Since(began)
		if slowest = max(slowest, took); took > allowed {
			t.Errorf("%s: Run returned after %v, allowed are %v", fault, took, allowed)
		}
		calls.Wait()
		release()
		heal()
		time.Sleep(3 * timeout)
		if n := len(w.srv.Sessions()); n != 0 {
			t.Errorf("%s: %d sessions on the server", fault, n)
		}
	})
	t.Attr("slowest_stop", slowest.String())
	hit.report(t, "dialling", "handshake", "session connecting", "session connected", "session suspended", "session lost", "held")
}
