package machine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// named are the constants of a type in the order of their values.
type named []struct{ name, means string }

// constants reads the constants of a type, and what their comments say.
func constants(t *testing.T, typ string) (all named) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "machine.go", nil, parser.ParseComments)
	noerr.Must(t, err)
	for _, d := range file.Decls {
		d, ok := d.(*ast.GenDecl)
		if !ok || d.Tok != token.CONST {
			continue
		}
		if first, ok := d.Specs[0].(*ast.ValueSpec).Type.(*ast.Ident); !ok || first.Name != typ {
			continue
		}
		for _, s := range d.Specs {
			s := s.(*ast.ValueSpec)
			all = append(all, struct{ name, means string }{s.Names[0].Name, strings.TrimSpace(s.Comment.Text())})
		}
	}
	if len(all) == 0 {
		t.Fatalf("no constants of %s", typ)
	}
	return all
}

// value returns the value of a constant.
func (all named) value(t *testing.T, name string) uint8 {
	t.Helper()
	for i, c := range all {
		if c.name == name {
			return uint8(i)
		}
	}
	t.Fatalf("there is no %q", name)
	return 0
}

// The page on semantics has the states of a claim as they are here.
func TestStatesAreInTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/semantics.md")
	noerr.Must(t, err)
	for _, c := range constants(t, "Claim") {
		if row := "| " + c.name + " | " + c.means + " |"; !strings.Contains(string(page), row) {
			t.Errorf("docs/semantics.md has no row that begins with %s", row)
		}
	}
}
