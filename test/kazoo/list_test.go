package kazoo_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/test/servers"
)

// version is kazoo's, of which listed has the cases: a line for each, with its file, class and name.
const (
	version = "2.11.0"
	listed  = "testdata/kazoo-" + version + ".txt"
)

// files are those of kazoo's tests that are about recipes of this library.
var files = []string{"lock", "partitioner", "party", "lease", "election", "queue", "barrier", "counter"}

// The list is what is in kazoo's source.
func TestList(t *testing.T) {
	t.Parallel()
	python := servers.Python(t)
	pattern := filepath.Join(filepath.Dir(python), "..", "lib", "python*", "site-packages", "kazoo")
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("kazoo at %s: %q, %v", pattern, found, err)
	}
	if text := read(t, filepath.Join(found[0], "version.py")); !strings.Contains(text, `"`+version+`"`) {
		t.Fatalf("kazoo's version is not %s: %s", version, text)
	}
	class, test := regexp.MustCompile(`^class (\w+)`), regexp.MustCompile(`^    def (test_\w+)`)
	var lines []string
	for _, name := range files {
		file, in := "test_"+name+".py", ""
		for line := range strings.Lines(read(t, filepath.Join(found[0], "tests", file))) {
			if m := class.FindStringSubmatch(line); m != nil {
				in = m[1]
			}
			if m := test.FindStringSubmatch(line); m != nil {
				lines = append(lines, file+" "+in+" "+m[1])
			}
		}
	}
	if want := strings.Split(strings.TrimSpace(read(t, listed)), "\n"); !slices.Equal(lines, want) {
		t.Errorf("%s has %d cases, kazoo has %d:\n%s", listed, len(want), len(lines), strings.Join(lines, "\n"))
	}
}

// The table in the package's documentation has each case of the list, and its test is there and runs on both servers.
func TestTable(t *testing.T) {
	t.Parallel()
	table := readTable(t)
	tests := findTests(t)
	listedCases := map[string]bool{}
	for line := range strings.Lines(read(t, listed)) {
		fields := strings.Fields(line)
		name := fields[1] + "." + fields[2]
		listedCases[name] = true
		goName := table[name]
		if goName == "" {
			t.Errorf("no row for %s", name)
			continue
		}
		runs, ok := tests[goName]
		if !ok {
			t.Errorf("%s: no test %s", name, goName)
		} else if !runs {
			t.Errorf("%s: %s does not run on both servers", name, goName)
		}
		if want := spelled(fields[1], fields[2]); goName != want {
			t.Errorf("%s is %s, want %s", name, goName, want)
		}
	}
	if len(listedCases) == 0 {
		t.Error("the list is empty")
	}
	rows := map[string]bool{}
	for name, goName := range table {
		if !listedCases[name] {
			t.Errorf("kazoo has no %s", name)
		}
		if rows[goName] {
			t.Errorf("%s stands for two cases", goName)
		}
		rows[goName] = true
	}
	more := readMore(t)
	for name := range tests {
		if !rows[name] && !more[name] {
			t.Errorf("%s is in no row", name)
		}
	}
	for name := range more {
		runs, ok := tests[name]
		switch {
		case !ok:
			t.Errorf("no test %s", name)
		case strings.Contains(name, "_"):
			t.Errorf("%s: the name is like those of kazoo's cases", name)
		case runs == (name == "TestSequenceExhausted"):
			t.Errorf("%s runs on both servers: %v", name, runs)
		}
	}
}

// spelled is the name of a case in Go: the class without kazoo's and the tests' affixes, an underscore, and the case without
// test_ and without the class's name.
func spelled(class, test string) string {
	class = strings.TrimPrefix(strings.TrimPrefix(class, "Kazoo"), "Test")
	class = strings.TrimSuffix(strings.TrimSuffix(class, "s"), "Test")
	test = strings.TrimPrefix(test, "test_")
	name := ""
	for word := range strings.SplitSeq(strings.TrimPrefix(test, strings.ToLower(class)+"_"), "_") {
		if word == "rw" {
			word = "RW"
		}
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return "Test" + class + "_" + name
}

func TestSpelled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ class, test, want string }{
		{"KazooLockTests", "test_lock_non_blocking", "TestLock_NonBlocking"},
		{"KazooLockTests", "test_lock", "TestLock_Lock"},
		{"KazooLockTests", "test_rw_lock", "TestLock_RWLock"},
		{"TestSemaphore", "test_lock_one", "TestSemaphore_LockOne"},
		{"MultiNonBlockingLeaseTest", "test_1_renew", "TestMultiNonBlockingLease_1Renew"},
	} {
		if got := spelled(tt.class, tt.test); got != tt.want {
			t.Errorf("%s.%s: got %s, want %s", tt.class, tt.test, got, tt.want)
		}
	}
}

// readTable returns which test stands for which case.
func readTable(t *testing.T) map[string]string {
	t.Helper()
	class, row := regexp.MustCompile(`^//\t(\w+), test_\w+\.py$`), regexp.MustCompile(`^//\t  (test_\w+) +(Test\w+)`)
	table, in := map[string]string{}, ""
	for line := range strings.Lines(read(t, "doc.go")) {
		line = strings.TrimRight(line, "\n")
		if m := class.FindStringSubmatch(line); m != nil {
			in = m[1]
		}
		if m := row.FindStringSubmatch(line); m != nil {
			table[in+"."+m[1]] = m[2]
		}
	}
	return table
}

// readMore returns the tests that stand for none of kazoo's.
func readMore(t *testing.T) map[string]bool {
	t.Helper()
	row := regexp.MustCompile(`^//\t  (Test\w+)`)
	more := map[string]bool{}
	for line := range strings.Lines(read(t, "doc.go")) {
		if m := row.FindStringSubmatch(line); m != nil {
			more[m[1]] = true
		}
	}
	return more
}

// findTests returns the tests of recipes, and of each whether it calls, itself or by functions, what runs it on both servers.
func findTests(t *testing.T) map[string]bool {
	t.Helper()
	calls := map[string][]string{}
	paths, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if path == "list_test.go" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil {
				continue
			}
			calls[f.Name.Name] = []string{}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok {
					if name, ok := c.Fun.(*ast.Ident); ok {
						calls[f.Name.Name] = append(calls[f.Name.Name], name.Name)
					}
				}
				return true
			})
		}
	}
	var runs func(f string) bool
	runs = func(f string) bool { return f == "both" || slices.ContainsFunc(calls[f], runs) } // none calls itself
	tests := map[string]bool{}
	for name := range calls {
		if strings.HasPrefix(name, "Test") && name != "TestMain" {
			tests[name] = runs(name)
		}
	}
	return tests
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
