package allocfn

import "slices"

// replace takes points out of the ring and puts others in, both in order. Cells
// may be crowded without being marked then.
func (r *ring) replace(out, in []int64) {
	points := r.points[1 : r.size()+1]
	from, kept := 0, 0
	for _, x := range out {
		i, _ := slices.BinarySearch(points[from:], x)
		kept += copy(points[kept:], points[from:from+i])
		from += i + 1
	}
	kept += copy(points[kept:], points[from:])
	r.live = kept + len(in)
	r.points = slices.Grow(r.points[:1+kept], len(in)+sentinels)[:r.live+sentinels]
	points = r.points[1 : r.live+1]
	for j, x := range slices.Backward(in) {
		i, _ := slices.BinarySearch(points[:kept], x)
		copy(points[i+j+1:], points[i:kept])
		points[i+j] = x
		kept = i
	}
	if cells := len(r.cells); cells < 2*r.live || cells >= 4*r.live {
		r.arrange()
		return
	}
	r.bound()
	// The cells behind a point that is new begin one later.
	shift, next := uint32(0), 0
	for len(in)+len(out) > 0 {
		step, x := uint32(1), int64(0)
		if len(out) == 0 || len(in) > 0 && in[0] < out[0] {
			x, in = in[0], in[1:]
		} else {
			x, out, step = out[0], out[1:], ^uint32(0)
		}
		for c := int(x >> r.shift); next <= c; next++ {
			r.cells[next] += shift
		}
		shift += step
	}
	for ; next < len(r.cells); next++ {
		r.cells[next] += shift
	}
}
