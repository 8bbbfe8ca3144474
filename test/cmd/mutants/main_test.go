package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The files of a module whose rule is that a sum has both numbers.
var module = map[string]string{
	"go.mod": "module sums\n\ngo 1.26\n",
	"sum/sum.go": `package sum

// Of adds.
func Of(a, b int) int {
	return a + b
}

// Twice doubles.
func Twice(a int) int {
	return a + a
}
`,
	"sum/sum_test.go": `package sum

import (
	"flag"
	"os"
	"testing"
)

func TestOf(t *testing.T) {
	t.Run("small (2)", func(t *testing.T) {
		if got := Of(1, 2); got != 3 {
			t.Errorf("wrong sum %d", got)
		}
	})
}

func TestTwice(t *testing.T) {
	if Twice(2) != 4 {
		t.Error("not twice")
	}
}

func TestLater(t *testing.T) { t.Skip("not now") }

// TestSometimes meets a wrong sum in its third run only.
func TestSometimes(t *testing.T) {
	name := *counted + "/runs"
	runs, _ := os.ReadFile(name)
	if err := os.WriteFile(name, append(runs, '.'), 0o600); err != nil {
		t.Fatal(err)
	}
	if len(runs) == 1 {
		t.Error("something else")
	}
	if len(runs) == 2 && Of(1, 2) == 1 {
		t.Error("wrong sum in the third run")
	}
}

var number, counted = flag.String("number", "", ""), flag.String("counted", "", "")

func TestFlag(t *testing.T) {
	if *number == "one two" && Of(1, 2) == 1 {
		t.Error("wrong sum of one two")
	}
}
`,
}

const (
	header = "rule: a sum has both numbers\nharm: a number\n  is lost\ntest: ./sum TestOf/small_(2)\nsays: wrong sum 1\n\n"
	file   = "diff --git a/sum/sum.go b/sum/sum.go\n--- a/sum/sum.go\n+++ b/sum/sum.go\n"
	above  = " func Of(a, b int) int {\n"
	// The line numbers are those of a file that has changed since.
	diff = file + "@@ -40,2 +40,2 @@\n" + above + "-\treturn a + b\n+\treturn a\n"
)

// try runs one mutant in the module.
func try(t *testing.T, patch string, args ...string) (code int, out string) {
	t.Helper()
	dir := t.TempDir()
	files := maps.Clone(module)
	files["test/mutants/sum.patch"] = patch
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	var written bytes.Buffer
	code = run(t.Context(), append([]string{"--root", dir}, args...), &written, &written)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != files[name] {
			t.Errorf("%s has changed: %v", name, err)
		}
	}
	return code, written.String()
}

func TestKilled(t *testing.T) {
	code, out := try(t, header+"green: ./sum TestTwice\n"+diff)
	if code != exitOK || !strings.Contains(out, "[1/1] sum: killed") || !strings.Contains(out, "1 of 1 mutants ended as they say") {
		t.Errorf("code %d: %s", code, out)
	}
	if strings.Contains(out, "RUN") {
		t.Errorf("what go test wrote is printed: %s", out)
	}
	if code, out := try(t, header+"test: ./sum TestFlag -number=one two -test.v\nsays: wrong sum of one two\n"+diff); code != exitOK {
		t.Errorf("code %d, with a flag: %s", code, out)
	}
	if code, out := try(t, header+diff, "--verbose"); code != exitOK || !strings.Contains(out, "wrong sum 1") {
		t.Errorf("code %d, verbose: %s", code, out)
	}
}

// A mutant with which all tests stay green says that another rule is enough.
func TestHarmless(t *testing.T) {
	header := strings.Replace(header, "test: ./sum TestOf/small_(2)\nsays: wrong sum 1\n", "green: ./sum TestTwice\n", 1)
	if code, out := try(t, header+diff); code != exitOK || !strings.Contains(out, "[1/1] sum: harmless") {
		t.Errorf("code %d: %s", code, out)
	}
}

