// Package bench_test measures what users wait for. Run it with
//
//	go test ./bench -run Handover -rounds 20 -v
//
// In the tests it runs one round, so that it keeps working.
package bench_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

var rounds = flag.Int("rounds", 1, "how often each hand-over is measured")

const (
	topic      = "orders"
	partitions = 64
	timeout    = 4 * time.Second
	tick       = time.Second
	beat       = 10 * time.Millisecond // each partition gets a message this often
)

// world is the processes' state as their event logs tell it.
type world struct {
	t       *testing.T
	args    []string
	dir     string
	bin     string
	procs   []*members.Process
	live    []*members.Process
	owner   map[int32]*members.Process
	claimed map[int32]int64 // when the present owner claimed
	first   map[int32]int64 // when it was handed its first message, 0: not yet
}

func (w *world) start(name string) *members.Process {
	w.t.Helper()
	p := members.Start(w.t, w.bin, name, filepath.Join(w.dir, fmt.Sprintf("%03d-%s.jsonl", len(w.procs), name)), w.args...)
	w.procs, w.live = append(w.procs, p), append(w.live, p)
	return p
}

// read takes in what has been logged since.
func (w *world) read() {
	for _, p := range w.procs {
		for _, e := range p.Read(w.t) {
			switch e.Event {
			case eventlog.Claimed:
				w.owner[*e.Partition], w.claimed[*e.Partition], w.first[*e.Partition] = p, e.T, 0
			case eventlog.Message:
				if w.owner[*e.Partition] == p && w.first[*e.Partition] == 0 {
					w.first[*e.Partition] = e.T
				}
			case eventlog.Released, eventlog.Lost:
				if e.Partition != nil && w.owner[*e.Partition] == p {
					delete(w.owner, *e.Partition)
				}
			}
		}
	}
}

// settle waits until the live processes own everything evenly and every
// partition has been handed a message, and returns how long after since the last
// partition that was claimed later than since was claimed, and handed a message.
func (w *world) settle(since int64) (owned, first time.Duration) {
	w.t.Helper()
	wait.Until(w.t, 40*time.Second, func() bool { w.read(); return w.even() }, w.String)
	for id, at := range w.claimed {
		if at > since {
			owned = max(owned, time.Duration(at-since))
			first = max(first, time.Duration(w.first[id]-since))
		}
	}
	return owned, first
}

func (w *world) even() bool {
	count := map[*members.Process]int{}
	for id := range int32(partitions) {
		p := w.owner[id]
		if p == nil || w.first[id] == 0 || !slices.Contains(w.live, p) {
			return false
		}
		count[p]++
	}
	for _, p := range w.live {
		if n := count[p]; n < partitions/len(w.live) || n > partitions/len(w.live)+1 {
			return false
		}
	}
	return true
}

func (w *world) String() string {
	var b strings.Builder
	for id := range int32(partitions) {
		name := "-"
		if p := w.owner[id]; p != nil {
			name = p.Name
		}
		fmt.Fprintf(&b, "%d:%s/%v ", id, name, w.first[id] != 0)
	}
	return b.String()
}

// What the README promises is asserted in virtual time. These looser bounds show a
// regression on a busy machine too.
const (
	crashBound   = timeout + tick + 3*time.Second // kill -9 to all claimed
	changedBound = 5 * time.Second                // start of a process, or SIGTERM, to all claimed
)

// figures collects one kind of hand-over.
type figures struct{ owned, first []time.Duration }

func (f *figures) add(owned, first time.Duration) {
	f.owned, f.first = append(f.owned, owned), append(f.first, first)
}

func (f *figures) within(t *testing.T, what string, bound time.Duration) {
	t.Helper()
	if worst := slices.Max(f.owned); worst > bound {
		t.Errorf("%s: all claimed after %v, at most %v is fine", what, worst, bound)
	}
}

func (f *figures) String() string {
	return fmt.Sprintf("all claimed %s; first message on every moved partition %s", spread(f.owned), spread(f.first))
}

// spread is the median and the worst of some measurements.
func spread(ds []time.Duration) string {
	slices.Sort(ds)
	return fmt.Sprintf("median %v, worst %v (n=%d)", ds[(len(ds)-1)/2].Round(time.Millisecond), ds[len(ds)-1].Round(time.Millisecond), len(ds))
}

// TestHandover measures join, graceful leave and kill -9 of the fifth of five
// processes that share 64 partitions with steady traffic, on real servers.
func TestHandover(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: tick})
	kafka := servers.StartKafka(t, servers.KafkaOptions{})
	kafka.CreateTopic(topic, partitions)
	produce(t, kafka.Brokers())
	bin, err := members.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, bin: bin, dir: t.ArtifactDir(),
		args:  []string{"--zookeeper", zk.Addr(), "--kafka", strings.Join(kafka.Brokers(), ","), "--topic", topic, "--session-timeout", timeout.String()},
		owner: map[int32]*members.Process{}, claimed: map[int32]int64{}, first: map[int32]int64{},
	}
	for i := range 4 {
		w.start(fmt.Sprintf("m%d", i))
	}
	w.settle(members.Monotonic())

	var join, leave, kill figures
	fifth := func() *members.Process {
		since := members.Monotonic()
		p := w.start("m4")
		join.add(w.settle(since))
		return p
	}
	for range *rounds {
		p := fifth()
		since := members.Monotonic()
		w.live = w.live[:4]
		p.Stop(t)
		leave.add(w.settle(since))

		p = fifth()
		w.live = w.live[:4]
		p.Kill()
		kill.add(w.settle(p.Killed))
	}
	for _, p := range w.live {
		p.Stop(t)
	}
	t.Logf("%d partitions, 4 and 5 processes, session timeout %v, tick %v, a message each %v a partition", partitions, timeout, tick, beat)
	t.Logf("join (from the start of the process): %v", &join)
	t.Logf("graceful leave (from SIGTERM):        %v", &leave)
	t.Logf("kill -9:                              %v", &kill)
	join.within(t, "join", changedBound)
	leave.within(t, "leave", changedBound)
	kill.within(t, "kill -9", crashBound)
	var logs []eventlog.Log
	for _, p := range w.procs {
		logs = append(logs, p.History(t))
	}
	report := eventlog.Check(logs, eventlog.Expect{})
	t.Log(report)
	if !report.OK() {
		t.Error("the promise was broken; logs in", w.dir)
	}
}

// produce sends a message to each partition every beat until the test ends.
func produce(t *testing.T, brokers []string) {
	t.Helper()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Retry.Max = 100 // a new topic's leader may be unknown for a moment
	config.Producer.Flush.Frequency = beat / 2
	p, err := sarama.NewAsyncProducer(brokers, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}) // closed when all was acknowledged
	go func() {
		defer p.AsyncClose()
		every := time.NewTicker(beat)
		defer every.Stop()
		for {
			select {
			case <-every.C:
			case <-ctx.Done():
				return
			}
			for id := range int32(partitions) {
				select {
				case p.Input() <- &sarama.ProducerMessage{Topic: topic, Partition: id, Value: sarama.StringEncoder("x")}:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	go func() {
		defer close(done)
		for e := range p.Errors() {
			fmt.Fprintln(os.Stderr, "bench: produce:", e)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}
