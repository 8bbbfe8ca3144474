package bench_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
)

var (
	storms       = flag.String("storms", "200x2000", "storms of joins: members x partitions, each after a comma")
	stormProfile = flag.String("storm-profile", "", "a file for a CPU profile of the storm; that with .more after its name gets one of the last join")
	stormHeap    = flag.String("storm-heap", "", "a file for a heap profile of its members while nothing changes; -test.memprofilerate=1 makes it exact")
)

// TestStorm measures what it costs that so many members join an empty group at once, in one process and on one server: until all
// partitions are owned and all members know each other, and until one more member has its share. The members run Balanced, as
// those of a consumer do: with RoundRobin one more member moves most partitions.
func TestStorm(t *testing.T) {
	for name := range strings.SplitSeq(*storms, ",") {
		t.Run(name, func(t *testing.T) {
			var members, partitions int
			if _, err := fmt.Sscanf(name, "%dx%d", &members, &partitions); err != nil {
				t.Fatal(err)
			}
			storm(t, members, partitions)
		})
	}
}

// stormRig has the members of a storm.
type stormRig struct {
	t          *testing.T
	partitions int
	options    allocator.Options
	sessions   []*session.Session
	owners     []*ownership.Owner
	running    sync.WaitGroup
}

func storm(t *testing.T, members, partitions int) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{
		Heap: "512m", Config: map[string]string{"4lw.commands.whitelist": "*", "maxClientCnxns": "0"},
	})
	ctx, cancel := context.WithCancel(t.Context())
	r := &stormRig{t: t, partitions: partitions, options: allocator.Options{Topics: []string{"orders"}, Func: allocfn.Balanced()}}
	for i := range members {
		r.add(zk, fmt.Sprintf("member-%04d.example", i))
	}
	defer r.running.Wait()
	defer cancel()
	before := heapInUse()
	profiled := profiling(t, *stormProfile, "")
	counted, began := figuresOf(t, zk), time.Now()
	for i := range r.owners {
		r.run(ctx, i)
	}
	all := r.awaitOwned(began, 3*time.Minute)
	requests := figuresOf(t, zk)["zk_packets_received"] - counted["zk_packets_received"]
	profiled()
	losses := r.losses()
	time.Sleep(5 * time.Second)
	heap := heapInUse() - before
	if *stormHeap != "" {
		writeHeap(t, *stormHeap)
	}

	r.add(zk, "one-more.example")
	profiled = profiling(t, *stormProfile, ".more")
	began = time.Now()
	r.run(ctx, members)
	oneMore := r.awaitOwned(began, time.Minute)
	profiled()

	time.Sleep(15 * time.Second)
	counted = figuresOf(t, zk)
	const calm = 20 * time.Second
	time.Sleep(calm)
	idle := float64(figuresOf(t, zk)["zk_packets_received"]-counted["zk_packets_received"]) / calm.Seconds() / float64(members+1)
	t.Logf("%d members, %d partitions: all owned after %.2f s, %d requests, %d losses of trust until then and %d in all; one more has its share after %.2f s; "+
		"%.2f requests a second and member while nothing changes; %.2f MB of heap a member", members, partitions, all.Seconds(), requests, losses, r.losses(),
		oneMore.Seconds(), idle, float64(heap)/float64(members)/(1<<20))
}

// profiling writes a CPU profile into a file of that name and suffix, unless the name is empty, until stop is called.
func profiling(t *testing.T, name, suffix string) (stop func()) {
	t.Helper()
	if name == "" {
		return func() {}
	}
	f, err := os.Create(name + suffix)
	if err != nil {
		t.Fatal(err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		t.Fatal(err)
	}
	return func() {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// writeHeap writes a profile of what is in use.
func writeHeap(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(pprof.Lookup("heap").WriteTo(f, 0), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// add makes a member.
func (r *stormRig) add(zk *servers.ZooKeeper, name string) {
	r.t.Helper()
	seed := map[string][]int32{"orders": nil}
	for id := range int32(r.partitions) {
		seed["orders"] = append(seed["orders"], id)
	}
	opts := r.options
	opts.Seed = seed
	s, err := session.New(zk.Addrs(), session.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	a, err := allocator.New(s, "storm", name, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	o, err := ownership.New(a, func(ctx context.Context, _ *ownership.Claim) error {
		<-ctx.Done()
		return nil
	}, ownership.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.sessions, r.owners = append(r.sessions, s), append(r.owners, o)
}

// run runs a member until ctx ends.
func (r *stormRig) run(ctx context.Context, i int) {
	for _, run := range []func(context.Context) error{r.sessions[i].Run, r.owners[i].Run} {
		r.running.Go(func() {
			if err := run(ctx); err != nil {
				r.t.Error(err)
			}
		})
	}
}

// awaitOwned returns how long after began all partitions were owned and divided evenly among all members.
func (r *stormRig) awaitOwned(began time.Time, limit time.Duration) time.Duration {
	r.t.Helper()
	for time.Since(began) < limit {
		owned, least, most := 0, r.partitions, 0
		for _, o := range r.owners {
			n := len(o.Owned())
			owned, least, most = owned+n, min(least, n), max(most, n)
		}
		if owned == r.partitions && most-least <= 1 {
			return time.Since(began)
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.t.Fatalf("not all is owned after %v", limit)
	return 0
}

// losses returns how often sessions have lost trust.
func (r *stormRig) losses() (n uint64) {
	for _, s := range r.sessions {
		n += s.Stats().TrustLosses + s.Stats().Expirations
	}
	return n
}
