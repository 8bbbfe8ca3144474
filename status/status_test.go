package status_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kielgo/kiel/status"
)

func TestCodesAreWords(t *testing.T) {
	codes := status.Codes()
	for _, c := range codes {
		if err := (status.Reason{Code: c}).Check(); err != nil || c == "" {
			t.Errorf("%q: %v", c, err)
		}
	}
	slices.Sort(codes)
	if len(slices.Compact(codes)) != len(status.Codes()) {
		t.Error("a code is listed twice")
	}
}

// Each code has one cause, and the pages that explain the label of the metric name them.
func TestCodesHaveCauses(t *testing.T) {
	page, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[status.Cause]bool)
	for _, c := range status.Codes() {
		cause := c.Cause()
		if cause == "" {
			if c != status.Unknown {
				t.Errorf("%s has no cause", c)
			}
			continue
		}
		found[cause] = true
		if slices.Contains([]status.Code{status.MemberLeft, status.Stuck, status.ClaimVanished}, c) {
			continue // no mapping has them
		}
		rows := regexp.MustCompile(`(?m)^\| .`+string(cause)+`. \|.*$`).FindAllString(string(page), -1)
		if !strings.Contains(strings.Join(rows, ""), "`"+string(c)+"`") {
			t.Errorf("docs/operating.md does not say that %s is of %s", c, cause)
		}
	}
	for _, cause := range status.Causes() {
		if !found[cause] {
			t.Errorf("no code is of %s", cause)
		}
		delete(found, cause)
	}
	if len(found) > 0 {
		t.Errorf("not among Causes: %v", found)
	}
	if cause := status.Code("of-tomorrow").Cause(); cause != "" {
		t.Errorf("a later version's code is of %s", cause)
	}
}

// Each code is one that members give: a page that explains others sends people the wrong way.
func TestCodesAreGiven(t *testing.T) {
	var code strings.Builder
	for _, dir := range []string{"../allocator", "../ownership", "../consumer"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
		}
	}
	declared, err := os.ReadFile("reason.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`\t(\w+) +(?:Code )?= "([a-z-]+)"`).FindAllStringSubmatch(string(declared), -1)
	if len(found) != len(status.Codes()) {
		t.Errorf("%d codes are declared, %d listed", len(found), len(status.Codes()))
	}
	for _, names := range found {
		if !regexp.MustCompile(`\bstatus\.` + names[1] + `\b`).MatchString(code.String()) {
			t.Errorf("nothing gives %s", names[2])
		}
	}
}

// NewReason returns a reason within the limits, whatever the names are.
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
		r := status.NewReason(status.MemberGone, names...)
		if err := r.Check(); err != nil || len(r.Names)+r.More != len(names) {
			t.Errorf("%q: %+v, %v", names, r, err)
		}
		for _, name := range r.Names {
			if !utf8.ValidString(name) || len(name) > status.MaxName {
				t.Errorf("%q", name)
			}
		}
		clone := r.Clone()
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
		if r.Check() == nil {
			t.Errorf("%s: %+v is taken", name, r)
		}
	}
	if err := (status.Reason{Code: "of-a-later-version"}).Check(); err != nil {
		t.Error(err)
	}
}

func TestReasonInLogs(t *testing.T) {
	for want, r := range map[string]status.Reason{
		"":                                    {},
		"manual":                              status.NewReason(status.Manual),
		"member-gone a":                       status.NewReason(status.MemberGone, "a"),
		"topic-grew a, b, c, d, e and 2 more": status.NewReason(status.TopicGrew, "a", "b", "c", "d", "e", "f", "g"),
	} {
		if got := r.String(); got != want || r.LogValue().String() != want || r.IsZero() != (want == "") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestListsAreNeverNull(t *testing.T) {
	data, err := json.Marshal(status.New("g", status.SourceZooKeeper, time.Unix(0, 0).UTC()))
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
		at := status.Millis(ms)
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
	if got := status.Shown(strings.Repeat("ü", 200)); len(got) != status.MaxShown || !utf8.ValidString(got) {
		t.Errorf("%d bytes", len(got))
	}
	if got := status.ShownText(" a\n\tb \xff" + strings.Repeat("x", 600)); len(got) != status.MaxText || !strings.HasPrefix(got, "a b ?x") {
		t.Errorf("%q", got)
	}
	d := status.NewDisagreement(status.OddItem, "text", strings.Split(strings.Repeat("x,", 29), ",")...)
	if len(d.Names) != status.MaxListed || d.More != 10 {
		t.Errorf("%+v", d)
	}
}
