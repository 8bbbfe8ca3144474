package bench_test

import (
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// partitionMembers is how many divide a set, each with a session of its own; the other figures take the first session.
const partitionMembers = 4

var latency = flag.Duration("latency", 0, "how long each request and each answer of recipes is under way, besides")

// recipeFigures are what TestRecipes measures; n in a round, or a tenth of it if there is only one round or a latency.
var recipeFigures = []struct {
	name    string
	prepare string // done before, and not counted
	what    string
	n       int
	whole   bool // n is milliseconds, and the figure is the whole round's, not that of one of n
	watches int  // how many must have been set by prepare, for each of n
}{
	{name: "Lock: acquire and release, uncontended", what: "lock", n: 200},
	{name: "Lock: from one of n waiting to the next", prepare: "queue_up", what: "hand_over", n: 100, watches: 1},
	{name: "Queue: put 100 bytes", what: "put", n: 200},
	{name: "Queue: get, of n entries", prepare: "fill", what: "get", n: 200},
	{name: "LockingQueue: get and consume, of n entries", prepare: "fill_locking", what: "consume", n: 200},
	{name: "Counter: add", what: "count", n: 200},
	{name: "SetPartitioner: start to ACQUIRED, 4 members, 11 items; n: time boundary", what: "partition", n: 1000, whole: true},
}

// side is one of the two implementations that are compared.
type side interface {
	// do does something n times at path, which is new or was prepared, and returns how long that took.
	do(what, path string, n int) time.Duration
	sessions() []int64
}

// result is what came out of the rounds for one side.
type result struct {
	took     []time.Duration // for each operation, by round
	requests []float64       // that arrived at the server, for each operation, by round
}

// TestRecipes times our recipes and kazoo's on one server, in turn, each in a process of its own.
func TestRecipes(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Heap: "256m"})
	names := []string{"ours", "kazoo"}
	link := proxy.New(t, zk.Addr())
	link.Slow(proxy.Both, proxy.Speed{Latency: *latency})
	addr := zk.Addr()
	if *latency > 0 {
		addr = link.Addr()
	}
	sides := []side{newOurs(t, addr), newKazoo(t, addr)}
	scale := 1
	if *rounds == 1 || *latency > 0 {
		scale = 10
	}
	results := make([][2]result, len(recipeFigures))
	for round := range *rounds {
		for i, f := range recipeFigures {
			n := f.n / scale
			for k, s := range sides {
				path := fmt.Sprintf("/%s/%s-%d", names[k], f.what, round)
				if f.prepare != "" {
					base := watches(t, zk)
					s.do(f.prepare, path, n)
					wait.Until(t, time.Minute, func() bool { return watches(t, zk) >= base+n*f.watches }, func() string { return "all wait" })
				}
				before := received(t, zk, s.sessions())
				took := s.do(f.what, path, n)
				requests := received(t, zk, s.sessions()) - before
				if !f.whole {
					took /= time.Duration(n)
					requests /= float64(n)
				}
				r := &results[i][k]
				r.took, r.requests = append(r.took, took), append(r.requests, requests)
			}
		}
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tn\tours: median\tworst\trequests\tkazoo: median\tworst\trequests\tours/kazoo")
	for i, f := range recipeFigures {
		n := strconv.Itoa(f.n / scale)
		if f.whole {
			n += " ms"
		}
		ours, theirs := results[i][0], results[i][1]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.2f\n", f.name, n, ours, theirs, float64(middle(ours.took))/float64(middle(theirs.took)))
		t.Attr(f.what, fmt.Sprintf("%v, kazoo %v", millis(middle(ours.took)), millis(middle(theirs.took))))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("rounds: %d, times per operation in a round, one server without fsync, latency %v\n%s", *rounds, *latency, &table)
}

func (r result) String() string {
	return fmt.Sprintf("%s\t%s\t%.1f", millis(middle(r.took)), millis(slices.Max(r.took)), middle(r.requests))
}

func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1e3) }

// middle is the median.
func middle[T int | float64 | time.Duration](all []T) T {
	return slices.Sorted(slices.Values(all))[(len(all)-1)/2]
}

func ask(t *testing.T, zk *servers.ZooKeeper, command string) string {
	t.Helper()
	answer, err := zk.Nodes()[0].Ask(command)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

var totalWatches = regexp.MustCompile(`Total watches:(\d+)`)

// watches is how many the server has to look after.
func watches(t *testing.T, zk *servers.ZooKeeper) int {
	t.Helper()
	answer := ask(t, zk, "wchs")
	m := totalWatches.FindStringSubmatch(answer)
	if m == nil {
		t.Fatalf("wchs: %q", answer)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var receivedOf = regexp.MustCompile(`recved=(\d+),.*sid=0x([0-9a-f]+),`)

// received is how many requests of these sessions have arrived at the server, with their pings.
func received(t *testing.T, zk *servers.ZooKeeper, sessions []int64) float64 {
	t.Helper()
	sum, found := 0.0, 0
	for _, m := range receivedOf.FindAllStringSubmatch(ask(t, zk, "cons"), -1) {
		id, err := strconv.ParseUint(m[2], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(sessions, int64(id)) {
			continue
		}
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
		found++
	}
	if found != len(sessions) {
		t.Fatalf("the server knows connections of %d sessions, not %d", found, len(sessions))
	}
	return sum
}

// kazoo is a Python process; see figures.py.
type kazoo struct {
	t   *testing.T
	p   *servers.Talker
	ids []int64
}

func newKazoo(t *testing.T, zk string) *kazoo {
	t.Helper()
	cmd := exec.Command(servers.Python(t), "figures.py", zk, strconv.Itoa(partitionMembers))
	k := &kazoo{t: t, p: servers.Talk(t, "kazoo", cmd)}
	k.ids = k.answer("connect").Sessions
	return k
}

type kazooReply struct {
	Sessions []int64 `json:"sessions"`
	Seconds  float64 `json:"seconds"`
	Error    string  `json:"error"`
}

func (k *kazoo) answer(what string) kazooReply {
	k.t.Helper()
	var r kazooReply
	if err := k.p.Answer(2*time.Minute, &r); err != nil {
		k.t.Fatalf("%s: %v", what, err)
	}
	if r.Error != "" {
		k.t.Fatalf("kazoo: %s: %s", what, r.Error)
	}
	return r
}

func (k *kazoo) sessions() []int64 { return k.ids }

func (k *kazoo) do(what, path string, n int) time.Duration {
	k.t.Helper()
	if err := k.p.In.Encode(map[string]any{"what": what, "path": path, "n": n}); err != nil {
		k.t.Fatal(err)
	}
	return time.Duration(k.answer(what).Seconds * float64(time.Second))
}
