package allocfn

import (
	"hash/fnv"
	"testing"

	"github.com/kielgo/kiel"
)

func TestHashes(t *testing.T) {
	for _, s := range []string{"", "a", "host1:4711", "é😀", string(make([]byte, 300))} {
		f := fnv.New64a()
		f.Write([]byte(s))
		if got, want := hashName(s), fmix(f.Sum64()); got != want {
			t.Errorf("%q: got %x, want %x", s, got, want)
		}
	}
	// splitmix64 from state 0: the first three outputs, as its author gives them.
	for i, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		if got := fmix(phi * uint64(i+1)); got != want {
			t.Errorf("output %d: got %x, want %x", i, got, want)
		}
	}
	ps := []kiel.Partition{{Topic: "a", ID: 0}, {Topic: "a", ID: 7}, {Topic: "b", ID: 1<<31 - 1}}
	for i, got := range hashPartitions(ps) {
		if want := fmix(hashName(ps[i].Topic) + phi*uint64(ps[i].ID)); got != want {
			t.Errorf("%v: got %x, want %x", ps[i], got, want)
		}
	}
}
