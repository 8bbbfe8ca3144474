package sharedset_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// vectors returns what Python's json.dumps made of lists of strings.
func vectors(tb testing.TB) (items [][]string, texts []string) {
	tb.Helper()
	data, err := os.ReadFile("testdata/dumps.txt")
	noerr.Must(tb, err)
	for line := range strings.Lines(string(data)) {
		hexed, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			tb.Fatalf("no tab in %q", line)
		}
		list := []string{}
		for h := range strings.SplitSeq(strings.TrimSuffix(hexed, ","), ",") {
			if hexed == "" {
				break
			}
			b, err := hex.DecodeString(h)
			noerr.Must(tb, err)
			list = append(list, string(b))
		}
		items, texts = append(items, list), append(texts, text)
	}
	if len(items) < 100 {
		tb.Fatalf("%d vectors only", len(items))
	}
	return items, texts
}

func sorted(items []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(items)))
}

func TestEncodeWritesThePythonBytes(t *testing.T) {
	items, texts := vectors(t)
	for i := range items {
		if got := string(sharedset.Encode(items[i])); got != texts[i] {
			t.Errorf("%q: got %s, want %s", items[i], got, texts[i])
		}
	}
}

func TestDecodeReadsThePythonBytes(t *testing.T) {
	items, texts := vectors(t)
	for i := range items {
		got, err := sharedset.Decode([]byte(texts[i]))
		if want := sorted(items[i]); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v, want %q", texts[i], got, err, want)
		}
	}
}

func TestDecode(t *testing.T) {
	tests := map[string]struct {
		data string
		want []string
		fail string // part of the error
	}{
		"nothing":                {data: ""},
		"empty array":            {data: "[]"},
		"space":                  {data: " [ \n\"b\"\t,\r\"a\" ] \n", want: []string{"a", "b"}},
		"duplicates collapse":    {data: `["a","b","a","\u0061"]`, want: []string{"a", "b"}},
		"raw UTF-8":              {data: `["café:0"]`, want: []string{"café:0"}},
		"escapes":                {data: `["\"\\\/\b\f\n\r\t\u0000\u20AC\ud83D\uDE00"]`, want: []string{"\"\\/\b\f\n\r\t\x00€😀"}},
		"white space only":       {data: "  ", fail: "byte 2: the data ends, expected the start of an array"},
		"object":                 {data: "{}", fail: "byte 0: found '{'"},
		"null":                   {data: "null", fail: "byte 0"},
		"string":                 {data: `"a"`, fail: "byte 0"},
		"number":                 {data: `["a", 1]`, fail: "byte 6: found '1', expected a string"},
		"null inside":            {data: `[null]`, fail: "byte 1"},
		"nested":                 {data: `["a",["b"]]`, fail: "byte 5: found '['"},
		"cut":                    {data: `["a", "b`, fail: "byte 8: the data ends in a string"},
		"cut behind a comma":     {data: `["a",`, fail: "byte 5"},
		"comma at the end":       {data: `["a",]`, fail: "byte 5: found ']', expected a string"},
		"no comma":               {data: `["a" "b"]`, fail: "byte 5: found '\"', expected a comma"},
		"comma at the start":     {data: `[,"a"]`, fail: "byte 1"},
		"something behind":       {data: `["a"] x`, fail: "byte 6: found 'x' behind the array"},
		"second array":           {data: `[][]`, fail: "byte 2"},
		"byte order mark":        {data: "\ufeff[]", fail: "byte 0"},
		"gzip":                   {data: "\x1f\x8b\x08\x00", fail: "byte 0"},
		"no UTF-8":               {data: "[\"a\xff\"]", fail: "byte 3: a string is no valid UTF-8"},
		"surrogate in UTF-8":     {data: "[\"\xed\xa0\x80\"]", fail: "byte 2"},
		"new line in a string":   {data: "[\"a\nb\"]", fail: "byte 3: control character"},
		"unknown escape":         {data: `["\x41"]`, fail: "byte 2: no valid escape"},
		"short escape":           {data: `["\u12"]`, fail: "byte 2"},
		"cut in an escape":       {data: `["\`, fail: "byte 2"},
		"high surrogate alone":   {data: `["\ud83d"]`, fail: "byte 2: half of a surrogate pair"},
		"low surrogate alone":    {data: `["\ude00"]`, fail: "byte 2"},
		"surrogates in disorder": {data: `["\ude00\ud83d"]`, fail: "byte 2"},
		"not a number":           {data: `[NaN]`, fail: "byte 1"},
	}
	for what, tt := range tests {
		got, err := sharedset.Decode([]byte(tt.data))
		switch {
		case tt.fail != "" && (err == nil || !strings.Contains(err.Error(), tt.fail)):
			t.Errorf("%s: got %q, %v, want an error with %q", what, got, err, tt.fail)
		case tt.fail == "" && (err != nil || !slices.Equal(got, tt.want)):
			t.Errorf("%s: got %q, %v, want %q", what, got, err, tt.want)
		}
	}
}

// A packet's worth of garbage costs next to nothing.
func TestDecodeIsCheapOnGarbage(t *testing.T) {
	const mib = 1 << 20
	tests := map[string]string{
		"brackets":          strings.Repeat("[", mib),
		"nested arrays":     strings.Repeat("[", mib/2) + strings.Repeat("]", mib/2),
		"a long number":     "[" + strings.Repeat("9", mib),
		"many, then cut":    "[" + strings.Repeat(`"",`, mib/3),
		"a long cut string": `["` + strings.Repeat("x", mib),
		"many escapes":      `["` + strings.Repeat(`\n`, mib/2),
	}
	for what, text := range tests {
		data := []byte(text)
		took, bytes := cost(slowdown*10*time.Millisecond, func() {
			if _, err := sharedset.Decode(data); err == nil {
				t.Errorf("%s: accepted", what)
			}
		})
		if took > slowdown*10*time.Millisecond {
			t.Errorf("%s: took %v", what, took)
		}
		if bytes > 64<<10 { // other goroutines' are counted in
			t.Errorf("%s: allocated %d bytes", what, bytes)
		}
	}
}

func TestDecodeOfAFullPacketStaysSmall(t *testing.T) {
	data := []byte("[" + strings.Repeat(`"",`, 1<<20/3-1) + `""]`)
	_, bytes := cost(time.Hour, func() {
		if got, err := sharedset.Decode(data); err != nil || len(got) != 1 {
			t.Errorf("got %d items, %v", len(got), err)
		}
	})
	if bytes > 8<<20 {
		t.Errorf("allocated %d bytes", bytes)
	}
}

// cost returns the shortest time and the least memory that f took in up to 100 runs. It ends with the first run that took less
// than enough.
func cost(enough time.Duration, f func()) (took time.Duration, bytes uint64) {
	took, bytes = time.Hour, 1<<62
	for range 100 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		f()
		took = min(took, time.Since(start))
		runtime.ReadMemStats(&after)
		bytes = min(bytes, after.TotalAlloc-before.TotalAlloc)
		if took < enough {
			break
		}
	}
	return took, bytes
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOf(rapid.String().Filter(utf8.ValidString)).Draw(t, "items")
		data := sharedset.Encode(items)
		for _, b := range data {
			if b < ' ' || b > '~' {
				t.Fatalf("byte %#x in %q", b, data)
			}
		}
		got, err := sharedset.Decode(data)
		if err != nil || !slices.Equal(got, sorted(items)) {
			t.Fatalf("%s: got %q, %v, want %q", data, got, err, sorted(items))
		}
		var other []string
		if err := json.Unmarshal(data, &other); err != nil || !slices.Equal(other, items) {
			t.Fatalf("%s: encoding/json reads %q, %v, want %q", data, other, err, items)
		}
	})
}

