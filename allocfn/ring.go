package allocfn

import "math"

// The ring of Balanced has 2^30 places. Members have points on it, partitions have probes, and members score by the distance from
// a probe to a point.
const (
	ringBits  = 30
	ringSize  = int64(1) << ringBits << 32 // one round, in the units of ring.points
	probeSize = 8                          // probes of a partition
	pointSize = 12                         // points of a member
)

// probe returns the places of a partition's probes, shifted left by 32.
func probe(key uint64) (z [probeSize]int64) {
	probeInto(key, &z)
	return z
}

func probeInto(key uint64, z *[probeSize]int64) {
	const low = 0xfffffffc
	h := key * 0xd6e8feb86659fd93
	h ^= h >> 32
	h *= phi
	z[0], z[1] = int64(key>>34<<32), int64(key&low<<30)
	z[2], z[3] = int64(h>>34<<32), int64(h&low<<30)
	key = key*0xa0761d6478bd642f ^ h
	key ^= key >> 29
	h = key * 0xd6e8feb86659fd93
	h ^= h >> 32
	h *= phi
	z[4], z[5] = int64(key>>34<<32), int64(key&low<<30)
	z[6], z[7] = int64(h>>34<<32), int64(h&low<<30)
}

// appendPoints appends the points of a member: place<<32 | member.
func appendPoints(points []int64, member int, key uint64) []int64 {
	for v := range pointSize / 2 {
		h := fmix(key + uint64(2*v)*phi)
		points = append(points, int64(h>>34<<32)|int64(member), int64(h&0xfffffffc<<30)|int64(member))
	}
	return points
}

// score says how well a member suits a partition; smaller is better. The high word is the distance, the low word is the member,
// with all its bits inverted if its point precedes the probe.
type score int64

const worstScore = score(math.MaxInt64)

func (s score) member() int32 {
	m := int32(s)
	return m ^ m>>31
}

// crowded marks a cell of a ring that holds more than one point.
const crowded = 1 << 31

// ring finds the member nearest to a partition.
//
// points[1..n] are the points in order. points[0] is the last of them, one round earlier; the points after n are the first, one
// round later. The round is cut into equal cells, a power of two of them, two to four times as many as points; cells[c] is the
// index of the first point at or after the start of cell c.
//
// A search passes over the points of full members. They are removed when they have become two thirds of all.
type ring struct {
	points []int64
	cells  []uint32
	shift  uint
}

// size returns how many points the ring has.
func (r *ring) size() int { return len(r.points) - sentinels }

const sentinels = 3

// newRing returns the ring of the given points, in any order.
func newRing(points []int64) *ring {
	n := len(points)
	r := &ring{points: make([]int64, n+sentinels)}
	r.divide(points)
	for _, p := range points {
		c := &r.cells[p>>r.shift]
		*c--
		r.points[*c&^crowded] = p
	}
	// Order within the cells, which hold half a point on average, or less.
	for i := 2; i <= n; i++ {
		p := r.points[i]
		k := i
		for ; k > 1 && r.points[k-1] > p; k-- {
			r.points[k] = r.points[k-1]
		}
		r.points[k] = p
	}
	r.bound()
	return r
}

// divide makes cells for the points of r, given in any order. cells[c] becomes the index behind the last point of cell c.
func (r *ring) divide(points []int64) {
	r.shift = 32 + ringBits - 2
	size := 4
	for size < 2*r.size() {
		size *= 2
		r.shift--
	}
	if cap(r.cells) >= size {
		r.cells = r.cells[:size]
		clear(r.cells)
	} else {
		r.cells = make([]uint32, size)
	}
	for _, p := range points {
		r.cells[p>>r.shift]++
	}
	end := uint32(1)
	for c, count := range r.cells {
		end += count
		r.cells[c] = end | (1-count)&crowded // the bit is set if count is more than one
	}
}

// bound sets the sentinels.
func (r *ring) bound() {
	n := r.size()
	r.points[0] = r.points[n] - ringSize
	for i := n + 1; i < len(r.points); i++ {
		r.points[i] = r.points[1] + ringSize
	}
}

