package consumer_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/itchyny/gojq"
)

// questions returns the programs for jq of docs/operating.md.
func questions(t *testing.T) (programs []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`\| jq (?:-c )?'([^']+)'`).FindAllStringSubmatch(string(page), -1) {
		programs = append(programs, strings.ReplaceAll(found[1], `\|`, "|")) // they stand in a table
	}
	if n := strings.Count(string(page), "| jq "); n == 0 || n != len(programs) {
		t.Fatalf("%d of %d programs for jq are read", len(programs), n)
	}
	return programs
}

// Each question of the page can be asked when all is well, before the member has joined and afterwards.
func TestQuestionsToAHealthyMember(t *testing.T) {
	pages := map[string][]byte{}
	inRig(t, 8, func(t *testing.T, r *rig) {
		a := r.member("a", nil)
		ask := func(when string) {
			t.Helper()
			page, err := json.Marshal(a.group.Status())
			if err != nil {
				t.Error(err)
			}
			pages[when] = page
		}
		ask("at first")
		a.start()
		until(t, "all is open", func() bool { return len(a.owns()) == 8 })
		ask("at work")
		a.leave()
		ask("at the end")
	})
	for _, program := range questions(t) {
		query, err := gojq.Parse(program)
		if err != nil {
			t.Errorf("%s: %v", program, err)
			continue
		}
		for when, page := range pages {
			var input any
			if err := json.Unmarshal(page, &input); err != nil {
				t.Fatal(err)
			}
			answers := query.RunWithContext(t.Context(), input)
			for answer, more := answers.Next(); more; answer, more = answers.Next() {
				if err, failed := answer.(error); failed {
					t.Errorf("%s: %s: %v", when, program, err)
				}
			}
		}
	}
	for when, page := range pages {
		if strings.Contains(string(page), "null") {
			t.Errorf("%s: a list is null: %s", when, page)
		}
	}
}
