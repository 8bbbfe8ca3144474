package allocfn

import (
	"fmt"
	"math/bits"
	"slices"
)

// Evaluator computes what [Balanced] gives, in about a third of the time when it
// was asked about almost the same group before: it keeps the partitions' first
// choices, and goes through those only that a few members who came or went may
// have changed. Results are always Balanced's, whatever was asked before; so
// some members of a group may use one and others not.
//
// It is made for a member that lives long in a large group and sees it change
// by a few members at a time. Another set of partitions makes it begin anew, and
// so do many changes at once; with zones it is no faster than Balanced. It keeps
// about 65 bytes per partition. The first time that a member joins takes longer,
// for the half of that is made then.
//
// The zero Evaluator is ready for use. It is not safe for concurrent use.
type Evaluator struct {
	partitions []Partition // of the last input, which the caller leaves alone
	keys       []uint64
	members    []seat   // of the last input, in order
	first      []int32  // each partition's first choice, a chair
	codes      []uint16 // and the code of that pair
	chairs     []chair
	index      probeIndex
	choices    []proposal // scratch
	marks      []uint64   // scratch, a bit for each partition
}

// seat is a member with what decides on its points.
type seat struct {
	name   string
	weight int
	chair  int32
}

// chair is what is kept of a member for as long as it stays. Its number does
// not change when others come and go.
type chair struct {
	firsts   []key // the partitions whose first choice it is
	arrivals []key // the partitions that it got although they had a better one
	place    int32 // the member's index in the input, nobody when it went
}

const nobody = -1

// Assign returns what Call(Balanced(), in) returns. The caller must not change
// in.Partitions afterwards; it may pass the same slice again, which saves
// comparing it.
func (e *Evaluator) Assign(in Input) (Assignment, error) {
	same := len(in.Partitions) > 0 && len(in.Partitions) == len(e.partitions) &&
		(&in.Partitions[0] == &e.partitions[0] || slices.Equal(in.Partitions, e.partitions))
	checked := in
	if same && in.Places == nil {
		checked.Partitions = nil
	}
	if err := checked.Validate(); err != nil {
		return nil, err
	}
	if len(in.Members) == 0 || len(in.Partitions) == 0 {
		return Assignment{}, nil
	}
	if same && len(in.Zones) == 0 {
		if a := e.repair(in); a != nil {
			return a, nil
		}
	}
	return e.begin(in)
}

// begin does all the work, and keeps what it comes to.
func (e *Evaluator) begin(in Input) (Assignment, error) {
	*e = Evaluator{}
	b, err := newBalance(in)
	if err != nil {
		return nil, fmt.Errorf("allocfn: function balanced: %w", err)
	}
	b.choose()
	if b.zones.home != nil {
		b.settle(0)
		return b.owner, nil
	}
	e.partitions, e.keys = in.Partitions, b.keys
	e.first = make([]int32, len(b.choices))
	e.codes = make([]uint16, len(b.choices))
	e.chairs = make([]chair, len(in.Members))
	for m, member := range in.Members {
		e.members = append(e.members, seat{member.Name, b.weights[m], int32(m)})
		e.chairs[m].place = int32(m)
	}
	for p, choice := range b.choices {
		m := choice.member()
		e.first[p], e.codes[p] = m, uint16(choice>>memberBits)
		e.chairs[m].firsts = append(e.chairs[m].firsts, choice.key(int32(p)))
	}
	for i := range e.chairs {
		slices.Sort(e.chairs[i].firsts)
	}
	b.settle(b.sureCut())
	for p, m := range b.owner {
		if m != e.first[p] {
			e.chairs[m].arrivals = append(e.chairs[m].arrivals, b.choices[p].key(int32(p)))
		}
	}
	e.choices = b.choices
	return b.owner, nil
}

func (p proposal) key(partition int32) key { return keyOf(int(p>>memberBits), partition) }

// repair works from what is kept. It returns nil when too much has changed.
func (e *Evaluator) repair(in Input) Assignment {
	came, went, ok := e.seat(in)
	if !ok {
		return nil
	}
	b := &balance{keys: e.keys, choices: e.choices, quotas: newQuotas(in.Members, len(in.Partitions))}
	points := make([]int64, 0, len(in.Members)*pointSize)
	for i, s := range e.members {
		b.weights = append(b.weights, s.weight)
		points = appendPoints(points, i, hashName(s.name), s.weight)
	}
	b.ring = newRing(points, len(in.Members))
	e.choose(b.ring, came, went)
	return e.settle(b)
}

