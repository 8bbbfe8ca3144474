package allocfn

import "slices"

// topicRoom says how many more partitions of each topic members may take: as
// many as every member gets, and one more for some.
//
// Of topics that have at least as many partitions as there are members it
// counts each member's. Of others a member takes one only: for those it keeps a
// bit for each member, or looks at the owners, where these are few.
type topicRoom struct {
	members int
	owner   []int32 // of the units
	of      []int32 // the topic of each unit
	order   []int32 // the units topic by topic
	topics  []topicState
	counts  []int32  // by topic and member
	bits    []uint64 // by topic and member
}

type topicState struct {
	from, to int32 // where its units are in order
	share    int32 // what every member gets
	pool     int32 // how many members may get one more
	row      int   // where its counts begin if the share is not 0, else its bits; -1 for no bits
}

// newTopicRoom returns the room for the partitions of in, of which none has an
// owner yet.
func newTopicRoom(in Input, owner []int32) *topicRoom {
	n := len(in.Members)
	r := &topicRoom{members: n, owner: owner, of: make([]int32, len(owner)), order: byTopic(in.Partitions)}
	for from, to := 0, 0; from < len(r.order); from = to {
		for to < len(r.order) && in.Partitions[r.order[to]].Topic == in.Partitions[r.order[from]].Topic {
			r.of[r.order[to]] = int32(len(r.topics))
			to++
		}
		size := to - from
		t := topicState{from: int32(from), to: int32(to), share: int32(size / n), pool: int32(size % n), row: -1}
		if t.share > 0 {
			t.row = len(r.counts)
			r.counts = append(r.counts, make([]int32, n)...)
		} else if size > 8 && 256*size > n {
			t.row = len(r.bits)
			r.bits = append(r.bits, make([]uint64, (n+63)/64)...)
		}
		r.topics = append(r.topics, t)
	}
	return r
}

// count returns how many of topic t member m has.
func (r *topicRoom) count(t, m int32) int32 {
	s := &r.topics[t]
	switch {
	case s.share > 0:
		return r.counts[s.row+int(m)]
	case s.row >= 0:
		return int32(r.bits[s.row+int(m/64)] >> (m % 64) & 1)
	case slices.ContainsFunc(r.order[s.from:s.to], func(u int32) bool { return r.owner[u] == m }):
		return 1
	}
	return 0
}

// allowed reports whether m may take one more of topic t, of which some unit
// must have no owner yet.
func (r *topicRoom) allowed(t, m int32) bool {
	s := &r.topics[t]
	count := r.count(t, m)
	return count < s.share || count == s.share && s.pool > 0
}

// change counts one more or one less of topic t for m, before the owner of the
// unit is changed.
func (r *topicRoom) change(t, m, by int32) {
	s := &r.topics[t]
	old := r.count(t, m)
	if max(old, old+by) > s.share {
		s.pool -= by
	}
	if s.share > 0 {
		r.counts[s.row+int(m)] += by
	} else if s.row >= 0 {
		r.bits[s.row+int(m/64)] ^= 1 << (m % 64)
	}
}
