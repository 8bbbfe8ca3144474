package allocfn

import "slices"

// plan is a result of Balanced in a form that can be repaired, see settle.
//
// Members have chairs, whose numbers stay when others come and go. A key says
// when a pair has its turn in the order in which Balanced takes pairs; pairs of
// one partition that have the same are told apart by their scores.
type plan struct {
	keys   []uint64     // of the partitions, see hashPartitions
	pairs  []proposal   // of each partition: the code, a chair, and perhaps waits
	index  probeIndex   // of all partitions; made when it is needed
	late   []*lateIndex // of those that come late, and later
	latest int          // no pair has a code after this

	seats  []seat  // the members, in order
	spare  []seat  // scratch, the ones before
	free   []int32 // chairs that nobody has
	chairs []chair
	bounds []key   // of each chair, see accepts
	reach  []int64 // of each chair: from this distance on its bound accepts nothing. atBase32 is added if its bound has atBase
	circle circle  // of chairs; nil until something is repaired

	pool   int  // how many may have one more than their base, and
	used   int  // how many have
	extras heap // the last keys of those, turned so that the greatest is on top
	drain  key  // that greatest key; never while some of the pool are left

	events   heap // see settle
	poolers  heap // those of members that look for what is left of the pool,
	pooling  key  // nothing before which blocks, nor
	poolFrom key  // this, when they have to look anew from here on

	// Scratch: of walk the first two, of visit, and of repair.
	steps  []int64
	spans  []span
	found  []finding
	places []int32
}

// seat is a member, with what decides on its points.
type seat struct {
	name   string
	weight int
	chair  int32
}

// chair is what is kept of a member.
type chair struct {
	held   []key   // of its partitions, in order
	points []int64 // places on the ring, shifted left by 32
	place  int32   // its index in the input, nobody when it went
	base   int32   // how many it has at least
	pooled bool    // may have one more, of the pool
}

const nobody = -1

// waits marks the pair of a partition without an owner. It has its turn with
// this member at the pair's key.
const waits proposal = 1 << 31

const (
	never  key = 1 << 42 // after all keys
	atBase key = 1 << 63 // see accepts
)

// tooMany says which share of the partitions is so much that, when it must
// move, beginning anew is quicker.
const tooMany = 64

func (k key) partition() int32 { return int32(uint32(k)) }
func (k key) code() int        { return int(k >> 32) }

func (p proposal) key(partition int32) key {
	return keyOf(p.code(), partition)
}

func (p proposal) code() int { return int(p &^ waits >> memberBits) }

// newPlan keeps a result.
func newPlan(in Input, b *balance) plan {
	p := plan{keys: b.keys, pairs: b.choices, latest: codes - 1}
	p.seats = make([]seat, len(in.Members))
	p.chairs = make([]chair, len(in.Members))
	q := newQuotas(in.Members, len(in.Partitions))
	p.pool = q.pool
	for i, m := range in.Members {
		p.seats[i] = seat{m.Name, b.weights[i], int32(i)}
		p.chairs[i].place = int32(i)
		p.chairs[i].base, p.chairs[i].pooled = q.of(i)
	}
	return p
}

// of returns what a member has at least, and whether it may have one more.
func (q *quotas) of(member int) (base int32, pooled bool) {
	if q.pooled != nil && q.pooled[member] {
		return q.left[member] - 1, true
	}
	return q.left[member], false
}

// change is a step from one input to the next.
type change struct {
	seats  []seat  // chairs of those who came are nobody
	came   []int32 // indices in seats
	went   []int32 // chairs
	quotas quotas
}

// compare says what changed. It returns nil when that is so much that it is
// quicker to begin anew.
func (p *plan) compare(in Input) *change {
	n := len(in.Members)
	c := &change{seats: slices.Grow(p.spare[:0], n)[:n], quotas: newQuotas(in.Members, len(p.pairs))}
	weights := pointWeights(in.Members)
	gained, lost := 0, 0 // partitions, at least
	old := p.seats
	for i := range in.Members {
		m := &in.Members[i]
		for len(old) > 0 && old[0].name != m.Name && old[0].name < m.Name {
			c.went = append(c.went, old[0].chair)
			old = old[1:]
		}
		c.seats[i] = seat{m.Name, weights[i], nobody}
		base, pooled := c.quotas.of(i)
		if len(old) > 0 && old[0].name == m.Name {
			if old[0].weight == weights[i] {
				c.seats[i].chair = old[0].chair
				was := &p.chairs[old[0].chair]
				gained += max(0, int(base-was.base-one(was.pooled)))
				lost += max(0, int(was.base-base-one(pooled)))
			} else {
				c.went = append(c.went, old[0].chair)
			}
			old = old[1:]
		}
		if c.seats[i].chair == nobody {
			c.came = append(c.came, int32(i))
			gained += int(base)
		}
	}
	for _, s := range old {
		c.went = append(c.went, s.chair)
	}
	for _, m := range c.went {
		lost += int(p.chairs[m].base)
	}
	if max(gained, lost) > len(p.pairs)/tooMany+20 || len(p.chairs)+len(c.came) > maxMembers {
		return nil
	}
	return c
}

