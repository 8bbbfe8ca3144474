package party

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

func TestEntryNames(t *testing.T) {
	h := hashOf([]byte("record"))
	for _, member := range []string{"m", "consumer:1", ".", "..", "a.b.c", "é\u4e00 ~", strings.Repeat("x", 249), "~", "%2F"} {
		for _, session := range []int64{1, -1, 0x100005acdc90001} {
			name := entryName(entry{h, session}, member)
			got, e, ok := parseEntry(name)
			if !ok || got != member || e != (entry{h, session}) {
				t.Errorf("%q is %q, %+v, %v", name, got, e, ok)
			}
		}
	}
	good := entryName(entry{h, 0xab}, "m")
	text := base64.RawURLEncoding.EncodeToString(h[:])
	for _, name := range []string{
		"", "m", ".", "..", "...", "a.b.m", good[1:], "x" + good, text, text + ".", text + ".ab", text + ".ab.", text + "..m", text + ".0.m",
		text + ".AB.m", text + ".0ab.m", text + ".-1.m", text + ".+1.m", text + ".0xab.m", text + ".ab m", text + ".12345678901234567.m",
		strings.Repeat("=", len(text)) + ".ab.m", text[:len(text)-1] + "+.ab.m", text[:len(text)-1] + "B.ab.m", text[:len(text)-1] + "\n.ab.m",
	} {
		if member, e, ok := parseEntry(name); ok {
			t.Errorf("%q is an entry of %q: %+v", name, member, e)
		}
	}
	// The names on the wire do not change: members of other versions read it.
	if want := "cM6HH4o9P7RJvDw6zmVHzvAt_HQ.ab.m"; good != want {
		t.Errorf("got %s, want %s", good, want)
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add(entryName(entry{hashOf(nil), 1}, "m"))
	f.Add("..m")
	f.Fuzz(func(t *testing.T, name string) {
		if member, e, ok := parseEntry(name); ok && (member == "" || e.session == 0 || entryName(e, member) != name) {
			t.Errorf("%q is an entry of %q: %+v", name, member, e)
		}
	})
}

func TestTwoEntriesAreNone(t *testing.T) {
	a, b := entry{hashOf([]byte("a")), 1}, entry{hashOf([]byte("b")), 2}
	got := parseEntries([]string{
		entryName(a, "one"), entryName(a, "two"), entryName(b, "two"), entryName(b, "three"), entryName(entry{b.hash, 3}, "three"),
		entryName(a, "four"), entryName(b, "four"), entryName(entry{a.hash, 4}, "four"), "garbage",
	})
	if len(got) != 1 || got["one"] != a {
		t.Errorf("got %+v", got)
	}
}

// The names of a large group are parsed by each member whenever one changes.
func BenchmarkParseEntries(b *testing.B) {
	names := make([]string, 1000)
	for i := range names {
		names[i] = entryName(entry{hashOf(nil), int64(i) + 0x100000000000000}, fmt.Sprintf("member-%04d.example", i))
	}
	for b.Loop() {
		parseEntries(names)
	}
}
