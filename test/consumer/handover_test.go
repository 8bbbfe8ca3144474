package consumer_test

import (
	"context"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/internal/eventlog"
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
	all := make([]int32, partitions)
	for i := range all {
		all[i] = int32(i)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			h.produce(1, all...)
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
