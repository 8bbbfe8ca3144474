package allocfn

import (
	"cmp"
	"slices"
)

// counter goes through a plan topic by topic.
type counter struct {
	in      Input
	owners  Assignment
	order   []int32 // the partitions by topic and number
	next    int     // how many of order have been taken
	counts  []int   // the partitions of each member in one load; all zero between uses
	weights uint64  // the sum of the members' weights
	heavy   []int32 // the members, the heaviest first
}

func newCounter(p Plan) (*counter, error) {
	if err := p.Input.validate(); err != nil {
		return nil, err
	}
	if err := check(p.Input, p.Assignment); err != nil {
		return nil, err
	}
	c := &counter{
		in: p.Input, owners: p.Assignment, order: byTopic(p.Input.Partitions), counts: make([]int, len(p.Input.Members)),
	}
	c.weights = totalOf(c.in.Members).sum
	for i := range c.in.Members {
		c.heavy = append(c.heavy, int32(i))
	}
	slices.SortFunc(c.heavy, func(i, k int32) int {
		return cmp.Compare(shareOf(c.in.Members[k].Weight), shareOf(c.in.Members[i].Weight))
	})
	return c, nil
}

// more says whether there is a topic to take.
func (c *counter) more() bool { return c.next < len(c.order) }

// topic returns the topic to take next.
func (c *counter) topic() string { return c.in.Partitions[c.order[c.next]].Topic }

// nextTopic returns the first of the topics that b or a has to take.
func nextTopic(b, a *counter) string {
	switch {
	case !a.more():
		return b.topic()
	case !b.more():
		return a.topic()
	}
	return min(b.topic(), a.topic())
}

// take takes the partitions of the topic, if that is the next.
func (c *counter) take(topic string) []int32 {
	from := c.next
	for c.more() && c.topic() == topic {
		c.next++
	}
	return c.order[from:c.next]
}

// load says how some partitions are spread.
func (c *counter) load(some []int32) Load {
	l := Load{Partitions: len(some), Even: true}
	if len(c.counts) == 0 {
		return l
	}
	used := 0
	for _, i := range some {
		m := &c.counts[c.owners[i]]
		if *m == 0 {
			used++
		}
		*m++
		l.Most = max(l.Most, *m)
	}
	if used == len(c.counts) {
		l.Least = slices.Min(c.counts)
	}
	// At most as many members as there are partitions have a share of one or more. So a topic with few partitions does not take a
	// pass over all members.
	for _, m := range c.heavy {
		share, rest := c.share(int(m), len(some))
		if share == 0 {
			break
		}
		count := c.counts[m]
		l.Even = l.Even && (count == share || rest && count == share+1)
	}
	for _, i := range some {
		m := c.owners[i]
		if l.Even && c.counts[m] > 1 {
			share, _ := c.share(int(m), len(some))
			l.Even = share > 0
		}
		c.counts[m] = 0
	}
	return l
}

// share returns the whole part of member m's exact share of so many partitions, and whether there is a rest.
func (c *counter) share(m, partitions int) (whole int, rest bool) {
	whole, left := exactShare(partitions, shareOf(c.in.Members[m].Weight), c.weights)
	return whole, left != 0
}

// indicesIn returns for each member of c its index in other, -1 for none.
func (c *counter) indicesIn(other *counter) []int32 {
	indices := make([]int32, len(c.in.Members))
	k := 0
	for i, m := range c.in.Members {
		for k < len(other.in.Members) && other.in.Members[k].Name < m.Name {
			k++
		}
		indices[i] = -1
		if k < len(other.in.Members) && other.in.Members[k].Name == m.Name {
			indices[i] = int32(k)
		}
	}
	return indices
}

// keepable returns how many partitions can stay in the best perfectly even plan. has holds how many partitions each member could
// keep. A member keeps up to the whole part of its share, and one more while there are places left.
func (c *counter) keepable(has []int) int {
	places, over, stay := len(c.in.Partitions), 0, 0
	for m, n := range has {
		whole, rest := c.share(m, len(c.in.Partitions))
		places -= whole
		stay += min(n, whole)
		if rest && n > whole {
			over++
		}
	}
	if len(has) == 0 {
		return 0
	}
	return stay + min(over, places)
}
