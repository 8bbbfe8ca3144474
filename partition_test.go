package kiel_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

func TestParsePartition(t *testing.T) {
	long := strings.Repeat("é", 10_000)
	for item, want := range map[string]kiel.Partition{
		"orders:0":           {Topic: "orders", ID: 0},
		"orders.v2_x-y:17":   {Topic: "orders.v2_x-y", ID: 17},
		"t:2147483647":       {Topic: "t", ID: 1<<31 - 1},
		"café:3":             {Topic: "café", ID: 3},
		" a b\n:3":           {Topic: " a b\n", ID: 3},
		"t:01":               {Topic: "t", ID: 1},
		"t:+1":               {Topic: "t", ID: 1},
		"t: 1":               {Topic: "t", ID: 1},
		"t:1_0":              {Topic: "t", ID: 10},
		"t:-0":               {Topic: "t", ID: 0},
		long + ":1":          {Topic: long, ID: 1},
		"t:00000000000001\n": {Topic: "t", ID: 1},
	} {
		got, err := kiel.ParsePartition(item)
		if err != nil || got != want {
			t.Errorf("%.40q: got %v, %v", item, got, err)
		}
	}
	for _, item := range []string{
		"", ":", "t", "t:", ":1", "a:b:1", "t:1:", "t:x", "t:-1", "t:1.0", "t:1e3", "t:0x1", "t:2147483648", "t:99999999999999999999",
		"t:--1", "t:1_", "t:_1", "t:1__0", "t:+", "t:\x00", "t:1\x00", "t:\xff", long, long + ":" + long, "t:" + strings.Repeat("9", 1<<20),
	} {
		got, err := kiel.ParsePartition(item)
		if !errors.Is(err, kiel.ErrInvalidPartition) {
			t.Errorf("%.40q: got %v, %v", item, got, err)
			continue
		}
		if len(err.Error()) > 1000 {
			t.Errorf("%.40q: an error of %d bytes", item, len(err.Error()))
		}
		if strings.ContainsAny(err.Error(), "\x00\n") || !utf8.ValidString(err.Error()) {
			t.Errorf("%.40q: the error is not escaped: %q", item, err.Error())
		}
	}
}

func TestParsePartitions(t *testing.T) {
	tests := map[string]struct {
		items, partitions []string
		places            []int32
		bad               []string
	}{
		"empty":    {},
		"as text":  {items: []string{"t:2", "t:10", "a:0", "a-1:0"}, partitions: []string{"a-1:0", "a:0", "t:10", "t:2"}},
		"equal":    {items: []string{"t:1", "t:1", "t:0"}, partitions: []string{"t:0", "t:1"}},
		"no names": {items: []string{"t:1", "x", "t:0", "a:b:0"}, partitions: []string{"t:0", "t:1"}, bad: []string{"a:b:0", "x"}},
		"out of range keeps its place": {
			items: []string{"t:-1", "t:0", "t:1"}, partitions: []string{"t:0", "t:1"}, places: []int32{1, 2}, bad: []string{"t:-1"},
		},
		"what Python can't read has no place": {
			items: []string{"a", "t:01", "t:2"}, partitions: []string{"t:1", "t:2"}, places: []int32{0, 1}, bad: []string{"a"},
		},
		"as written": {
			items: []string{"t:1", "t:02", "t:3"}, partitions: []string{"t:2", "t:1", "t:3"}, places: []int32{0, 1, 2},
		},
		"in two spellings the first counts": {
			items: []string{"t:1", "t:01", "t:+1", "u:0"}, partitions: []string{"t:1", "u:0"}, places: []int32{0, 3}, bad: []string{"t:01", "t:1"},
		},
		"spelt well before": {
			items: []string{"t:1", "t:1 ", "u:0"}, partitions: []string{"t:1", "u:0"}, places: []int32{0, 2}, bad: []string{"t:1 "},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			given := slices.Clone(tt.items)
			partitions, places, bad := kiel.ParsePartitions(tt.items)
			var texts []string
			for _, p := range partitions {
				texts = append(texts, p.String())
			}
			if !slices.Equal(texts, tt.partitions) || !slices.Equal(places, tt.places) || !slices.Equal(bad, tt.bad) {
				t.Errorf("got %q, %v, %q", texts, places, bad)
			}
			if (places == nil) != (tt.places == nil) {
				t.Errorf("places: got %v, want %v", places, tt.places)
			}
			if !slices.Equal(given, tt.items) {
				t.Errorf("the items were changed to %q", tt.items)
			}
		})
	}
}

// TestOrderIsThatOfTexts holds Compare to its definition.
func TestOrderIsThatOfTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topic := rapid.SampledFrom([]string{"a", "a-1", "a.b", "ab", "a:", "a:1", "a\xff", "é", "\uffef", "😀", "", "a0"})
		id := rapid.OneOf(rapid.Int32Range(0, 120), rapid.Int32())
		a := kiel.Partition{Topic: topic.Draw(t, "topic"), ID: id.Draw(t, "id")}
		b := kiel.Partition{Topic: topic.Draw(t, "topic"), ID: id.Draw(t, "id")}
		if got, want := a.Compare(b), strings.Compare(a.String(), b.String()); got != want {
			t.Fatalf("%s and %s: got %d, want %d", a, b, got, want)
		}
	})
}

