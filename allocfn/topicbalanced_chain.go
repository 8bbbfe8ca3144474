package allocfn

import "slices"

// chains finds owners for units that no single swap can place: a member takes the unit and hands on one of another topic to a
// second member, which hands on one of a third topic, and so on, until a member has room in total. Each time it takes a chain of
// the fewest members, so that few units move.
//
// A chain is an augmenting path of a flow. The flow goes from the topics, which have the units, to the members: directly, as many
// as their share of the topic rounded down, or by way of the topic's pool, one each for members whose share has a rest. It goes
// on from the members to the sink, likewise by their base or by the pool of the totals. If there is any way to place all units,
// there is an augmenting path until all are placed. There is a way if the base is the share rounded down and each member whose
// share has a rest may take from the pool: the exact shares are a flow, and since all capacities are whole numbers, a flow of
// whole numbers exists that is as large. It uses up all pools, so that each member has its share rounded down, or one more.
//
// At first the totals are to be those by largest remainder. That is not always possible; when one unit has no way, the totals may
// be rounded otherwise.
type chains struct {
	g    *matching
	held [][]int32 // the units of each member

	// The totals.
	load []int32 // how many units each member has
	base []int32 // how many units a member may have without the pool
	more []bool  // the members that may have one more, from the pool
	pool int     // how many units are left in the pool
	free bool    // the totals need not be those by largest remainder

	// One search.
	unseen []int32 // the members that have not been reached
	queue  []int32 // the members that have, in the order of their distances
	from   []link  // how each was reached
	search int32   // the number of the search
	shares []int32 // by topic, the last search that reached all members with less than their share
	pools  []int32 // by topic, the last search that reached all members that may take from its pool
	totals int32   // the last search that reached all members with a unit from the pool of the totals
}

// link says how a chain comes to a member. The member gets a unit of the topic from another one, or it leaves its place in the
// pool of the totals to the other.
type link struct {
	member int32 // the other member; none for the unit that is to be placed
	topic  int32 // the topic; inPool for the pool of the totals
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

// link finds owners for the units.
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

// release lets all members whose share has a rest take one more.
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
		// A member with less than its base has no unit from the pool.
	}
}

// room reports whether m may have one more in total.
func (c *chains) room(m int32) bool {
	return c.load[m] < c.base[m] || c.load[m] == c.base[m] && c.more[m] && c.pool > 0
}

// find looks for a chain that begins with a unit of the topic, and returns the member at its end, none if there is none.
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

// leave reaches all members that may take a unit of m, or that could give up one in total in its place. It returns the first that
// has room, or none.
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

// hand reaches all members that may take a unit of the topic from a member. back says that this returns one to the topic's pool.
// hand returns the first that has room, or none.
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

// reach adds to the queue the members that were not reached before. It stops at the first that has room and returns it, or none.
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

// apply moves units along the chain that ends at a member, the last first, and assigns u to its first member.
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
