package zones_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/zones"
)

// of makes zones of the names given for partitions 0, 1, … of topic t; "" is none.
func of(names ...string) map[kiel.Partition]string {
	all := make(map[kiel.Partition]string)
	for id, zone := range names {
		if zone != "" {
			all[kiel.Partition{Topic: "t", ID: int32(id)}] = zone
		}
	}
	return all
}

func TestEncode(t *testing.T) {
	data, err := zones.Encode(of("b", "a", "", "b"))
	if want := `{"v":1,"zones":["a","b"],"topics":{"t":[1,0,-1,1]}}`; err != nil || string(data) != want {
		t.Errorf("got %s, %v, want %s", data, err, want)
	}
	if data, err = zones.Encode(nil); err != nil || string(data) != `{"v":1,"zones":[],"topics":{}}` {
		t.Errorf("none: %s, %v", data, err)
	}
}

// What would not fit is not written, and nothing is made for it before that is known.
func TestEncodeTooLarge(t *testing.T) {
	long := make(map[kiel.Partition]string)
	for i := range 5000 {
		long[kiel.Partition{Topic: "t", ID: int32(i)}] = fmt.Sprintf("%0249d", i)
	}
	spread := make(map[kiel.Partition]string)
	for i := range 1000 {
		spread[kiel.Partition{Topic: fmt.Sprint("t", i), ID: 1 << 19}] = "a"
	}
	for name, in := range map[string]map[kiel.Partition]string{
		"last id":    {{Topic: "t", ID: 1<<31 - 1}: "a"},
		"ids of all": spread,
		"long names": long,
	} {
		if data, err := zones.Encode(in); !errors.Is(err, zones.ErrTooLarge) {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	most := make(map[kiel.Partition]string)
	for i := range 500_000 {
		most[kiel.Partition{Topic: "t", ID: int32(i)}] = "a"
	}
	if data, err := zones.Encode(most); err != nil || len(data) > zones.MaxData {
		t.Errorf("500,000 partitions: %d bytes, %v", len(data), err)
	}
}

func TestDecode(t *testing.T) {
	good := map[string]map[kiel.Partition]string{
		``:        nil,
		`{"v":1}`: nil,
		`{"v":1,"zones":["a"],"topics":{"t":[-1]}}`:                nil,
		`{"v":1,"zones":["b","a"],"topics":{"t":[1,-1,0]}}`:        of("a", "", "b"),
		` { "topics": {"t": [0], "u": []}, "zones":["é"],"v":1 } `: of("é"),
	}
	for data, want := range good {
		if got, err := zones.Decode([]byte(data)); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", data, got, err, want)
		}
	}
	bad := map[string]string{
		"empty list":       `[]`,
		"no JSON":          `zone a`,
		"cut off":          `{"v":1,"zones":["a"],"topics":{"t":[0]}`,
		"more behind":      `{"v":1} {"v":1}`,
		"garbage behind":   `{"v":1}]`,
		"no version":       `{"zones":["a"],"topics":{"t":[0]}}`,
		"null version":     `{"v":null}`,
		"newer version":    `{"v":2,"zones":{"a":1}}`,
		"version 0":        `{"v":0}`,
		"a field more":     `{"v":1,"racks":[]}`,
		"zone of none":     `{"v":1,"zones":["a"],"topics":{"t":[1]}}`,
		"below none":       `{"v":1,"zones":["a"],"topics":{"t":[-2]}}`,
		"not whole":        `{"v":1,"zones":["a"],"topics":{"t":[0.5]}}`,
		"beyond 32 bits":   `{"v":1,"zones":["a"],"topics":{"t":[4294967296]}}`,
		"null for an id":   `{"v":1,"zones":["a"],"topics":{"t":[null]}}`,
		"null for ids":     `{"v":1,"zones":["a"],"topics":{"t":null}}`,
		"bad topic":        `{"v":1,"zones":["a"],"topics":{"t:0":[0]}}`,
		"zone without one": `{"v":1,"zones":[""],"topics":{"t":[0]}}`,
		"zone twice":       `{"v":1,"zones":["a","b","a"],"topics":{"t":[0]}}`,
		"control":          `{"v":1,"zones":["a\u0007"],"topics":{"t":[0]}}`,
		"not UTF-8":        "{\"v\":1,\"zones\":[\"a\xff\"],\"topics\":{\"t\":[0]}}",
		"long zone":        `{"v":1,"zones":["` + strings.Repeat("z", 250) + `"]}`,
		"too much":         `{"v":1}` + strings.Repeat(" ", zones.MaxData),
	}
	for name, data := range bad {
		if got, err := zones.Decode([]byte(data)); err == nil || got != nil {
			t.Errorf("%s: read as %v", name, got)
		}
	}
}

// drawn draws zones of all shapes.
func drawn(t *rapid.T) map[kiel.Partition]string {
	return rapid.MapOfN(rapid.Custom(func(t *rapid.T) kiel.Partition {
		return kiel.Partition{Topic: rapid.SampledFrom([]string{"t", "u", "a.b_c-d"}).Draw(t, "topic"), ID: rapid.Int32Range(0, 50).Draw(t, "id")}
	}), rapid.SampledFrom([]string{"a", "b", "eu-west-1a", "<é>\"\\"}), 0, 40).Draw(t, "zones")
}

func TestReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawn(t)
		data, err := zones.Encode(in)
		noerr.Must(t, err)
		if got, err := zones.Decode(data); err != nil || !maps.Equal(got, in) {
			t.Fatalf("%s: %v, %v", data, got, err)
		}
	})
}

// Whatever is read is refused, or can be written and read back as the same.
func TestCheck(t *testing.T) {
	for _, zone := range []string{"", "eu-1a", "a b", "\u00e9", "\u6771\u4eac", "\U0001fabe", strings.Repeat("x", 249)} {
		if err := zones.Check(zone); err != nil {
			t.Errorf("%q: %v", zone, err)
		}
	}
	for _, zone := range []string{
		"a\n", "\x00", "\x7f", "\u0085", "\u00ad", "\u200b", "\u2028", "\u202e", "\u2066", "\ufeff", "\ufffe", "\U000e0041", "\U0010ffff",
		"\xff", strings.Repeat("x", 250),
	} {
		if zones.Check(zone) == nil {
			t.Errorf("%q is allowed", zone)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		``, `{"v":1}`, `{"v":1,"zones":["a","b"],"topics":{"t":[0,1,-1],"u":[]}}`, `{"v":2}`, `{"v":1,"zones":null,"topics":{"t":[null]}}`,
		`{"v":1,"zones":["a","a"],"topics":{"t":[0],"t":[1]}}`, `{"V":1,"Zones":["\u00e9"],"TOPICS":{"x":[0]}}`, `[`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := zones.Decode(data)
		if err != nil {
			if got != nil {
				t.Fatalf("%v with %v", got, err)
			}
			return
		}
		for p, zone := range got {
			if zone == "" || zones.Check(zone) != nil || p.ID < 0 {
				t.Fatalf("%v in %q", p, zone)
			}
		}
		written, err := zones.Encode(got)
		if errors.Is(err, zones.ErrTooLarge) { // escapes may make it longer
			return
		}
		noerr.Must(t, err)
		if again, err := zones.Decode(written); err != nil || !maps.Equal(again, got) {
			t.Fatalf("%q: %v, then %q: %v, %v", data, got, written, again, err)
		}
	})
}
