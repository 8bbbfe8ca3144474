package allocfn

import (
	"math/bits"
	"slices"
)

// probeIndex finds the partitions that have a probe in some part of the ring.
type probeIndex struct {
	shift      uint
	starts     []uint32 // of the parts, in partitions
	partitions []int32
}

// build makes the index of partitions of these keys, if there is none.
func (x *probeIndex) build(keys []uint64) {
	if x.starts != nil {
		return
	}
	parts := bits.Len(uint(len(keys)))
	x.shift = uint(32 + ringBits - parts)
	x.starts = make([]uint32, 1<<parts+1)
	for _, key := range keys {
		for _, z := range probe(key) {
			x.starts[z>>x.shift]++
		}
	}
	end := uint32(0)
	for i, n := range x.starts {
		end += n
		x.starts[i] = end
	}
	x.partitions = make([]int32, end)
	for p, key := range keys {
		for _, z := range probe(key) {
			part := z >> x.shift
			x.starts[part]--
			x.partitions[x.starts[part]] = int32(p)
		}
	}
}

// between ranges over the partitions with a probe from one place to another,
// and some others, some of them twice.
func (x *probeIndex) between(from, to int64) func(yield func(partition int32) bool) {
	return func(yield func(partition int32) bool) {
		first, last := x.starts[from>>x.shift], x.starts[to>>x.shift+1]
		near, far := x.partitions[first:max(first, last)], []int32(nil)
		if from > to {
			near, far = x.partitions[first:], x.partitions[:last]
		}
		for _, part := range [][]int32{near, far} {
			for _, p := range part {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// around returns the points next to p that are at other places, from and to,
// on the ring. A partition to which p is the nearest of all has a probe there.
func (r *ring) around(p int64) (from, to int64) {
	n := r.size()
	i, _ := slices.BinarySearch(r.points[1:n+1], p)
	before, after := i+1, i+1
	for steps := 0; r.points[before]>>32 == p>>32 && steps < n; steps++ {
		before--
		if before == 0 {
			before = n
		}
	}
	for steps := 0; r.points[after]>>32 == p>>32 && steps < n; steps++ {
		after++
		if after == n+1 {
			after = 1
		}
	}
	return r.points[before], r.points[after]
}