// block is the memory for looking up some partitions together: while the processor waits for the cells of one, it loads those of
// the others.
type block struct {
	probes [blockSize][probeSize]int64
	starts [blockSize][probeSize]uint32 // of the probes' cells
	scores [blockSize]score
	suits  [blockSize]suit
}

const blockSize = 16

// best returns the score of the member that suits the partition of this key best, full or not.
func (r *ring) best(key uint64) score {
	var starts [probeSize]uint32
	probes := probe(key)
	r.startsOf(&probes, &starts)
	return r.leastOf(&probes, &starts)
}

// bestOf returns best for each key. There are at most blockSize keys. The result is a part of b.
func (r *ring) bestOf(b *block, keys []uint64) []score {
	keys = keys[:min(len(keys), blockSize)]
	for k, key := range keys {
		probeInto(key, &b.probes[k])
		r.startsOf(&b.probes[k], &b.starts[k])
	}
	for k := range keys {
		b.scores[k] = r.leastOf(&b.probes[k], &b.starts[k])
	}
	return b.scores[:len(keys)]
}

// startsOf looks up the cells of some probes.
func (r *ring) startsOf(probes *[probeSize]int64, starts *[probeSize]uint32) {
	cells, shift := r.cells, r.shift&63
	for v, z := range probes {
		starts[v] = cells[z>>shift]
	}
}

// leastOf returns the best score of some probes and their cells.
func (r *ring) leastOf(zs *[probeSize]int64, cells *[probeSize]uint32) score {
	points := r.points
	best := uint64(worstScore)
	for v, z := range zs {
		i := cells[v]
		if i >= crowded {
			i = r.seek(z)
		}
		// One point of the cell may precede the probe. A point on the wrong side is far away as an unsigned number, so the code
		// needs no branch, which would be mispredicted.
		near := (*[3]int64)(points[i-1:])
		end := z | math.MaxUint32
		after := min(uint64(near[1]-z), uint64(near[2]-z))
		before := min(uint64(end-near[0]), uint64(end-near[1]))
		best = min(best, min(after, before))
	}
	return score(best)
}

// following returns the index of the first point at or after z, whose cell begins with start.
func (r *ring) following(start uint32, z int64) int {
	if start >= crowded {
		return int(r.seek(z))
	}
	return int(start) + int(uint64(r.points[start]-z)>>63) // the sign: one more if that point precedes z, without a branch
}

// seek returns the index of the first point at or after z.
//
//go:noinline
func (r *ring) seek(z int64) uint32 {
	i := r.cells[z>>r.shift] &^ crowded
	for r.points[i] < z {
		i++
	}
	return i
}

// bestOpen returns the score of the member that suits the partition of this key best among those with room left. There must be
// one.
func (r *ring) bestOpen(key uint64, left []int32) score {
	best := int64(worstScore)
	n := r.size()
	var zs [probeSize]int64
	probeInto(key, &zs)
	for _, z := range &zs {
		i := r.following(r.cells[z>>r.shift], z)
		from := z
		for k := i; r.points[k]-from < best; k++ {
			if p := r.points[k]; left[int32(p)] > 0 {
				best = p - from
				break
			}
			if k >= n {
				k -= n // one round on, where the points are one round less
				from -= ringSize
			}
		}
		from = z | math.MaxUint32
		for k := i - 1; from-r.points[k] < best; k-- {
			if p := r.points[k]; left[int32(p)] > 0 {
				best = from - p
				break
			}
			if k <= 1 {
				k += n
				from += ringSize
			}
		}
	}
	return score(best)
}

// compact rebuilds the ring of the members that have room left.
func (r *ring) compact(left []int32) {
	kept := 0
	for _, p := range r.points[1 : r.size()+1] {
		r.points[kept+1] = p
		if left[int32(p)] > 0 {
			kept++
		}
	}
	r.points = r.points[:kept+sentinels]
	r.arrange()
}

// arrange makes cells and sentinels for the points, which are in order.
func (r *ring) arrange() {
	points := r.points[1 : r.size()+1]
	r.divide(points)
	for _, p := range points {
		r.cells[p>>r.shift]--
	}
	r.bound()
}
