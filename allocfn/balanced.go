package allocfn

import (
	"fmt"
	"math/bits"
)

// Balanced returns "balanced", which assigns to every member its share to within one partition, whatever the topics, and moves
// few partitions when members join and leave, though it does not know the plan before.
//
// Each partition has probes and each member has points on a ring (multi-probe hashing); hashes of the names decide where they
// are. The distance of a pair of a partition and a member is that from the nearest point to the nearest probe. Balanced takes the
// pairs in the order of their distances (in steps of at most 12 %, then in the order of the partitions, then exactly), and
// assigns the partition if it is free and the member has room. So the outcome is the one stable matching of the distances.
//
// A member's room is its quota: with P partitions and n members of equal weight each takes ⌊P/n⌋, and P mod n of them, those that
// come first in the order of pairs, take one more. With weights, a member of weight w has the exact share P·w/W, W being the sum
// of the weights. It takes that rounded down. The members with the largest remainders take one each of the partitions that are
// left; among equal remainders, those that come first. Distances are divided by the member's weight, in relation to the mean
// weight. So only the proportions of weights count, whether they are given in percent or in millicores, and a small change of a
// weight moves few partitions, wherever the weight is. Weights above 2^31-1 count as 2^31-1.
//
// Where members ask for different topics, these are divided group by group, and room is what a member lacks to the level of its
// group: see Topics on the package's page.
//
// With [Input.Zones], pairs in one zone come before all others: a partition is assigned to a member of another zone only when the
// members of its own have no room. The shares remain as they are. A partition or member without a zone is in none.
//
// It takes about 100 ns per partition, less on two cores, and 20 bytes. Where weights differ it takes about twice as long, and up
// to three times where they range from one to a million.
// [ErrInput] is the only error, for more than 2^21 members, or negative weights.
func Balanced() Func { return Func{Name: "balanced", Assign: balanced, readOnly: balanced} }

func balanced(in Input) (Assignment, error) {
	if len(in.Members) == 0 || len(in.Partitions) == 0 {
		return Assignment{}, nil
	}
	groups := groupByAskers(in)
	if groups == nil {
		return balancedWithin(in, newQuotas(in.Members, totalOf(in.Members), len(in.Partitions)))
	}
	return fillUp(in, groups, func(group Input, have []int32, l level) (Assignment, error) {
		return balancedWithin(group, l.quotas(group.Members, have))
	})
}

// balancedWithin is Balanced for members that may take as many partitions as the quotas say, whatever their weights. There must
// be a member, a partition, and room for all partitions. It changes the quotas.
func balancedWithin(in Input, q quotas) (Assignment, error) {
	if err := checkMembers(in.Members); err != nil {
		return nil, err
	}
	b := newBalance(in, q)
	b.choose()
	b.serveAll(b.sureCut())
	return b.owner, nil
}

// checkMembers refuses members that Balanced cannot count with.
func checkMembers(members []Member) error {
	if len(members) > maxMembers {
		return fmt.Errorf("%w: %d members, more than %d", ErrInput, len(members), maxMembers)
	}
	for i := range members {
		if m := &members[i]; m.Weight < 0 {
			return fmt.Errorf("%w: member %s has weight %d", ErrInput, quote(m.Name), m.Weight)
		}
	}
	return nil
}

const (
	maxMembers = 1 << memberBits
	memberBits = 21
	memberMask = maxMembers - 1

	codeBits = 3
	codes    = (64 + 1 - codeBits) << codeBits // of distances, see code
	allCodes = 2 * codes                       // of pairs: those in one zone, then the others; less than 2^10
)

// code cuts a distance to its leading bit and the three behind it, so that pairs of about the same distance are taken in the
// order of the partitions. Finer steps move no fewer partitions and take longer.
func code(distance uint64) int {
	if distance < 2<<codeBits {
		return int(distance)
	}
	e := bits.Len64(distance) - codeBits - 1
	return e<<codeBits + int(distance>>e)
}

// proposal is a pair's code<<memberBits | member.
type proposal uint32

