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

	seats    []seat  // the members, in order
	change   change  // from the members before
	free     []int32 // chairs that nobody has
	chairs   []chair
	places   []int32 // of each chair, the index of its member in the input, nobody when it went
	bounds   []key   // of each chair, see accepts
	reach    []int64 // of each chair: from this distance on its bound accepts nothing. atBase32 is added if its bound has atBase
	circle   circle  // of chairs; nil until something is repaired
	nearRoom int     // how many keys the vicinities of all chairs have room for

	pool   int  // how many may have one more than their base, and
	used   int  // how many have
	extras heap // the last keys of those, turned so that the greatest is on top
	drain  key  // that greatest key; never while some of the pool are left

	events   heap // see settle
	poolers  heap // those of members that look for what is left of the pool,
	pooling  key  // nothing before which blocks, nor
	poolFrom key  // this, when they have to look anew from here on

	// Scratch: of apply, and of walk.
	out, in []int64
	found   []finding
}

// seat is a member, with what decides on its points.
type seat struct {
	name   string
	weight int
	chair  int32
}

// chair is what is kept of a member.
type chair struct {
	held   []key    // of its partitions, in order
	points circle   // its own, as of chair 0
	near   vicinity // what is near to them
	found  key      // what search found last
	base   int32    // how many it has at least
	pooled bool     // may have one more, of the pool
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
	n := len(in.Members)
	p := plan{
		keys: b.keys, pairs: b.choices, latest: codes - 1,
		seats: make([]seat, n), places: make([]int32, n), chairs: make([]chair, n),
	}
	q := sharesOf(in.Members, len(in.Partitions))
	p.pool = q.pool
	for i, m := range in.Members {
		p.seats[i] = seat{m.Name, b.weights[i], int32(i)}
		p.places[i] = int32(i)
		p.chairs[i].base, p.chairs[i].pooled = q.of(i)
	}
	return p
}

// sharesOf returns quotas for use with of alone.
func sharesOf(members []Member, partitions int) quotas {
	if _, equal := sumOfWeights(members); equal {
		return quotas{least: partitions / len(members), pool: partitions % len(members)}
	}
	return newQuotas(members, partitions)
}

// of returns what a member has at least, and whether it may have one more.
func (q *quotas) of(member int) (base int32, pooled bool) {
	switch {
	case q.left == nil:
		return int32(q.least), q.pool > 0
	case q.pooled != nil && q.pooled[member]:
		return q.left[member] - 1, true
	default:
		return q.left[member], false
	}
}

// change is a step from one input to the next.
type change struct {
	seats  []seat  // chairs of those who came are nobody; the ones before, once it is applied
	came   []int32 // indices in seats
	went   []int32 // chairs
	quotas quotas
}

// compare says what changed. It returns nil when that is so much that it is
// quicker to begin anew.
func (p *plan) compare(in Input) *change {
	c := &p.change
	*c = change{c.seats[:0], c.came[:0], c.went[:0], sharesOf(in.Members, len(p.pairs))}
	halved := halvings(in.Members)
	gained, lost := 0, 0    // partitions, at least
	old, kept := p.seats, 0 // of old, which follow those in c.seats
	leave := func() {
		c.went = append(c.went, old[kept].chair)
		c.seats = append(c.seats, old[:kept]...)
		old, kept = old[kept+1:], 0
	}
	for i := range in.Members {
		m := &in.Members[i]
		for kept < len(old) && old[kept].name != m.Name && old[kept].name < m.Name {
			leave()
		}
		weight := pointWeight(m.Weight, halved)
		base, pooled := c.quotas.of(i)
		if kept < len(old) && old[kept].name == m.Name {
			if old[kept].weight == weight {
				was := &p.chairs[old[kept].chair]
				gained += int(max(0, base-was.base-one(was.pooled)))
				lost += int(max(0, was.base-base-one(pooled)))
				kept++
				continue
			}
			leave()
		}
		c.seats = append(append(c.seats, old[:kept]...), seat{m.Name, weight, nobody})
		old, kept = old[kept:], 0
		c.came = append(c.came, int32(i))
		gained += int(base)
	}
	c.seats = append(c.seats, old[:kept]...)
	for _, s := range old[kept:] {
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

// places returns the places of a member's points. It may reuse a circle.
func (s *seat) places(c circle) circle {
	c = slices.Grow(c[:0], s.weight*pointSize+2)
	c = appendPoints(c[:1], 0, hashName(s.name), s.weight)
	slices.Sort(c[1:])
	c = c[:len(c)+1]
	c.bound()
	return c
}

// appendPoints appends the points of a chair as a ring has them.
func (c *chair) appendPoints(points []int64, number int32) []int64 {
	for _, x := range c.points[1 : len(c.points)-1] {
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
		c.points = s.places(nil)
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
	for m := range p.chairs {
		p.count(int32(m))
		p.bind(int32(m))
	}
	p.extras.order()
	p.drained()
}

// apply makes the change, and the events that settle it: partitions that lost
// their owner wait, and members look from where they began to refuse before.
func (p *plan) apply(c *change) {
	p.events, p.poolers = p.events[:0], p.poolers[:0]
	p.poolFrom, p.pooling = never, never
	drained := p.drain
	out, in := p.out[:0], p.in[:0]
	for _, m := range c.went {
		chair := &p.chairs[m]
		for _, k := range chair.held {
			p.pairs[k.partition()] |= waits
			p.events.push(turnOf(k))
		}
		chair.held = nil
		p.places[m], p.bounds[m], p.reach[m] = nobody, 0, 0
		out = chair.appendPoints(out, m)
	}
	for _, i := range c.came {
		m := p.newChair()
		c.seats[i].chair = m
		p.chairs[m].points = c.seats[i].places(p.chairs[m].points)
		in = p.chairs[m].appendPoints(in, m)
	}
	p.seats, c.seats = c.seats, p.seats
	if len(c.came)+len(c.went) > 0 {
		slices.Sort(out)
		slices.Sort(in)
		p.circle = p.circle.replace(out, in)
		p.out, p.in = out, in
	}
	p.free = append(p.free, c.went...)

	p.used, p.extras = 0, p.extras[:0]
	changed := false
	for i, s := range p.seats {
		chair := &p.chairs[s.chair]
		base, pooled := c.quotas.of(i)
		came := p.places[s.chair] == nobody
		from := key(0)
		if !came {
			from = p.closing(s.chair)
			changed = changed || base != chair.base || pooled != chair.pooled
		}
		p.places[s.chair] = int32(i)
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
		p.count(s.chair)
		p.bind(s.chair)
	}
	p.extras.order()
	p.pool = c.quotas.pool
	for p.used > p.pool {
		p.refuseExtra()
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
		c := &p.chairs[m]
		*c = chair{points: c.points, near: vicinity{keys: c.near.keys[:0]}}
		return m
	}
	p.chairs = append(p.chairs, chair{})
	p.places, p.bounds, p.reach = append(p.places, nobody), append(p.bounds, 0), append(p.reach, 0)
	return int32(len(p.chairs) - 1)
}

// count counts a member that has one of the pool.
func (p *plan) count(m int32) {
	c := &p.chairs[m]
	if c.pooled && len(c.held) == int(c.base)+1 {
		p.used++
		p.extras = append(p.extras, ^uint64(c.held[c.base]))
	}
}
