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

// build makes the index of partitions of these keys. It sorts probes by their
// first bits before, which takes another 64 bytes per partition meanwhile: parts
// are counted and filled one near the other then, and not all over the memory,
// which would take several times as long.
func (x *probeIndex) build(keys []uint64) {
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

// lateIndex finds partitions whose pairs have a code from some on, and others
// that had one since it was made.
type lateIndex struct {
	from       int        // the code
	partitions []int32    // in the order in which they came
	first      probeIndex // of those it was made of, by their place in that order
	made       int        // how many these are
	late       int        // how many have such a pair

	// The probes of those that came since, in lists for the parts of first; what
	// comes next after a list is 0.
	heads []int32
	since []listed
}

// listed is a probe in a list.
type listed struct {
	partition int32
	place     uint32
	next      int32
}

// build makes the index of the partitions that came until now.
func (x *lateIndex) build(keys []uint64) {
	own := make([]uint64, len(x.partitions))
	for i, p := range x.partitions {
		own[i] = keys[p]
	}
	x.first.build(own)
	x.made, x.late = len(own), len(own)
	x.heads, x.since = make([]int32, len(x.first.starts)), make([]listed, 1)
}

func (x *lateIndex) add(partition int32, key uint64) {
	x.partitions = append(x.partitions, partition)
	for _, z := range probe(key) {
		head := &x.heads[z>>x.first.shift]
		x.since = append(x.since, listed{partition, uint32(z >> 32), *head})
		*head = int32(len(x.since) - 1)
	}
}

// A late index has lateRatio times fewer partitions than the one before it, and
// the first of them firstLate times fewer than there are.
const (
	firstLate = 24
	lateRatio = 16
	maxLate   = 4 // times as many partitions as at first may be in one
)

// indexLate makes the late indices, if there are none, too many partitions came
// to one, or far fewer than at first are late in the first, which is the largest.
func (p *plan) indexLate() {
	useless := len(p.late) == 0 && len(p.pairs) >= firstLate || len(p.late) > 0 && p.late[0].late < p.late[0].made/4
	for _, x := range p.late {
		useless = useless || len(x.partitions) > maxLate*x.made+16
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
	p.forget() // vicinities belong to the late indices that there were
	p.late = p.late[:0]
	for want := len(p.pairs) / firstLate; want > 0; want /= lateRatio {
		n, from := 0, codes
		for ; n+counts[from-1] <= want; from-- {
			n += counts[from-1]
		}
		p.late = append(p.late, &lateIndex{from: from, partitions: make([]int32, 0, n+n/4)})
	}
	p.lateness = make([]uint8, len(p.pairs))
	for i, pair := range p.pairs {
		for _, x := range p.late {
			if pair.code() < x.from {
				break
			}
			x.partitions = append(x.partitions, int32(i))
			p.lateness[i]++
		}
	}
	for _, x := range p.late {
		x.build(p.keys)
	}
}

// relate tells the late indices of a partition whose pair had one code and has
// another now.
func (p *plan) relate(partition int32, was, is int) {
	p.latest = max(p.latest, is)
	for l, x := range p.late {
		if was < x.from && is < x.from {
			return
		}
		if was >= x.from {
			x.late--
		}
		if is >= x.from {
			x.late++
			if l == int(p.lateness[partition]) {
				x.add(partition, p.keys[partition])
				p.lateness[partition]++
			}
		}
	}
}
