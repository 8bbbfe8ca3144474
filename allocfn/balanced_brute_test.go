package allocfn_test

import (
	"cmp"
	"hash/fnv"
	"math"
	"math/big"
	"math/bits"
	"slices"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

// brute is Balanced as it is defined, with none of its short cuts: all pairs are scored, sorted, and taken in order. It shares no
// code with the package.
func brute(in allocfn.Input) []int32 {
	members, partitions := in.Members, in.Partitions
	points := make([][]uint64, len(members))
	for j, m := range members {
		mk := bruteHash(m.Name)
		for v := uint64(0); v < 12; v += 2 {
			h := bruteMix(mk + v*brutePhi)
			points[j] = append(points[j], h>>34, h%(1<<32)>>2)
		}
	}
	inverses, mean := bruteScale(members)
	type pair struct {
		code, partition int
		distance, score uint64
		member          int
	}
	var pairs []pair
	for p, partition := range partitions {
		probes := bruteProbes(partition)
		for j, m := range members {
			best := uint64(math.MaxUint64)
			for _, z := range probes {
				for _, x := range points[j] {
					const round = 1 << 30
					best = min(best, (x-z)%round<<32|uint64(j), (z-x)%round<<32|(1<<32-1-uint64(j)))
				}
			}
			distance := best >> 32
			code := bruteCode(distance)
			if inverses != nil {
				high, low := bits.Mul64(distance, inverses[j])
				distance = high<<33 | low>>31
				relative, _ := bits.Mul64(distance, mean)
				code = bruteCode(relative)
			}
			if in.Zones != nil && (m.Zone == "" || m.Zone != in.Zones[partition]) {
				code += 1 << 10
			}
			pairs = append(pairs, pair{code, p, distance, best, j})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		switch {
		case a.code != b.code:
			return a.code - b.code
		case a.partition != b.partition:
			return a.partition - b.partition
		}
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.score, b.score))
	})
	quota, extras, pool := bruteQuotas(members, len(partitions))
	owner := make([]int32, len(partitions))
	for p := range owner {
		owner[p] = -1
	}
	load := make([]int, len(members))
	for _, x := range pairs {
		switch {
		case owner[x.partition] >= 0:
			continue
		case load[x.member] < quota[x.member]:
		case load[x.member] == quota[x.member] && extras[x.member] && pool > 0:
			pool--
		default:
			continue
		}
		load[x.member]++
		owner[x.partition] = int32(x.member)
	}
	return owner
}

const brutePhi = 0x9e3779b97f4a7c15

func bruteMix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return x
}

func bruteHash(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return bruteMix(h.Sum64())
}

func bruteProbes(p kiel.Partition) []uint64 {
	four := func(pk uint64) (h uint64, probes []uint64) {
		h = pk * 0xd6e8feb86659fd93
		h ^= h >> 32
		h *= brutePhi
		return h, []uint64{pk >> 34, pk % (1 << 32) >> 2, h >> 34, h % (1 << 32) >> 2}
	}
	pk := bruteMix(bruteHash(p.Topic) + uint64(p.ID)*brutePhi)
	h, probes := four(pk)
	p2 := (pk * 0xa0761d6478bd642f) ^ h
	p2 ^= p2 >> 29
	_, more := four(p2)
	return append(probes, more...)
}

func bruteCode(d uint64) int {
	if d < 16 {
		return int(d)
	}
	e := bits.Len64(d)
	return (e-4)*8 + int(d>>(e-4))
}

// bruteScale is what distances are divided by: the inverses of the members' weights, in units of 2^-63, and their mean, in units
// of 2^-32, the weights being divided by their greatest common divisor. It returns nil where all weights are equal.
func bruteScale(members []allocfn.Member) (inverses []uint64, mean uint64) {
	sum, unit, equal := new(big.Int), new(big.Int), true
	for _, m := range members {
		unit.GCD(nil, nil, unit, bruteWeight(m))
	}
	for _, m := range members {
		w := new(big.Int).Quo(bruteWeight(m), unit)
		sum.Add(sum, w)
		equal = equal && bruteWeight(m).Cmp(bruteWeight(members[0])) == 0
		inverses = append(inverses, 1<<63/w.Uint64())
	}
	if equal {
		return nil, 0
	}
	sum.Lsh(sum, 32)
	return inverses, sum.Quo(sum, big.NewInt(int64(len(members)))).Uint64()
}

// bruteQuotas rounds exact shares down and gives what is left to the largest remainders: for sure where there are enough for all
// that have as large a one, otherwise as a pool.
func bruteQuotas(members []allocfn.Member, partitions int) (quota []int, pooled []bool, pool int) {
	sum := new(big.Int)
	for _, m := range members {
		sum.Add(sum, bruteWeight(m))
	}
	quota, pooled = make([]int, len(members)), make([]bool, len(members))
	remainders := make([]*big.Int, len(members))
	pool = partitions
	for j, m := range members {
		share := new(big.Int).Mul(big.NewInt(int64(partitions)), bruteWeight(m))
		q, r := new(big.Int).DivMod(share, sum, new(big.Int))
		quota[j], remainders[j] = int(q.Int64()), r
		pool -= quota[j]
	}
	for pool > 0 {
		largest := big.NewInt(-1)
		var who []int
		for j, r := range remainders {
			if c := r.Cmp(largest); c > 0 {
				largest, who = r, []int{j}
			} else if c == 0 {
				who = append(who, j)
			}
		}
		if len(who) > pool {
			for _, j := range who {
				pooled[j] = true
			}
			break
		}
		for _, j := range who {
			quota[j]++
			pool--
			remainders[j] = big.NewInt(-2)
		}
	}
	return quota, pooled, pool
}

func bruteWeight(m allocfn.Member) *big.Int {
	return big.NewInt(int64(min(max(m.Weight, 1), 1<<31-1)))
}
