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
			best = min(best, score(d<<32|int64(uint32(p.places[chair]^turned))))
		}
	}
	var after, before [probeSize]path
	zs := probe(p.keys[partition])
	for v, i := range p.circle.firsts(&zs) {
		after[v], before[v] = path{i, zs[v]}, path{i - 1, zs[v] | math.MaxUint32}
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
	zs := probe(p.keys[partition])
	for v, i := range c.points.firsts(&zs) {
		after = min(after, c.points[i]-zs[v])
		before = min(before, zs[v]-c.points[i-1])
	}
	return min(score(after|int64(p.places[chair])), score(before|int64(uint32(^p.places[chair]))))
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
	from, to := after.code(), codes
	if len(p.late) > 0 {
		to = p.late[0].from
	}
	if from < to {
		if k := p.nearby(m, after, until, to); k < never {
			return k
		}
		from = to
	}
	s := search{plan: p, m: m, after: after, best: until, to: reachOf(until)}
	for l, x := range p.late {
		to := codes
		if l+1 < len(p.late) {
			to = p.late[l+1].from
		}
		if from >= to {
			continue
		}
		s.walk(x, from, to)
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
	after key
	best  key
	to    int64 // distances from here on have keys after best
}

// walk visits the parts of a late index in which there may be probes whose
// distance from a point of m has a code from one on and below another. It goes
// outward, and ends when nothing better can come.
func (s *search) walk(x *lateIndex, from, to int) {
	last, unit := int64(len(x.heads)-1), x.shift-32
	points := s.plan.chairs[s.m].points
	points = points[1 : len(points)-1]
	found := slices.Grow(s.plan.found[:0], 2*len(points))[:2*len(points)]
	s.plan.found = found
	for step := leastDistance(from) >> unit; step <= last/2+1; step++ {
		near := max(from, codeOf(max(0, step-1)<<unit)) // no probe that comes now is nearer, of those that matter
		if near >= to || keyOf(near, 0) >= s.best {
			return
		}
		least := proposal(max(near, s.after.code())) << memberBits // pairs below prefer what they have
		// All parts of a step are looked up before the first is visited: they are
		// anywhere in the memory, and so are waited for at once.
		n := 0
		for _, point := range points {
			part, place := point>>x.shift, uint32(point>>32)
			after, before := x.heads[(part+step)&last], x.heads[(part-step)&last]
			found[n] = finding{after, place}
			n += 1 + int(after>>31) // kept unless negative; no jump, which would be guessed wrongly
			found[n] = finding{before, place}
			n += 1 + int(before>>31)
		}
		for _, f := range found[:n] {
			for e := f.entry; e >= 0; {
				entry := &x.entries[e]
				e = entry.next
				d := int64(min((entry.place-f.place)&ringMask, (f.place-entry.place)&ringMask))
				if d < s.to && s.plan.pairs[entry.partition]&^waits >= least {
					s.try(entry.partition, d)
				}
			}
		}
	}
}

// finding is the first entry of a part that is near a point.
type finding struct {
	entry int32
	place uint32 // of the point
}

func codeOf(distance int64) int { return code(score(distance << 32)) }

// try sees to a partition that has a probe at this distance.
func (s *search) try(partition int32, distance int64) {
	k := keyOf(codeOf(distance), partition)
	if k > s.after && k < s.best && s.plan.prefers(partition, s.m, k) {
		s.best, s.to = k, reachOf(k)
	}
}
