package allocfn

import "slices"

// chains finds owners for units that no single swap can place: a member takes
// the unit, hands on one of another topic to a second, that one hands on one of
// a third topic, and so on, until somebody has room in total. Each time it takes
// a chain of the fewest members, so that few units move.
//
// A chain is an augmenting path of a flow: from the topics, whose units they
// are, to the members directly, as many as their share of the topic rounded
// down, or by way of the topic's pool, one each for those whose share has a
// rest; then from the members to the sink, likewise by their base or by the pool
// of the totals. While not all units are placed there is such a path, if there is
// any way to place all. There is, when the base is the share rounded down and
// everybody whose share has a rest may take of the pool: exact shares are a
// flow, and where all capacities are whole numbers there is then a whole one
// that is as large. All of the pools is used up by it, so that everybody has
// their share rounded down, or one more.
//
// At first the totals are to be those by largest remainder. Not always is there
// a way to that; when one unit has none, the totals may be any such.
type chains struct {
	g    *matching
	held [][]int32

	// Totals.
	load []int32 // of each member
	base []int32 // what a member may have by itself
	more []bool  // who may have one more, of the pool
	pool int     // what is left of it
	free bool    // no largest remainders any more

	// Of one search.
	unseen []int32 // the members that have not been reached
	queue  []int32 // those that have, in the order of their distances
	from   []link  // how each was reached
	search int32   // its number
	shares []int32 // by topic, the last search that reached all who have less than their share
	pools  []int32 // and all that may take of the pool
	totals int32   // the last search that reached all who have of the pool of the totals
}

// link says how a chain comes to a member: it gets a unit of the topic from
// another, or it gives way to the other in the pool of the totals.
type link struct {
	member int32 // none for the unit that is to be placed
	topic  int32 // inPool for the pool of the totals
}

const (
	none   = -1
	inPool = -1
)

func newChains(a allotment, g *matching, held [][]int32) *chains {
	n := len(held)
	c := &chains{
		g: g, held: held,
		load: make([]int32, n), base: make([]int32, n), more: make([]bool, n), from: make([]link, n),
		shares: make([]int32, len(g.topics.topics)), pools: make([]int32, len(g.topics.topics)),
	}
	q := a.quotas
	for m, quota := range q.left {
		c.load[m], c.base[m] = int32(len(held[m])), quota
		if q.pooled != nil && q.pooled[m] {
			c.base[m]--
			c.more[m] = true
		}
	}
	c.refill()
	return c
}

// link gives owners to the units.
func (c *chains) link(units []int32) {
	for _, u := range units {
		end := c.find(c.g.topics.of[u])
		if end == none && !c.free {
			c.release()
			end = c.find(c.g.topics.of[u])
		}
		c.apply(u, end)
	}
}

// release lets all whose share has a rest take one more.
func (c *chains) release() {
	c.free = true
	for m := range c.base {
		whole, rest := c.g.topics.shares.of(int32(m), len(c.g.owner))
		c.base[m], c.more[m] = int32(whole), rest != 0
	}
	c.refill()
}

// refill counts what is left of the pool.
func (c *chains) refill() {
	c.pool = len(c.g.owner)
	for m, base := range c.base {
		c.pool -= int(max(base, c.load[m]))
		// Of those with less than their base, none has any of the pool.
	}
}

// room reports whether m may have one more in total.
func (c *chains) room(m int32) bool {
	return c.load[m] < c.base[m] || c.load[m] == c.base[m] && c.more[m] && c.pool > 0
}

// find looks for a chain that begins with a unit of the topic, and returns the
// member at its end, none if there is none.
func (c *chains) find(topic int32) int32 {
	c.search++
	c.queue, c.unseen = c.queue[:0], c.unseen[:0]
	for m := range c.load {
		c.unseen = append(c.unseen, int32(m))
	}
	end := c.hand(topic, none, false)
	for k := 0; end == none && k < len(c.queue); k++ {
		end = c.leave(c.queue[k])
	}
	return end
}

// leave reaches all that a unit of m may go to, or that could have less in total
// in its place. It returns the first that has room, or none.
func (c *chains) leave(m int32) int32 {
	if c.more[m] && c.load[m] == c.base[m] && c.totals != c.search {
		c.totals = c.search
		c.reach(link{m, inPool}, func(b int32) bool { return c.load[b] > c.base[b] })
	}
	for _, u := range c.held[m] {
		topic := c.g.topics.of[u]
		above, _ := c.g.topics.above(topic, m)
		if end := c.hand(topic, m, above > 0); end != none {
			return end
		}
	}
	return none
}

// hand reaches all that may take a unit of the topic from a member, which gives
// one back to the topic's pool or not. It returns the first that has room, or
// none.
func (c *chains) hand(topic, from int32, back bool) int32 {
	back = back || c.g.topics.topics[topic].pool > 0
	if c.pools[topic] == c.search || !back && c.shares[topic] == c.search {
		return none
	}
	c.shares[topic] = c.search
	if back {
		c.pools[topic] = c.search
	}
	return c.reach(link{from, topic}, func(b int32) bool {
		above, most := c.g.topics.above(topic, b)
		return above < 0 || back && above < most
	})
}

// reach adds to the queue those that were not reached before. It stops at the
// first that has room and returns it, or none.
func (c *chains) reach(from link, reached func(m int32) bool) int32 {
	kept := c.unseen[:0]
	for k, m := range c.unseen {
		if !reached(m) {
			kept = append(kept, m)
			continue
		}
		c.from[m] = from
		if c.room(m) {
			c.unseen = append(kept, c.unseen[k+1:]...)
			return m
		}
		c.queue = append(c.queue, m)
	}
	c.unseen = kept
	return none
}

// apply moves units along the chain that ends at a member, the last first, and
// gives u to its first member.
func (c *chains) apply(u, end int32) {
	if end == none {
		panic("allocfn: a partition has no place") // see the proof at chains
	}
	g := c.g
	c.load[end]++
	if c.load[end] > c.base[end] {
		c.pool--
	}
	for to := end; ; to = c.from[to].member {
		from := c.from[to]
		unit := u
		switch {
		case from.topic == inPool:
			c.load[from.member]++
			c.load[to]--
			continue
		case from.member != none:
			held := c.held[from.member]
			k := slices.IndexFunc(held, func(v int32) bool { return g.topics.of[v] == from.topic })
			unit = held[k]
			c.held[from.member] = slices.Delete(held, k, k+1)
			g.topics.change(from.topic, from.member, -1)
		}
		g.topics.change(g.topics.of[unit], to, 1)
		g.owner[unit] = to
		c.held[to] = append(c.held[to], unit)
		if from.member == none {
			return
		}
	}
}
