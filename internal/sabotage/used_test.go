package sabotage_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// names returns the names of all rules, in their order.
func names(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "sabotage.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, d := range file.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.CONST && d.Lparen.IsValid() {
			for _, s := range d.Specs {
				list = append(list, s.(*ast.ValueSpec).Names[0].Name)
			}
		}
	}
	if len(list) < 2 || list[0] != "GuardedRelease" {
		t.Fatalf("rules: %q", list)
	}
	return list
}

// sources is what the repository's Go files have to do with rules.
type sources struct {
	library, tests map[string]bool // rules that are named there
	functions      map[string]bool // tests, with their packages
}

func read(t *testing.T) sources {
	t.Helper()
	s := sources{library: map[string]bool{}, tests: map[string]bool{}, functions: map[string]bool{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (len(d.Name()) > 2 && d.Name()[0] == '.' || path == filepath.Join(root, "internal", "sabotage")):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			s.add(path, string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// add takes over what a file says.
func (s sources) add(path, text string) {
	const word = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	rules, isTest := s.library, strings.HasSuffix(path, "_test.go")
	if isTest {
		rules = s.tests
	}
	for _, after := range strings.Split(text, "sabotage.")[1:] {
		rules[after[:len(after)-len(strings.TrimLeft(after, word))]] = true
	}
	if isTest {
		for _, after := range strings.Split(text, "\nfunc Test")[1:] {
			name, _, _ := strings.Cut(after, "(")
			s.functions[filepath.Base(filepath.Dir(path))+".Test"+name] = true
		}
	}
}

// A rule that no code keeps, or that no test switches off, says nothing. The table of attacks in recipe/README.md names
// tests and mutants that exist.
func TestEveryRuleIsUsed(t *testing.T) {
	s := read(t)
	for _, name := range names(t) {
		if !s.library[name] {
			t.Errorf("no code asks for %s", name)
		}
		if !s.tests[name] {
			t.Errorf("no test switches %s off", name)
		}
	}
	checkTable(t, s)
}

func checkTable(t *testing.T, s sources) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "recipe", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| § |")
	mutant := regexp.MustCompile("`([a-z-]+)`")
	test := regexp.MustCompile("`(\\w+\\.Test\\w+)`")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "|\n "), "|")
		if len(cells) != 4 || strings.HasPrefix(cells[0], "-") || !strings.HasPrefix(line, "|") {
			continue
		}
		found := test.FindAllStringSubmatch(cells[2], -1)
		if len(found) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, m := range found {
			if !s.functions[m[1]] {
				t.Errorf("there is no %s", m[1])
			}
		}
		if strings.HasPrefix(cells[3], " none: ") {
			continue // and why
		}
		mutants := mutant.FindAllStringSubmatch(cells[3], -1)
		if len(mutants) == 0 {
			t.Errorf("no mutant: %s", line)
		}
		for _, m := range mutants {
			if _, err := os.Stat(filepath.Join(root, "test", "mutants", m[1]+".patch")); err != nil {
				t.Error(err)
			}
		}
	}
}
