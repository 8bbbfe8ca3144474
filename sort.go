package kiel

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
)

// Compare orders partitions as kiel does: by their texts "topic:id", byte by byte. So t:10 comes before t:2, and a-1:0 before
// a:0. It returns -1, 0 or 1.
func (p Partition) Compare(q Partition) int {
	if p.Topic == q.Topic {
		return cmp.Compare(textKey(p.ID), textKey(q.ID))
	}
	long, short := p.Topic, q.Topic
	if len(long) < len(short) {
		long, short = short, long
	}
	switch {
	case !strings.HasPrefix(long, short):
		return strings.Compare(p.Topic, q.Topic)
	case long[len(short)] == ':': // no topic of Kafka has one
		return strings.Compare(p.String(), q.String())
	}
	order := cmp.Compare(long[len(short)], ':')
	if long == q.Topic {
		return -order
	}
	return order
}

// textKey returns a number that orders the ids of one topic as their texts do. A minus sign comes before digits. Then digits are
// compared like decimals behind a point; of equal decimals, such as 0.1 and 0.10, the shorter comes first.
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

// fewPartitions is the largest number of partitions that SortPartitions sorts by comparing them.
const fewPartitions = 12

// SortPartitions sorts ps in kiel's order, that of [Partition.Compare], in place.
func SortPartitions(ps []Partition) {
	if len(ps) <= fewPartitions || slices.IsSortedFunc(ps, Partition.Compare) {
		slices.SortFunc(ps, Partition.Compare)
		return
	}
	all, topicOf := topicsIn(ps)
	order := make([]*topicIn, len(all))
	for t := range all {
		order[t] = &all[t]
		if strings.Contains(all[t].name, ":") { // partitions of another topic can be among this one's
			slices.SortFunc(ps, Partition.Compare)
			return
		}
	}
	slices.SortFunc(order, func(a, b *topicIn) int { return Partition{a.name, 0}.Compare(Partition{b.name, 0}) })
	begin := 0
	for _, t := range order {
		t.end = begin
		begin += t.count
	}
	var keys []uint64 // of the topics that are not counted up
	for i, t := range topicOf {
		if t := &all[t]; !t.countedUp {
			if keys == nil {
				keys = make([]uint64, len(ps))
			}
			keys[t.end] = textKey(ps[i].ID)
			t.end++
		}
	}
	begin = 0
	for _, t := range order {
		end := begin + t.count
		if t.countedUp {
			countInText(ps[begin:end], t.name)
		} else {
			sortKeys(ps[begin:end], t.name, keys[begin:end])
		}
		begin = end
	}
}

// sortKeys makes ps the partitions of a topic that have these keys.
func sortKeys(ps []Partition, topic string, keys []uint64) {
	slices.Sort(keys)
	for i, key := range keys {
		ps[i] = Partition{topic, numberOf(key)}
	}
}

// countInText makes ps the partitions from 0 on of a topic, in the order of the texts: 0, 1, 10, 100, 101 and so on.
func countInText(ps []Partition, topic string) {
	id := 0
	for i := range ps {
		ps[i] = Partition{topic, int32(id)}
		if id > 0 && id*10 < len(ps) {
			id *= 10
			continue
		}
		for id%10 == 9 || id+1 == len(ps) && id > 0 {
			id /= 10
		}
		id++
	}
}

// topicIn is a topic of some partitions.
type topicIn struct {
	name      string
	count     int  // how many of the partitions it has
	countedUp bool // they are 0, 1, 2 and so on, in this order
	end       int  // the place behind the topic's last partition with a key, in the order of SortPartitions
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
				all = append(all, topicIn{name: name, countedUp: true})
			}
			last = t
		}
		topicOf[i] = last
		t := &all[last]
		t.countedUp = t.countedUp && int(ps[i].ID) == t.count
		t.count++
	}
	return all, topicOf
}
