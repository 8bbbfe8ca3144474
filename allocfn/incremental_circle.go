package allocfn

import (
	"math"
	"math/bits"
	"slices"
)

// circle holds points of the ring in order, each place<<32 | chair.
//
// They are in points from index 1 on. Before them is the last one round earlier,
// behind them the first one round later, some times. The round is cut into equal
// cells, a power of two of them, with one to two points each, or up to four for
// a while; starts has the index of the first point at or after the start of each.
type circle struct {
	points []int64
	shift  uint
	starts []uint32
}

// behind is how often the first point stands behind the last.
const behind = 4

// newCircle returns the circle of some points, given in any order.
func newCircle(points []int64) circle {
	c := circle{points: newRing(points, 0).points[:1+len(points)]}
	c.close()
	return c
}

// size returns how many points there are.
func (c *circle) size() int { return len(c.points) - 1 - behind }

// close is called when points has what it needs up to the last point.
func (c *circle) close() {
	c.points = slices.Grow(c.points, behind)[:len(c.points)+behind]
	c.bound()
	c.cut()
}

func (c *circle) bound() {
	n := c.size()
	c.points[0] = c.points[n] - ringSize
	for i := range behind {
		c.points[n+1+i] = c.points[1] + ringSize
	}
}

// cut makes the cells.
func (c *circle) cut() {
	n := c.size()
	parts := min(bits.Len(uint(n))-1, ringBits)
	c.shift = uint(32 + ringBits - parts)
	c.starts = slices.Grow(c.starts[:0], 1<<parts)[:1<<parts]
	i := 1
	for cell := range c.starts {
		for i <= n && c.points[i]>>c.shift < int64(cell) {
			i++
		}
		c.starts[cell] = uint32(i)
	}
}

// remove takes points out, which are in order.
func (c *circle) remove(points []int64) {
	kept, from := 1, 1
	for _, x := range points {
		i := max(from, int(c.starts[x>>c.shift]))
		for c.points[i] < x {
			i++
		}
		kept += copy(c.points[kept:], c.points[from:i])
		from = i + 1
	}
	kept += copy(c.points[kept:], c.points[from:])
	c.points = c.points[:kept]
	c.moved(points, -1)
}

// insert puts points in, which are in order.
func (c *circle) insert(points []int64) {
	end := c.size() + 1 // of those that are not at their new index yet
	c.points = slices.Grow(c.points, len(points))[:len(c.points)+len(points)]
	for j, x := range slices.Backward(points) {
		i := int(c.starts[x>>c.shift])
		for i < end && c.points[i] < x {
			i++
		}
		copy(c.points[i+j+1:], c.points[i:end])
		c.points[i+j] = x
		end = i
	}
	c.moved(points, 1)
}

// moved is called when points, which are in order, were put in or taken out.
func (c *circle) moved(points []int64, by int) {
	c.bound()
	if n, cells := c.size(), len(c.starts); n > 4*cells || n < cells/2 {
		c.cut()
		return
	}
	for i, x := range points {
		end := int64(len(c.starts) - 1)
		if i+1 < len(points) {
			end = points[i+1] >> c.shift
		}
		starts := c.starts[x>>c.shift+1 : end+1]
		for cell := range starts {
			starts[cell] += uint32(by * (i + 1))
		}
	}
}

// firsts sets at to the indices of the first points at or after some places.
func (c *circle) firsts(zs *[probeSize]int64, at *[probeSize]int) {
	points, starts, shift := c.points, c.starts, c.shift&63
	for v, z := range zs {
		i := int(starts[z>>shift])
		// Points before the place are counted without jumps, which would be
		// guessed wrongly. There are hardly ever more than four.
		near := (*[4]int64)(points[i:])
		i += int(uint64(near[0]-z)>>63) + int(uint64(near[1]-z)>>63) + int(uint64(near[2]-z)>>63) + int(uint64(near[3]-z)>>63)
		for points[i] < z {
			i++
		}
		at[v] = i
	}
}

// path is a way from a probe along the circle.
type path struct {
	at   int   // the next point
	from int64 // the probe, in rounds of that point
}

// depart sets the ways from some probes, one to the points that follow and one
// to those before, from a distance on.
func (c *circle) depart(zs *[probeSize]int64, least int64, after, before *[probeSize]path) {
	var at [probeSize]int
	if least == 0 {
		c.firsts(zs, &at)
		for v, i := range at {
			after[v], before[v] = path{i, zs[v]}, path{i - 1, zs[v] | math.MaxUint32}
		}
		return
	}
	var from [probeSize]int64
	for v, z := range zs {
		after[v].from = z
		if from[v] = z + least<<32; from[v] >= ringSize {
			from[v] -= ringSize
			after[v].from -= ringSize
		}
	}
	c.firsts(&from, &at)
	for v, i := range at {
		after[v].at = i
	}
	for v, z := range zs {
		before[v].from = z | math.MaxUint32
		if from[v] = z - (least-1)<<32; from[v] < 0 {
			from[v] += ringSize
			before[v].from += ringSize
		}
	}
	c.firsts(&from, &at)
	for v, i := range at {
		before[v].at = i - 1
	}
}

// follow goes to the next point, with distances from the probe.
func (c *circle) follow(p *path) {
	if p.at >= c.size() {
		p.at -= c.size() // one round on, where the points are one round less
		p.from -= ringSize
	}
	p.at++
}

// precede goes to the point before.
func (c *circle) precede(p *path) {
	if p.at <= 1 {
		p.at += c.size()
		p.from += ringSize
	}
	p.at--
}
