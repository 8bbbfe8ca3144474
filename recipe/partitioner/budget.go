package partitioner

import (
	"fmt"
	"slices"

	"github.com/kielgo/kiel/session"
)

// contender is as long as the name of any contender for a lock without its sequence number.
const contender = "0123456789abcdef0123456789abcdef" + lockWord

// size returns how many bytes of the session's budget of ephemeral znodes our contender for the item takes, at most.
func (p *SetPartitioner) size(item string) int {
	return p.sess.EphemeralSize(session.Join(p.locks[item].Path(), contender), session.EphemeralSequential)
}

// mostItems returns for how many items, whichever they are, the session can hold the locks.
func (p *SetPartitioner) mostItems() int {
	var sizes []int
	for item := range p.locks {
		sizes = append(sizes, p.size(item))
	}
	slices.Sort(sizes)
	most, used := 0, 0
	for _, size := range slices.Backward(sizes) {
		if used += size; used > p.room {
			break
		}
		most++
	}
	return most
}

// fits returns an error if the session can't hold the locks of all items of a share.
func (p *SetPartitioner) fits(share []string) error {
	need := 0
	for _, item := range share {
		need += p.size(item)
	}
	if need <= p.room {
		return nil
	}
	return fmt.Errorf("a share of %d items takes %d bytes of paths, and there is room for %d, which is enough for any %d of the items: %w",
		len(share), need, p.room, p.mostItems(), session.ErrEphemeralBudget)
}
