package allocfn

import (
	"math"
	"slices"
)

// An event is a key<<22 | who: 0 is the partition of the key, which has its turn
// with the member of its pair, and anything else a chair, plus 1, that looks
// for partitions from this key on.
const whoBits = memberBits + 1

func turnOf(k key) uint64              { return uint64(k) << whoBits }
func lookOf(k key, chair int32) uint64 { return uint64(k)<<whoBits | uint64(chair+1) }

// settle takes events in order until there is none. It gives up, and returns
// false, when they are more than so many.
//
// Why that is Balanced's result. Say that a pair blocks when its partition
// prefers it to the pair that it has or waits for, and its member accepts it:
// counting only what has come before, it has room. A plan in which no partition
// waits, nobody has too much and no pair blocks is Balanced's: consider the
// first pair that one of them takes and the other does not. Both have taken the
// same pairs before. If it is Balanced that takes it, the member has room, and
// the partition takes a later pair in the plan, so the pair blocks. If it is the
// plan that takes it, Balanced had no room for it, so that the plan gives the
// member, or the pool, too much.
//
// That nothing blocks in the end follows from what holds after each event: who
// waits has its turn to come, at the key of its pair; and for each pair that
// blocks, its member has to look from its key or an earlier one on. A pair
// begins to block only
//   - when its partition loses what it had. It waits at that same key then, and
//     for another pair only when none before is accepted, see turn;
//   - when its member, or the pool, loses something, or may have more. Nothing
//     up to where it began to refuse blocks, so it looks from there on.
//
// Each partition that is given one comes earlier than all that are taken for
// it, so there is an end. In which order events are taken has no part in this.
// The first of all that wait is, so that hardly anything is moved twice, for
// what an event causes comes later than it; and look relies on it.
func (p *plan) settle(events int) bool {
	for ; ; events-- {
		event, pooler, ok := p.next()
		if !ok {
			return true
		}
		if events == 0 {
			return false
		}
		k, who := key(event>>whoBits), int32(event&(1<<whoBits-1))
		if who == 0 {
			if next := p.turn(k); next < never {
				p.events.push(turnOf(next))
			}
		} else if next := p.look(k, who-1); next < never {
			if pooler {
				p.poolers.push(lookOf(next, who-1))
			} else {
				p.events.push(lookOf(next, who-1))
			}
		}
	}
}

// next takes out the first event, and tells whether it is one of poolers: those
// who have their base, and look for what is left in the pool. They are dropped
// together once nothing is left, or comes from where they look.
func (p *plan) next() (event uint64, pooler, ok bool) {
	first := uint64(math.MaxUint64)
	if len(p.events) > 0 {
		first = p.events[0]
	}
	if p.poolFrom < never && turnOf(p.poolFrom) <= first {
		p.pooling = min(p.pooling, p.poolFrom)
		p.poolFrom = never
		p.poolers = p.poolers[:0]
		for _, s := range p.seats {
			if b := p.bounds[s.chair]; b&atBase != 0 {
				if k := max(b&^atBase, p.pooling); k <= p.drain {
					p.poolers = append(p.poolers, lookOf(k, s.chair))
				}
			}
		}
		p.poolers.order()
	}
	if len(p.poolers) == 0 || key(p.poolers[0]>>whoBits) > p.drain {
		p.poolers, p.pooling = p.poolers[:0], never
	} else if p.poolers[0] < first {
		return p.poolers.pop(), true, true
	}
	if len(p.events) == 0 {
		return 0, false, false
	}
	return p.events.pop(), false, true
}

// turn serves a partition that waits for this key. It returns the key that it
// has its turn at next, or never.
func (p *plan) turn(k key) key {
	i := k.partition()
	pair := p.pairs[i]
	if pair&waits == 0 || pair.key(i) != k {
		return never // taken, or waits for another key
	}
	m := pair.member()
	if !p.accepts(m, k) {
		s := p.nearest(i)
		m = p.seats[s.member()].chair
		next := keyOf(code(s), i)
		if next != k {
			p.pair(next, pairOf(next, m)|waits)
			return next
		}
	}
	p.give(k, m)
	return never
}

// pair changes the pair of k's partition, to one of k.
func (p *plan) pair(k key, to proposal) {
	pair := &p.pairs[k.partition()]
	p.relate(k.partition(), pair.code(), k.code())
	*pair = to
}

func pairOf(k key, chair int32) proposal {
	return proposal(k.code())<<memberBits | proposal(chair)
}