// A test that meets the mutant in some runs only runs again until it does, whether it passes in between or fails otherwise. One
// that must stay green does not run again.
func TestRunsAgain(t *testing.T) {
	sometimes := " ./sum TestSometimes -counted=" + t.TempDir() + "\n"
	code, out := try(t, header+"test:"+sometimes+"says: wrong sum in the third run\n"+diff)
	if code != exitOK || !strings.Contains(out, "[1/1] sum: killed in run 3") {
		t.Errorf("code %d: %s", code, out)
	}
	sometimes = " ./sum TestSometimes -counted=" + t.TempDir() + "\n"
	code, out = try(t, header+"green:"+sometimes+"green:"+sometimes+diff)
	if code != exitFailed || !strings.Contains(out, "it must stay green and failed") {
		t.Errorf("code %d, green: %s", code, out)
	}
}

func TestNotKilled(t *testing.T) {
	other := func(of, instead string) string { return strings.Replace(header, of, instead, 1) + diff }
	for name, tt := range map[string]struct{ patch, want string }{
		"the test stays green":        {other("TestOf/small_(2)", "TestTwice"), "the test stays green in 10 runs"},
		"another failure":             {other("wrong sum 1", "wrong sum 9"), `it fails otherwise in 10 runs: nothing says "wrong sum 9"`},
		"a green test fails":          {header + "green: ./sum TestOf\n" + diff, "it must stay green and failed"},
		"no such test":                {other("small_(2)", "large"), "there is no such test"},
		"the test is skipped":         {other("TestOf/small_(2)", "TestLater"), "the test was skipped"},
		"does not build":              {strings.ReplaceAll(header+diff, "+\treturn a\n", "+\treturn c\n"), "it does not build"},
		"lines that are not there":    {strings.ReplaceAll(header+diff, "a + b", "b + a"), "its lines are not there"},
		"a part of a line is no line": {strings.ReplaceAll(header+diff, above, " f(a, b int) int {\n"), "its lines are not there"},
		"lines that are there twice": {
			header + file + "@@ -2,1 +2,1 @@\n-}\n+} // end\n", "its lines are there 2 times",
		},
		"no such file":    {strings.ReplaceAll(header+diff, "sum.go", "gone.go"), "no such file"},
		"it makes a file": {header + "diff --git a/sum/new.go b/sum/new.go\nnew file mode 100644\n--- /dev/null\n+++ b/sum/new.go\n@@ -0,0 +1,1 @@\n+package sum\n", "makes, removes or renames"},
		"no diff":         {header, "it changes nothing"},
		"no harm":         {other("harm: a number\n  is lost\n", ""), "it has no rule, or no harm"},
		"no test":         {other("test: ./sum TestOf/small_(2)\nsays: wrong sum 1\n", ""), "it has no test"},
		"says nothing":    {header + "test: ./sum TestTwice\n" + diff, "it does not say how ./sum TestTwice fails"},
		"green says":      {header + "green: ./sum TestTwice\nsays: x\n" + diff, "unexpected: says: x"},
		"says without":    {"says: x\n" + header + diff, "unexpected: says: x"},
		"unknown key":     {"who: x\n" + header + diff, "unexpected: who: x"},
		"no package":      {other("./sum", "sum"), "is not ./package and the name of a test"},
	} {
		t.Run(name, func(t *testing.T) {
			if code, out := try(t, tt.patch); code != exitFailed || !strings.Contains(out, tt.want) {
				t.Errorf("code %d, not %q: %s", code, tt.want, out)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"no such mutant": {"--run", "product"}, "error parsing regexp": {"--run", "("}, "unknown flag": {"--mutate"},
	} {
		if code, out := try(t, header+diff, args...); code == exitOK || !strings.Contains(out, want) {
			t.Errorf("%v: code %d: %s", args, code, out)
		}
	}
	if code, out := try(t, header+diff, "--list"); code != exitOK || !strings.Contains(out, "harm: a number is lost") {
		t.Errorf("code %d: %s", code, out)
	}
	if code, out := try(t, header+diff, "--help"); code != exitOK || !strings.Contains(out, "a test stays green") {
		t.Errorf("code %d: %s", code, out)
	}
}

// The mutants of this repository can be read, and their patches apply.
func TestPatchesApply(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "test", "mutants", "*"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if filepath.Base(file) == "README.md" {
			continue
		}
		m, err := read(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := m.overlay(root, t.TempDir()); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
