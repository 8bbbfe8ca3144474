package allocfn

import (
	"math"
	"slices"
)

// ringMask holds the places of the ring.
const ringMask = 1<<ringBits - 1

// nearest returns the score of the best pair of a partition with a member that
// accepts it. There must be one.
//
// It goes outward from all probes, in rounds that reach twice as far each.
func (p *plan) nearest(partition int32) score {
	best := worstScore
	drained := reachOf(p.drain)
	try := func(distance int64, chair, turned int32) {
		d := distance >> 32
		reach := p.reach[chair]
		if d >= reach&(atBase32-1) && (reach < atBase32 || d >= drained) {
			return // hardly any gets beyond this
		}
		if p.accepts(chair, keyOf(codeOf(d), partition)) {
			best = min(best, score(d<<32|int64(uint32(p.chairs[chair].place^turned))))
		}
	}
	var after, before [probeSize]path
	for v, z := range probe(p.keys[partition]) {
		after[v], before[v] = p.circle.paths(z)
	}
	limit := max(leastDistance(p.pairs[partition].code()), 1<<10)
	for int64(best>>32) > limit {
		limit = min(2*limit, 1<<ringBits)
		for v := range after {
			for a := &after[v]; (p.circle[a.at]-a.from)>>32 <= min(limit, int64(best>>32)); p.circle.follow(a) {
				try(p.circle[a.at]-a.from, int32(p.circle[a.at]), 0)
			}
			for b := &before[v]; (b.from-p.circle[b.at])>>32 <= min(limit, int64(best>>32)); p.circle.precede(b) {
				try(b.from-p.circle[b.at], int32(p.circle[b.at]), -1)
			}
		}
	}
	return best
}

// reachOf returns the distance from which on no pair comes before a key, nor at it.
func reachOf(k key) int64 {
	return leastDistance(min(k.code(), codes) + 1)
}

// atBase32 marks who has its base, as atBase does.
const atBase32 = 1 << 32

// score returns the score of a pair.
func (p *plan) score(partition, chair int32) score {
	c := &p.chairs[chair]
	after, before := int64(math.MaxInt64), int64(math.MaxInt64)
	for _, z := range probe(p.keys[partition]) {
		for _, x := range c.points {
			after = min(after, (x-z)&(ringSize-1))
			before = min(before, (z-x)&(ringSize-1))
		}
	}
	return min(score(after|int64(c.place)), score(before|int64(uint32(^c.place))))
}

// distance returns how far the nearest probe of a partition is from a point.
func (p *plan) distance(partition int32, x int64) int64 {
	d := int64(math.MaxInt64)
	for _, z := range probe(p.keys[partition]) {
		d = min(d, (x-z)&(ringSize-1), (z-x)&(ringSize-1))
	}
	return d >> 32
}

// prefers reports whether a partition prefers m, by a pair of key k, to the
// member that it has or waits for. If that one went, it counts as the best of
// this key: the partition waits, and has its turn with all others then.
func (p *plan) prefers(partition, m int32, k key) bool {
	pair := p.pairs[partition]
	is := pair.key(partition)
	if k != is {
		return k < is
	}
	return m != pair.member() && p.score(partition, m) < p.score(partition, pair.member())
}

// leastDistance returns the least distance of a code.
func leastDistance(code int) int64 {
	if code < 2<<codeBits {
		return int64(code)
	}
	e := code>>codeBits - 1
	return int64(code-e<<codeBits) << e
}

// search returns the first key after one and before another of a pair of m with
// a partition that prefers m, or never. Nothing up to after is such a pair.
//
// It goes outward from the points of m, among all partitions first, and from
// the code on that a late index has, among those of that alone: a partition
// whose pair comes before does not prefer m.
func (p *plan) search(m int32, after, until key) key {
	until = min(until, keyOf(p.latest+1, 0))
	s := search{plan: p, m: m, after: after, best: until, from: leastDistance(after.code()), to: reachOf(until)}
	from := after.code()
	for l := 0; l <= len(p.late); l++ {
		to := codes
		if l < len(p.late) {
			to = p.late[l].from
		}
		if from >= to {
			continue
		}
		if l == 0 {
			p.index.build(p.keys)
			s.walk(p.index.shift, from, to)
		} else {
			s.late = p.late[l-1]
			s.walk(s.late.shift, from, to)
		}
		from = to
	}
	if s.best == until {
		return never
	}
	return s.best
}

