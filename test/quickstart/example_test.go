package quickstart_test

import (
	"bytes"
	"errors"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// root is the folder of the library's module.
const root = "../.."

// readmeOfRecipes is the program of recipe/README.md.
const readmeOfRecipes = "recipe/README.md"

// programs returns what a reader of the documentation can paste, by the name of its place: the program that Go's documentation
// shows for each example of the library, which is "" if it shows none, and that of recipe/README.md.
func programs(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{readmeOfRecipes: between(t, filepath.Join(root, readmeOfRecipes), "```go\n", "```")}
	for pkg, files := range testFiles(t) {
		fset := token.NewFileSet()
		var parsed []*ast.File
		for _, file := range files {
			f, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		for _, example := range doc.Examples(parsed...) {
			name := filepath.Join(pkg, "Example"+example.Name)
			var text bytes.Buffer
			if example.Play != nil {
				if err := format.Node(&text, fset, example.Play); err != nil {
					t.Fatal(err)
				}
			}
			all[name] = text.String()
		}
	}
	return all
}

// testFiles returns the test files of each package with an API for users, by the package's folder.
func testFiles(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch top, _, _ := strings.Cut(filepath.ToSlash(pkg), "/"); {
		case !entry.IsDir():
			return nil
		case pkg != "." && strings.HasPrefix(top, "."), entry.Name() == "internal", top == "cmd", top == "test", top == "testdata":
			return fs.SkipDir
		}
		code, err := filepath.Glob(filepath.Join(path, "*.go"))
		if err != nil || pkg == "." || len(code) == 0 {
			return err
		}
		all[pkg], err = filepath.Glob(filepath.Join(path, "*_test.go"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// module writes programs into a module of their own that requires the library, as a reader's module does, and returns its folder.
// The program at name is in the folder name of the module.
func module(t *testing.T, programs map[string]string) string {
	t.Helper()
	library, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	requires := bytes.Replace(mod, []byte("module github.com/kielgo/kiel\n"), []byte("module example.com/reader\n"), 1)
	requires = append(requires, "\nrequire github.com/kielgo/kiel v0.0.0\n"+
		"replace github.com/kielgo/kiel => "+strconv.Quote(library)+"\n"...)
	err = errors.Join(
		os.WriteFile(filepath.Join(folder, "go.mod"), requires, 0o600),
		os.WriteFile(filepath.Join(folder, "go.sum"), sum, 0o600))
	for name, text := range programs {
		err = errors.Join(err,
			os.MkdirAll(filepath.Join(folder, name), 0o700),
			os.WriteFile(filepath.Join(folder, name, "main.go"), []byte(text), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// goCommand runs the go command in the folder of a module.
func goCommand(t *testing.T, folder string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Every example, and the program of recipe/README.md, is a program that compiles where a reader pastes it: outside of our module,
// where nothing internal can be imported. Every package for users has an example.
func TestExamplesArePrograms(t *testing.T) {
	all := programs(t)
	for name, text := range all {
		if text == "" {
			t.Errorf("%s is not shown as a program: all that it uses must stand in its own file", name)
			delete(all, name)
		}
	}
	for pkg := range testFiles(t) {
		has := false
		for name := range all {
			has = has || filepath.Dir(name) == pkg
		}
		if !has {
			t.Errorf("%s has no example", pkg)
		}
	}
	goCommand(t, module(t, all), "vet", "./...")
}
