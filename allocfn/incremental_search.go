package allocfn

import "math"

// nearest returns the score of the best pair of a partition with a member that
// accepts it, when none is accepted that comes before the pair it has. There
// must be one.
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
	zs := probe(p.keys[partition])
	least, usual := leastDistance(p.pairs[partition].code()), p.usual()
	var after, before [probeSize]path
	if least > 16*usual {
		p.circle.depart(&zs, least, &after, &before)
	} else {
		p.circle.depart(&zs, 0, &after, &before) // to visit these few is quicker than to leave them out
	}
	points := p.circle.points
	for limit := max(least, 2*usual); int64(best>>32) > limit; {
		limit = min(2*limit, 1<<ringBits)
		for v := range after {
			for a := &after[v]; (points[a.at]-a.from)>>32 <= min(limit, int64(best>>32)); p.circle.follow(a) {
				try(points[a.at]-a.from, int32(points[a.at]), 0)
			}
			for b := &before[v]; (b.from-points[b.at])>>32 <= min(limit, int64(best>>32)); p.circle.precede(b) {
				try(b.from-points[b.at], int32(points[b.at]), -1)
			}
		}
	}
	return best
}

// usual returns about the mean distance of a first choice.
func (p *plan) usual() int64 { return max(1, 1<<ringBits/int64(2*probeSize*p.circle.size())) }

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
	var at [probeSize]int
	zs := probe(p.keys[partition])
	c.points.firsts(&zs, &at)
	points := c.points.points
	for v, i := range at {
		after = min(after, points[i]-zs[v])
		before = min(before, zs[v]-points[i-1])
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
// It looks among all partitions first, and from the code on that a late index
// has, among those of that alone: a partition whose pair comes before does not
// prefer m.
func (p *plan) search(m int32, after, until key) key {
	until = min(until, keyOf(p.latest+1, 0))
	for level := range len(p.late) + 1 {
		end := codes
		if level < len(p.late) {
			end = p.late[level].from
		}
		if after.code() >= end {
			continue
		}
		if k := p.nearby(m, level, after, until, end); k < never {
			return k
		}
		if until <= keyOf(end, 0) {
			break
		}
	}
	return never
}

func codeOf(distance int64) int { return code(score(distance << 32)) }
