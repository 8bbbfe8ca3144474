package allocfn

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
)

// Compare orders partitions as kiel does: by their texts "topic:id", byte by
// byte. So t:10 comes before t:2, and a-1:0 before a:0. It returns -1, 0 or 1.
func Compare(a, b Partition) int {
	if a.Topic == b.Topic {
		return cmp.Compare(textKey(a.ID), textKey(b.ID))
	}
	long, short := a.Topic, b.Topic
	if len(long) < len(short) {
		long, short = short, long
	}
	switch {
	case !strings.HasPrefix(long, short):
		return strings.Compare(a.Topic, b.Topic)
	case long[len(short)] == ':': // no topic of Kafka has one
		return strings.Compare(a.String(), b.String())
	}
	order := cmp.Compare(long[len(short)], ':')
	if long == b.Topic {
		return -order
	}
	return order
}

// textKey returns a number that orders partitions of one topic as the texts of
// their numbers do: a minus sign comes before digits, then texts are compared as
// decimals behind a point are, and of equal ones, 0.1 and 0.10, the shorter comes
// first.
func textKey(id int32) uint64 {
	n, sign := uint64(id), uint64(positive)
	if id < 0 {
		n, sign = uint64(-int64(id)), 0
	}
	digits := digitsOf(n)
	return sign | n*powerOf10(maxDigits-digits)<<digitBits | digits
}

// numberOf is the reverse of textKey.
func numberOf(key uint64) int32 {
	n := key &^ positive >> digitBits / powerOf10(maxDigits-key&(1<<digitBits-1))
	if key < positive {
		return int32(-int64(n))
	}
	return int32(n)
}

const (
	maxDigits = 10 // of a number below 2^32
	digitBits = 4  // for a number of digits
	positive  = 1 << 63
)

// powerOf10 returns 10^n, n being at most maxDigits.
func powerOf10(n uint64) uint64 {
	return [maxDigits + 1]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10}[n]
}

// digitsOf returns how many digits a number below 2^32 has, and 0 for 0.
func digitsOf(n uint64) uint64 {
	digits := uint64(bits.Len64(n)) * 1233 >> 12 // 1233/4096 is about log 2: right, or one less
	if n >= powerOf10(digits) {
		digits++
	}
	return digits
}

// fewPartitions is up to how many partitions Sort compares them one with another.
const fewPartitions = 12

// Sort sorts ps in kiel's order, that of [Compare], in place. Afterwards the
// partitions of a topic share one string.
func Sort(ps []Partition) {
	if len(ps) <= fewPartitions || slices.IsSortedFunc(ps, Compare) {
		slices.SortFunc(ps, Compare)
		return
	}
	all, topicOf := topicsIn(ps)
	order := make([]int, len(all))
	for t := range all {
		order[t] = t
		if strings.Contains(all[t].name, ":") { // partitions of another topic can be among this one's
			slices.SortFunc(ps, Compare)
			return
		}
	}
	slices.SortFunc(order, func(a, b int) int { return Compare(Partition{all[a].name, 0}, Partition{all[b].name, 0}) })
	end := 0
	for _, t := range order {
		all[t].end = end
		end += all[t].count
	}
	keys := make([]uint64, len(ps))
	for i, t := range topicOf {
		keys[all[t].end] = textKey(ps[i].ID)
		all[t].end++
	}
	for _, t := range order {
		name, begin, end := all[t].name, all[t].end-all[t].count, all[t].end
		slices.Sort(keys[begin:end])
		for i, key := range keys[begin:end] {
			ps[begin+i] = Partition{Topic: name, ID: numberOf(key)}
		}
	}
}

// topicIn is a topic of some partitions.
type topicIn struct {
	name  string
	count int // how many of the partitions it has
	end   int // of them in the order of Sort
}

// topicsIn returns the topics of ps, and for each of ps the index of its topic.
func topicsIn(ps []Partition) (all []topicIn, topicOf []int32) {
	index := make(map[string]int32)
	topicOf = make([]int32, len(ps))
	last := int32(-1)
	for i := range ps {
		if name := ps[i].Topic; last < 0 || name != all[last].name {
			t, ok := index[name]
			if !ok {
				t = int32(len(all))
				index[name] = t
				all = append(all, topicIn{name: name})
			}
			last = t
		}
		topicOf[i] = last
		all[last].count++
	}
	return all, topicOf
}
