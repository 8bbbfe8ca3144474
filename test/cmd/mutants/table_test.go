package main

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// inTable matches the names of the mutants that the table of test/attacks/recipes.md has to name: those of recipes, and of what
// recipes stand on.
var inTable = regexp.MustCompile(`^(barrier|counter|election|hold|lease|lock|party|partitioner|queue|semaphore|seqnode)-`)

// notInTable is why a mutant is not in the table.
var notInTable = map[string]string{
	"hold-released-after-function":   "what Do promises, no attack",
	"hold-released-after-panic":      "what Do promises, no attack",
	"party-lists-before-the-join":    "what a start costs, no attack",
	"partitioner-contenders-gone":    "what Finish and Run promise, no attack",
	"seqnode-earlier-gone":           "what the partitioner's Finish and Run promise; in a lock a new GUID is enough",
	"seqnode-equal-numbers":          "numbers are not handed out twice: seqnode-sequence-sticks has the row",
	"seqnode-own-session":            "a new GUID is enough: seqnode-guid-or-session has the row",
	"party-admit-before-join":        "who may join a group",
	"party-admit-own-znode":          "who may join a group",
	"party-admit-when-joined":        "who may join a group",
	"party-audit":                    "a group's view of its members",
	"party-by-czxid":                 "a group's view of its members",
	"party-history":                  "a group's view of its members",
	"party-read-explained":           "a group's view of its members",
	"party-create-sync":              "a member's own znode",
	"party-leave-own":                "a member's own znode",
	"party-own-record":               "a group's view of its members",
	"party-patience":                 "a member's own znode",
	"party-patience-ends":            "a member's own znode",
	"party-patience-session":         "a member's own znode",
	"party-create-refused":           "a group's view of its members",
	"party-refusal-outlasted":        "a group's view of its members",
	"party-unlisted-incarnation":     "a group's view of its members",
	"party-unlisted-leaves":          "a group's view of its members",
	"party-replaced":                 "a member's own znode",
	"party-late-reads":               "a group's view of its members",
	"party-late-pace":                "a group's view of its members",
	"party-records-after-entry":      "a group's view of its members",
	"party-records-all-asked":        "a group's view of its members",
	"party-entries-one":              "a group's entries, as Inspect reads them",
	"party-records-misfit":           "a group's view of its members",
	"party-records-misfit-kept":      "a group's view of its members",
	"party-records-checked":          "a group's view of its members",
	"party-records-list-refused":     "a group's view of its members",
	"party-records-mended":           "a member's own znode",
	"party-records-outlive-sessions": "a group's view of its members",
	"party-records-refused":          "a member's own znode",
	"party-records-taken-along":      "a member's own znode",
	"party-records-together":         "a member's own znode",
	"party-records-two":              "a group's view of its members",
	"party-records-watched":          "a group's view of its members",
	"party-singly":                   "who may join a group",
}

// row is one attack in the table.
type row struct {
	line           string
	tests, mutants []string
	none           bool // there is no rule, and the row says why
}

// readTable reads the table of attacks in test/attacks/recipes.md.
func readTable(t *testing.T) (rows []row) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "test", "attacks", "recipes.md"))
	if err != nil {
		t.Fatal(err)
	}
	test, mutant := regexp.MustCompile("`(\\w+\\.Test\\w+)`"), regexp.MustCompile("`([a-z-]+)`")
	dashes := false // the line between titles and rows was seen
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(line, "|\n "), "|")
		switch {
		case strings.HasPrefix(line, "|--") || strings.HasPrefix(line, "| --"):
			dashes = true
		case dashes && strings.HasPrefix(line, "|") && len(cells) != 4:
			t.Errorf("a row has %d cells: %s", len(cells), line)
		case dashes && strings.HasPrefix(line, "|"):
			r := row{line: line, none: strings.HasPrefix(cells[3], " none: ")}
			for _, m := range test.FindAllStringSubmatch(cells[2], -1) {
				r.tests = append(r.tests, m[1])
			}
			for _, m := range mutant.FindAllStringSubmatch(cells[3], -1) {
				r.mutants = append(r.mutants, m[1])
			}
			rows = append(rows, r)
		}
	}
	if len(rows) < 2 {
		t.Fatalf("test/attacks/recipes.md has %d attacks", len(rows))
	}
	return rows
}

// functions returns the names of all tests of the library, with their packages.
func functions(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, pattern := range []string{"*", "internal/*", "recipe/*"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, after := range strings.Split(string(text), "\nfunc Test")[1:] {
				name, _, _ := strings.Cut(after, "(")
				found[filepath.Base(filepath.Dir(file))+".Test"+name] = true
			}
		}
	}
	return found
}

// The table of attacks in test/attacks/recipes.md names tests and mutants that exist. Each mutant of a row fails a test of that
// row, and each mutant of the recipes is in a row, unless all its tests stay green or notInTable says why it is not.
func TestTableOfAttacks(t *testing.T) {
	mutants, err := load(root, regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*mutant{}
	for _, m := range mutants {
		byName[m.name] = m
	}
	exist, named := functions(t), map[string]bool{}
	for _, r := range readTable(t) {
		if len(r.tests) == 0 {
			t.Errorf("no test: %s", r.line)
		}
		if len(r.mutants) == 0 && !r.none {
			t.Errorf("no mutant: %s", r.line)
		}
		for _, test := range r.tests {
			if !exist[test] {
				t.Errorf("there is no %s", test)
			}
		}
		for _, name := range r.mutants {
			named[name] = true
			switch m := byName[name]; {
			case m == nil:
				t.Errorf("there is no mutant %s: %s", name, r.line)
			case !m.fails(r.tests):
				t.Errorf("%s names no test of its row that must fail: %s", name, r.line)
			}
		}
	}
	for _, m := range mutants {
		if inTable.MatchString(m.name) && !m.harmless() && !named[m.name] && notInTable[m.name] == "" {
			t.Errorf("%s is not in the table of test/attacks/recipes.md", m.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(notInTable)) {
		if byName[name] == nil || named[name] {
			t.Errorf("%s is no mutant or is in the table: notInTable must not name it", name)
		}
	}
}

// fails reports whether one of these tests, as lock.TestX, must fail with the mutant.
func (m *mutant) fails(tests []string) bool {
	return slices.ContainsFunc(m.tests, func(k test) bool {
		top, _, _ := strings.Cut(k.name, "/")
		return !k.green && slices.Contains(tests, path.Base(k.pkg)+"."+top)
	})
}
