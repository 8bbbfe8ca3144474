package statuswrite_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/status"
)

// Reason returns a reason within the limits, whatever the names are.
func TestReasonsAreBounded(t *testing.T) {
	for _, names := range [][]string{
		nil,
		{"a"},
		{strings.Repeat("x", 64)},
		{strings.Repeat("x", 65)},
		{strings.Repeat("ü", 33)},
		{"x" + strings.Repeat("ü", 33)},
		{"\xff\xfe", strings.Repeat("\xff", 100), "ab\xe2\x82"},
		strings.Split(strings.Repeat("m,", 7), ","),
	} {
		r := statuswrite.Reason(status.MemberGone, names...)
		if err := statuswrite.Check(r); err != nil || len(r.Names)+r.More != len(names) {
			t.Errorf("%q: %+v, %v", names, r, err)
		}
		for _, name := range r.Names {
			if !utf8.ValidString(name) || len(name) > statuswrite.MaxShortName {
				t.Errorf("%q", name)
			}
		}
		clone := statuswrite.Clone(r)
		clear(clone.Names)
		if len(names) > 0 && r.Names[0] == "" {
			t.Error("a clone shares names")
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for name, r := range map[string]status.Reason{
		"code":  {Code: "Two words"},
		"long":  {Code: status.Code(strings.Repeat("x", 65))},
		"names": {Code: "x", Names: slices.Repeat([]string{"a"}, 6)},
		"name":  {Code: "x", Names: []string{strings.Repeat("a", 65)}},
		"bytes": {Code: "x", Names: []string{"\xff"}},
		"more":  {Code: "x", More: -1},
	} {
		if statuswrite.Check(r) == nil {
			t.Errorf("%s: %+v is taken", name, r)
		}
	}
	noerr.Want(t, statuswrite.Check(status.Reason{Code: "of-a-later-version"}))
}

func TestListsAreNeverNull(t *testing.T) {
	data, err := json.Marshal(statuswrite.Group("g", status.SourceZooKeeper, time.Unix(0, 0).UTC()))
	want := `{"version":1,"group":"g","source":"zookeeper","at":"1970-01-01T00:00:00Z","members":[],"partitions":[],"disagreements":[],"troubles":[],"changes":[]}`
	if err != nil || string(data) != want {
		t.Errorf("%s, %v", data, err)
	}
}

// Times come from servers, and JSON can't hold all of them.
func TestMillis(t *testing.T) {
	for ms, want := range map[int64]string{
		-1 << 63: "", -1: "", 0: "", 1: "1970-01-01T00:00:00.001Z", 253402300799999: "9999-12-31T23:59:59.999Z", 253402300800000: "", 1<<63 - 1: "",
	} {
		at := statuswrite.Millis(ms)
		if (at == nil) != (want == "") {
			t.Errorf("%d is %v", ms, at)
			continue
		}
		if at == nil {
			continue
		}
		if data, err := json.Marshal(at); err != nil || string(data) != `"`+want+`"` {
			t.Errorf("%d is %s, %v", ms, data, err)
		}
	}
}

func TestWhatIsShownIsBounded(t *testing.T) {
	if got := statuswrite.Name(strings.Repeat("ü", 200)); len(got) != statuswrite.MaxName || !utf8.ValidString(got) {
		t.Errorf("%d bytes", len(got))
	}
	if got := statuswrite.Text(" a\n\tb \xff" + strings.Repeat("x", 600)); len(got) != statuswrite.MaxText || !strings.HasPrefix(got, "a b ?x") {
		t.Errorf("%q", got)
	}
	d := statuswrite.Disagreement(status.OddItem, "text", strings.Split(strings.Repeat("x,", 29), ",")...)
	if len(d.Names) != statuswrite.MaxListed || d.More != 10 {
		t.Errorf("%+v", d)
	}
}
