package inspect

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/status"
)

// Each runbook that a finding names is a heading of the page, and each kind of members' errors that is known here is in its
// table.
func TestRunbooksExist(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(page), -1) {
		anchors[strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, name := range regexp.MustCompile(`"(kiel[a-z]+|security|kinds-of-errors)"`).FindAllStringSubmatch(string(code), -1) {
			if found++; !anchors[name[1]] {
				t.Errorf("%s names the runbook %q, which the page does not have", file, name[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("%d runbooks found in the code", found)
	}
	kinds := slices.Concat(kafkaKinds(), claimKinds())
	for _, kind := range []Kind{HandlerStuck, OtherTree, Kind(status.UnwantedTopic), Kind(status.NoCommonFunction), Kind(status.UnreadableRecord), Kind(status.OrphanClaim)} {
		kinds = slices.Concat(kinds, tells(kind), tellsOfObjects(kind))
	}
	for _, kind := range kinds {
		if !regexp.MustCompile("(?m)^\\| (`[a-z-]+`, )*`" + kind + "`").Match(page) {
			t.Errorf("the page has no kind %s", kind)
		}
	}
}
