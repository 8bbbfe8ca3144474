package allocfn

import "math"

// The ring of Balanced has 2^30 places. Members have points on it, partitions
// have probes, and members score by the distance from a probe to a point.
const (
	ringBits  = 30
	ringSize  = int64(1) << ringBits << 32 // one round, in the units of ring.points
	probeSize = 8                          // probes of a partition
	pointSize = 8                          // points of a member of weight 1
)

// probe returns the places of a partition's probes, shifted left by 32.
func probe(key uint64) (z [probeSize]int64) {
	h := key * 0xd6e8feb86659fd93
	h ^= h >> 32
	h *= phi
	key2 := key*0xa0761d6478bd642f ^ h
	key2 ^= key2 >> 29
	h2 := key2 * 0xd6e8feb86659fd93
	h2 ^= h2 >> 32
	h2 *= phi
	const low = 0xfffffffc
	return [...]int64{
		int64(key >> 34 << 32), int64(key & low << 30), int64(h >> 34 << 32), int64(h & low << 30),
		int64(key2 >> 34 << 32), int64(key2 & low << 30), int64(h2 >> 34 << 32), int64(h2 & low << 30),
	}
}

// appendPoints appends the points of a member: place<<32 | member.
func appendPoints(points []int64, member int, key uint64, weight int) []int64 {
	for v := range weight * pointSize / 2 {
		h := fmix(key + uint64(2*v)*phi)
		points = append(points, int64(h>>34<<32)|int64(member), int64(h&0xfffffffc<<30)|int64(member))
	}
	return points
}

// score says how well a member suits a partition, the smaller the better: in
// the high word the distance, in the low word the member, as it is when its
// point follows the probe, with all bits turned when it precedes it.
type score int64

const worstScore = score(math.MaxInt64)

func (s score) member() int32 {
	m := int32(s)
	return m ^ m>>31
}

// crowded marks a cell of a ring that holds more than two points.
const crowded = 1 << 31

// ring finds the member nearest to a partition.
//
// points[1..n] are the points in order. points[0] is the last of them one round
// earlier, points[n+1] and points[n+2] are the first one round later. A closed
// member's points hold a copy of the point before them, so that open members
// are found with no further test.
//
// The round is cut into equal cells, a power of two of them, at least twice
// the points; cells[c] is the index of the first point at or after the start
// of cell c. As points only take lesser values, a search that begins there
// stays right while members are closed.
type ring struct {
	points []int64
	cells  []uint32
	shift  uint
	open   int // members
	live   int // points of open members
}

// newRing returns the ring of the given points, in any order, of so many
// members. points needs no room.
func newRing(points []int64, members int) *ring {
	n := len(points)
	r := &ring{points: make([]int64, n+3), open: members, live: n}
	r.divide()
	cells := r.cells
	for _, p := range points {
		cells[p>>r.shift]++
	}
	end := uint32(1)
	for c, count := range cells {
		end += count
		cells[c] = end
	}
	for _, p := range points {
		c := p >> r.shift
		cells[c]--
		i := cells[c]
		r.points[i] = p
	}
	// Order within the cells, which hold less than one point on average.
	for i := 2; i <= n; i++ {
		p := r.points[i]
		k := i
		for ; k > 1 && r.points[k-1] > p; k-- {
			r.points[k] = r.points[k-1]
		}
		r.points[k] = p
	}
	r.finish()
	return r
}

// divide makes the cells for the points that r has, all zero, and one more.
func (r *ring) divide() {
	r.shift = 32 + ringBits - 2
	size := 4
	for size < 2*(len(r.points)-3) {
		size *= 2
		r.shift--
	}
	if cap(r.cells) > size {
		r.cells = r.cells[:size+1]
		clear(r.cells)
	} else {
		r.cells = make([]uint32, size+1)
	}
}

// finish sets the sentinels and marks the crowded cells.
func (r *ring) finish() {
	n := len(r.points) - 3
	r.points[0] = r.points[n] - ringSize
	r.points[n+1] = r.points[1] + ringSize
	r.points[n+2] = r.points[n+1]
	for c := range len(r.cells) - 1 {
		if r.cells[c+1]-r.cells[c] > 2 {
			r.cells[c] |= crowded
		}
	}
}

// best returns the score of the member that suits the partition of this key
// best, while no member has been closed.
func (r *ring) best(key uint64) score {
	points, cells, shift := r.points, r.cells, r.shift&63
	best := int64(worstScore)
	for _, z := range probe(key) {
		i := cells[z>>shift]
		if i >= crowded {
			i &^= crowded
			for points[i] < z {
				i++
			}
		} else {
			// The next two points may precede the probe. The sign bit counts
			// them without a jump, which would be guessed wrongly.
			two := points[i : i+2 : i+2]
			i += uint32(uint64(two[0]-z)>>63 + uint64(two[1]-z)>>63)
		}
		near := points[i-1 : i+1 : i+1]
		best = lesser(best, lesser(near[1]-z, z|math.MaxUint32-near[0]))
	}
	return score(best)
}

// lesser is min without a jump.
func lesser(x, y int64) int64 {
	d := x - y
	return y + d&(d>>63)
}

// bestOpen is best after members were closed. Some member must be open.
func (r *ring) bestOpen(key uint64) score {
	best := int64(worstScore)
	for _, z := range probe(key) {
		i := r.cells[z>>r.shift] &^ crowded
		for r.points[i] < z {
			i++
		}
		best = lesser(best, lesser(r.points[i]-z, z|math.MaxUint32-r.points[i-1]))
	}
	return score(best)
}

// close takes out a member, given its points.
func (r *ring) close(points []int64) {
	r.open--
	r.live -= len(points)
	if r.open == 0 {
		return
	}
	for _, p := range points {
		r.closePoint(p)
	}
}

func (r *ring) closePoint(p int64) {
	n := uint32(len(r.points) - 3)
	i := r.cells[p>>r.shift] &^ crowded
	for r.points[i] < p {
		i++
	}
	before := r.points[i-1]
	first := before < 0 // p is the first that is open
	for ; i <= n && r.points[i] == p; i++ {
		r.points[i] = before
	}
	if i > n { // p was the last: what comes before the first is another now
		for k, old := 0, r.points[0]; r.points[k] == old; k++ {
			r.points[k] = before - ringSize
		}
	}
	if first {
		r.points[n+1] = r.points[i] + ringSize
		r.points[n+2] = r.points[n+1]
	}
}

// size returns how many points the ring has, with closed ones.
func (r *ring) size() int { return len(r.points) - 3 }

// compact makes the ring anew of the members that have room left.
func (r *ring) compact(left []int32) {
	kept := 0
	last := int64(-1) // copies of a closed point may be of the round before
	for _, p := range r.points[1 : r.size()+1] {
		if p > last && left[int32(p)] > 0 {
			kept++
			r.points[kept] = p
			last = p
		}
	}
	r.points = r.points[:kept+3]
	r.live = kept
	r.divide()
	next := 0
	for i, p := range r.points[1 : kept+1] {
		for c := int(p >> r.shift); next <= c; next++ {
			r.cells[next] = uint32(i + 1)
		}
	}
	for ; next < len(r.cells); next++ {
		r.cells[next] = uint32(kept + 1)
	}
	r.finish()
}
