package allocfn_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

var writeVectors = flag.Bool("write-vectors", false, "write the vectors of functions that have none yet")

// owned is one vector: who gets what. A vector that changes is a breaking change: the function needs another name.
type owned struct {
	Members []string
	Topics  map[string][]int32
	Owners  []int32 `json:",omitempty"` // in the order of the sorted partitions
	Sum     string  `json:",omitempty"` // of Owners, where these are many
}

func (v *owned) input() allocfn.Input {
	var ps []kiel.Partition
	for topic, ids := range v.Topics {
		if len(ids) == 1 && ids[0] < 0 { // -n says 0 to n-1
			ps = append(ps, topicOf(topic, int(-ids[0]))...)
			continue
		}
		for _, id := range ids {
			ps = append(ps, kiel.Partition{Topic: topic, ID: id})
		}
	}
	return groupOf(v.Members, ps...)
}

// put puts a result into the vector.
func (v *owned) put(a allocfn.Assignment) {
	v.Owners, v.Sum = a, ""
	if len(a) > 100 {
		sum := fnv.New64a()
		for _, m := range a {
			fmt.Fprintf(sum, "%d ", m)
		}
		v.Owners, v.Sum = nil, fmt.Sprintf("%016x", sum.Sum64())
	}
}

// TestVectors holds the functions to what they gave when they were new.
func TestVectors(t *testing.T) {
	for _, s := range subjects() {
		file := s.f.Name + ".json"
		if _, err := os.Stat("testdata/" + file); err != nil && *writeVectors {
			s.write(t, "testdata/"+file)
		}
		vectors := load[owned](t, file)
		if len(vectors) < 20 {
			t.Errorf("%s holds only %d vectors", file, len(vectors))
		}
		for i, v := range vectors {
			got := v
			got.put(mustCall(t, s.f, v.input()))
			if got.Sum != v.Sum || !slices.Equal(got.Owners, v.Owners) {
				t.Errorf("%s: vector %d: got %v %s, want %v %s", file, i, got.Owners, got.Sum, v.Owners, v.Sum)
			}
		}
	}
}

func (s subject) write(t *testing.T, file string) {
	t.Helper()
	r := rand.New(rand.NewPCG(2026, 11))
	var lines [][]byte
	for i := range 32 {
		v := owned{Topics: make(map[string][]int32)}
		n := []int{1, 2, 3, 4, 5, 7, 10, 16}[i%8]
		switch {
		case s.numbered:
			v.Members = numberedNames([]string{"web", "", "é-😀"}[i%3], n)
		case i%4 == 3:
			v.Members = []string{"a", "b:1", "é", "😀", strings.Repeat("x", 300), "a-0", "\x00", "𐀀", "\uffef", "Z"}[:min(n, 10)]
		default:
			v.Members = randomNames(r, n)
		}
		for _, topic := range []string{"orders", "orders-dlq", "o", "é", "x.y"}[:1+i%5] {
			v.Topics[topic] = []int32{-1 - r.Int32N(14)}
			if r.IntN(4) == 0 {
				v.Topics[topic] = []int32{r.Int32N(5), 7, 1<<31 - 1, 100 + r.Int32N(100)}
			}
		}
		if i >= 28 { // large ones, which cross all paths
			n := []int{40, 100, 257, 700}[i-28]
			v.Members = randomNames(r, n)
			if s.numbered {
				v.Members = numberedNames("m", n)
			}
			for k := range min(20, 2000/n) {
				v.Topics[fmt.Sprintf("t%d", k)] = []int32{-1 - r.Int32N(2*int32(n))}
			}
		}
		v.put(mustCall(t, s.f, v.input()))
		line, err := json.Marshal(v)
		noerr.Must(t, err)
		lines = append(lines, line)
	}
	text := append([]byte("[\n"), append(bytes.Join(lines, []byte(",\n")), "\n]\n"...)...)
	noerr.Must(t, os.WriteFile(file, text, 0o644))
}
