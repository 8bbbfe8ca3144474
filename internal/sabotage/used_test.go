package sabotage_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
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
}

func read(t *testing.T) sources {
	t.Helper()
	s := sources{library: map[string]bool{}, tests: map[string]bool{}}
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
	rules := s.library
	if strings.HasSuffix(path, "_test.go") {
		rules = s.tests
	}
	for _, after := range strings.Split(text, "sabotage.")[1:] {
		rules[after[:len(after)-len(strings.TrimLeft(after, word))]] = true
	}
}

// A rule that no code keeps, or that no test switches off, says nothing.
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
}
