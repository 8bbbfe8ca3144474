package allocfn

import "slices"

// serveAll takes the pairs in order. A partition whose first choice is full is refused, and its best pair with a member that is
// open then comes up again in its turn. The result does not depend on cut, see sure.
func (b *balance) serveAll(cut int) {
	order, ends, ok := b.sure(cut)
	if !ok {
		cut = 0
		order, ends, _ = b.sure(cut)
	}
	if slices.Contains(b.quotas.left, 0) {
		b.closeFull()
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
	if b.home == nil {
		return codes
	}
	return allCodes
}

// sureCut returns a code below which first choices probably fill no member. The closest pairs spread over members by weight and
// chance alone, so that a member has about its share of them and hardly ever four standard deviations more.
func (b *balance) sureCut() int {
	if b.home != nil {
		return 0
	}
	sum, sure := totalOf(b.members).sum, len(b.keys)
	for i := range b.members {
		q := b.quotas.sure(i)
		q = max(0, q-4*isqrt(q))
		share, _ := exactShare(len(b.keys), shareOf(b.members[i].Weight), sum)
		sure = min(sure, int(int64(len(b.keys))*int64(q)/int64(share+1)))
	}
	if sure == 0 {
		return 0
	}
	c, left := 0, int32(sure)
	for left -= b.counts[c]; left >= 0 && c < codes-1; left -= b.counts[c] {
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

// sure assigns the partitions whose first choice has a code below cut to that member, in any order, and sorts the others by code:
// those of code c, in the order of partitions, end at ends[c]. If that fills a member, the order would have mattered: then sure
// takes all back and returns false.
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

// serve assigns a partition to the member of its pair, which has code c. If that member is full, serve assigns it to the best
// that is not, or refuses it until the code of that pair comes up.
func (b *balance) serve(p int32, c int) {
	m := b.choices[p].member()
	for b.quotas.left[m] == 0 {
		s, next := b.bestOpen(p)
		m = s.member()
		b.choices[p] = pair(next, m)
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
func (b *balance) bestOpen(p int32) (suit, int) {
	if b.home == nil {
		s := b.bestOpenOf(nowhere, p)
		return s, b.code(s)
	}
	if zone := b.home[p]; zone != nowhere {
		if s := b.bestOpenOf(zone, p); !s.none() {
			return s, b.code(s)
		}
	}
	s := b.bestOpenOf(nowhere, p)
	return s, codes + b.code(s)
}

// bestOpenOf returns the best pair of p with an open member of a zone, unsuited if there is none.
func (b *balance) bestOpenOf(zone, p int32) suit {
	best, key := unsuited(), b.keys[p]
	for class := range b.fields[zone] {
		f := &b.fields[zone][class]
		switch {
		case f.live == 0:
		case b.scale.inverse == nil:
			best = b.scale.of(f.ring.bestOpen(key, b.quotas.left))
		default:
			best = b.scale.bestOpen(f.ring, key, class, best, b.quotas.left)
		}
	}
	return best
}

// takeRefused returns the refused partitions whose best pair now has code c, in order.
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
	b.closeIn(nowhere, m)
	if b.place != nil && b.place[m] != nowhere {
		b.closeIn(b.place[m], m)
	}
}

func (b *balance) closeIn(zone, m int32) {
	f := &b.fields[zone][b.scale.classOf(m)]
	f.live--
	if f.live > 0 && 3*f.live*pointSize < f.ring.size() {
		f.ring.compact(b.quotas.left)
	}
}

// closeFull takes all members that are full out of the rings.
func (b *balance) closeFull() {
	for _, fields := range b.fields {
		for c := range fields {
			fields[c].live = 0
		}
	}
	for m, left := range b.quotas.left {
		if left == 0 {
			continue
		}
		c := b.scale.classOf(int32(m))
		b.fields[nowhere][c].live++
		if b.place != nil && b.place[m] != nowhere {
			b.fields[b.place[m]][c].live++
		}
	}
	for _, fields := range b.fields {
		for _, f := range fields {
			if f.live > 0 {
				f.ring.compact(b.quotas.left)
			}
		}
	}
}
