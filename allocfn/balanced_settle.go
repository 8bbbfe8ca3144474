package allocfn

import "slices"

// settle takes the pairs in order: the first choices, and for a partition that
// was refused, its best pair with a member that is open then. The result does
// not depend on cut, see sure.
func (b *balance) settle(cut int) {
	order, ends, ok := b.sure(cut)
	if !ok {
		cut = 0
		order, ends, _ = b.sure(cut)
	}
	if b.quotas.least == 0 {
		b.closeFull() // some may have no quota at all
	}
	for c := range b.refused {
		b.refused[c] = -1
	}
	begin := int32(0)
	for c := cut; c < allCodes; c++ {
		first, second := order[begin:ends[c]], b.takeRefused(c)
		begin = ends[c]
		for len(first) > 0 && len(second) > 0 {
			if first[0] < second[0] {
				b.serve(first[0], c)
				first = first[1:]
			} else {
				b.serve(second[0], c)
				second = second[1:]
			}
		}
		for _, p := range first {
			b.serve(p, c)
		}
		for _, p := range second {
			b.serve(p, c)
		}
	}
}

// sureCut returns a code below which first choices fill nobody, probably. The
// closest pairs spread over members by chance alone, so that a member has about
// the mean and hardly ever four deviations more.
func (b *balance) sureCut() int {
	q := b.quotas.least
	if b.zones.home != nil || q <= 4*isqrt(q) {
		return 0
	}
	sure := int32(int64(len(b.keys)) * int64(q-4*isqrt(q)) / int64(q))
	c := 0
	for sure -= b.counts[c]; sure >= 0; sure -= b.counts[c] {
		c++
	}
	return c
}

func isqrt(x int) int {
	r := 0
	for bit := 1 << 15; bit > 0; bit >>= 1 {
		if t := r | bit; t*t <= x {
			r = t
		}
	}
	return r
}

// sure gives the partitions whose first choice has a code below cut to that,
// in any order, and sorts the others by code: those of code c, in the order of
// partitions, end at ends[c]. When a member is full before it comes to them,
// the order would have mattered; then it takes all back and returns false.
func (b *balance) sure(cut int) (order []int32, ends [allCodes]int32, ok bool) {
	n := int32(0)
	for c := cut; c < allCodes; c++ {
		ends[c] = n
		n += b.counts[c]
	}
	order = make([]int32, n)
	left := b.quotas.left
	for i, p := range b.choices {
		c := int(p >> memberBits)
		if c >= cut {
			order[ends[c]] = int32(i)
			ends[c]++
			continue
		}
		m := int32(p & memberMask)
		b.owner[i] = m
		left[m]--
	}
	if cut == 0 || b.quotas.roomy() {
		return order, ends, true
	}
	for _, p := range b.choices {
		if int(p>>memberBits) < cut {
			left[p&memberMask]++
		}
	}
	return nil, ends, false
}

// serve gives partition p away if its pair of code c is its best.
func (b *balance) serve(p int32, c int) {
	m := int32(b.choices[p] & memberMask)
	for b.quotas.left[m] == 0 {
		s, next := b.bestOpen(p)
		m = s.member()
		if next > c {
			b.choices[p] = pair(next, s)
			b.owner[p] = b.refused[next]
			b.refused[next] = p
			return
		}
	}
	b.owner[p] = m
	switch b.quotas.take(m) {
	case full:
		b.close(m)
	case drained:
		b.closeFull()
	case open:
	}
}

// bestOpen returns the best pair of p with an open member, and its code.
func (b *balance) bestOpen(p int32) (score, int) {
	if b.zones.home == nil {
		s := b.ring.bestOpen(b.keys[p])
		return s, code(s)
	}
	if z := b.zones.home[p]; z != nowhere && b.zones.rings[z].open > 0 {
		s := b.zones.rings[z].bestOpen(b.keys[p])
		return s, code(s)
	}
	s := b.ring.bestOpen(b.keys[p])
	return s, codes + code(s)
}

// takeRefused returns the partitions whose best pair has now code c, in order.
func (b *balance) takeRefused(c int) []int32 {
	b.list = b.list[:0]
	for p := b.refused[c]; p >= 0; p = b.owner[p] {
		b.list = append(b.list, p)
	}
	slices.Sort(b.list)
	return b.list
}

// close takes a member that is full out of the rings.
func (b *balance) close(m int32) {
	b.points = appendPoints(b.points[:0], int(m), b.seeds[m], b.weights[m])
	b.closeIn(b.ring)
	if b.zones.home != nil && b.zones.place[m] != nowhere {
		b.closeIn(b.zones.rings[b.zones.place[m]])
	}
}

func (b *balance) closeIn(r *ring) {
	r.close(b.points)
	if r.open > 0 && 2*r.live < r.size() {
		r.compact(b.quotas.left)
	}
}

// closeFull takes all members that are full out of the rings.
func (b *balance) closeFull() {
	b.ring.open = 0
	for _, left := range b.quotas.left {
		if left > 0 {
			b.ring.open++
		}
	}
	b.ring.compact(b.quotas.left)
	if b.zones.home == nil {
		return
	}
	for _, r := range b.zones.rings[1:] {
		r.open = 0
	}
	for m, left := range b.quotas.left {
		if z := b.zones.place[m]; left > 0 && z != nowhere {
			b.zones.rings[z].open++
		}
	}
	for _, r := range b.zones.rings[1:] {
		r.compact(b.quotas.left)
	}
}
