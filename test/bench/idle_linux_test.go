package bench_test

import (
	"context"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// TestIdleOwner measures what one member costs that owns 2,000 partitions to which nothing happens: requests, CPU, and memory and
// goroutines beside those of its handlers.
func TestIdleOwner(t *testing.T) {
	const partitions, calm = 2000, 30 * time.Second
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Config: map[string]string{"4lw.commands.whitelist": "*"}})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	few := heapOf(ctx, t, &running, zk, "few", 1)
	many := heapOf(ctx, t, &running, zk, "many", partitions)
	time.Sleep(calm) // until all have looked around
	before, spent := figuresOf(t, zk), spentCPU(t)
	time.Sleep(calm)
	after, spentAfter := figuresOf(t, zk), spentCPU(t)
	requests := float64(after["zk_packets_received"]-before["zk_packets_received"]) / calm.Seconds()
	t.Logf("a member with %d partitions and one with 1: %.1f requests and %.2f ms of CPU a second; a partition: %.2f KB of heap and %.2f goroutines, "+
		"its handler's included; %d watches", partitions, requests, (spentAfter-spent).Seconds()*1000/calm.Seconds(),
		float64(many.heap-few.heap)/1024/partitions, float64(many.goroutines-few.goroutines)/partitions, after["zk_watch_count"])
	cancel()
	running.Wait()
}

// size is what a process has in memory.
type size struct{ heap, goroutines int64 }

// heapOf starts a member of a group with so many partitions, and returns by how much that has grown the process.
func heapOf(ctx context.Context, t *testing.T, running *sync.WaitGroup, zk *servers.ZooKeeper, group string, partitions int) size {
	t.Helper()
	was := now()
	seed := map[string][]int32{"orders": nil}
	for id := range int32(partitions) {
		seed["orders"] = append(seed["orders"], id)
	}
	o := runOwnerOf(ctx, t, running, zk.Addrs(), group, "m", seed)
	wait.Until(t, time.Minute, func() bool { return len(o.Owned()) == partitions }, func() string { return "not all are owned" })
	time.Sleep(5 * time.Second)
	is := now()
	return size{is.heap - was.heap, is.goroutines - was.goroutines}
}

func now() size {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return size{int64(m.HeapAlloc), int64(runtime.NumGoroutine())}
}

// spentCPU returns the CPU time that this process has spent.
func spentCPU(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
