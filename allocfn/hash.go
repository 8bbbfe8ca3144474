package allocfn

import "github.com/kielgo/kiel"

// The functions of this package score with these hashes. The hashes never change, because results depend on them: a function with
// another hash needs another name.

// phi is 2^64 divided by the golden ratio, the step of hashed sequences.
const phi uint64 = 0x9e3779b97f4a7c15

// fmix is the finalizer of splitmix64, a bijection in which every bit of the argument reaches every bit of the result.
func fmix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// hashName is fmix of the 64-bit FNV-1a hash of s.
func hashName(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h ^= uint64(s[i])
		h *= 0x100000001b3
	}
	return fmix(h)
}

// hashPartitions returns the hashes of ps. It hashes a topic once for each run.
func hashPartitions(ps []kiel.Partition) []uint64 {
	hashes := make([]uint64, len(ps))
	for from, to := range topics(ps) {
		topic := hashName(ps[from].Topic)
		for i := from; i < to; i++ {
			hashes[i] = fmix(topic + uint64(uint32(ps[i].ID))*phi)
		}
	}
	return hashes
}
