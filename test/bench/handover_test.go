// Package bench_test measures what users wait for. Run it with
//
//	go test ./test/bench -run Handover -rounds 20 -v
//
// In the tests it runs one round, so that it keeps working. With -session-timeout=10s it measures what docs/semantics.md says.
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
	"github.com/kielgo/kiel/test/wait"
)

var (
	rounds         = flag.Int("rounds", 1, "how often each hand-over is measured")
	sessionTimeout = flag.Duration("session-timeout", 4*time.Second, "ZooKeeper session timeout of members that are handed over to and from")
)

const (
	topic      = "orders"
	partitions = 64
	tick       = time.Second
	beat       = 10 * time.Millisecond // each partition gets a message this often
	moveBeat   = 5 * time.Millisecond  // … where moves are measured
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
	claimed map[int32]int64  // when the present owner claimed
	first   map[int32]int64  // when it was handed its first message, 0: not yet
	log     []eventlog.Event // all that is no message, and the first messages
}

func (w *world) start(name string, flags ...string) *members.Process {
	w.t.Helper()
	events := filepath.Join(w.dir, fmt.Sprintf("%03d-%s.jsonl", len(w.procs), name))
	p := members.Start(w.t, w.bin, name, events, slices.Concat(w.args, flags)...)
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
			case eventlog.Message, eventlog.Done:
				if e.Event == eventlog.Done || w.owner[*e.Partition] != p || w.first[*e.Partition] != 0 {
					continue
				}
				w.first[*e.Partition] = e.T
			case eventlog.Releasing, eventlog.Lost:
				if e.Partition != nil && w.owner[*e.Partition] == p {
					delete(w.owner, *e.Partition)
				}
			}
			w.log = append(w.log, e)
		}
	}
}

// settle waits until the live processes own everything evenly and every partition has been handed a message, and returns how long
// after since that happened which happened then.
func (w *world) settle(since int64) timeline {
	w.t.Helper()
	w.log = w.log[:0]
	wait.Until(w.t, 60*time.Second, func() bool { w.read(); return w.even() }, w.String)
	line := timeline{}
	for _, e := range w.log {
		if e.T > since {
			line[e.Event] = append(line[e.Event], time.Duration(e.T-since))
		}
	}
	return line
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

// spread is the median and the worst of some measurements.
func spread(ds []time.Duration) string {
	slices.Sort(ds)
	return fmt.Sprintf("median %v, worst %v (n=%d)", ds[(len(ds)-1)/2].Round(time.Millisecond), ds[len(ds)-1].Round(time.Millisecond), len(ds))
}

// produce sends a message to each partition every beat until the test ends.
func produce(t *testing.T, brokers []string, beat time.Duration) {
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
