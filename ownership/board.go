package ownership

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/kielgo/kiel"
)

// board is where the loop shows the claims that it holds.
type board struct {
	metrics *metrics

	mu     sync.Mutex
	claims map[kiel.Partition]OwnedClaim
}

func newBoard(m *metrics) *board {
	return &board{metrics: m, claims: map[kiel.Partition]OwnedClaim{}}
}

func (b *board) put(info OwnedClaim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := kiel.Partition{Topic: info.Topic, ID: info.Partition}
	if _, ok := b.claims[id]; !ok {
		b.metrics.owned.add(id.Topic, 1)
	}
	b.claims[id] = info
}

func (b *board) remove(id kiel.Partition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.claims[id]; !ok {
		return
	}
	delete(b.claims, id)
	b.metrics.owned.add(id.Topic, -1)
}

func (b *board) list() []OwnedClaim {
	b.mu.Lock()
	list := make([]OwnedClaim, 0, len(b.claims))
	for _, info := range b.claims {
		list = append(list, info)
	}
	b.mu.Unlock()
	slices.SortFunc(list, func(x, y OwnedClaim) int {
		return cmp.Or(strings.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	return list
}