// search is the state of one.
type search struct {
	plan  *plan
	m     int32
	late  *lateIndex
	after key
	best  key
	from  int64    // distances before have keys before after, and
	to    int64    // these, keys after best
	least proposal // pairs below need not be looked at
}

// walk visits the parts of the ring, of the size that shift says, in which there
// may be probes whose distance from a point of m has a code from one on and
// below another. It goes outward, and ends when nothing better can come.
func (s *search) walk(shift uint, from, to int) {
	parts, unit := ringSize>>shift, shift-32
	points := s.plan.chairs[s.m].points
	// Beyond half the way to the next point, the steps[i+1]-th from point i and
	// the steps[i]-th the other way, all is nearer to that.
	steps := append(s.plan.steps[:0], (points[0]+ringSize-points[len(points)-1])/2>>shift+1)
	for i, point := range points[1:] {
		steps = append(steps, (point-points[i])/2>>shift+1)
	}
	steps = append(steps, steps[0])
	s.plan.steps = steps
	last := slices.Max(steps)
	for step := leastDistance(from) >> unit; step <= last; step++ {
		near := max(from, codeOf(max(0, step-1)<<unit)) // no probe that comes now is nearer, of those that matter
		if near >= to || keyOf(near, 0) >= s.best {
			return
		}
		s.least = proposal(max(near, s.after.code())) << memberBits
		s.plan.spans = s.plan.spans[:0]
		for i, point := range points {
			if step <= steps[i+1] {
				s.add((point>>shift+step)&(parts-1), point)
			}
			if 0 < step && step <= steps[i] {
				s.add((point>>shift-step)&(parts-1), point)
			}
		}
		s.visit()
	}
}

func codeOf(distance int64) int { return code(score(distance << 32)) }

// span is what the index, or a late one, has in one part, to be looked at from a
// point.
type span struct {
	point int64
	start int32 // in partitions of the index, or the first entry of the late one
	end   int32 // in partitions
}

// add notes a part. All parts of a step are looked up before the first is visited:
// they are anywhere in the memory, and so are waited for at once.
func (s *search) add(part, point int64) {
	p := s.plan
	if s.late != nil {
		if head := s.late.heads[part]; head >= 0 {
			p.spans = append(p.spans, span{point, head, 0})
		}
		return
	}
	if start, end := p.index.starts[part], p.index.starts[part+1]; start < end {
		p.spans = append(p.spans, span{point, int32(start), int32(end)})
	}
}

// visit sees to all that was noted.
func (s *search) visit() {
	p := s.plan
	if s.late != nil {
		for _, x := range p.spans {
			s.visitLate(x)
		}
		return
	}
	found := p.found[:0]
	for _, x := range p.spans {
		for _, i := range p.index.partitions[x.start:x.end] {
			found = append(found, finding{x.point, i})
		}
	}
	p.found = found
	for _, f := range found {
		if p.pairs[f.partition]&^waits >= s.least {
			if d := p.distance(f.partition, f.point); s.from <= d && d < s.to {
				s.try(f.partition, d)
			}
		}
	}
}

// finding is a partition that has a probe near a point.
type finding struct {
	point     int64
	partition int32
}

func (s *search) visitLate(x span) {
	at := uint32(x.point >> 32)
	for e := x.start; e >= 0; {
		entry := &s.late.entries[e]
		e = entry.next
		d := int64(min((entry.place-at)&ringMask, (at-entry.place)&ringMask))
		if s.from <= d && d < s.to && s.plan.pairs[entry.partition]&^waits >= s.least {
			s.try(entry.partition, d)
		}
	}
}

// try sees to a partition that has a probe at this distance, within from and to.
func (s *search) try(partition int32, distance int64) {
	k := keyOf(codeOf(distance), partition)
	if k > s.after && k < s.best && s.plan.prefers(partition, s.m, k) {
		s.best, s.to = k, reachOf(k)
	}
}
