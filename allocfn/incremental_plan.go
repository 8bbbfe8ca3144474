package allocfn

import "slices"

// plan is a result of Balanced in a form that can be repaired, see settle.
//
// Members have chairs, whose numbers stay when others come and go. A key says
// when a pair has its turn in the order in which Balanced takes pairs; pairs of
// one partition that have the same are told apart by their scores.
type plan struct {
	keys     []uint64     // of the partitions, see hashPartitions
	pairs    []proposal   // of each partition: the code, a chair, and perhaps waits
	index    probeIndex   // of all partitions; made when it is needed
	late     []*lateIndex // of those that come late, and later
	latest   int          // no pair has a code after this
	lateness []uint8      // of each partition, in how many of the late indices it is

	seats    []seat  // the members, in order
	change   change  // from the members before
	free     []int32 // chairs that nobody has
	chairs   []chair
	places   []int32 // of each chair, the index of its member in the input, nobody when it went
	bounds   []key   // of each chair, see accepts
	reach    []int64 // of each chair: from this distance on its bound accepts nothing. atBase32 is added if its bound has atBase
	circle   circle  // of chairs; empty until something is repaired
	nearRoom int     // how many keys the vicinities of all chairs have room for

	halved int    // how often the weights are, see pointWeights
	quotas quotas // the members' shares, for of
	used   int    // how many have one of the pool of these
	extras heap   // the last keys of those, turned so that the greatest is on top
	drain  key    // that greatest key; never while some of the pool are left

	events   heap // see settle
	poolers  heap // those of members that look for what is left of the pool,
	pooling  key  // nothing before which blocks, nor
	poolFrom key  // this, when they have to look anew from here on

	out, in []int64 // scratch of apply
}

// seat is a member of the last input.
type seat struct {
	name   string
	weight int
	chair  int32
}

// chair is what is kept of a member.
type chair struct {
	name   string
	weight int        // of its points, see pointWeight
	held   []key      // of its partitions, in order
	points circle     // its own, as of chair 0
	near   []vicinity // what is near to them: of all partitions, then of each late index
	found  key        // what search found last
	base   int32      // how many it has at least
	pooled bool       // may have one more, of the pool
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
	t := totalOf(in.Members)
	p := plan{
		keys: b.keys, pairs: b.choices, latest: codes - 1,
		seats: make([]seat, n), places: make([]int32, n), chairs: make([]chair, n),
		halved: t.halvings(in.Members), quotas: sharesOf(in.Members, t, len(in.Partitions)),
	}
	for i, m := range in.Members {
		p.seats[i] = seat{m.Name, m.Weight, int32(i)}
		p.places[i] = int32(i)
		p.chairs[i].base, p.chairs[i].pooled = p.quotas.of(i)
	}
	return p
}

// sharesOf returns quotas for use with of alone.
func sharesOf(members []Member, t total, partitions int) quotas {
	if t.equal() {
		return quotas{least: partitions / len(members), pool: partitions % len(members)}
	}
	return newQuotas(members, t, partitions)
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
	halved int
	quotas quotas
}

// agree returns how many members, the first ones and the last ones, are as they
// were. No member is counted twice.
func (p *plan) agree(members []Member) (first, last int) {
	n := min(len(members), len(p.seats))
	for i := range p.seats[:n] {
		if !p.seats[i].is(&members[i]) {
			break
		}
		first++
	}
	seats, members := p.seats[first:], members[first:]
	for last < n-first && seats[len(seats)-1-last].is(&members[len(members)-1-last]) {
		last++
	}
	return first, last
}

func (s *seat) is(m *Member) bool { return s.weight == m.Weight && s.name == m.Name }

