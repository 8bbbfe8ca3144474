package bench_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/servers"
)

// TestLoadOnZooKeeper measures what a group to which nothing happens costs ZooKeeper: with two numbers of partitions, to tell
// what members cost and what partitions do.
func TestLoadOnZooKeeper(t *testing.T) {
	for _, each := range []int{5, 50} {
		t.Run(fmt.Sprint(each, " each"), func(t *testing.T) { load(t, 20, each) })
	}
}

func load(t *testing.T, count, each int) {
	const calm = 30 * time.Second
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Config: map[string]string{"4lw.commands.whitelist": "*"}})
	empty := figuresOf(t, zk)
	ctx, cancel := context.WithCancel(t.Context())
	r := &stormRig{t: t, partitions: count * each}
	for i := range count {
		r.add(zk, fmt.Sprintf("member-%02d", i))
		r.run(ctx, i)
	}
	r.awaitOwned(time.Now(), time.Minute)
	time.Sleep(calm) // until all have looked around
	before := figuresOf(t, zk)
	time.Sleep(calm)
	after := figuresOf(t, zk)
	t.Logf("%d members, %d partitions: %d znodes, %d of them ephemeral, %d bytes of data and paths, %d watches", count, count*each,
		after["zk_znode_count"]-empty["zk_znode_count"], after["zk_ephemerals_count"], after["zk_approximate_data_size"]-empty["zk_approximate_data_size"],
		after["zk_watch_count"])
	requests := after["zk_packets_received"] - before["zk_packets_received"]
	t.Logf("in %v without a change: %.2f requests a second and member", calm, float64(requests)/calm.Seconds()/float64(count))
	cancel()
	r.running.Wait()
}

// figuresOf returns what the server says of itself in whole numbers.
func figuresOf(t *testing.T, zk *servers.ZooKeeper) map[string]int {
	t.Helper()
	answer, err := zk.Nodes()[0].Ask("mntr")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int{}
	for line := range strings.Lines(answer) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if n, err := strconv.Atoi(value); err == nil {
			values[name] = n
		}
	}
	return values
}
