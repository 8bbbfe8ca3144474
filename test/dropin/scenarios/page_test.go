package scenarios_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/test/dropin/scenarios"
)

// page is where the rows stand.
const page = "../../../docs/differences.md"

// TestRowsOfThePage compares the list on the page with the rows that cases belong to.
func TestRowsOfThePage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var titles []string
	for _, item := range regexp.MustCompile(`(?m)^- \*\*(.+?)\*\*: ((?:.+\n)(?:  .+\n)*)`).FindAllStringSubmatch(string(text), -1) {
		title, reason := item[1], item[2]
		if strings.Count(reason, ".") < 2 {
			t.Errorf("the row %q does not say both what sarama does and what is done here", title)
		}
		titles = append(titles, title)
	}
	var want []string
	for _, row := range scenarios.Rows() {
		want = append(want, row.Title)
		if (len(row.Findings) == 0) == (row.Reason == "") {
			t.Errorf("row %q needs findings, or else the reason why there are none", row.Title)
		}
	}
	if !slices.Equal(titles, want) {
		t.Errorf("the page has the rows\n%s\nand the cases belong to\n%s", strings.Join(titles, "\n"), strings.Join(want, "\n"))
	}
}
