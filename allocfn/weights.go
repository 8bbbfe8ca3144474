package allocfn

import (
	"math"
	"slices"
)

// quotas says how many partitions members may take yet.
type quotas struct {
	left   []int32 // room of each; that of a pooled member counts one of the pool
	pooled []bool  // who may take one of the pool; nil when the pool is empty
	pool   int     // partitions that go, one each, to pooled members that come first
	least  int     // the least quota
}

// newQuotas divides so many partitions by weight: exact shares rounded down,
// and the rest to the largest remainders.
func newQuotas(members []Member, t total, partitions int) quotas {
	n := len(members)
	q := quotas{left: make([]int32, n)}
	if t.equal() {
		q.least, q.pool = partitions/n, partitions%n
		for i := range q.left {
			q.left[i] = int32(q.least)
		}
		q.join(func(int) bool { return true })
		return q
	}
	rest := partitions
	remainders := make([]uint64, n)
	q.least = partitions
	for i, m := range members {
		whole, remainder := exactShare(partitions, shareOf(m.Weight), t.sum)
		q.left[i], remainders[i] = int32(whole), remainder
		rest -= whole
		q.least = min(q.least, whole)
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

// join lets some members take one of the pool.
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

// shareOf returns a weight as it counts.
func shareOf(weight int) uint64 {
	return uint64(min(max(weight, 1), math.MaxInt32))
}

// total is what the weights of members come to.
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

// equal reports whether all weights are.
func (t *total) equal() bool { return t.least >= t.largest }

// exactShare returns the whole part of what a weight has of so many partitions,
// and what is left over, in units of 1/sum.
func exactShare(partitions int, weight, sum uint64) (whole int, rest uint64) {
	product := uint64(partitions) * weight // less than 2^31 times less than 2^31
	return int(product / sum), product % sum
}

// room says what taking a partition has done.
type room int

const (
	open    room = iota // the member has room yet
	full                // it has not
	drained             // nor has any pooled member that has its quota: the pool is empty
)

// take counts a partition given to m.
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

// roomy reports whether every member has less than its quota.
func (q *quotas) roomy() bool {
	for i, left := range q.left {
		if q.pooled != nil && q.pooled[i] {
			left--
		}
		if left <= 0 {
			return false
		}
	}
	return true
}

const (
	maxPointWeight = 64      // of one member, and of
	maxPointSum    = 1 << 19 // all, unless there are more members: some 160 MB
)

// pointWeights returns how many points each member gets, in units of
// pointSize: as many as its weight, while that is at most 64 for everybody, and
// all together 2^19, which is 8,192 members of weight 64.
// Otherwise the weights are halved, rounding down but to no less than 1, as
// often as it takes, for points cost memory; shares remain exact all the same.
// Where the halving sets in, a change of the largest weight, or of the number of
// members, moves many partitions.
func pointWeights(members []Member, t total) []int {
	weights := make([]int, len(members))
	halved := t.halvings(members)
	for i := range members {
		weights[i] = pointWeight(members[i].Weight, halved)
	}
	return weights
}

// pointWeight returns a weight that was halved so often.
func pointWeight(weight, halved int) int { return int(max(1, shareOf(weight)>>halved)) }

// halvings returns how often weights are halved for points, see pointWeights.
func (t *total) halvings(members []Member) int {
	most := uint64(max(maxPointSum, t.members))
	sum, halved := t.sum, 0
	for t.largest>>halved > maxPointWeight || sum > most {
		halved++
		sum = 0
		for i := range members {
			sum += uint64(pointWeight(members[i].Weight, halved))
		}
	}
	return halved
}