// TestCompareAllocatesNothing compares what differs in the topic alone, in the number alone, and topics of which one begins with
// the other.
func TestCompareAllocatesNothing(t *testing.T) {
	one := kiel.Partition{Topic: strings.Repeat("topic-", 20) + "1", ID: 17}
	for _, other := range []kiel.Partition{{"orders", 1}, {one.Topic, 100}, {one.Topic + "0", 1}, {one.Topic[:7], 1}} {
		if n := testing.AllocsPerRun(10, func() { one.Compare(other) }); n > 0 {
			t.Errorf("%v and %v: %v allocations", one, other, n)
		}
	}
}

// TestSortPartitions holds SortPartitions to its definition, for few and many partitions, with numbers that have gaps, doubles,
// and topics that lie one in the other.
func TestSortPartitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SampledFrom([][]string{
			{"a"}, {"a", "b"}, {"a-1", "a", "ab", "a0", "a.b"}, {"a", "a:1", "a:", ""}, {"é", "\uffef", "😀", "a\xff"},
		}).Draw(t, "topics")
		id := rapid.SampledFrom([]*rapid.Generator[int32]{
			rapid.Int32Range(0, 15), rapid.Int32Range(0, 1_200), rapid.Int32Range(0, math.MaxInt32), rapid.Int32(),
		}).Draw(t, "numbers")
		var ps []kiel.Partition
		for _, topic := range names {
			for n := range rapid.Int32Range(0, 120).Draw(t, "all up to") {
				ps = append(ps, kiel.Partition{Topic: topic, ID: n})
			}
			for range rapid.IntRange(0, 20).Draw(t, "others") {
				ps = append(ps, kiel.Partition{Topic: topic, ID: id.Draw(t, "id")})
			}
		}
		if rapid.Bool().Draw(t, "shuffled") {
			ps = rapid.Permutation(ps).Draw(t, "order")
		}
		want := slices.SortedFunc(slices.Values(ps), func(a, b kiel.Partition) int { return strings.Compare(a.String(), b.String()) })
		kiel.SortPartitions(ps)
		if !slices.Equal(ps, want) {
			t.Fatalf("got %v, want %v", ps, want)
		}
	})
}

func FuzzParsePartition(f *testing.F) {
	for _, s := range []string{"t:1", "t:01", ":1", "a:b:1", "t: ١_0 ", "t:2147483648", "t:-0", "\xff:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, item string) {
		p, err := kiel.ParsePartition(item)
		if err != nil {
			if !errors.Is(err, kiel.ErrInvalidPartition) || p != (kiel.Partition{}) {
				t.Errorf("%q: %v, %v", item, p, err)
			}
			return
		}
		if p.ID < 0 || p.Topic == "" || strings.Contains(p.Topic, ":") || !strings.HasPrefix(item, p.Topic+":") {
			t.Errorf("%q was read as %+v", item, p)
		}
		if again, err := kiel.ParsePartition(p.String()); err != nil || again != p {
			t.Errorf("%q: %s is read as %v, %v", item, p, again, err)
		}
	})
}

func FuzzParsePartitions(f *testing.F) {
	f.Add("t:1 t:01 t:+1", " ")
	f.Add("t:1,x,t:-1,t:2", ",")
	f.Fuzz(func(t *testing.T, set, separator string) {
		items := strings.Split(set, separator)
		partitions, places, bad := kiel.ParsePartitions(items)
		in := allocfn.Input{Members: []allocfn.Member{{Name: "a"}, {Name: "b"}}, Partitions: partitions, Places: places}
		if err := in.Validate(); err != nil {
			t.Fatal(err)
		}
		distinct := slices.Compact(slices.Sorted(slices.Values(items)))
		if len(partitions)+len(bad) != len(distinct) {
			t.Errorf("%d partitions and %d bad items of %d", len(partitions), len(bad), len(distinct))
		}
		for _, f := range []allocfn.Func{allocfn.RoundRobin(), allocfn.Range()} {
			if _, err := allocfn.Call(f, in); err != nil {
				t.Error(err)
			}
		}
	})
}

// Digits of other scripts are read as Python 3.11 does, whatever release of Unicode Go knows.
func TestDigitsOfAllScripts(t *testing.T) {
	for text, want := range map[string]int32{"\u0665": 5, "1\u0660\uff19": 109, "\U0001d7ff": 9, "\U0001fbf9": 9} {
		if p, err := kiel.ParsePartition("t:" + text); err != nil || p.ID != want {
			t.Errorf("%q: %v, %v, want %d", text, p, err, want)
		}
	}
	for _, text := range []string{"\u065f", "\u066a", "\U0001fbfa", "\U00011f50", "\U0001e4f0", "\u00b2", "\u2160"} {
		if p, err := kiel.ParsePartition("t:" + text); err == nil {
			t.Errorf("%q: %v", text, p)
		}
	}
}