// FuzzDecode compares with encoding/json, which accepts a little more: characters that it has to replace, and null.
func FuzzDecode(f *testing.F) {
	_, texts := vectors(f)
	for _, text := range texts {
		f.Add([]byte(text))
	}
	for _, text := range []string{`[null]`, `["\ud83d"]`, "[\"\xff\"]", `["a",]`, " [\"a\" , \"b\"]\n", `["�"]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := sharedset.Decode(data)
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > uint64(64*len(data)+256<<10) {
			t.Fatalf("%d bytes made it allocate %d", len(data), grown)
		}
		want, ok := reference(data)
		if err != nil {
			if ok && len(data) > 0 {
				t.Fatalf("%q refused: %v, encoding/json reads %q", data, err, want)
			}
			return
		}
		if !ok && len(data) > 0 {
			t.Fatalf("%q: accepted as %q", data, got)
		}
		if !slices.Equal(got, sorted(want)) {
			t.Fatalf("%q: got %q, want %q", data, got, sorted(want))
		}
		again, err := sharedset.Decode(sharedset.Encode(got))
		if err != nil || !slices.Equal(again, got) {
			t.Fatalf("%q: written and read again: %q, %v", data, again, err)
		}
	})
}

// reference reads an array of strings by encoding/json, and reports false when that had to change a string or found another type.
func reference(data []byte) ([]string, bool) {
	if !utf8.Valid(data) {
		return nil, false
	}
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil || list == nil {
		return nil, false
	}
	items := []string{}
	for _, raw := range list {
		var item string
		if err := json.Unmarshal(raw, &item); err != nil || raw[0] != '"' {
			return nil, false
		}
		if strings.Count(item, "\ufffd") != strings.Count(string(raw), "\ufffd")+strings.Count(strings.ToLower(string(raw)), `\ufffd`) {
			return nil, false // half of a surrogate pair
		}
		items = append(items, item)
	}
	return items, true
}
