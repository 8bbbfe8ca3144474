package realkafka_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
)

// The first message of a partition comes at once after its claim, though the other partitions of its broker
// are idle and long polls last 10 s.
func TestOpenBesideIdlePartitions(t *testing.T) {
	t.Parallel()
	longer(t, func(t *testing.T, version string) {
		const n = 8
		r := sharedRig(t, version, n)
		r.config = memberConfig()
		r.config.Consumer.MaxWaitTime = 10 * time.Second
		r.config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()} // a claim waits for no session
		var mu sync.Mutex
		began, took := map[int32]time.Time{}, []time.Duration{}
		r.observer = func(e consumer.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e.Kind {
			case consumer.Claimed:
				began[e.Partition] = time.Now()
			case consumer.Message:
				if b := began[e.Partition]; !b.IsZero() {
					took = append(took, time.Since(b))
					delete(began, e.Partition)
				}
			default:
			}
		}
		a := r.member("a")
		until(t, "a has all", func() bool { return a.open.Load() == n })
		r.observer = nil
		byB := int64(0) // a request that was sent before a pause may bring some
		for round := range int64(3) {
			b := r.member("b")
			until(t, "both have half", func() bool { return a.open.Load() == n/2 && b.open.Load() == n/2 })
			b.group.PauseAll()
			var theirs []int32
			for p := range b.owns() {
				theirs = append(theirs, p)
			}
			r.produce(1, theirs...)
			b.leave()
			byB += b.count.Load()
			until(t, "a reads on", func() bool { return a.count.Load()+byB >= (round+1)*n/2 && a.open.Load() == n })
		}
		a.leave()
		mu.Lock()
		defer mu.Unlock()
		if len(took) == 0 {
			t.Fatal("no message was read at an opening")
		}
		slices.Sort(took)
		t.Logf("first message after the claim: %v", took)
		t.Attr("first-message-after-claim", took[len(took)/2].String())
		limit := time.Second // waiting for a long poll would take 10 s; other packages run beside this one
		if *full {
			limit = 100 * time.Millisecond // three requests to Kafka at most
		}
		if median := took[len(took)/2]; median > limit {
			t.Errorf("the first message came %v after the claim, want %v at most", median, limit)
		}
	})
}
