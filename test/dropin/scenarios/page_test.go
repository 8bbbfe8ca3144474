package scenarios_test

import (
	"go/doc/comment"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/test/dropin/scenarios"
)

// page is where the rows stand.
const page, heading = "../../../consumer/doc.go", "Differences from a group of sarama"

// TestRowsOfThePage compares the list on consumer's page with the rows that cases belong to.
func TestRowsOfThePage(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), page, nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	var titles []string
	for _, item := range itemsUnder(file.Doc.Text(), heading) {
		title, reason, _ := strings.Cut(item, ": ")
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

// itemsUnder returns the texts of the lists under a heading of a doc comment.
func itemsUnder(text, heading string) (items []string) {
	in := false
	for _, block := range new(comment.Parser).Parse(text).Content {
		switch block := block.(type) {
		case *comment.Heading:
			in = plain(block.Text) == heading
		case *comment.List:
			for _, item := range block.Items {
				for _, part := range item.Content {
					if p, ok := part.(*comment.Paragraph); ok && in {
						items = append(items, strings.Join(strings.Fields(plain(p.Text)), " "))
					}
				}
			}
		}
	}
	return items
}

// plain returns the words of a text.
func plain(text []comment.Text) string {
	var b strings.Builder
	for _, t := range text {
		switch t := t.(type) {
		case comment.Plain:
			b.WriteString(string(t))
		case comment.Italic:
			b.WriteString(string(t))
		case *comment.DocLink:
			b.WriteString(plain(t.Text))
		case *comment.Link:
			b.WriteString(plain(t.Text))
		}
	}
	return b.String()
}
