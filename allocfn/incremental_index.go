package allocfn

import "math/bits"

// probeIndex finds the partitions that have a probe in some part of the ring.
// The round is cut into equal parts, a power of two of them.
type probeIndex struct {
	shift  uint
	starts []uint32 // of the parts, in probes
	probes []placed
}

// placed is the probe of a partition in a part: partition<<low | place, where
// the place is counted from the start of the part, which has 1<<low places.
//
// Both have room, for there are four parts and more for each partition, or else
// parts of one place.
type placed uint32

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
	type unplaced struct {
		place     uint32
		partition int32
	}
	probes := make([]unplaced, sum)
	for p, key := range keys {
		for _, z := range probe(key) {
			probes[ends[z>>lotShift]] = unplaced{uint32(z >> 32), int32(p)}
			ends[z>>lotShift]++
		}
	}

	parts := min(bits.Len(uint(len(keys)))+2, ringBits)
	x.shift = uint(32 + ringBits - parts)
	low := x.shift - 32
	x.starts = make([]uint32, 1<<parts+1)
	for _, p := range probes {
		x.starts[p.place>>low]++
	}
	end := uint32(0)
	for i, n := range x.starts {
		end += n
		x.starts[i] = end
	}
	x.probes = make([]placed, end)
	for _, p := range probes {
		start := &x.starts[p.place>>low]
		*start--
		x.probes[*start] = placed(uint32(p.partition)<<low | p.place&(1<<low-1))
	}
}

// lateIndex finds those of the partitions whose pairs have a code from some on.
type lateIndex struct {
	from    int // the code
	shift   uint
	heads   []int32 // of the parts, in entries, -1 for none
	entries []entry
	free    int32 // the first entry without use, or -1
	made    int   // how many entries there were at first, and
	used    int   // how many there are
}

type entry struct {
	partition int32
	place     uint32 // of a probe of it
	next      int32  // entry of the part, or without use
}

func newLateIndex(from, partitions int) *lateIndex {
	parts := min(bits.Len(uint(partitions))+4, ringBits)
	x := &lateIndex{from: from, shift: uint(32 + ringBits - parts), heads: make([]int32, 1<<parts), free: -1}
	for i := range x.heads {
		x.heads[i] = -1
	}
	x.made = probeSize * partitions
	x.entries = make([]entry, 0, x.made)
	return x
}

func (x *lateIndex) add(partition int32, key uint64) {
	x.used += probeSize
	for _, z := range probe(key) {
		e := x.free
		if e < 0 {
			e = int32(len(x.entries))
			x.entries = append(x.entries, entry{})
		} else {
			x.free = x.entries[e].next
		}
		head := &x.heads[z>>x.shift]
		x.entries[e] = entry{partition, uint32(z >> 32), *head}
		*head = e
	}
}

// remove is for who was added.
func (x *lateIndex) remove(partition int32, key uint64) {
	x.used -= probeSize
	for _, z := range probe(key) {
		link := &x.heads[z>>x.shift]
		for x.entries[*link].partition != partition {
			link = &x.entries[*link].next
		}
		e := *link
		*link, x.entries[e].next, x.free = x.entries[e].next, x.free, e
	}
}

// A late index has lateRatio times fewer partitions than the one before it, and
// the first of them firstLate times fewer than there are.
const (
	firstLate = 24
	lateRatio = 16
)

// indexLate makes the late indices, if there are none, one has far more
// partitions than at first, or the first, which is the largest, far fewer.
func (p *plan) indexLate() {
	useless := len(p.late) == 0 && len(p.pairs) >= firstLate || len(p.late) > 0 && p.late[0].used < p.late[0].made/4
	for _, x := range p.late {
		useless = useless || x.used > 2*x.made+64
	}
	if !useless {
		return
	}
	var counts [codes]int
	for _, pair := range p.pairs {
		counts[pair.code()]++
	}
	for p.latest = codes - 1; counts[p.latest] == 0; {
		p.latest--
	}
	p.forget() // vicinities reached as far as codes were not late
	p.late = p.late[:0]
	for want := len(p.pairs) / firstLate; want > 0; want /= lateRatio {
		n, from := 0, codes
		for ; n+counts[from-1] <= want; from-- {
			n += counts[from-1]
		}
		p.late = append(p.late, newLateIndex(from, n))
	}
	for i, pair := range p.pairs {
		if pair.code() >= p.late[0].from {
			p.relate(int32(i), 0, pair.code())
		}
	}
}

// relate tells the late indices of a partition whose pair had one code and has
// another now.
func (p *plan) relate(partition int32, was, is int) {
	p.latest = max(p.latest, is)
	for _, x := range p.late {
		switch {
		case was < x.from && is < x.from:
			return
		case was < x.from:
			x.add(partition, p.keys[partition])
		case is < x.from:
			x.remove(partition, p.keys[partition])
		}
	}
}
