package allocfn

import (
	"math"
	"math/bits"
	"slices"
)

// scale divides distances by weights, so that how well a member suits a unit depends on these two alone. Members are searched
// class by class; those of a class have about the same weight, or differ so little in sum that searching them together is
// quicker.
type scale struct {
	inverse  []uint64 // by member: the inverse of its weight, see inverseOf; nil if all are equal
	class    []uint8  // by member: its class; nil if all are equal
	heaviest []uint64 // by class: the heaviest weight; classes are sorted by it, falling
	least    []uint64 // by class: the inverse of its heaviest weight
	mean     uint64   // the mean of the weights, in units of 2^-32
}

// newScale returns the scale of the members' weights.
func newScale(members []Member) scale {
	t := totalOf(members)
	if t.equal() {
		return scale{heaviest: []uint64{1}, least: []uint64{inverseOf(1)}}
	}
	members = inLargestUnit(members)
	t = totalOf(members) // in that unit
	s := scale{inverse: make([]uint64, len(members)), class: make([]uint8, len(members))}
	high, low := bits.Mul64(t.sum, 1<<32)
	s.mean, _ = bits.Div64(high, low, uint64(len(members)))
	class := s.classes(members, t.sum)
	for i, m := range members {
		w := shareOf(m.Weight)
		s.inverse[i], s.class[i] = inverseOf(w), class[bits.Len64(w)]
	}
	return s
}

// inLargestUnit returns members whose weights are as small as whole numbers of the same proportions can be, so that rounding does
// not depend on the unit of the weights.
func inLargestUnit(members []Member) []Member {
	unit := uint64(0) // the greatest common divisor
	for i := range members {
		for w := shareOf(members[i].Weight); w > 0; {
			unit, w = w, unit%w
		}
		if unit == 1 {
			return members
		}
	}
	members = slices.Clone(members)
	for i := range members {
		members[i].Weight = int(shareOf(members[i].Weight) / unit)
	}
	return members
}

// maxClass bounds the members of a class: their number times the heaviest weight is at most this multiple of the sum of all
// weights.
const maxClass = 16

// classes makes the classes, as few as are quick to search, and returns the class of weights by their number of bits. Looking up
// a class takes about as long as passing over several points of one; and a search passes over more points, the more light members
// there are in the class of a heavy one.
func (s *scale) classes(members []Member, sum uint64) (class [32]uint8) {
	var heaviest, counts [32]uint64 // of the weights with so many bits
	for _, m := range members {
		w := shareOf(m.Weight)
		b := bits.Len64(w)
		heaviest[b] = max(heaviest[b], w)
		counts[b]++
	}
	first, count := uint64(0), uint64(0) // the last class: its heaviest weight, its number of members
	for b := len(heaviest) - 1; b > 0; b-- {
		if counts[b] == 0 {
			continue
		}
		if count += counts[b]; first == 0 || count*first > maxClass*sum {
			first, count = heaviest[b], counts[b]
			s.heaviest, s.least = append(s.heaviest, first), append(s.least, inverseOf(first))
		}
		class[b] = uint8(len(s.least) - 1)
	}
	return class
}

// inverseOf returns 2^63 over the weight, which is at least 2^32.
func inverseOf(weight uint64) uint64 { return 1 << 63 / weight }

// scaled returns a distance, which is at most 2^30, divided by a weight given by its inverse, in units of 2^-32. Different
// distances stay different.
func scaled(distance, inverse uint64) uint64 {
	high, _ := bits.Mul64(distance<<33, inverse)
	return high
}

// classOf returns the class of a member.
func (s *scale) classOf(m int32) uint8 {
	if s.class == nil {
		return 0
	}
	return s.class[m]
}

// suit says how well a member suits a unit, the smaller the better.
type suit struct {
	distance uint64 // scaled
	score    score
}

// unsuited returns the suit of no member, which is worse than all others.
func unsuited() suit { return suit{math.MaxUint64, worstScore} }

func (s suit) none() bool { return s.score == worstScore }

func (s suit) member() int32 { return s.score.member() }

func (s suit) less(t suit) bool {
	return s.distance < t.distance || s.distance == t.distance && s.score < t.score
}

// of returns the suit of a member's score.
func (s *scale) of(c score) suit {
	inverse := s.least[0]
	if s.inverse != nil {
		inverse = s.inverse[c.member()]
	}
	return suit{scaled(uint64(c)>>32, inverse), c}
}

// rank returns the distance as it is compared between units: the distance itself if all weights are equal, else its first 26 bits
// behind their exponent.
func (s *scale) rank(t suit) uint32 {
	if s.inverse == nil {
		return uint32(t.score >> 32)
	}
	e := max(bits.Len64(t.distance)-26, 0)
	return uint32(e)<<25 + uint32(t.distance>>e)
}