func (p proposal) member() int32 { return int32(p & memberMask) }

// balance is the working state of one call.
type balance struct {
	keys    []uint64        // hashes of the partitions
	choices []proposal      // each partition's best pair that was not refused
	counts  [allCodes]int32 // how many first choices have each code
	quotas  quotas          // how many partitions each member may still take
	members []Member
	scale   scale     // of the members' weights
	fields  [][]field // by zone, the first being that of all members, and by class
	home    []int32   // the zone of each partition; nil without zones
	place   []int32   // the zone of each member; nil without zones

	owner   Assignment
	refused [allCodes]int32 // by code, the first partition of a list linked by owner, or -1
	list    []int32         // memory for takeRefused
}

// newBalance begins a division in which no member has a partition yet.
func newBalance(in Input, q quotas) *balance {
	names := make([]uint64, len(in.Members))
	for i := range names {
		names[i] = hashName(in.Members[i].Name)
	}
	z := newZones(in)
	b := &balance{
		keys:    hashPartitions(in.Partitions),
		choices: make([]proposal, len(in.Partitions)),
		quotas:  q,
		members: in.Members,
		scale:   newScale(in.Members),
		home:    z.home,
		place:   z.place,
		owner:   make(Assignment, len(in.Partitions)),
	}
	b.fields = newFields(pointsOf(names), b.scale, z.place, z.count)
	return b
}

// code returns the code of a distance in relation to the mean weight, so that only the proportions of weights count.
func (b *balance) code(s suit) int {
	if b.scale.inverse == nil {
		return code(uint64(s.score) >> 32)
	}
	relative, _ := bits.Mul64(s.distance, b.scale.mean)
	return code(relative)
}

// choose finds each partition's first choice.
func (b *balance) choose() {
	if b.home != nil {
		b.chooseZoned()
		return
	}
	if len(b.keys) < twoCoresFrom {
		b.chooseSome(0, len(b.keys), &b.counts)
		return
	}
	// The halves share only the rings, and only read them.
	var counts [allCodes]int32
	var panicked any
	done := make(chan struct{})
	half := len(b.keys) / 2
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		b.chooseSome(half, len(b.keys), &counts)
	}()
	b.chooseSome(0, half, &b.counts)
	<-done
	if panicked != nil {
		panic(panicked)
	}
	for c, n := range counts {
		b.counts[c] += n
	}
}

// twoCoresFrom is the number of partitions from which a second goroutine looks for half of the first choices, by far the longest
// part that can be cut in two.
const twoCoresFrom = 1 << 16

// chooseSome finds the first choices of some partitions and counts their codes.
func (b *balance) chooseSome(from, to int, counts *[allCodes]int32) {
	var together block
	fields := b.fields[nowhere]
	for i := from; i < to; i += blockSize {
		keys := b.keys[i:min(i+blockSize, to)]
		if b.scale.inverse != nil {
			for k, s := range b.scale.bestOf(&together, fields, keys) {
				c := b.code(s)
				b.choices[i+k] = pair(c, s.member())
				counts[c]++
			}
			continue
		}
		for k, s := range fields[0].ring.bestOf(&together, keys) {
			c := code(uint64(s) >> 32)
			b.choices[i+k] = pair(c, s.member())
			counts[c]++
		}
	}
}

func (b *balance) chooseZoned() {
	var together block
	for i := range b.keys {
		zone, c := b.home[i], 0
		if zone == nowhere {
			c = codes
		}
		s := b.first(&together, b.fields[zone], i)
		c += b.code(s)
		b.choices[i] = pair(c, s.member())
		b.counts[c]++
	}
}

// first returns the best pair of a partition with the members of some fields.
func (b *balance) first(together *block, fields []field, partition int) suit {
	if b.scale.inverse == nil {
		return b.scale.of(fields[0].ring.best(b.keys[partition]))
	}
	return b.scale.bestOf(together, fields, b.keys[partition:partition+1])[0]
}

func pair(code int, member int32) proposal { return proposal(code)<<memberBits | proposal(member) }