// compare says what changed. It returns nil when that is so much that it is
// quicker to begin anew. The first and the last members are as they were.
func (p *plan) compare(members []Member, first, last int) *change {
	t := totalOf(members)
	c := &p.change
	*c = change{c.seats[:0], c.came[:0], c.went[:0], t.halvings(members), sharesOf(members, t, len(p.pairs))}
	if c.halved != p.halved {
		first, last = 0, 0
	}
	gained, lost := 0, 0 // partitions, at least
	keep := func(from, to, index int) {
		c.seats = append(c.seats, p.seats[from:to]...)
		for i := from; i < to; i++ {
			base, pooled := c.quotas.of(index + i - from)
			hadBase, hadPooled := p.quotas.of(i)
			gained += int(max(0, base-hadBase-one(hadPooled)))
			lost += int(max(0, hadBase-base-one(pooled)))
		}
	}
	keep(0, first, 0)
	old, end := first, len(p.seats)-last
	leave := func() {
		c.went = append(c.went, p.seats[old].chair)
		lost += int(p.chairs[p.seats[old].chair].base)
		old++
	}
	for i := first; i < len(members)-last; i++ {
		m := &members[i]
		for old < end && p.seats[old].name < m.Name {
			leave()
		}
		if old < end && p.seats[old].name == m.Name {
			if pointWeight(p.seats[old].weight, p.halved) == pointWeight(m.Weight, c.halved) {
				keep(old, old+1, i)
				c.seats[i].weight = m.Weight
				old++
				continue
			}
			leave()
		}
		c.seats = append(c.seats, seat{m.Name, m.Weight, nobody})
		c.came = append(c.came, int32(i))
		base, _ := c.quotas.of(i)
		gained += int(base)
	}
	for old < end {
		leave()
	}
	keep(end, len(p.seats), len(members)-last)
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

// setPoints makes the points of a member. It reuses those of another.
func (c *chair) setPoints() {
	points := slices.Grow(c.points.points[:0], 1+c.weight*pointSize+behind)
	c.points.points = appendPoints(points[:1], 0, hashName(c.name), c.weight)
	slices.Sort(c.points.points[1:])
	c.points.close()
}

// appendPoints appends the points of a chair as a ring has them.
func (c *chair) appendPoints(points []int64, number int32) []int64 {
	for _, x := range c.points.points[1 : c.points.size()+1] {
		points = append(points, x|int64(number))
	}
	return points
}

// prepare makes what only repairs need.
func (p *plan) prepare() {
	p.indexLate()
	if p.circle.points != nil {
		return
	}
	var points []int64
	for _, s := range p.seats {
		c := &p.chairs[s.chair]
		c.name, c.weight = s.name, pointWeight(s.weight, p.halved)
		c.setPoints()
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
		m := p.newChair(&c.seats[i], c.halved)
		c.seats[i].chair = m
		in = p.chairs[m].appendPoints(in, m)
	}
	p.seats, c.seats = c.seats, p.seats
	if len(in) > 0 {
		slices.Sort(in)
		p.circle.insert(in) // before others are removed, for no circle is empty
	}
	if len(out) > 0 {
		slices.Sort(out)
		p.circle.remove(out)
	}
	p.out, p.in = out, in
	p.free = append(p.free, c.went...)

	p.used, p.extras = 0, p.extras[:0]
	changed := false
	for i := range p.seats {
		m := p.seats[i].chair
		chair := &p.chairs[m]
		base, pooled := c.quotas.of(i)
		if p.places[m] == nobody {
			chair.base, chair.pooled = base, pooled
			chair.held = make([]key, 0, base+1)
			p.events.push(lookOf(0, m))
		} else if base != chair.base || pooled != chair.pooled {
			changed = true
			chair.base, chair.pooled = base, pooled
			for len(chair.held) > int(base+one(pooled)) {
				p.refuseLast(m)
			}
			if len(chair.held) < int(base) {
				p.events.push(lookOf(p.closing(m), m))
			}
		}
		p.places[m] = int32(i)
		p.count(m)
		p.bind(m)
	}
	p.extras.order()
	p.halved, p.quotas = c.halved, c.quotas
	for p.used > p.quotas.pool {
		p.refuseExtra()
	}
	p.drained()
	if changed {
		p.poolFrom = 0 // somebody may have its base who had another one before
	} else if p.used < p.quotas.pool {
		p.poolFrom = drained
	}
}

// recent is among how many of those who went last one who comes is looked for.
const recent = 8

// newChair returns a chair that nobody has: if it is one of those who went last,
// its own, with its points and what it knows of its vicinity; otherwise a new one,
// or that of who has been away longest.
func (p *plan) newChair(s *seat, halved int) int32 {
	weight := pointWeight(s.weight, halved)
	for i := len(p.free) - 1; i >= max(0, len(p.free)-recent); i-- {
		m := p.free[i]
		if c := &p.chairs[m]; c.name == s.name && c.weight == weight {
			p.free = slices.Delete(p.free, i, i+1)
			*c = chair{name: c.name, weight: c.weight, points: c.points, near: c.near}
			return m
		}
	}
	m := int32(len(p.chairs))
	if len(p.free) > recent {
		m = p.free[0]
		p.free = slices.Delete(p.free, 0, 1)
	} else {
		p.chairs = append(p.chairs, chair{})
		p.places, p.bounds, p.reach = append(p.places, nobody), append(p.bounds, 0), append(p.reach, 0)
	}
	c := &p.chairs[m]
	*c = chair{name: s.name, weight: weight, points: c.points, near: c.near}
	for l := range c.near {
		c.near[l] = vicinity{keys: c.near[l].keys[:0]}
	}
	c.setPoints()
	return m
}

// count counts a member that has one of the pool.
func (p *plan) count(m int32) {
	c := &p.chairs[m]
	if c.pooled && len(c.held) == int(c.base)+1 {
		p.used++
		p.extras = append(p.extras, ^uint64(c.held[c.base]))
	}
}
