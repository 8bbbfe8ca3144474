package functional

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The packages of what the generated file uses and does not define.
const (
	saramaPath = "github.com/IBM/sarama"
	suiteName  = "suite"
)

// ours are the identifiers of sarama's tests that package suite defines, and their names there.
var ours = map[string]string{
	"FunctionalTestEnv":          "FunctionalTestEnv",
	"NewFunctionalTestConfig":    "NewFunctionalTestConfig",
	"NewConsumerGroup":           "NewConsumerGroup",
	"NewConsumerGroupFromClient": "NewConsumerGroupFromClient",
	"checkKafkaVersion":          "CheckKafkaVersion",
	"setupFunctionalTest":        "SetupFunctionalTest",
	"teardownFunctionalTest":     "TeardownFunctionalTest",
	"safeClose":                  "SafeClose",
}

// Source is a file of sarama's tests, made into one of package suite.
type Source struct {
	Text  []byte
	Tests []string // the names of its tests, in their order
}

// edit replaces the bytes from one offset to another.
type edit struct {
	from, to int
	text     string
}

// generator collects the edits of one file.
type generator struct {
	fset  *token.FileSet
	file  *ast.File
	edits []edit
	errs  []error
}

// Generate makes a file of package suite from sarama's text. Each line keeps its number. It does this:
//
//   - what sarama's package exports is qualified, and what package suite defines is taken from there;
//   - the member's Setup hands its session to [suite.Joined], and WaitForClaims compares with what [suite.Claims] says, since the
//     claims of an incremental group change within a session;
//   - WaitForState asks [suite.Reached], since a member of ours may have joined before the test looks for the first time.
//
// It returns an error when the text is not as expected.
func Generate(name string, text []byte) (Source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	if err != nil {
		return Source{}, err
	}
	g := &generator{fset: fset, file: file}
	g.head()
	g.qualify()
	g.change("Setup", g.handOut)
	g.change("WaitForClaims", g.readLive)
	g.change("WaitForState", g.reach)
	if len(g.errs) > 0 {
		return Source{}, errors.Join(g.errs...)
	}
	return Source{Text: g.apply(text), Tests: g.tests()}, nil
}

func (g *generator) fail(at token.Pos, format string, args ...any) {
	g.errs = append(g.errs, fmt.Errorf("%s: "+format, append([]any{g.fset.Position(at)}, args...)...))
}

// replace notes an edit of what stands between two positions.
func (g *generator) replace(from, to token.Pos, text string) {
	g.edits = append(g.edits, edit{from: g.fset.Position(from).Offset, to: g.fset.Position(to).Offset, text: text})
}

func (g *generator) insert(at token.Pos, text string) { g.replace(at, at, text) }

// apply returns text with the edits.
func (g *generator) apply(text []byte) []byte {
	slices.SortStableFunc(g.edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var out bytes.Buffer
	done := 0
	for _, e := range g.edits {
		out.Write(text[done:e.from])
		out.WriteString(e.text)
		done = e.to
	}
	out.Write(text[done:])
	return out.Bytes()
}

// head replaces the build tag and the package's name, and imports sarama.
func (g *generator) head() {
	for _, group := range g.file.Comments {
		if group.End() < g.file.Package && strings.HasPrefix(group.List[0].Text, "//go:build ") {
			g.replace(group.Pos(), group.End(), "// Code generated from sarama's "+filepath.Base(g.fset.Position(g.file.Package).Filename)+". DO NOT EDIT.")
		}
	}
	g.replace(g.file.Name.Pos(), g.file.Name.End(), suiteName)
	for _, decl := range g.file.Decls {
		if imports, ok := decl.(*ast.GenDecl); ok && imports.Tok == token.IMPORT && imports.Lparen.IsValid() {
			g.insert(imports.Lparen+1, " "+strconv.Quote(saramaPath))
			return
		}
	}
	g.fail(g.file.Package, "no list of imports")
}

// qualify names where each identifier comes from that the file does not define.
func (g *generator) qualify() {
	known := map[string]bool{}
	for _, i := range g.file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil || i.Name != nil {
			g.fail(i.Pos(), "import %s", i.Path.Value)
			continue
		}
		known[path[strings.LastIndex(path, "/")+1:]] = true
	}
	for _, name := range types.Universe.Names() {
		known[name] = true
	}
	for _, id := range g.file.Unresolved {
		switch own, defined := ours[id.Name]; {
		case known[id.Name]:
		case defined:
			g.replace(id.Pos(), id.End(), own)
		case id.IsExported():
			g.insert(id.Pos(), "sarama.")
		default:
			g.fail(id.Pos(), "%s: package suite has nothing in the place of this helper", id.Name)
		}
	}
}

// change calls f with the function or method that has the name, of which there must be one that f takes.
func (g *generator) change(name string, f func(*ast.FuncDecl) bool) {
	done := 0
	for _, decl := range g.file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Name.Name == name && fn.Body != nil && f(fn) {
			done++
		}
	}
	if done != 1 {
		g.fail(g.file.Package, "%s: changed %d, want 1", name, done)
	}
}

// handOut lets a member's Setup call suite.Joined.
func (g *generator) handOut(fn *ast.FuncDecl) bool {
	member, params := receiver(fn), fn.Type.Params.List
	if member == "" || len(params) != 1 || len(params[0].Names) != 1 {
		return false // of a handler that only joins
	}
	g.insert(fn.Body.Lbrace+1, fmt.Sprintf(" Joined(%s, %s);", member, params[0].Names[0].Name))
	return true
}

// readLive puts suite.Claims into the place of what WaitForClaims compares.
func (g *generator) readLive(fn *ast.FuncDecl) bool {
	member, found := receiver(fn), false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		compared, ok := n.(*ast.FuncLit)
		if !ok || member == "" {
			return true
		}
		found = true
		body := compared.Body
		lines := g.fset.Position(body.End()).Line - g.fset.Position(body.Pos()).Line
		g.replace(body.Pos(), body.End(), fmt.Sprintf("{ return Claims(%s), nil%s}", member, strings.Repeat("\n", lines)))
		return false
	})
	return found
}

// reach lets WaitForState compare with what suite.Reached makes of the state.
func (g *generator) reach(fn *ast.FuncDecl) bool {
	params, found := fn.Type.Params.List, false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		r, ok := n.(*ast.ReturnStmt)
		if !ok || len(r.Results) != 2 || len(params) != 1 || len(params[0].Names) != 1 {
			return true
		}
		found = true
		g.insert(r.Results[0].Pos(), fmt.Sprintf("Reached(%s, ", params[0].Names[0].Name))
		g.insert(r.Results[0].End(), ")")
		return false
	})
	return found
}

// receiver returns the name of a method's receiver, or "".
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List[0].Names) == 0 {
		return ""
	}
	return fn.Recv.List[0].Names[0].Name
}

// tests returns the names of the file's tests.
func (g *generator) tests() []string {
	var names []string
	for _, decl := range g.file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
			names = append(names, fn.Name.Name)
		}
	}
	return names
}