// seat gives chairs to the members that came and takes those of members that
// went. It returns the places of the former and the chairs of the latter; false
// when they are too many, or chairs are, for none is given twice.
func (e *Evaluator) seat(in Input) (came, went []int32, ok bool) {
	weights := pointWeights(in.Members)
	members := make([]seat, len(in.Members))
	old := e.members
	for i, m := range in.Members {
		for len(old) > 0 && old[0].name < m.Name {
			went = append(went, old[0].chair)
			old = old[1:]
		}
		members[i] = seat{m.Name, weights[i], -1}
		if len(old) > 0 && old[0].name == m.Name {
			if old[0].weight == weights[i] {
				members[i].chair = old[0].chair
			} else {
				went = append(went, old[0].chair)
			}
			old = old[1:]
		}
		if members[i].chair < 0 {
			came = append(came, int32(i))
		}
	}
	for _, s := range old {
		went = append(went, s.chair)
	}
	n := len(members)
	if n > maxMembers || 32*len(came)+4*len(went) > n || len(e.chairs) > 2*n+1_000 {
		return nil, nil, false
	}
	for _, c := range went {
		e.chairs[c].place = nobody
	}
	for _, i := range came {
		members[i].chair = int32(len(e.chairs))
		e.chairs = append(e.chairs, chair{})
	}
	for i, s := range members {
		e.chairs[s.chair].place = int32(i)
	}
	e.members = members
	return came, went, true
}

// choose mends first choices: those of members that went, and of partitions
// that a member which came is nearer to.
func (e *Evaluator) choose(r *ring, came, went []int32) {
	for _, c := range went {
		firsts := e.chairs[c].firsts
		e.chairs[c] = chair{place: nobody}
		for _, k := range firsts {
			s := r.best(e.keys[k.partition()])
			e.add(k.partition(), s)
		}
	}
	if len(came) == 0 {
		return
	}
	e.index.build(e.keys)
	for _, m := range came {
		s := e.members[m]
		for _, x := range appendPoints(nil, int(m), hashName(s.name), s.weight) {
			before, after := r.around(x)
			for p := range e.index.between(before, after) {
				was := e.first[p]
				s := r.best(e.keys[p])
				if c := e.members[s.member()].chair; c != was {
					firsts := e.chairs[was].firsts
					i, _ := slices.BinarySearch(firsts, keyOf(int(e.codes[p]), p))
					e.chairs[was].firsts = slices.Delete(firsts, i, i+1)
					e.add(p, s)
				}
			}
		}
	}
}

func (k key) partition() int32 { return int32(uint32(k)) }

// grant returns how many of its first choices a member may have beforehand so
// that with the others that came before these it had no more than limit.
func (c *chair) grant(limit int) int {
	slices.Sort(c.arrivals)
	n := max(0, min(limit, len(c.firsts)))
	for n > 0 {
		earlier, _ := slices.BinarySearch(c.arrivals, c.firsts[n-1])
		if n+earlier <= limit {
			break
		}
		n--
	}
	return n
}

// spare is how much of a quota is not granted, for what may come earlier than
// it did the last time: some of what those who went had, and some by chance.
func spare(quota, members int) int { return 4 + quota/64 + 2*quota/members }

// add makes the member of s the first choice of p.
func (e *Evaluator) add(p int32, s score) {
	c := e.members[s.member()].chair
	k := keyOf(code(s), p)
	e.first[p], e.codes[p] = c, uint16(code(s))
	i, _ := slices.BinarySearch(e.chairs[c].firsts, k)
	e.chairs[c].firsts = slices.Insert(e.chairs[c].firsts, i, k)
}

// settle grants each member the first choices that it had room for with some
// to spare, and settles the others. It returns nil when that was too many.
func (e *Evaluator) settle(b *balance) Assignment {
	b.owner = make(Assignment, len(e.first))
	places := make([]int32, len(e.chairs))
	for i, c := range e.chairs {
		places[i] = c.place
	}
	for p, c := range e.first {
		b.owner[p] = places[c]
	}
	b.granted = make([]key, len(e.members))
	e.marks = slices.Grow(e.marks[:0], (len(e.first)+63)/64)[:(len(e.first)+63)/64]
	clear(e.marks)
	for m, s := range e.members {
		c := &e.chairs[s.chair]
		quota := int(b.quotas.left[m])
		if b.quotas.pooled != nil && b.quotas.pooled[m] {
			quota--
		}
		n := c.grant(quota - spare(quota, len(e.members)))
		b.quotas.left[m] -= int32(n)
		if n > 0 {
			b.granted[m] = c.firsts[n-1]
		}
		for _, k := range c.firsts[n:] {
			e.marks[k.partition()/64] |= 1 << (k.partition() % 64)
			b.counts[k>>32]++
		}
		c.arrivals = c.arrivals[:0]
	}
	var ends [allCodes]int32
	sum := int32(0)
	for c, n := range b.counts {
		ends[c] = sum
		sum += n
	}
	order := make([]wish, sum)
	for i, mark := range e.marks {
		for ; mark != 0; mark &= mark - 1 {
			p := int32(64*i + bits.TrailingZeros64(mark))
			c := e.codes[p]
			order[ends[c]] = wish{p, b.owner[p]}
			ends[c]++
		}
	}
	b.serveAll(0, order, &ends)
	if b.failed {
		return nil
	}
	for _, w := range order {
		if m := b.owner[w.partition]; m != w.member {
			c := &e.chairs[e.members[m].chair]
			c.arrivals = append(c.arrivals, b.choices[w.partition].key(w.partition))
		}
	}
	return b.owner
}