// look lets m take the partition of this key, if that pair blocks, and returns
// the next key of one that does, or never.
//
// Where looking begins may be the key of no pair of m. What search found is the
// key of a pair, or a later one, of a probe that is not the nearest. Were that
// taken to block, the pair itself would, at its own key, and an event that lets m
// look from there on would have come first.
func (p *plan) look(k key, m int32) key {
	i := k.partition()
	c := &p.chairs[m]
	found := k > 0 && k == c.found
	if p.accepts(m, k) && p.prefers(i, m, k) && (found || code(p.score(i, m)) == k.code()) {
		if pair := p.pairs[i]; pair&waits == 0 {
			p.withdraw(pair.key(i), pair.member())
		}
		p.give(k, m)
	}
	until := p.bounds[m]
	if until&atBase != 0 {
		until = max(until&^atBase, p.drain+1)
	}
	if k >= until {
		return never
	}
	c.found = p.search(m, k, until)
	return c.found
}

// accepts reports whether m takes a partition that has its turn with it at k:
// it has room, or something that comes later is refused for it.
//
// The bound of a member says how: it accepts what comes before. It is never for
// those who have less than their base, and otherwise the last key that they
// have, or 0. Those who have their base and may have one of the pool, atBase,
// also accept as long as something is left of that: up to drain, inclusive, for
// who has the last of it may give way to a member its partition prefers.
func (p *plan) accepts(m int32, k key) bool {
	b := p.bounds[m]
	return k < b&^atBase || b&atBase != 0 && k <= p.drain
}

// bind sets the bound of m after a change to what it has.
func (p *plan) bind(m int32) {
	c := &p.chairs[m]
	n := len(c.held)
	b := never
	if n >= int(c.base) {
		b = 0
		if n > 0 {
			b = c.held[n-1]
		}
		if c.pooled && n == int(c.base) {
			b |= atBase
		}
	}
	if b == p.bounds[m] {
		return
	}
	p.bounds[m] = b
	p.reach[m] = reachOf(b &^ atBase)
	if b&atBase != 0 {
		p.reach[m] |= atBase32
	}
}

// closing returns the key from which on m may have refused partitions: nothing
// before blocks with it, or it looks from there on already.
func (p *plan) closing(m int32) key {
	b := p.bounds[m]
	if b&atBase == 0 {
		return b
	}
	return max(b&^atBase, min(p.drain, p.poolFrom, p.pooling))
}

// give makes m the owner of k's partition, which has none.
func (p *plan) give(k key, m int32) {
	c := &p.chairs[m]
	p.pair(k, pairOf(k, m))
	at, _ := slices.BinarySearch(c.held, k)
	c.held = slices.Insert(c.held, at, k)
	over := len(c.held) - int(c.base)
	if over > int(one(c.pooled)) {
		p.refuseLast(m)
	}
	if c.pooled && over > 0 {
		p.extras.push(^uint64(c.held[c.base]))
		if over == 1 {
			p.used++
		}
		if p.used > p.quotas.pool {
			p.refuseExtra()
		}
		p.drained()
	}
	p.bind(m)
}

// withdraw takes k's partition from m. What m may take for it comes after all
// that it has taken; if that was one of the pool, so may others that did not
// get one.
func (p *plan) withdraw(k key, m int32) {
	c := &p.chairs[m]
	if from := p.closing(m); from < never {
		p.events.push(lookOf(from, m))
	}
	if c.pooled && len(c.held) > int(c.base) {
		p.poolFrom = min(p.poolFrom, p.drain)
		p.used--
	}
	at, _ := slices.BinarySearch(c.held, k)
	c.held = slices.Delete(c.held, at, at+1)
	p.bind(m)
	p.drained()
}

// refuseLast takes from m what comes last. It looks for another member then.
func (p *plan) refuseLast(m int32) {
	c := &p.chairs[m]
	last := len(c.held) - 1
	k := c.held[last]
	c.held = c.held[:last]
	p.pairs[k.partition()] |= waits
	p.events.push(turnOf(k))
}

// refuseExtra takes from those who have one of the pool what comes last.
func (p *plan) refuseExtra() {
	m := p.lastExtra()
	p.refuseLast(m)
	p.bind(m)
	p.used--
}

// lastExtra returns who has the last key of those who have one of the pool.
// There must be one.
func (p *plan) lastExtra() int32 {
	for {
		k := key(^p.extras[0])
		pair := p.pairs[k.partition()]
		c := &p.chairs[pair.member()]
		// Entries of who has other partitions meanwhile are still there.
		if pair&waits == 0 && c.pooled && len(c.held) == int(c.base)+1 && c.held[c.base] == k {
			return pair.member()
		}
		p.extras.pop()
	}
}

// drained sets drain.
func (p *plan) drained() {
	switch {
	case p.used < p.quotas.pool:
		p.drain = never
	case p.quotas.pool == 0:
		p.drain = 0
	default:
		p.lastExtra()
		p.drain = key(^p.extras[0])
	}
}
