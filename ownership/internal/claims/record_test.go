package claims_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/status"
)

// firstRecord is what the first version of members wrote and read.
type firstRecord struct {
	Owner   string `json:"owner"`
	Version uint64 `json:"version"`
	ID      string `json:"id"`
}

// Members of the first version read what newer ones write, and the other way round.
func TestRecordOfOtherVersions(t *testing.T) {
	long := strings.Repeat("n", statuswrite.MaxShortName)
	newer := claims.Record{
		Owner: "a", Version: 7, ID: "x", Previous: "b",
		Reason: statuswrite.Reason(status.MemberGone, long, "<&>", "c", "d", "e", "f"),
	}
	var read firstRecord
	if err := json.Unmarshal(newer.Encode(), &read); err != nil || read != (firstRecord{"a", 7, "x"}) {
		t.Errorf("an older member reads %+v, error %v", read, err)
	}
	if got, err := claims.Decode(newer.Encode()); err != nil || !reflect.DeepEqual(got, newer) {
		t.Errorf("read %+v, error %v, written %+v", got, err, newer)
	}
	older, err := json.Marshal(firstRecord{"a", 7, "x"})
	noerr.Must(t, err)
	want := claims.Record{Owner: "a", Version: 7, ID: "x", Reason: statuswrite.Reason(status.Unknown)}
	if got, err := claims.Decode(older); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("of an older member %+v, error %v", got, err)
	}
	if got := (claims.Record{Owner: "a", Version: 7, ID: "x"}).Encode(); string(got) != string(older) {
		t.Errorf("without a reason %s, of an older member %s", got, older)
	}
}

// A record that anybody may have written is read within limits. What a later version adds does no harm.
func TestDecode(t *testing.T) {
	const known = `"owner":"a","version":7,"id":"x"`
	for data, want := range map[string]struct {
		reason   status.Code // "" when the record is not read
		previous string
	}{
		`{` + known + `,"reason":{"code":"member-joined","names":["a"]},"previous":"b"}`: {"member-joined", "b"},
		`{` + known + `,"reason":{"code":"moon-phase","phase":3},"weather":[1]}`:         {"moon-phase", ""},
		`{` + known + `,"reason":{"code":"UPPER"}}`:                                      {"unknown", ""},
		`{` + known + `,"reason":"text"}`:                                                {"unknown", ""},
		`{` + known + `,"reason":null}`:                                                  {"unknown", ""},
		`{` + known + `,"reason":{"code":"stuck","names":["1","2","3","4","5","6"]}}`:    {"unknown", ""},
		`{` + known + `,"previous":"` + strings.Repeat("ü", 40) + `"}`:                   {"unknown", strings.Repeat("ü", 32)},
		`{"version":7,"id":"x"}`:                                                         {},
		`{"owner":["a"]}`:                                                                {},
		`{` + known + `,"x":"` + strings.Repeat("x", 9000) + `"}`:                        {},
		``:        {},
		`null`:    {},
		`another`: {},
	} {
		got, err := claims.Decode([]byte(data))
		if want.reason == "" {
			if err == nil {
				t.Errorf("%.100s: read as %+v", data, got)
			}
			continue
		}
		if err != nil || got.Owner != "a" || got.Version != 7 || got.ID != "x" || got.Reason.Code != want.reason || got.Previous != want.previous {
			t.Errorf("%.100s: read as %+v, error %v", data, got, err)
		}
	}
}

// Whatever stands in a znode, what is read of it is valid, and small when it is written again.
func FuzzDecode(f *testing.F) {
	f.Add(claims.Record{Owner: "a", Version: 7, ID: "x", Previous: "b", Reason: statuswrite.Reason(status.MemberGone, "c")}.Encode())
	f.Add([]byte(`{"owner":"a","reason":{"code":"x","names":["\ud800"],"more":-1},"previous":"\u0000"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := claims.Decode(data)
		if err != nil {
			return
		}
		if err := statuswrite.Check(r.Reason); err != nil || r.Reason.IsZero() || len(r.Previous) > statuswrite.MaxShortName {
			t.Errorf("%q is read as %+v: %v", data, r, err)
		}
		if len(r.Owner) > 1000 {
			return // nobody writes it again
		}
		if again, err := claims.Decode(r.Encode()); err != nil || again.Owner != r.Owner || again.Reason.String() != r.Reason.String() || again.Previous != r.Previous {
			t.Errorf("%+v is read again as %+v: %v", r, again, err)
		}
	})
}
