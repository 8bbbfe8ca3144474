package kiel_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestLogKeys compares the keys of the log's lines with their tables in docs/operating.md, so that one thing has one key in all
// packages.
func TestLogKeys(t *testing.T) {
	used := logKeys(t)
	if used["path"] == "" || used["previous"] == "" || used["stack"] == "" || used["server"] == "" {
		t.Fatal("lines, arguments that are appended, or constants are not found")
	}
	page, err := os.ReadFile("docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range strings.Split(string(page), "\n| key | is |\n|---|---|\n")[1:] {
		for row := range strings.Lines(table) {
			cells := strings.Split(row, "|")
			if len(cells) < 3 {
				break
			}
			for i, key := range strings.Split(cells[1], "`") {
				if i%2 == 1 && used[key] == "" {
					t.Errorf("no line has the key %s of the table", key)
				} else if i%2 == 1 {
					delete(used, key)
				}
			}
		}
	}
	for key, where := range used {
		t.Errorf("%s: the key %s is not in the table of docs/operating.md", where, key)
	}
}

// TestLogLines compares the messages of log lines, but for those at Debug, with the table of lines in docs/operating.md. A
// message of the table that ends in … is the beginning of one.
func TestLogLines(t *testing.T) {
	used := make(map[string]string)
	files, places := libraryFiles(t)
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if text := message(n); text != "" {
				used[text] = places.Position(n.Pos()).String()
			}
			return true
		})
	}
	if used["claimed"] == "" || used["leaving"] == "" || used["rebalanced"] == "" {
		t.Fatal("lines are not found")
	}
	page, err := os.ReadFile("docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| line | says |\n|---|---|\n")
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			break
		}
		for i, line := range strings.Split(cells[1], "`") {
			if i%2 == 0 {
				continue
			}
			start, cut := strings.CutSuffix(line, "…")
			found := false
			for text := range used {
				if text == line || cut && strings.HasPrefix(text, strings.TrimSpace(start)) {
					delete(used, text)
					found = true
				}
			}
			if !found {
				t.Errorf("no line has the message %q of the table", line)
			}
		}
	}
	for text, where := range used {
		t.Errorf("%s: the line %q is not in the table of docs/operating.md", where, text)
	}
}

// message returns the message that a call of a Logger has, if it is a constant text and the level is not always Debug.
func message(n ast.Node) string {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return ""
	}
	var name string
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		if of, ok := f.X.(*ast.Ident); ok && (of.Name == "tb" || of.Name == "http") {
			return "" // TB.Error and http.Error are no lines
		}
		name = f.Sel.Name
	}
	at, ok := map[string]int{
		"Info": 0, "Warn": 0, "Error": 0, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1, "Log": 2,
		"log": 0, "write": 0, // variables that have one of these methods
	}[name]
	if !ok || at >= len(call.Args) {
		return ""
	}
	text, ok := call.Args[at].(*ast.BasicLit)
	if !ok || text.Kind != token.STRING {
		return ""
	}
	line, _ := strconv.Unquote(text.Value)
	return line
}

// libraryFiles returns the parsed files of the library, but for those of tests.
func libraryFiles(t *testing.T) (files []*ast.File, places *token.FileSet) {
	places = token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && slices.Contains([]string{"cmd", "test", "zktest", ".git"}, path) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(places, path, nil, 0)
		files = append(files, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, places
}

// logKeys returns the keys of log lines in the library, and a place of each.
func logKeys(t *testing.T) map[string]string {
	used, constants := make(map[string]string), make(map[string]ast.Expr)
	files, places := libraryFiles(t)
	everywhere := func(visit func(ast.Node)) {
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool { visit(n); return true })
		}
	}
	everywhere(func(n ast.Node) {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 && strings.HasPrefix(spec.Names[0].Name, "key") {
			constants[spec.Names[0].Name] = spec.Values[0]
		}
	})
	everywhere(func(n ast.Node) {
		for i, arg := range attributes(n) {
			if name, ok := arg.(*ast.Ident); ok && constants[name.Name] != nil {
				arg = constants[name.Name]
			}
			if text, ok := arg.(*ast.BasicLit); ok && text.Kind == token.STRING && i%2 == 0 {
				key, _ := strconv.Unquote(text.Value)
				used[key] = places.Position(n.Pos()).String()
			}
		}
	})
	return used
}

// attributes returns the keys and values that a call of a Logger, or of an errlog.Log, has after its message, or those that are
// gathered in a slice for one.
func attributes(n ast.Node) []ast.Expr {
	if list, ok := n.(*ast.CompositeLit); ok {
		if of, ok := list.Type.(*ast.ArrayType); ok {
			if name, ok := of.Elt.(*ast.Ident); ok && name.Name == "any" {
				return list.Elts
			}
		}
	}
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return nil
	}
	switch f := call.Fun.(type) {
	case *ast.Ident:
		if slice, ok := slices.Concat(call.Args, []ast.Expr{nil})[0].(*ast.Ident); ok && f.Name == "append" && (slice.Name == "args" || slice.Name == "attrs") {
			return call.Args[1:]
		}
	case *ast.SelectorExpr:
		if of, ok := f.X.(*ast.Ident); ok && of.Name == "http" {
			return nil // http.Error is no line
		}
		before, ok := map[string]int{
			"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2, "Log": 3,
			"With": 0, "Failed": 3, "FailedWarn": 3, "FailedInfo": 3,
		}[f.Sel.Name]
		if ok && before < len(call.Args) {
			return call.Args[before:]
		}
	}
	return nil
}
