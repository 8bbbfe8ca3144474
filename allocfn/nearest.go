package allocfn

import (
	"math"
	"math/bits"
)

// bestOf returns for each key the suit of the member that suits its unit best, full or not. There are at most blockSize keys. The
// result is a part of together.
func (s *scale) bestOf(together *block, fields []field, keys []uint64) []suit {
	suits := together.suits[:min(len(keys), blockSize)]
	for k := range suits {
		probeInto(keys[k], &together.probes[k])
		suits[k] = unsuited()
	}
	for class, f := range fields {
		if f.ring == nil {
			continue
		}
		for k := range suits {
			f.ring.startsOf(&together.probes[k], &together.starts[k])
		}
		for k := range suits {
			suits[k] = s.bestIn(f.ring, &together.probes[k], &together.starts[k], class, suits[k], nil)
		}
	}
	return suits
}

// bestOpen returns the best suit of the unit of this key with the members on r that have room left, all of one class, or best if
// none is better.
func (s *scale) bestOpen(r *ring, key uint64, class int, best suit, left []int32) suit {
	var starts [probeSize]uint32
	probes := probe(key)
	r.startsOf(&probes, &starts)
	return s.bestIn(r, &probes, &starts, class, best, left)
}

// bestIn returns the best suit with the members on r, all of one class, or best if none is better. Where left is not nil, members
// must have room left. bestIn first looks at the point on either side of each probe, then at the points behind these that are
// near enough for the heaviest member of the class.
func (s *scale) bestIn(r *ring, zs *[probeSize]int64, cells *[probeSize]uint32, class int, best suit, left []int32) suit {
	var places [probeSize]int
	var near [2 * probeSize]uint64 // distances
	points, inverse, least := r.points, s.inverse, best.distance
	for v, z := range zs {
		i := r.following(cells[v], z)
		places[v] = i
		after, before := points[i], points[i-1]
		near[2*v] = scaled(uint64(after-z)>>32, inverse[int32(after)])
		near[2*v+1] = scaled(uint64(z-before+math.MaxUint32)>>32, inverse[int32(before)])
		if left != nil {
			near[2*v] |= distanceOfFull(left[int32(after)])
			near[2*v+1] |= distanceOfFull(left[int32(before)])
		}
		least = min(least, near[2*v], near[2*v+1])
	}
	for v, distance := range near {
		if distance == least && distance != math.MaxUint64 {
			i, z := places[v/2], zs[v/2]
			c := score(points[i] - z)
			if v%2 == 1 {
				c = score(z | math.MaxUint32 - points[i-1])
			}
			if t := (suit{distance, c}); t.less(best) {
				best = t
			}
		}
	}
	allowed := func(m int32) bool { return left == nil || left[m] > 0 }
	far := s.farthest(least, class)
	for v, z := range zs {
		i := places[v]
		if points[i+1]-z <= far {
			best = s.following(r, i+1, z, class, best, allowed)
		}
		if i < 2 || z-points[i-2] <= far {
			best = s.preceding(r, i-2, z, class, best, allowed)
		}
	}
	return best
}

// farthest returns how far away, in the units of a ring, a point of a class may be so that its scaled distance is no more than
// this.
func (s *scale) farthest(distance uint64, class int) int64 {
	if distance == math.MaxUint64 {
		return math.MaxInt64
	}
	// Both inverses and distances are rounded down, so that some are above.
	high, low := bits.Mul64(distance+2, s.heaviest[class])
	if high != 0 || low >= 1<<62 {
		return math.MaxInt64
	}
	return int64(low) | math.MaxUint32
}

// distanceOfFull returns a distance above all others if nothing is left, else 0.
func distanceOfFull(left int32) uint64 { return uint64(int64(left-1) >> 63) }
