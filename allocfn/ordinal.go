package allocfn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kielgo/kiel"
)

// ErrOrdinals says that the members' names are not those of members that [Ordinal] can number: one prefix for all, and -0, -1 and
// so on up to -(n-1).
var ErrOrdinals = errors.New("members are not numbered")

// Ordinal returns "ordinal", for numbered members of which the last ones join and leave, such as the pods of a StatefulSet: their
// names are one prefix and -0, -1 up to -(n-1), as in web-0, web-1, web-2. The numbers of partitions of any two members differ by
// at most one, and when members join or leave at the end, as few partitions move as such a balance allows, [Movement.LowerBound].
//
// The result is as if the members joined one by one in the order of their numbers: the n-th takes ⌊P/n⌋ of the P partitions, and
// the first P mod n of the others keep one more than the rest. The partitions are in the order of hashes of the topics' names and
// the partitions' ids, so a topic is spread about as by chance. When partitions are added or removed, many others move: 2 to 9 %
// with 10 members, most with 100 and more.
//
// Other names are an error that wraps [ErrOrdinals]: a member without
// a number or with another prefix, a number with leading zeros, a gap. The error names the member, or the number that is missing.
// So while a member is away that is not the last, the function fails for all members: nothing moves, and the partitions of the
// missing member have no owner until it is back (or until the group is scaled down to below its number). This suits members that
// restart under the same name soon. Where one can stay away for long, use Balanced.
//
// It ignores the topics that members ask for.
//
// It takes O(P·(log n + log P)) steps: about 0.15 s for a million partitions.
func Ordinal() Func { return Func{Name: "ordinal", Assign: ordinal, readOnly: ordinal} }

func ordinal(in Input) (Assignment, error) {
	if len(in.Members) == 0 {
		return Assignment{}, nil
	}
	members, err := ordinals(in.Members)
	if err != nil {
		return nil, err
	}
	a := make(Assignment, len(in.Partitions))
	for m, queue := range replayJoins(byHash(in.Partitions), len(members)) {
		for _, p := range queue {
			a[p] = members[m]
		}
	}
	return a, nil
}

// ordinals returns the indices of the members by their numbers.
func ordinals(members []Member) ([]int32, error) {
	byNumber := make([]int32, len(members))
	for i := range byNumber {
		byNumber[i] = -1
	}
	first, _, _ := cutOrdinal(members[0].Name)
	beyond := "" // the first member whose number is not below n
	for i, m := range members {
		prefix, number, ok := cutOrdinal(m.Name)
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: %s does not end in - and a number", ErrOrdinals, quote(m.Name))
		case prefix != first:
			return nil, fmt.Errorf("%w: %s and %s do not begin alike", ErrOrdinals, quote(members[0].Name), quote(m.Name))
		case number >= uint64(len(members)):
			beyond = cmp.Or(beyond, m.Name)
		case byNumber[number] >= 0:
			return nil, fmt.Errorf("%w: %s is there twice", ErrOrdinals, quote(m.Name))
		default:
			byNumber[number] = int32(i)
		}
	}
	if beyond != "" {
		missing := first + "-" + strconv.Itoa(slices.Index(byNumber, -1))
		return nil, fmt.Errorf("%w: %s is there and %s is not", ErrOrdinals, quote(beyond), quote(missing))
	}
	return byNumber, nil
}

// cutOrdinal cuts a name into the prefix before the last '-' and the number behind it, which has no leading zeros. A number that
// is out of range becomes the largest.
func cutOrdinal(name string) (prefix string, number uint64, ok bool) {
	i := strings.LastIndexByte(name, '-')
	digits := name[i+1:]
	if i < 0 || digits == "" || strings.Trim(digits, "0123456789") != "" || digits[0] == '0' && digits != "0" {
		return "", 0, false
	}
	number, _ = strconv.ParseUint(digits, 10, 64) // out of range: the largest
	return name[:i], number, true
}

// replayJoins returns the partitions of each of n members that join one by one. With m members, each has ⌊P/m⌋ partitions, and
// the first P mod m one more. No member's share grows as m grows, so partitions move to joiners alone.
func replayJoins(first []int32, n int) [][]int32 {
	queues := make([][]int32, n) // the partitions of each member; a joiner takes from the front
	queues[0] = first
	before := len(first) // ⌊P/m⌋ as it was without the joiner
	for m := 1; m < n; m++ {
		share, more := len(first)/(m+1), len(first)%(m+1)
		from, to := 0, m
		if share == before { // of those who have one more, the last give it
			from, to = more, len(first)%m
		}
		before = share
		taken := make([]int32, 0, share)
		for giver := from; giver < to; giver++ {
			keeps := share
			if giver < more {
				keeps++
			}
			q := queues[giver]
			taken = append(taken, q[:len(q)-keeps]...)
			queues[giver] = q[len(q)-keeps:]
		}
		queues[m] = taken
	}
	return queues
}

// byHash returns the indices of ps in the order of their hashes.
func byHash(ps []kiel.Partition) []int32 {
	const indexBits = 31
	keys := hashPartitions(ps)
	for i, key := range keys {
		keys[i] = key>>indexBits<<indexBits | uint64(i)
	}
	slices.Sort(keys)
	order := make([]int32, len(keys))
	for k, key := range keys {
		order[k] = int32(key & (1<<indexBits - 1))
	}
	return order
}
