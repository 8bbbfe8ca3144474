package status_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/status"
)

func TestCodesAreWords(t *testing.T) {
	codes := status.Codes()
	for _, c := range codes {
		if err := statuswrite.Check(status.Reason{Code: c}); err != nil || c == "" {
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
	noerr.Must(t, err)
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
		noerr.Must(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			noerr.Must(t, err)
			code.Write(text)
		}
	}
	declared, err := os.ReadFile("reason.go")
	noerr.Must(t, err)
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

func TestReasonInLogs(t *testing.T) {
	for want, r := range map[string]status.Reason{
		"":                                    {},
		"manual":                              statuswrite.Reason(status.Manual),
		"member-gone a":                       statuswrite.Reason(status.MemberGone, "a"),
		"topic-grew a, b, c, d, e and 2 more": statuswrite.Reason(status.TopicGrew, "a", "b", "c", "d", "e", "f", "g"),
	} {
		if got := r.String(); got != want || r.LogValue().String() != want || r.IsZero() != (want == "") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
