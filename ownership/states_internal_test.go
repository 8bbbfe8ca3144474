package ownership

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership/internal/machine"
)

// The page on semantics says how Status shows the states of a claim.
func TestStatesAsShown(t *testing.T) {
	page, err := os.ReadFile("../docs/semantics.md")
	noerr.Must(t, err)
	_, table, _ := strings.Cut(string(page), "| claim | what it means |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := regexp.MustCompile("(?m)^\\| ([A-Z]\\w+) \\| .* \\| `(\\w+)` \\| (?:`(\\w+)` )?\\|$").FindAllStringSubmatch(table, -1)
	if len(rows) != int(machine.Releasing)+1 {
		t.Fatalf("docs/semantics.md has %d states", len(rows))
	}
	for i, row := range rows {
		for mine, want := range map[bool]string{true: row[2], false: row[3]} {
			p := &part{Part: machine.Part{Claim: machine.Claim(i), Mine: mine}}
			state, _ := p.stateOf(machine.View{Trusted: true})
			if !mine && !p.mayHaveClaim() {
				state = "" // it is not shown
			}
			if string(state) != want {
				t.Errorf("%s, to be owned %v: shown as %s, docs/semantics.md says %q", row[1], mine, state, want)
			}
		}
	}
}
