package offsets

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

func TestReadsThatWaitTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &MemoryStore{Block: make(chan struct{}), offsets: map[kiel.Partition]Stored{tp("t", 3): {Offset: 33}}}
		r := NewReader(store)
		ctx, cancel := context.WithCancel(t.Context())
		go r.Run(ctx)
		results := make(chan int64, 10)
		for i := range int32(10) {
			go func() {
				s, err := r.Get(t.Context(), tp("t", i))
				noerr.Want(t, err)
				results <- s.Offset
			}()
			if i == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		close(store.Block)
		var got []int64
		for range 10 {
			got = append(got, <-results)
		}
		slices.Sort(got)
		if got[0] != -1 || got[9] != 33 || len(store.Fetches()) != 2 {
			t.Errorf("got %v in %d requests", got, len(store.Fetches()))
		}
		cancel()
		<-r.done
		if _, err := r.Get(t.Context(), tp("t", 0)); !errors.Is(err, ErrEnded) {
			t.Errorf("get after the end: %v", err)
		}
	})
}

// The offsets of a topic tell whether the group has begun on it, when, and with how many partitions: the smallest number that
// commits of the same topic have, and their earliest time.
func TestBeginning(t *testing.T) {
	id, other := sarama.Uuid{1}, sarama.Uuid{2}
	ps := []kiel.Partition{tp("t", 0), tp("t", 1), tp("t", 2)}
	early, late := time.UnixMilli(1000), time.UnixMilli(2000)
	for name, c := range map[string]struct {
		stored []Stored
		want   Beginning
	}{
		"nothing is stored":              {nil, Beginning{}},
		"deleted":                        {[]Stored{{Offset: -1, TopicID: id}}, Beginning{}},
		"by an older version":            {[]Stored{{TopicID: id, Ours: true}, {TopicID: id, Ours: true}}, Beginning{Stored: true}},
		"by another program":             {[]Stored{{Offset: 7}}, Beginning{Stored: true}},
		"some by an older version":       {[]Stored{{TopicID: id, Ours: true}, {TopicID: id, FirstPartitions: 4}}, Beginning{true, 4, time.Time{}}},
		"the smallest":                   {[]Stored{{TopicID: id, FirstPartitions: 8}, {TopicID: id, FirstPartitions: 4}, {TopicID: id, FirstPartitions: 6}}, Beginning{true, 4, time.Time{}}},
		"of a topic that was deleted":    {[]Stored{{TopicID: other, FirstPartitions: 2, Began: early}, {TopicID: id, FirstPartitions: 8, Began: late}}, Beginning{true, 8, late}},
		"of the topic before alone":      {[]Stored{{TopicID: other, FirstPartitions: 2, Began: early}}, Beginning{Stored: true}},
		"of a topic whose id is unknown": {[]Stored{{FirstPartitions: 2, Began: early}, {TopicID: id, FirstPartitions: 8}}, Beginning{true, 2, early}},
		"copied from another cluster":    {[]Stored{{TopicID: other, FirstPartitions: 2, Place: mirrored, Began: early}, {TopicID: id, FirstPartitions: 8}}, Beginning{true, 2, time.Time{}}},
		"copied, and more than here":     {[]Stored{{TopicID: other, FirstPartitions: 8, Place: mirrored}, {TopicID: id, Place: here}}, Beginning{true, 3, time.Time{}}},
		"copied, without a number":       {[]Stored{{TopicID: other, Place: mirrored}}, Beginning{Stored: true}},
		"the earliest":                   {[]Stored{{TopicID: id, Began: late}, {TopicID: id, Began: early}, {TopicID: id}}, Beginning{Stored: true, At: early}},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			store := &MemoryStore{}
			for i, s := range c.stored {
				store.Set(map[kiel.Partition]Stored{ps[i]: s})
			}
			r := NewReader(store)
			go r.Run(t.Context())
			if got, err := r.Beginning(t.Context(), Topic{"t", id, here.Cluster, []int32{0, 1, 2}}); got != c.want || err != nil {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

// All partitions of a topic ask for the group's beginning on it.
func BenchmarkBeginning(b *testing.B) {
	const n = 4000
	topic := Topic{Name: "t"}
	for i := range int32(n) {
		topic.Partitions = append(topic.Partitions, i)
	}
	r := NewReader(&MemoryStore{Delay: 20 * time.Millisecond})
	go r.Run(b.Context())
	for b.Loop() {
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				if _, err := r.Beginning(b.Context(), topic); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
	}
}
