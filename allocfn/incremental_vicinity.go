package allocfn

import "slices"

// vicinity holds the keys of the pairs of a member that have codes from one on
// and below another, in order. Others have no part in it, so that it stays as it
// is, and grows, while they come and go.
//
// Of a partition that has several probes near points of the member there may be
// later keys than that of the pair, too, or the same once more.
type vicinity struct {
	from, to int
	keys     []key
}

// maxNear is for how many keys all vicinities together may have room, for each
// partition. Some 7 are of use; members that were in a far smaller group before
// have more.
const maxNear = 10

// forget makes all vicinities empty.
func (p *plan) forget() {
	for m := range p.chairs {
		p.chairs[m].near = vicinity{}
	}
	p.nearRoom = 0
}

// nearby returns the first key after one, before until and of a code below
// limit, of a pair of m with a partition that prefers m, or never. Nothing up to
// after is such a pair.
func (p *plan) nearby(m int32, after, until key, limit int) key {
	if p.nearRoom > maxNear*len(p.pairs)+1_000 {
		p.forget()
	}
	near := &p.chairs[m].near
	if c := after.code(); c < near.from || c > near.to {
		*near = vicinity{c, c, near.keys[:0]}
	}
	i, _ := slices.BinarySearch(near.keys, after+1)
	for {
		for ; i < len(near.keys); i++ {
			k := near.keys[i]
			if k >= until {
				return never
			}
			if p.prefers(k.partition(), m, k) {
				return k
			}
		}
		if near.to >= limit || keyOf(near.to, 0) >= until {
			return never
		}
		// To twice the distance, or at once to where the first choices are.
		usual := codeOf(1 << ringBits / int64(2*probeSize*p.circle.size()))
		p.extend(m, min(max(near.to+1<<codeBits, usual), limit))
	}
}

// extend adds the keys of codes below to to the vicinity of m.
func (p *plan) extend(m int32, to int) {
	near := &p.chairs[m].near
	had, room := len(near.keys), cap(near.keys)
	near.keys = p.appendKeys(near.keys, m, leastDistance(near.to), leastDistance(to))
	p.nearRoom += cap(near.keys) - room
	slices.Sort(near.keys[had:])
	near.to = to
}

// appendKeys appends the keys of probes that have a distance of least or more,
// and less than end, from a point of m.
func (p *plan) appendKeys(keys []key, m int32, least, end int64) []key {
	p.index.build(p.keys)
	x := &p.index
	low := x.shift - 32
	mask, last := placed(1<<low-1), int64(1)<<(ringBits-low)-1
	points := p.chairs[m].points
	// add adds what lies from one place through another, which may be a round
	// before or after, on one side of a point.
	add := func(point, first, final int64) {
		for part := first >> low; part <= final>>low; part++ {
			for _, probe := range x.probes[x.starts[part&last]:x.starts[part&last+1]] {
				if place := part<<low | int64(probe&mask); first <= place && place <= final {
					keys = append(keys, keyOf(codeOf(max(place-point, point-place)), int32(probe>>low)))
				}
			}
		}
	}
	for i := 1; i <= points.size(); i++ {
		// Beyond half the way to the next point, all is nearer to that.
		at := points[i] >> 32
		add(at, at+least, at+min(end-1, (points[i+1]-points[i])>>33))
		add(at, at-min(end-1, (points[i]-points[i-1])>>33), at-max(least, 1))
	}
	return keys
}