// field holds the members of one zone and one class.
type field struct {
	ring *ring // the members with room, and some that had room; nil for none
	live int   // how many members have room
}

// newFields returns the fields by zone and by class of members with these points.
func newFields(points []int64, s scale, place []int32, zones int) [][]field {
	classes := len(s.least)
	zones = max(1, zones)
	parts := make([][]int64, zones*classes)
	if len(parts) == 1 {
		parts[0] = points
	} else {
		for _, p := range points {
			m := int32(p)
			c := int(s.classOf(m))
			parts[c] = append(parts[c], p)
			if place != nil && place[m] != nowhere {
				c += int(place[m]) * classes
				parts[c] = append(parts[c], p)
			}
		}
	}
	fields := make([][]field, zones)
	for k, part := range parts {
		var f field
		if len(part) > 0 {
			f = field{newRing(part), len(part) / pointSize}
		}
		fields[k/classes] = append(fields[k/classes], f)
	}
	return fields
}

// field returns the field of a member in a zone, which may be that of all members.
func (g *matching) field(zone, m int32) *field { return &g.fields[zone][g.scale.classOf(m)] }

// count counts the members with room.
func (g *matching) count() {
	for _, fields := range g.fields {
		for c := range fields {
			fields[c].live = 0
		}
	}
	for m := range g.room.left {
		if !g.live(int32(m)) {
			continue
		}
		g.field(nowhere, int32(m)).live++
		if g.place != nil && g.place[m] != nowhere {
			g.field(g.place[m], int32(m)).live++
		}
	}
}

// zone returns the zone in which u is looked for.
func (g *matching) zone(u int32) int32 {
	if g.home == nil {
		return nowhere
	}
	return g.home[u]
}

// first returns the suit of the best pair of u. Where all weights are equal, that pair need not be allowed.
func (g *matching) first(u int32) suit {
	if g.scale.inverse != nil {
		return g.nearest(u)
	}
	return g.scale.of(g.fields[g.zone(u)][0].ring.best(g.keys[u]))
}

// nearest returns the suit of the best pair of u that is allowed, unsuited if there is none.
func (g *matching) nearest(u int32) suit {
	allowed := func(m int32) bool { return g.allowed(u, m) }
	if zone := g.zone(u); zone != nowhere {
		if s := g.nearestIn(zone, u, allowed); !s.none() {
			return s
		}
		g.home[u] = nowhere // for good
	}
	return g.nearestIn(nowhere, u, allowed)
}

// nearestIn is nearest among the members of a zone that have room and are allowed to take u.
func (g *matching) nearestIn(zone, u int32, allowed func(m int32) bool) suit {
	best := unsuited()
	for c := range g.fields[zone] {
		f := &g.fields[zone][c]
		if f.live == 0 {
			continue
		}
		if old := f.ring; 2*f.live*pointSize < old.size() {
			points := make([]int64, 0, f.live*pointSize)
			for _, p := range old.points[1 : old.size()+1] {
				if g.live(int32(p)) {
					points = append(points, p)
				}
			}
			f.ring = newRing(points)
		}
		best = g.scale.nearest(f.ring, g.keys[u], c, best, allowed)
	}
	return best
}

// nearest returns the best suit of the allowed members on r, which are of one class, or best if none is better.
func (s *scale) nearest(r *ring, key uint64, class int, best suit, allowed func(m int32) bool) suit {
	for _, z := range probe(key) {
		i := int(r.cells[z>>r.shift] &^ crowded)
		for r.points[i] < z {
			i++
		}
		best = s.following(r, i, z, class, best, allowed)
		if best.none() { // it has looked at all points
			return best
		}
		best = s.preceding(r, i-1, z, class, best, allowed)
	}
	return best
}

// following looks at the points from point i on, as seen from z, while they can be better than best.
func (s *scale) following(r *ring, i int, z int64, class int, best suit, allowed func(m int32) bool) suit {
	n := r.size()
	for range n {
		if i > n {
			i -= n
			z -= ringSize
		}
		c := score(r.points[i] - z)
		if scaled(uint64(c)>>32, s.least[class]) > best.distance {
			break
		}
		if t := s.of(c); t.less(best) && allowed(c.member()) {
			best = t
		}
		i++
	}
	return best
}

// preceding looks at the points before i, as following does in the other direction.
func (s *scale) preceding(r *ring, i int, z int64, class int, best suit, allowed func(m int32) bool) suit {
	n := r.size()
	for range n {
		if i < 1 {
			i += n
			z += ringSize
		}
		c := score(z | math.MaxUint32 - r.points[i])
		if scaled(uint64(c)>>32, s.least[class]) > best.distance {
			break
		}
		if t := s.of(c); t.less(best) && allowed(c.member()) {
			best = t
		}
		i--
	}
	return best
}
