package ownership

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/kielgo/kiel/allocfn"
)

// board is where the loop shows the claims that it holds.
type board struct {
	metrics *metrics

	mu     sync.Mutex
	claims map[allocfn.Partition]Info
	topics map[string]int
}

func newBoard(m *metrics) *board {
	return &board{metrics: m, claims: map[allocfn.Partition]Info{}, topics: map[string]int{}}
}

func (b *board) put(info Info) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := allocfn.Partition{Topic: info.Topic, ID: info.Partition}
	if _, ok := b.claims[id]; !ok {
		b.topics[id.Topic]++
		b.metrics.owned.WithLabelValues(id.Topic).Set(float64(b.topics[id.Topic]))
	}
	b.claims[id] = info
}

func (b *board) remove(id allocfn.Partition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.claims[id]; !ok {
		return
	}
	delete(b.claims, id)
	b.topics[id.Topic]--
	if b.topics[id.Topic] > 0 {
		b.metrics.owned.WithLabelValues(id.Topic).Set(float64(b.topics[id.Topic]))
		return
	}
	delete(b.topics, id.Topic)
	b.metrics.owned.DeleteLabelValues(id.Topic)
}

func (b *board) list() []Info {
	b.mu.Lock()
	list := make([]Info, 0, len(b.claims))
	for _, info := range b.claims {
		list = append(list, info)
	}
	b.mu.Unlock()
	slices.SortFunc(list, func(x, y Info) int {
		return cmp.Or(strings.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	return list
}
