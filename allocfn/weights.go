package allocfn

import (
	"math"
	"slices"
)

// quotas says how many partitions members may still take.
type quotas struct {
	left   []int32 // the room of each member; that of a pooled member counts one of the pool
	pooled []bool  // the members that may take one of the pool; nil if the pool is empty
	pool   int     // how many pooled members, those that come first, may take one more each
}

// newQuotas divides this many partitions by weight: each member gets its exact share rounded down, and the largest remainders get
// the rest.
func newQuotas(members []Member, t total, partitions int) quotas {
	n := len(members)
	if t.equal() {
		return evenQuotas(n, partitions)
	}
	q := quotas{left: make([]int32, n)}
	rest := partitions
	remainders := make([]uint64, n)
	for i, m := range members {
		whole, remainder := exactShare(partitions, shareOf(m.Weight), t.sum)
		q.left[i], remainders[i] = int32(whole), remainder
		rest -= whole
	}
	if rest == 0 {
		return q
	}
	largest := slices.Sorted(slices.Values(remainders))
	mark := largest[n-rest] // the least remainder that may get one more
	q.pool = rest
	for i, r := range remainders {
		if r > mark {
			q.left[i]++
			q.pool--
		}
	}
	q.join(func(i int) bool { return remainders[i] == mark })
	return q
}

// evenQuotas divides this many units among members of equal weights.
func evenQuotas(members, units int) quotas {
	q := quotas{left: make([]int32, members), pool: units % members}
	for m := range q.left {
		q.left[m] = int32(units / members)
	}
	q.join(func(int) bool { return true })
	return q
}

// join lets the members for which pooled returns true take one of the pool.
func (q *quotas) join(pooled func(member int) bool) {
	if q.pool == 0 {
		return
	}
	q.pooled = make([]bool, len(q.left))
	for i := range q.pooled {
		if pooled(i) {
			q.pooled[i] = true
			q.left[i]++
		}
	}
}

// shareOf returns the weight that counts for a weight: 0 is 1, and 2^31-1 is the most.
func shareOf(weight int) uint64 {
	return uint64(min(max(weight, 1), math.MaxInt32))
}

// total sums up the weights of members.
type total struct {
	members             int
	sum, least, largest uint64
}

func totalOf(members []Member) total {
	t := total{members: len(members), least: math.MaxInt32}
	for i := range members {
		share := shareOf(members[i].Weight)
		t.sum += share
		t.least, t.largest = min(t.least, share), max(t.largest, share)
	}
	return t
}

// equal reports whether all weights are equal.
func (t *total) equal() bool { return t.least >= t.largest }

// exactShare returns the whole part of a weight's share of this many partitions, and the rest in units of 1/sum.
func exactShare(partitions int, weight, sum uint64) (whole int, rest uint64) {
	product := uint64(partitions) * weight // less than 2^31 times less than 2^31
	return int(product / sum), product % sum
}

// room says what is left after a member has taken a partition.
type room int

const (
	open    room = iota // the member still has room
	full                // the member is full
	drained             // the pool is empty, too: all pooled members at their quota are full
)

// take counts a partition that m takes.
func (q *quotas) take(m int32) room {
	q.left[m]--
	if q.left[m] > 0 {
		return open
	}
	if q.pooled == nil || !q.pooled[m] {
		return full
	}
	q.pool--
	if q.pool > 0 {
		return full
	}
	for i, pooled := range q.pooled {
		if pooled && q.left[i] > 0 {
			q.left[i]--
		}
	}
	q.pooled = nil
	return drained
}

// sure returns how many partitions m may take, whatever the other members do.
func (q *quotas) sure(m int) int {
	if q.pooled != nil && q.pooled[m] {
		return int(q.left[m]) - 1
	}
	return int(q.left[m])
}

// roomy reports whether every member may take one more, whatever the others do.
func (q *quotas) roomy() bool {
	for i := range q.left {
		if q.sure(i) <= 0 {
			return false
		}
	}
	return true
}
