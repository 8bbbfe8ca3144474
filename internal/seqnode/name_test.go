package seqnode_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel/internal/seqnode"
)

func TestGUID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$`)
	seen := map[string]bool{}
	for range 1000 {
		g := seqnode.NewGUID()
		if !form.MatchString(g) {
			t.Fatalf("%q is no UUID of version 4 in 32 hex digits", g)
		}
		if seen[g] {
			t.Fatalf("%q came twice", g)
		}
		seen[g] = true
	}
}

func TestParse(t *testing.T) {
	lock := []string{"__lock__"}
	tests := map[string]struct {
		name  string
		words []string
		word  string
		seq   int64
		ok    bool
	}{
		"kazoo":                    {"514e5a831836450cb1a56c741e990fd8__lock__0000000032", lock, "__lock__", 32, true},
		"largest":                  {"a__lock__2147483647", lock, "__lock__", 2147483647, true},
		"ten digits behind minus":  {"a__lock__-2147483648", lock, "__lock__", -2147483648, true},
		"nine digits behind minus": {"a__lock__-000000001", lock, "__lock__", -1, true},
		"nine digits, no minus":    {"a__lock__123456789", lock, "", 0, false},
		"eleven digits":            {"a__lock__00000000001", lock, "", 0, false},
		"beyond 32 bits":           {"a__lock__9999999999", lock, "__lock__", 9999999999, true},
		"no prefix":                {"__lock__0000000001", lock, "__lock__", 1, true},
		"reader":                   {"a__rlock__0000000001", lock, "", 0, false},
		"two words":                {"a__rlock__0000000001", []string{"__lock__", "__rlock__"}, "__rlock__", 1, true},
		"not at the end":           {"a__lock__0000000001x", lock, "", 0, false},
		"lease":                    {"lease_holder", lock, "", 0, false},
		"go-zookeeper":             {"_c_8eb60557ba51e0da67eefc47467d3f34-lock-0000000031", []string{"-lock-"}, "-lock-", 31, true},
		"go-zookeeper negative":    {"_c_8e-lock--000000031", []string{"-lock-"}, "-lock-", -31, true},
		"word that ends in digits": {"a-v10000000001", []string{"-v1"}, "-v1", 1, true},
		"empty":                    {"", lock, "", 0, false},
		"digits only":              {"0000000001", lock, "", 0, false},
		"no words":                 {"a__lock__0000000001", nil, "", 0, false},
		"arabic digits":            {"a__lock__٠٠٠٠٠٠٠٠٠١", lock, "", 0, false},
	}
	for what, tt := range tests {
		got, ok := seqnode.Parse(tt.name, tt.words...)
		want := seqnode.Contender{}
		if tt.ok {
			want = seqnode.Contender{Name: tt.name, Word: tt.word, Seq: tt.seq}
		}
		if ok != tt.ok || got != want {
			t.Errorf("%s: Parse(%q) = %+v, %v, want %+v, %v", what, tt.name, got, ok, want, tt.ok)
		}
	}
}

// The server formats a signed 32-bit counter with "%010d".
func TestParseReadsWhatServersMake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seq := rapid.Int32().Draw(t, "seq")
		prefix := rapid.String().Draw(t, "prefix")
		c, ok := seqnode.Parse(fmt.Sprintf("%s__lock__%010d", prefix, seq), "__lock__")
		if !ok || c.Seq != int64(seq) {
			t.Fatalf("got %+v, %v, want %d", c, ok, seq)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"a__lock__0000000001", "a__lock__-000000001", "a__lock__-2147483648",
		"a__lock__-0000000001", "x-lock--000000001", "-lock-", "a__lock__--000000001",
	} {
		f.Add(s)
	}
	forms := map[string]*regexp.Regexp{}
	for _, word := range []string{"__lock__", "-lock-"} {
		forms[word] = regexp.MustCompile(`(?s)^.*` + word + `([0-9]{10}|-[0-9]{9,10})$`)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for word, form := range forms {
			c, ok := seqnode.Parse(name, word)
			m := form.FindStringSubmatch(name)
			if ok != (m != nil) {
				t.Fatalf("Parse(%q, %q) = %+v, %v, want match %q", name, word, c, ok, m)
			}
			if !ok {
				continue
			}
			if want, err := strconv.ParseInt(m[1], 10, 64); err != nil || c.Seq != want {
				t.Fatalf("Parse(%q, %q) = %+v, want %d", name, word, c, want)
			}
		}
	})
}

func TestContendersAreInTheOrderOfTheirNumbers(t *testing.T) {
	want := []string{
		"f__lock__-2147483648", "e__lock__-1000000000", "d__lock__-999999999", "z__lock__-000000001",
		"c__lock__0000000000", "b__lock__0000000007", "bb__lock__0000000007", "a__lock__2147483647",
	}
	children := append([]string{"lease_holder", "x__rlock__0000000001", "", "__lock__"}, want...)
	for range 100 {
		rand.Shuffle(len(children), func(i, j int) { children[i], children[j] = children[j], children[i] })
		var got []string
		for _, c := range seqnode.Contenders(children, "__lock__") {
			got = append(got, c.Name)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}
