package allocfn

import "slices"

// circle holds the points of the ring in order, each place<<32 | chair, from
// index 1 on. Before them is the last one round earlier, behind them the first
// one round later.
type circle []int64

// newCircle returns the circle of some points, given in any order.
func newCircle(points []int64) circle {
	return newRing(points, 0).points[:len(points)+2]
}

// size returns how many points there are.
func (c circle) size() int { return len(c) - 2 }

func (c circle) bound() {
	n := c.size()
	c[0], c[n+1] = c[n]-ringSize, c[1]+ringSize
}

// replace takes points out and puts others in, both in order.
func (c circle) replace(out, in []int64) circle {
	points := c[1 : c.size()+1]
	from, kept := 0, 0
	for _, x := range out {
		i, _ := slices.BinarySearch(points[from:], x)
		kept += copy(points[kept:], points[from:from+i])
		from += i + 1
	}
	kept += copy(points[kept:], points[from:])
	n := kept + len(in)
	c = slices.Grow(c[:1+kept], len(in)+1)[:n+2]
	points = c[1 : n+1]
	for j, x := range slices.Backward(in) {
		i, _ := slices.BinarySearch(points[:kept], x)
		copy(points[i+j+1:], points[i:kept])
		points[i+j] = x
		kept = i
	}
	c.bound()
	return c
}

// path is a way from a probe along the circle.
type path struct {
	at   int   // the next point
	from int64 // the probe, in rounds of that point
}

// firsts returns the indices of the first points at or after some places. It
// goes the steps of binary searches for all of them together, without jumps,
// which would be guessed wrongly.
func (c circle) firsts(zs *[probeSize]int64) (at [probeSize]int) {
	at = [probeSize]int{1, 1, 1, 1, 1, 1, 1, 1}
	for n := c.size(); n > 1; {
		half := n / 2
		behind := c[half-1:]
		for v, z := range zs {
			at[v] += half & int((behind[at[v]]-z)>>63)
		}
		n -= half
	}
	for v, z := range zs {
		at[v] += int(uint64(c[at[v]]-z) >> 63)
	}
	return at
}

// follow goes to the next point, with distances from the probe.
func (c circle) follow(p *path) {
	if p.at >= c.size() {
		p.at -= c.size() // one round on, where the points are one round less
		p.from -= ringSize
	}
	p.at++
}

// precede goes to the point before.
func (c circle) precede(p *path) {
	if p.at <= 1 {
		p.at += c.size()
		p.from += ringSize
	}
	p.at--
}
