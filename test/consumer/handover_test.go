package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/zktest"
)

// zookeeperTrip is the time from a request to ZooKeeper to its answer. One to Kafka takes none in these tests: sarama holds a
// lock until the answer is there, and virtual time stands still while somebody waits for a lock.
const zookeeperTrip = 2 * time.Millisecond

// handover is a group whose partitions get a message each 5 ms until the test ends. It notes what is asked of Kafka, and when.
type handover struct {
	*rig
	mu   sync.Mutex
	asks map[string][]int64
}

func newHandover(t *testing.T, partitions int32) *handover {
	t.Helper()
	h := &handover{rig: newRig(t, partitions, kfake.NumBrokers(1), kfake.Ports(9092)), asks: map[string][]int64{}}
	h.zknet.Delay(zookeeperTrip / 2)
	h.kafka.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		h.kafka.KeepControl()
		h.mu.Lock()
		defer h.mu.Unlock()
		kind := kmsg.NameForKey(req.Key())
		h.asks[kind] = append(h.asks[kind], time.Now().UnixNano())
		return nil, nil, false
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			h.produce(1)
			time.Sleep(5 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { stop(); <-done })
	return h
}

// askedSince returns how many requests of a kind have come since then.
func (h *handover) askedSince(kind string, at int64) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.asks[kind]) - sort.Search(len(h.asks[kind]), func(i int) bool { return h.asks[kind][i] >= at })
}

// leave has leaver leave, and returns when that began, and what taker has noted until it has everything.
func (h *handover) leave(leaver, taker *member, partitions int) (began int64, noted []eventlog.Event) {
	h.t.Helper()
	began = time.Now().UnixNano()
	leaver.leave()
	until(h.t, "all is taken over", func() bool { return len(taker.owns()) == partitions })
	time.Sleep(20 * time.Millisecond) // until each partition has had a message
	for _, e := range taker.log.events() {
		if e.T >= began {
			noted = append(noted, e)
		}
	}
	return began, noted
}

// The next owner of partitions does after their claims only what must come after them: it asks Kafka for the stored offsets,
// of many partitions at a time, and fetches. Topics are asked about while it waits for the claims, and the stored offsets, which
// are as it would store them, are not stored again.
func TestHandOverAsksOnlyForOffsets(t *testing.T) {
	const partitions = 8
	bubble(t, func(t *testing.T) {
		h := newHandover(t, partitions)
		a := h.member("a", nil).run()
		until(t, "a owns all", func() bool { return len(a.owns()) == partitions })
		b := h.member("b", nil).run()
		until(t, "b owns its share", func() bool { return len(b.owns()) == partitions/2 })
		time.Sleep(3300 * time.Millisecond)
		began, noted := h.leave(b, a, partitions)
		claimed, claims, last := int64(0), map[int32]bool{}, int64(0)
		for _, e := range noted {
			switch {
			case e.Partition == nil:
			case e.Event == eventlog.Claimed:
				claims[*e.Partition] = true
				if claimed == 0 {
					claimed = e.T
				}
			case e.Event == eventlog.Committed && claims[*e.Partition]:
				t.Errorf("partition %d: an offset was stored before its first message", *e.Partition)
			case e.Event == eventlog.Message && claims[*e.Partition]:
				delete(claims, *e.Partition)
				last = e.T
			}
		}
		if claimed == 0 || len(claims) > 0 {
			t.Fatalf("no claims, or no messages of %v", claims)
		}
		t.Logf("claims after %v, first messages after %v", time.Duration(claimed-began), time.Duration(last-began))
		if n := h.askedSince("Metadata", began); n == 0 {
			t.Error("the topics were not asked about")
		}
		if n := h.askedSince("Metadata", claimed); n > 0 {
			t.Errorf("%d questions about topics after the claims", n)
		}
		if n := h.askedSince("OffsetFetch", claimed); n == 0 || n > 4 {
			t.Errorf("%d reads of offsets, want 4 at most", n)
		}
		quit(a)
	})
}

// A member that leaves stores the last marks of all its partitions in one request, and then releases all claims, in the time of
// two requests to ZooKeeper. So does a static one, whose partitions stay its own in the plan.
func TestManyPartitionsAreGivenUpTogether(t *testing.T) {
	for name, static := range map[string]bool{"leaves": false, "static": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { testGivenUpTogether(t, static) })
		})
	}
}

func testGivenUpTogether(t *testing.T, static bool) {
	const partitions, kafkaTrip = 64, 5 * time.Millisecond
	r := newRig(t, 2*partitions, kfake.NumBrokers(1), kfake.Ports(9092))
	r.zknet.Delay(zookeeperTrip / 2)
	a := r.member("a", nil).run()
	until(t, "a owns all", func() bool { return len(a.owns()) == 2*partitions })
	started := time.Now()
	b := r.owning("b", func(o *consumer.Options) { o.Static = static }).run()
	until(t, "b owns its share", func() bool { return len(b.owns()) == partitions })
	time.Sleep(10500*time.Millisecond - time.Since(started)) // b stores its marks once a second
	for i := range int32(2 * partitions) {
		r.produce(1, i)
	}
	until(t, "all is marked", func() bool { return total(a, b) == 2*partitions })

	shares, began := b.shares(), time.Now()
	var commits []int
	r.kafka.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.kafka.KeepControl()
		if n := shares(req.(*kmsg.OffsetCommitRequest)); n > 0 {
			commits = append(commits, n)
			r.kafka.SleepControl(func() { time.Sleep(kafkaTrip) })
		}
		return nil, nil, false
	})
	var releases []time.Duration
	r.zk.SetHook(func(q *zktest.Request) zktest.Action {
		if q.Client == "b" && slices.ContainsFunc(q.Ops, func(op zktest.Request) bool { return strings.Contains(op.Path, "/owners/") }) {
			releases = append(releases, time.Since(began))
		}
		return zktest.Action{}
	})
	b.leave()
	r.zk.SetHook(nil)
	t.Logf("commits of %d offsets, releases at %v", commits, releases)
	if !slices.Equal(commits, []int{partitions}) {
		t.Errorf("commits of %d offsets, want one of %d", commits, partitions)
	}
	if d := releases[len(releases)-1] - releases[0]; d > zookeeperTrip {
		t.Errorf("the last releases were sent %v after the first, want %v at most", d, zookeeperTrip)
	}
	b.close()
	quit(a)
}

// shares returns a function that returns how many of the partitions that the member has now a commit is about.
func (m *member) shares() func(*kmsg.OffsetCommitRequest) int {
	owned := m.owns()
	return func(req *kmsg.OffsetCommitRequest) (n int) {
		for _, of := range req.Topics {
			for _, p := range of.Partitions {
				if slices.Contains(owned, fmt.Sprintf("%s:%d", of.Topic, p.Partition)) {
					n++
				}
			}
		}
		return n
	}
}
