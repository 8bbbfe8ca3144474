package allocfn

import (
	"cmp"
	"slices"
)

// topicRoom says how many more partitions of each topic members may take: their exact share rounded down, which is due to them,
// and one more for some of those that have a rest.
//
// It counts the units of the heavy members of a topic, whose share is more than one. The others take one only: topicRoom keeps a
// bit for each member, or looks at the owners of the topic's units where these are few.
type topicRoom struct {
	shares shares  // the members' exact shares
	rank   []int32 // the members' ranks, the heaviest first; nil if all have equal shares
	owner  []int32 // the owners of the units
	of     []int32 // the topic of each unit
	order  []int32 // the units topic by topic
	topics []topicState
	due    []int32  // how many units of all topics are still due to each member
	counts []int32  // by topic and rank: how many units a heavy member has
	bits   []uint64 // by topic and member: whether a member that is not heavy has a unit
}

type topicState struct {
	from, to int32 // where its units are in order
	share    int32 // how many units each member gets, if all weights are equal
	pool     int32 // how many members may get one more
	heavy    int32 // how many members are heavy
	counts   int   // where its counts begin
	bits     int   // where its bits begin; -1 for none
}

// newTopicRoom returns the room for the partitions of in, none of which has an owner yet, and members with these shares.
func newTopicRoom(in Input, by shares, owner []int32) *topicRoom {
	n := by.members
	r := &topicRoom{
		shares: by, owner: owner,
		of: make([]int32, len(owner)), order: byTopic(in.Partitions), due: make([]int32, n),
	}
	heaviest := r.weigh()
	for from, to := 0, 0; from < len(r.order); from = to {
		for to < len(r.order) && in.Partitions[r.order[to]].Topic == in.Partitions[r.order[from]].Topic {
			r.of[r.order[to]] = int32(len(r.topics))
			to++
		}
		size := to - from
		t := topicState{from: int32(from), to: int32(to), counts: len(r.counts), bits: -1}
		if r.rank == nil {
			t.share, t.pool = int32(size/n), int32(size%n)
			if size > n {
				t.heavy = int32(n)
			}
			for m := range r.due {
				if t.share == 0 {
					break
				}
				r.due[m] += t.share
			}
		} else {
			t.pool = int32(size)
			for _, m := range heaviest {
				whole, rest := r.shares.of(m, size)
				if whole == 0 {
					break
				}
				if whole > 1 || rest > 0 {
					t.heavy++
				}
				t.pool -= int32(whole)
				r.due[m] += int32(whole)
			}
		}
		r.counts = append(r.counts, make([]int32, t.heavy)...)
		if int(t.heavy) < n && size > 8 && 256*size > n {
			t.bits = len(r.bits)
			r.bits = append(r.bits, make([]uint64, (n+63)/64)...)
		}
		r.topics = append(r.topics, t)
	}
	return r
}

// weigh ranks the members, unless all have equal shares, and returns them sorted, the heaviest first.
func (r *topicRoom) weigh() (heaviest []int32) {
	weights := r.shares.weights
	if weights == nil {
		return nil
	}
	heaviest = make([]int32, r.shares.members)
	for m := range heaviest {
		heaviest[m] = int32(m)
	}
	slices.SortStableFunc(heaviest, func(a, b int32) int { return cmp.Compare(weights[b], weights[a]) })
	r.rank = make([]int32, r.shares.members)
	for k, m := range heaviest {
		r.rank[m] = int32(k)
	}
	return heaviest
}

// count returns how many units of topic t member m has.
func (r *topicRoom) count(t, m int32) int32 {
	s := &r.topics[t]
	k := m
	if r.rank != nil {
		k = r.rank[m]
	}
	switch {
	case k < s.heavy:
		return r.counts[s.counts+int(k)]
	case s.bits >= 0:
		return int32(r.bits[s.bits+int(m/64)] >> (m % 64) & 1)
	case slices.ContainsFunc(r.order[s.from:s.to], func(u int32) bool { return r.owner[u] == m }):
		return 1
	}
	return 0
}

// share returns m's share of topic t rounded down, and how many more units m may get, one or none.
func (r *topicRoom) share(t, m int32) (least, more int32) {
	s := &r.topics[t]
	if r.rank == nil {
		return s.share, 1
	}
	whole, rest := r.shares.of(m, int(s.to-s.from))
	if rest > 0 {
		more = 1
	}
	return int32(whole), more
}

// above returns how many units of topic t member m has beyond its share rounded down, and how many it may have beyond that, one
// or none.
func (r *topicRoom) above(t, m int32) (above, most int32) {
	least, more := r.share(t, m)
	return r.count(t, m) - least, more
}

// allowed reports whether m may take one more unit of topic t: one that is due to it, or, if extra is set, an extra one. Some
// unit of t must have no owner yet.
func (r *topicRoom) allowed(t, m int32, extra bool) bool {
	above, most := r.above(t, m)
	return above < 0 || extra && above < most && r.topics[t].pool > 0
}

// change counts one unit of topic t more or less for m, before the unit's owner changes. It reports whether that unit is due to
// m; else it is extra.
func (r *topicRoom) change(t, m, by int32) (due bool) {
	s := &r.topics[t]
	old := r.count(t, m)
	if least, _ := r.share(t, m); max(old, old+by) > least {
		s.pool -= by
	} else {
		r.due[m] -= by
		due = true
	}
	k := m
	if r.rank != nil {
		k = r.rank[m]
	}
	if k < s.heavy {
		r.counts[s.counts+int(k)] += by
	} else if s.bits >= 0 {
		r.bits[s.bits+int(m/64)] ^= 1 << (m % 64)
	}
	return due
}
