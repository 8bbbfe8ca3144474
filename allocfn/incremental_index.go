package allocfn

import "math/bits"

// probeIndex finds the partitions that have a probe in some part of the ring.
// The round is cut into equal parts, a power of two of them.
type probeIndex struct {
	shift      uint
	starts     []uint32 // of the parts, in partitions
	partitions []int32
}

// build makes the index of partitions of these keys, if there is none. It
// sorts probes by their first bits before, which takes another 64 bytes per
// partition meanwhile: parts are counted and filled one near the other then,
// and not all over the memory, which would take several times as long.
func (x *probeIndex) build(keys []uint64) {
	if x.starts != nil {
		return
	}
	const lotShift = 32 + ringBits - 8
	var ends [1 << 8]uint32
	for _, key := range keys {
		for _, z := range probe(key) {
			ends[z>>lotShift]++
		}
	}
	sum := uint32(0)
	for lot, n := range ends {
		ends[lot] = sum
		sum += n
	}
	type placed struct {
		place     uint32
		partition int32
	}
	probes := make([]placed, sum)
	for p, key := range keys {
		for _, z := range probe(key) {
			probes[ends[z>>lotShift]] = placed{uint32(z >> 32), int32(p)}
			ends[z>>lotShift]++
		}
	}

	parts := min(bits.Len(uint(len(keys)))+2, ringBits)
	x.shift = uint(32 + ringBits - parts)
	x.starts = make([]uint32, 1<<parts+1)
	for _, p := range probes {
		x.starts[p.place>>(x.shift-32)]++
	}
	end := uint32(0)
	for i, n := range x.starts {
		end += n
		x.starts[i] = end
	}
	x.partitions = make([]int32, end)
	for _, p := range probes {
		start := &x.starts[p.place>>(x.shift-32)]
		*start--
		x.partitions[*start] = p.partition
	}
}

// lateIndex finds those of the partitions whose pairs have a code from some on.
// Others may be found too, and some twice.
type lateIndex struct {
	from    int // the code
	shift   uint
	heads   []int32 // of the parts, in entries, -1 for none
	entries []entry
	room    int // of entries; with more it is made anew
}

type entry struct {
	partition int32
	place     uint32 // of a probe of it
	next      int32  // entry of the part
}

func newLateIndex(from, partitions int) *lateIndex {
	parts := min(bits.Len(uint(partitions))+3, ringBits)
	x := &lateIndex{from: from, shift: uint(32 + ringBits - parts), heads: make([]int32, 1<<parts)}
	for i := range x.heads {
		x.heads[i] = -1
	}
	x.room = 5*probeSize*partitions/2 + 200
	x.entries = make([]entry, 0, x.room)
	return x
}

func (x *lateIndex) add(partition int32, key uint64) {
	for _, z := range probe(key) {
		head := &x.heads[z>>x.shift]
		x.entries = append(x.entries, entry{partition, uint32(z >> 32), *head})
		*head = int32(len(x.entries) - 1)
	}
}

// lateRatio is how many times fewer partitions a late index has than the one
// before it, the first than there are.
const lateRatio = 32

// indexLate makes the late indices, if there are none or one is crowded.
func (p *plan) indexLate() {
	crowded := len(p.late) == 0 && len(p.pairs) >= lateRatio
	for _, x := range p.late {
		crowded = crowded || len(x.entries) > x.room
	}
	if !crowded {
		return
	}
	var counts [codes]int
	for _, pair := range p.pairs {
		counts[pair.code()]++
	}
	p.late = p.late[:0]
	for want := len(p.pairs) / lateRatio; want > 0; want /= lateRatio {
		n, from := 0, codes
		for ; n+counts[from-1] <= want; from-- {
			n += counts[from-1]
		}
		p.late = append(p.late, newLateIndex(from, n))
	}
	for i, pair := range p.pairs {
		if pair.code() >= p.late[0].from {
			p.addLate(int32(i), 0, pair.code())
		}
	}
}

// addLate tells the late indices of a partition whose pair had one code and has
// another now.
func (p *plan) addLate(partition int32, was, is int) {
	for _, x := range p.late {
		if is < x.from {
			break
		}
		if was < x.from {
			x.add(partition, p.keys[partition])
		}
	}
}
