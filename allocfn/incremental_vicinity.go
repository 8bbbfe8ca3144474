package allocfn

import "slices"

// vicinity holds the keys of the pairs of a member that have codes from one on
// and below another, in order, with all partitions or with those of a late index.
// Others have no part in it, so that it stays as it is, and grows, while they
// come and go.
//
// Of a partition that has several probes near points of the member there may be
// later keys than that of the pair, too, or the same once more.
type vicinity struct {
	from, to int
	seen     int // how many partitions of the late index it knows of
	keys     []key
}

// maxNear is for how many keys all vicinities together may have room, for each
// partition. Some 7 are of use; members that were in a far smaller group before
// have more.
const maxNear = 10

// forget makes all vicinities empty.
func (p *plan) forget() {
	for m := range p.chairs {
		p.chairs[m].near = nil
	}
	p.nearRoom = 0
}

// nearby returns the first key after one, before until and of a code below
// limit, of a pair of m with a partition that prefers m, or never. Nothing up to
// after is such a pair. On level 0 it looks among all partitions, on those above
// among the partitions of a late index.
func (p *plan) nearby(m int32, level int, after, until key, limit int) key {
	near := p.vicinity(m, level, after.code())
	i, _ := slices.BinarySearch(near.keys, after+1)
	for {
		for ; i < len(near.keys); i++ {
			k := near.keys[i]
			if k >= until {
				return never
			}
			// Most have a pair of a lower code. So prefers would say, too, but slower.
			if p.pairs[k.partition()].code() >= k.code() && p.prefers(k.partition(), m, k) {
				return k
			}
		}
		if near.to >= limit || keyOf(near.to, 0) >= until {
			return never
		}
		to := near.to + 1<<codeBits/2 // nearly one and a half times the distance
		if level == 0 {
			// Twice the distance, or at once to where the first choices are.
			to = max(near.to+1<<codeBits, codeOf(2*p.usual()))
		}
		p.extend(near, m, level, min(to, limit, until.code()+1))
	}
}

// maxUnseen is how many partitions a vicinity is told of one by one.
const maxUnseen = 32

// vicinity returns that of m on a level. It begins at a code, or before it and
// goes up to that at least.
func (p *plan) vicinity(m int32, level, from int) *vicinity {
	if p.nearRoom > maxNear*len(p.pairs)+1_000 {
		p.forget()
	}
	c := &p.chairs[m]
	if len(c.near) == 0 {
		c.near = make([]vicinity, 1+len(p.late))
	}
	near := &c.near[level]
	var late []int32
	if level > 0 {
		late = p.late[level-1].partitions
	}
	if from < near.from || from > near.to || len(late)-near.seen > maxUnseen {
		*near = vicinity{from: from, to: from, seen: len(late), keys: near.keys[:0]}
	}
	for _, i := range late[near.seen:] {
		if k := keyOf(code(p.score(i, m)), i); k.code() >= near.from && k.code() < near.to {
			at, _ := slices.BinarySearch(near.keys, k)
			room := cap(near.keys)
			near.keys = slices.Insert(near.keys, at, k)
			p.nearRoom += cap(near.keys) - room
		}
	}
	near.seen = len(late)
	return near
}

// extend adds the keys of codes below to to a vicinity of m.
func (p *plan) extend(near *vicinity, m int32, level, to int) {
	had, room := len(near.keys), cap(near.keys)
	near.keys = p.appendKeys(near.keys, m, level, leastDistance(near.to), leastDistance(to))
	p.nearRoom += cap(near.keys) - room
	slices.Sort(near.keys[had:])
	near.to = to
}

// appendKeys appends the keys of probes that have a distance of least or more,
// and less than end, from a point of m.
func (p *plan) appendKeys(keys []key, m int32, level int, least, end int64) []key {
	x, late := &p.index, (*lateIndex)(nil)
	if level > 0 {
		late = p.late[level-1]
		x = &late.first
	} else if x.starts == nil {
		x.build(p.keys)
	}
	low := x.shift - 32
	mask, last := placed(1<<low-1), int64(1)<<(ringBits-low)-1
	// add adds what lies from one place through another, which may be a round
	// before or after, on one side of a point.
	add := func(point, first, final int64) {
		for part := first >> low; part <= final>>low; part++ {
			for _, probe := range x.probes[x.starts[part&last]:x.starts[part&last+1]] {
				if place := part<<low | int64(probe&mask); first <= place && place <= final {
					partition := int32(probe >> low)
					if late != nil {
						partition = late.partitions[partition]
					}
					keys = append(keys, keyOf(codeOf(max(place-point, point-place)), partition))
				}
			}
			if late == nil {
				continue
			}
			for i := late.heads[part&last]; i > 0; {
				probe := &late.since[i]
				i = probe.next
				if place := part<<low | int64(probe.place&uint32(mask)); first <= place && place <= final {
					keys = append(keys, keyOf(codeOf(max(place-point, point-place)), probe.partition))
				}
			}
		}
	}
	circle := &p.chairs[m].points
	points := circle.points
	for i := 1; i <= circle.size(); i++ {
		// Beyond half the way to the next point, all is nearer to that.
		at := points[i] >> 32
		add(at, at+least, at+min(end-1, (points[i+1]-points[i])>>33))
		add(at, at-min(end-1, (points[i]-points[i-1])>>33), at-max(least, 1))
	}
	return keys
}
