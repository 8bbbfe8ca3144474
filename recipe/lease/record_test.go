package lease_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel/recipe/lease"
)

// The bytes that Python 3.11 and kazoo 2.11 write:
//
//	json.dumps({"version": 1, "holder": holder, "end": end.strftime("%Y-%m-%dT%H:%M:%S")}).encode("utf-8")
func TestGoldenBytes(t *testing.T) {
	end := time.Date(2026, 3, 1, 14, 0, 0, 999_999_999, time.FixedZone("two hours east", 7200))
	for holder, want := range map[string]string{
		"host-7":               `host-7`,
		"café":                 `caf\u00e9`,
		"😀 \x7f\x01 <&>/":      `\ud83d\ude00 \u007f\u0001 <&>/`,
		"q\"\\\n\r\t\b\f":      `q\"\\\n\r\t\b\f`,
		"\u2028\uffff":         `\u2028\uffff`,
		"DB hourly cleanup on": `DB hourly cleanup on`,
	} {
		want = `{"version": 1, "holder": "` + want + `", "end": "2026-03-01T12:00:00"}`
		r := lease.Record{Version: 1, Holder: holder, End: end}
		if got := string(lease.Encode(r)); got != want {
			t.Errorf("%q:\n%s, want\n%s", holder, got, want)
		}
	}
}

func TestRecordsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := lease.Record{
			Version: 1,
			Holder:  rapid.String().Draw(t, "holder"),
			End:     time.Unix(rapid.Int64Range(-30_000_000_000, 250_000_000_000).Draw(t, "end"), 0).UTC(),
		}
		got, err := lease.Decode(lease.Encode(r))
		if err != nil || got != r {
			t.Fatalf("got %+v, %v", got, err)
		}
	})
}

func TestDecode(t *testing.T) {
	noon := lease.Record{Version: 1, Holder: "h", End: time.Date(2026, 3, 1, 12, 0, 5, 0, time.UTC)}
	for data, want := range map[string]lease.Record{
		`{"version": 1, "holder": "h", "end": "2026-03-01T12:00:05"}`:             noon,
		`{"end":"2026-3-1T12:0:5","holder":"h","version":1.0,"more":[1]}`:         noon, // as Python reads it
		`{"version": 1, "holder": "x", "holder": "h", "end":"2026-03-1T12:00:5"}`: noon,
		`{"version": 2}`:                      {Version: 2},
		`{"version": 0, "end": "some day"}`:   {Version: 0},
		`{"version": -1, "holder": {"a": 1}}`: {Version: -1},
	} {
		if got, err := lease.Decode([]byte(data)); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", data, got, err)
		}
	}
	for _, data := range []string{
		"", "null", "[]", "1", `"x"`, "{}", `{"version": "1"}`, `{"version": 1.5}`, `{"version": true}`, `{"version": 1e300}`,
		`{"Version": 1, "holder": "h", "end": "2026-03-01T12:00:05"}`,
		`{"version": 1, "end": "2026-03-01T12:00:05"}`,
		`{"version": 1, "holder": 7, "end": "2026-03-01T12:00:05"}`,
		`{"version": 1, "holder": "h"}`,
		`{"version": 1, "holder": "h", "end": 12}`,
		`{"version": 1, "holder": "h", "end": "2026-03-01T12:00:05Z"}`,
		`{"version": 1, "holder": "h", "end": "2026-03-01T12:00:05.5"}`,
		`{"version": 1, "holder": "h", "end": "2026-02-30T12:00:05"}`,
		`{"version": 1, "holder": "h", "end": "2026-13-01T12:00:05"}`,
		`{"version": 1, "holder": "h", "end": "2026-03-01T24:00:05"}`,
		`{"version": 1, "holder": "h", "end": "2026-03-01T12:00:60"}`,
		`{"version": 1, "holder": "h", "end": "26-03-01T12:00:05"}`,
		`{"version": 1, "holder": "h", "end": "2026-03-01T12:00:05"} x`,
	} {
		if got, err := lease.Decode([]byte(data)); !errors.Is(err, lease.ErrBadRecord) {
			t.Errorf("%s: got %+v, %v", data, got, err)
		}
	}
}
