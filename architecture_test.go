package kiel_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ARCHITECTURE.md names each file of the packages that it has tables of, and no file and no test that is not there.
func TestArchitectureNamesWhatThereIs(t *testing.T) {
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	files, tests := sources(t)
	for _, name := range named(page, `[a-z_/]+\.go`) {
		if !slices.ContainsFunc(files, func(path string) bool { return strings.HasSuffix("/"+path, "/"+name) }) {
			t.Errorf("ARCHITECTURE.md names %s, which is not there", name)
		}
	}
	for _, name := range named(page, `Test[A-Za-z]+`) {
		if !tests[name] {
			t.Errorf("ARCHITECTURE.md names %s, which is not there", name)
		}
	}
	for _, pkg := range []string{"session", "allocator", "allocfn", "party", "ownership", "consumer"} {
		_, table, found := strings.Cut(string(page), "\n### "+pkg+"\n")
		if !found {
			t.Errorf("ARCHITECTURE.md has no table of the files of %s", pkg)
			continue
		}
		table, _, _ = strings.Cut(table, "\n#")
		for _, path := range files {
			base := filepath.Base(path)
			everywhere := slices.Contains([]string{"doc.go", "options.go", "errors.go", "metrics.go"}, base)
			if strings.HasPrefix(path, pkg+"/") && !everywhere && !strings.Contains(path, "test/") && !strings.Contains(table, "`"+base+"`") &&
				!strings.HasPrefix(base, "usertimeout_") { // one for each system
				t.Errorf("ARCHITECTURE.md does not say what %s has", path)
			}
		}
	}
}

// named returns what the page has between backticks that matches a pattern.
func named(page []byte, pattern string) (all []string) {
	for _, m := range regexp.MustCompile("`("+pattern+")`").FindAllSubmatch(page, -1) {
		all = append(all, string(m[1]))
	}
	return all
}

// sources returns the paths of all Go files but those of tests, and the names of all tests.
func sources(t *testing.T) (files []string, tests map[string]bool) {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func (Test[A-Za-z]+)\(`)
	tests = map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		case !strings.HasSuffix(path, "_test.go"):
			files = append(files, filepath.ToSlash(path))
			return nil
		}
		code, err := os.ReadFile(path)
		for _, m := range function.FindAllSubmatch(code, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, tests
}
