package allocator

import (
	"cmp"
	"slices"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/status"
)

// findMoves finds the partitions that the mapping gives to another member than the mapping before did, and why. The others keep
// their moves.
func (c *comparison) findMoves() {
	was, is := c.before, c.now
	wasSelf, self := was.self(), is.self()
	if len(is.owner) > 0 {
		is.moves = make([]*move, len(is.owner))
	}
	index, stayed, kept := was.finder(is), 0, 0
	for k, to := range is.owner {
		i, from := index(k), int32(-1)
		if i >= 0 {
			from = was.owner[i]
			stayed++
		}
		if i >= 0 && c.nowOf[from] == to {
			is.moves[k] = was.moves[i]
		} else {
			is.moves[k] = c.move(is.in.Partitions[k], from, to)
			c.change.moved++
		}
		if to == self {
			is.mine++
			if i >= 0 && from == wasSelf {
				kept++
			}
		}
	}
	c.change.moved += len(was.owner) - stayed
	c.change.given, c.change.takenAway = is.mine-kept, was.mine-kept
}

// finder returns a function from indices of partitions in now, the later mapping, to indices of the same partitions in m; it
// returns -1 if m does not assign the partition. The function is fast if k grows from call to call and most partitions are in
// both mappings.
func (m *mapping) finder(now *mapping) func(k int) int {
	if sameSlice(m.in.Partitions, now.in.Partitions) && len(m.owner) > 0 {
		return func(k int) int { return k }
	}
	at := 0 // the index in m of the partition that is expected next
	return func(k int) int {
		p := now.in.Partitions[k]
		if at >= len(m.owner) || m.in.Partitions[at] != p {
			i, ok := m.index(p)
			if !ok {
				return -1
			}
			at = i
		}
		at++
		return at - 1
	}
}

// index returns the index of p among the partitions that the mapping assigns.
func (m *mapping) index(p kiel.Partition) (int, bool) {
	if len(m.owner) == 0 {
		return 0, false
	}
	ofTopic := m.view().Topic(p.Topic)
	i, ok := slices.BinarySearchFunc(ofTopic, p.ID, func(i, id int32) int { return cmp.Compare(m.in.Partitions[i].ID, id) })
	if !ok {
		return 0, false
	}
	return int(ofTopic[i]), true
}

// self returns the index of this member, -1 if it has not joined.
func (m *mapping) self() int32 {
	if i, ok := slices.BinarySearch(m.members, m.occasion.self); ok && m.occasion.joined {
		return int32(i)
	}
	return -1
}

// move returns the move of p from the member with index from in the mapping before, -1 for none, to the member with index to in
// this one.
func (c *comparison) move(p kiel.Partition, from, to int32) *move {
	if from < 0 {
		if m, ok := c.newPartition(p.Topic); ok {
			return m
		}
	}
	left := from >= 0 && c.nowOf[from] < 0
	if !left && c.before.change != nil && c.arrived[to] {
		m := c.toArrived[[2]int32{from, to}]
		if m == nil {
			m = c.newMove(from, statuswrite.Reason(status.MemberJoined, c.now.members[to]))
			c.toArrived[[2]int32{from, to}] = m
		}
		return m
	}
	m := c.alike[from+1]
	if m == nil {
		reason := c.change.reason
		if left {
			reason = c.departure(c.before.members[from])
		}
		m = c.newMove(from, reason)
		c.alike[from+1] = m
	}
	return m
}

// departure returns the reason of moves from a member that is gone.
func (c *comparison) departure(name string) status.Reason {
	if name == c.now.occasion.self {
		return statuswrite.Reason(status.Stopped) // for the other members it is MemberGone
	}
	return statuswrite.Reason(status.MemberGone, name)
}

// newMove returns a move from the member with index from in the mapping before, -1 for none.
func (c *comparison) newMove(from int32, reason status.Reason) *move {
	m := &move{change: c.change, reason: reason}
	if from >= 0 {
		m.from = c.before.members[from]
	}
	return m
}

// newPartition returns the move of a partition that had no owner, if its topic is new in the set or has grown. For other topics
// it returns false.
func (c *comparison) newPartition(topic string) (*move, bool) {
	var code status.Code
	if _, ok := slices.BinarySearch(c.added, topic); ok {
		code = status.TopicAdded
	} else if _, ok := slices.BinarySearch(c.grew, topic); ok {
		code = status.TopicGrew
	} else {
		return nil, false
	}
	if c.newcomer == nil || c.ofTopic != topic {
		c.newcomer, c.ofTopic = c.newMove(-1, statuswrite.Reason(code, topic)), topic
	}
	return c.newcomer, true
}
