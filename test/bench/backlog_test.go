package bench_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/test/servers"
)

// backlogTaken is how many entries each side takes of a backlog.
const backlogTaken = 200

var longest = flag.Int("backlog", 1_000, "entries of the longest backlog: 1000, 10000 or 100000")

// TestBacklogs times what an entry of a long queue costs, here and with kazoo, in turn, each from backlogs of its own and with a
// new handle: the first list counts.
func TestBacklogs(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Heap: "1000m"})
	o := newOurs(t, zk.Addr())
	sides := []side{o, newKazoo(t, zk.Addr())}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tentries\tours: median\tworst\trequests\tkazoo: median\tworst\trequests\tours/kazoo")
	for size := 1_000; size <= *longest; size *= 10 {
		for _, kind := range []struct{ name, open, take string }{
			{"Queue: get", "backlog", "get"},
			{"LockingQueue: get and consume", "backlog_locking", "consume"},
		} {
			var results [2]result
			for round := range *rounds {
				for i, s := range sides {
					path := fmt.Sprintf("/%s-%d/%d-%d", kind.open, i, size, round)
					o.fillTo(t.Context(), path, kind.open, size)
					s.do(kind.open, path, 0)
					before := received(t, zk, s.sessions())
					took := s.do(kind.take, path, backlogTaken) / backlogTaken
					r := &results[i]
					r.took, r.requests = append(r.took, took), append(r.requests, (received(t, zk, s.sessions())-before)/backlogTaken)
				}
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%.2f\n", kind.name, size, results[0], results[1],
				float64(middle(results[0].took))/float64(middle(results[1].took)))
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("rounds: %d, %d entries taken in each, times per entry, one server without fsync\n%s", *rounds, backlogTaken, &table)
}

// fillTo puts n values into the queue at path.
func (o *ours) fillTo(ctx context.Context, path, kind string, n int) {
	o.t.Helper()
	var put func(values [][]byte) error
	if kind == "backlog" {
		q, err := queue.New(o.s, path, queue.Options{})
		o.must(err)
		put = func(values [][]byte) error { _, err := q.PutAll(ctx, values, queue.DefaultPriority); return err }
	} else {
		q, err := queue.NewLocking(o.s, path, queue.Options{})
		o.must(err)
		put = func(values [][]byte) error { _, err := q.PutAll(ctx, values, queue.DefaultPriority); return err }
	}
	for chunk := range slices.Chunk(slices.Repeat([][]byte{value}, n), 500) {
		o.must(put(chunk))
	}
}