func one(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// placesOf returns the places of a member's points, in order.
func placesOf(s seat) []int64 {
	points := appendPoints(nil, 0, hashName(s.name), s.weight)
	slices.Sort(points)
	return points
}

// appendPoints appends the points of a chair as a ring has them.
func (c *chair) appendPoints(points []int64, number int32) []int64 {
	for _, x := range c.points {
		points = append(points, x|int64(number))
	}
	return points
}

// prepare makes what only repairs need.
func (p *plan) prepare() {
	p.indexLate()
	if p.circle != nil {
		return
	}
	var points []int64
	for _, s := range p.seats {
		c := &p.chairs[s.chair]
		c.points = placesOf(s)
		points = c.appendPoints(points, s.chair)
	}
	p.circle = newCircle(points)

	// Those of each code in the order of partitions, one code after the other.
	var ends [allCodes]int32
	for _, pair := range p.pairs {
		ends[pair>>memberBits]++
	}
	sum := int32(0)
	for c, n := range ends {
		ends[c] = sum
		sum += n
	}
	order := make([]int32, len(p.pairs))
	loads := make([]int, len(p.chairs))
	for i, pair := range p.pairs {
		order[ends[pair>>memberBits]] = int32(i)
		ends[pair>>memberBits]++
		loads[pair.member()]++
	}
	for m := range p.chairs {
		p.chairs[m].held = make([]key, 0, loads[m]+loads[m]/16+1)
	}
	for _, i := range order {
		pair := p.pairs[i]
		c := &p.chairs[pair.member()]
		c.held = append(c.held, pair.key(i))
	}
	p.bounds, p.reach = make([]key, len(p.chairs)), make([]int64, len(p.chairs))
	p.poolFrom, p.pooling = never, never
	p.count()
	for m := range p.chairs {
		p.bind(int32(m))
	}
}

// apply makes the change, and the events that settle it: partitions that lost
// their owner wait, and members look from where they began to refuse before.
func (p *plan) apply(c *change) {
	p.events, p.poolers = p.events[:0], p.poolers[:0]
	p.poolFrom, p.pooling = never, never
	drained := p.drain
	var out, in []int64 // of the ring
	for _, m := range c.went {
		chair := &p.chairs[m]
		for _, k := range chair.held {
			p.pairs[k.partition()] |= waits
			p.events.push(turnOf(k))
		}
		chair.held = nil
		chair.place, chair.base, chair.pooled = nobody, 0, false
		p.bounds[m], p.reach[m] = 0, 0
		out = chair.appendPoints(out, m)
	}
	for _, i := range c.came {
		m := p.newChair()
		c.seats[i].chair = m
		p.chairs[m].points = placesOf(c.seats[i])
		in = p.chairs[m].appendPoints(in, m)
	}
	p.seats, p.spare = c.seats, p.seats
	if len(c.came)+len(c.went) > 0 {
		slices.Sort(out)
		slices.Sort(in)
		p.circle = p.circle.replace(out, in)
	}
	p.free = append(p.free, c.went...)

	changed := false
	for i, s := range p.seats {
		chair := &p.chairs[s.chair]
		chair.place = int32(i)
		base, pooled := c.quotas.of(i)
		came := chair.held == nil
		from := key(0)
		if !came {
			from = p.closing(s.chair)
			changed = changed || base != chair.base || pooled != chair.pooled
		}
		chair.base, chair.pooled = base, pooled
		if came {
			chair.held = make([]key, 0, base+1)
		}
		for len(chair.held) > int(base+one(pooled)) {
			p.refuseLast(s.chair)
		}
		if came || len(chair.held) < int(base) {
			p.events.push(lookOf(from, s.chair))
		}
	}
	p.pool = c.quotas.pool
	p.count()
	for p.used > p.pool {
		p.refuseExtra()
	}
	for _, s := range p.seats {
		p.bind(s.chair)
	}
	p.drained()
	if changed {
		p.poolFrom = 0 // somebody may have its base who had another one before
	} else if p.used < p.pool {
		p.poolFrom = drained
	}
}

// newChair returns a chair that nobody has.
func (p *plan) newChair() int32 {
	if last := len(p.free) - 1; last >= 0 {
		m := p.free[last]
		p.free = p.free[:last]
		p.chairs[m] = chair{}
		return m
	}
	p.chairs = append(p.chairs, chair{})
	p.bounds, p.reach = append(p.bounds, 0), append(p.reach, 0)
	return int32(len(p.chairs) - 1)
}

// count finds who has one of the pool.
func (p *plan) count() {
	p.used = 0
	p.extras = p.extras[:0]
	for m := range p.chairs {
		c := &p.chairs[m]
		if c.pooled && len(c.held) == int(c.base)+1 {
			p.used++
			p.extras.push(^uint64(c.held[c.base]))
		}
	}
	p.drained()
}
