package allocfn

import (
	"math/bits"
	"slices"
)

// level says how partitions are divided among members of which some have others already, so that the totals per weight become as
// level as whole partitions allow. Members whose total is at or above the level get nothing. The exact totals of the others come
// to all/weights partitions per unit of weight.
type level struct {
	members []int32 // the members below the level, as growing indices
	all     int     // how many partitions these members have, and those that are divided
	weights uint64  // the sum of these members' weights
}

// levelOf returns the level for this many partitions, at least one. have holds how many partitions each member has.
func levelOf(members []Member, have []int32, partitions int) level {
	l := level{members: make([]int32, len(members)), all: partitions}
	for m := range members {
		l.members[m] = int32(m)
		l.all += int(have[m])
		l.weights += shareOf(members[m].Weight)
	}
	// A member above a level that counts too many members is above the right level, too, which is lower. Some member is always
	// below, since there is something to divide.
	for {
		below, all, weights := l.members[:0], l.all, l.weights
		for _, m := range l.members {
			weight := shareOf(members[m].Weight)
			if whole, rest := exactShare(l.all, weight, l.weights); int(have[m]) > whole || int(have[m]) == whole && rest == 0 {
				all -= int(have[m])
				weights -= weight
				continue
			}
			below = append(below, m)
		}
		done := len(below) == len(l.members)
		l = level{below, all, weights}
		if done {
			return l
		}
	}
}

// quotas returns what members, all below the level, may take: what they lack to their exact totals, rounded down, and the rest by
// the largest remainders.
func (l level) quotas(members []Member, have []int32) quotas {
	q := newQuotas(members, totalOf(members), l.all)
	for m := range q.left {
		q.left[m] -= have[m]
	}
	return q
}

// shares returns what members, all below the level, lack exactly.
func (l level) shares(members []Member, have []int32, partitions int) shares {
	s := shares{members: len(members), weights: make([]uint64, len(members)), sum: uint64(partitions) * l.weights}
	equal := true
	for m := range members {
		s.weights[m] = uint64(l.all)*shareOf(members[m].Weight) - uint64(have[m])*l.weights
		equal = equal && s.weights[m] == s.weights[0]
	}
	if equal {
		s.weights = nil
	}
	return s
}

// lighter returns members whose weights are halved, rounding down but to no less than 1, as often as it takes to count shares of
// so many partitions in 64 bits. That is never below 8,192 members of the largest weight and 2^20 partitions.
func lighter(members []Member, partitions int) []Member {
	for {
		high, _ := bits.Mul64(uint64(partitions), totalOf(members).sum)
		if high == 0 {
			return members
		}
		members = slices.Clone(members)
		for m := range members {
			members[m].Weight = int(max(1, shareOf(members[m].Weight)/2))
		}
	}
}

// shares says what part of some partitions is exactly due to each member.
type shares struct {
	members int
	weights []uint64 // each member's part of the sum; nil if all have the same
	sum     uint64   // the sum of the weights
}

// sharesByWeight returns the shares of members that have nothing yet.
func sharesByWeight(members []Member) shares {
	t := totalOf(members)
	s := shares{members: len(members), sum: t.sum}
	if t.equal() {
		return s
	}
	s.weights = make([]uint64, len(members))
	for m := range members {
		s.weights[m] = shareOf(members[m].Weight)
	}
	return s
}

// of returns the whole part of a member's share of this many partitions, and the rest in units of 1/sum or, if all have the same,
// of 1/members.
func (s *shares) of(member int32, partitions int) (whole int, rest uint64) {
	if s.weights == nil {
		return partitions / s.members, uint64(partitions % s.members)
	}
	high, low := bits.Mul64(uint64(partitions), s.weights[member])
	if high == 0 && low < s.sum {
		return 0, low
	}
	quotient, rest := bits.Div64(high, low, s.sum) // at most the partitions
	return int(quotient), rest
}
