package allocfn

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
)

// bruteRoom says how many of some units members may take, told the plain way.
type bruteRoom struct {
	has, base []int
	more      []bool // who may take one more
	pool      int    // how many may
}

// bruteShares gives every member its share of so many units, rounded down, and lets those that have a rest take one more; or,
// when largest is set, those with the largest rests, and those alone that have the least of these by choice.
func bruteShares(weights []uint64, units int, largest bool) *bruteRoom {
	n := len(weights)
	r := &bruteRoom{has: make([]int, n), base: make([]int, n), more: make([]bool, n), pool: units}
	sum := uint64(0)
	for _, w := range weights {
		sum += w
	}
	rests := make([]uint64, n)
	for m, w := range weights {
		r.base[m] = int(uint64(units) * w / sum)
		r.pool -= r.base[m]
		rests[m] = uint64(units) * w % sum
		r.more[m] = rests[m] > 0
	}
	if largest && r.pool > 0 {
		mark := slices.Sorted(slices.Values(rests))[n-r.pool]
		for m, rest := range rests {
			r.more[m] = rest == mark
			if rest > mark {
				r.base[m]++
				r.pool--
			}
		}
	}
	return r
}

func (r *bruteRoom) allowed(m int) bool {
	return r.has[m] < r.base[m] || r.has[m] == r.base[m] && r.more[m] && r.pool > 0
}

func (r *bruteRoom) take(m int) {
	if r.has[m] >= r.base[m] {
		r.pool--
	}
	r.has[m]++
}

// bruteRank is how distances are compared, of one unit exactly and of two units.
func bruteRank(distance int64, weight uint64, equal bool) (exact, rank int64) {
	if equal {
		return distance, distance
	}
	inverse := new(big.Int).Quo(new(big.Int).Lsh(big.NewInt(1), 63), new(big.Int).SetUint64(weight))
	d := new(big.Int).Rsh(new(big.Int).Mul(big.NewInt(distance), inverse), 31)
	first := new(big.Int).Set(d)
	shift := max(d.BitLen()-26, 0)
	first.Lsh(first.Rsh(first, uint(shift)), uint(shift))
	return d.Int64(), first.Int64()
}

// bruteMatch is what match does, told the plain way: all pairs, sorted, one by one. topics holds each unit's topic, or is nil;
// near says who is in one zone.
func bruteMatch(keys, names, weights []uint64, topics []int, near func(u, m int) bool) []int32 {
	type pair struct {
		far, rank, unit, exact, score int64
		member                        int
	}
	equal := len(slices.Compact(slices.Clone(weights))) == 1
	unit := new(big.Int)
	for _, w := range weights {
		unit.GCD(nil, nil, unit, new(big.Int).SetUint64(w))
	}
	var all []pair
	for u, key := range keys {
		for m, name := range names {
			least := int64(math.MaxInt64)
			for _, z := range probe(key) {
				for _, p := range appendPoints(nil, 0, name) {
					const round = 1<<ringBits - 1
					least = min(least, (p>>32-z>>32)&round<<32|int64(m), (z>>32-p>>32)&round<<32|(math.MaxUint32-int64(m)))
				}
			}
			p := pair{far: 1, unit: int64(u), score: least, member: m}
			p.exact, p.rank = bruteRank(least>>32, weights[m]/unit.Uint64(), equal)
			if near(u, m) {
				p.far = 0
			}
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b pair) int {
		return slices.Compare([]int64{a.far, a.rank, a.unit, a.exact, a.score}, []int64{b.far, b.rank, b.unit, b.exact, b.score})
	})
	total := bruteShares(weights, len(keys), true) // for more than is due
	var rooms []*bruteRoom
	for t := 0; slices.Contains(topics, t); t++ {
		count := 0
		for _, topic := range topics {
			if topic == t {
				count++
			}
		}
		room := bruteShares(weights, count, false)
		for m, due := range room.base {
			total.base[m] -= due
		}
		rooms = append(rooms, room)
	}
	owner := make([]int32, len(keys))
	for u := range owner {
		owner[u] = -1
	}
	for _, p := range all {
		due := false
		if topics != nil {
			room := rooms[topics[p.unit]]
			due = room.has[p.member] < room.base[p.member]
			if owner[p.unit] >= 0 || !room.allowed(p.member) || !due && !total.allowed(p.member) {
				continue
			}
			room.take(p.member)
		} else if owner[p.unit] >= 0 || !total.allowed(p.member) {
			continue
		}
		owner[p.unit] = int32(p.member)
		if !due {
			total.take(p.member)
		}
	}
	return owner
}

func drawMembers(t *rapid.T, most int) (in Input, names []uint64) {
	for m := range rapid.IntRange(1, most).Draw(t, "members") {
		name := rapid.StringMatching(`[a-z]{8}`).Draw(t, "name")
		in.Members = append(in.Members, Member{Name: name})
		names = append(names, hashName(name)) // often some are equal
		if m > 0 && rapid.IntRange(0, 5).Draw(t, "alike") == 0 {
			names[m] = names[m-1]
		}
	}
	return in, names
}

func TestMatchIsBrute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, names := drawMembers(t, 30)
		n := len(names)
		for i := range rapid.IntRange(1, 60).Draw(t, "partitions") {
			in.Partitions = append(in.Partitions, kiel.Partition{Topic: "t", ID: int32(i)})
		}
		g := newMatching(hashPartitions(in.Partitions))
		g.admit(pointsOf(names), evenQuotas(n, len(g.keys)), newScale(nil), zones{})
		want := bruteMatch(g.keys, names, slices.Repeat([]uint64{1}, n), nil, func(int, int) bool { return false })
		if stuck := g.match(); !slices.Equal(g.owner, want) || len(stuck) > 0 {
			t.Fatalf("got %v and stuck %v, want %v", g.owner, stuck, want)
		}
	})
}
