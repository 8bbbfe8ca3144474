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
	end := b.endCode()
	for c := range end {
		b.refused[c] = -1
	}
	begin := int32(0)
	for c := cut; c < end; c++ {
		if b.refused[c] < 0 && ends[c] == begin {
			continue
		}
		first, second := order[begin:ends[c]], b.takeRefused(c)
		begin = ends[c]
		for _, p := range first {
			for len(second) > 0 && second[0] < p {
				b.serve(second[0], c)
				second = second[1:]
			}
			b.serve(p, c)
		}
		for _, p := range second {
			b.serve(p, c)
		}
	}
}

// endCode returns the first code that no pair has.
func (b *balance) endCode() int {
	if b.zones.home == nil {
		return codes
	}
	return allCodes
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
	for c, end := cut, b.endCode(); c < end; c++ {
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
		b.owner[i] = p.member()
		left[p.member()]--
	}
	if cut == 0 || b.quotas.roomy() {
		return order, ends, true
	}
	for _, p := range b.choices {
		if int(p>>memberBits) < cut {
			left[p.member()]++
		}
	}
	return nil, ends, false
}

// serve gives a partition to the member of its pair, which has code c, or if that
// is full, to the best that is not, if its code is c too.
func (b *balance) serve(p int32, c int) {
	m := b.choices[p].member()
	for b.quotas.left[m] == 0 {
		s, next := b.bestOpen(p)
		m = s.member()
		b.choices[p] = pair(next, s)
		if next > c {
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
		s := b.ring.bestOpen(b.keys[p], b.quotas.left)
		return s, code(s)
	}
	if z := b.zones.home[p]; z != nowhere && b.zones.rings[z].open > 0 {
		s := b.zones.rings[z].bestOpen(b.keys[p], b.quotas.left)
		return s, code(s)
	}
	s := b.ring.bestOpen(b.keys[p], b.quotas.left)
	return s, codes + code(s)
}

// takeRefused returns the partitions whose best pair has now code c, in order.
func (b *balance) takeRefused(c int) []int32 {
	b.list = b.list[:0]
	for p := b.refused[c]; p >= 0; p = b.owner[p] {
		b.list = append(b.list, p)
	}
	if len(b.list) > 1 {
		slices.Sort(b.list)
	}
	return b.list
}

// close takes a member that is full out of the rings.
func (b *balance) close(m int32) {
	b.ring.close(b.weights[m]*pointSize, b.quotas.left)
	if b.zones.home != nil && b.zones.place[m] != nowhere {
		b.zones.rings[b.zones.place[m]].close(b.weights[m]*pointSize, b.quotas.left)
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
