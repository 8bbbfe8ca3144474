package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/test/bench/datapath"
	"github.com/kielgo/kiel/test/bench/functions"
	"github.com/kielgo/kiel/test/bench/moves"
)

const (
	results = "../../bench/testdata"
	docs    = "../../../docs"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// TestDocs fails when the page or a picture is not what the figures say.
func TestDocs(t *testing.T) {
	files, err := render(results, docs)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 8 {
		t.Errorf("%d files, want 3 pages and 5 pictures", len(files))
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("docs/%s is not what testdata of test/bench says: go run ./test/cmd/plots", name)
		}
	}
}

// TestFilesAreAsWritten fails when a file of figures is not what is written of the figures in it.
func TestFilesAreAsWritten(t *testing.T) {
	written[functions.Times](t, functions.TimesFile)
	written[functions.Movements](t, functions.MovementFile)
	written[datapath.Figures](t, datapath.File)
	written[moves.Figures](t, moves.File)
}

// written reads the figures of a file, and compares it with what is written of them.
func written[Figures any](t *testing.T, file string) {
	t.Helper()
	figures, err := functions.ReadFile[Figures](results, file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := functions.WriteFile(dir, file, figures); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(results, file))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not as it would be written, %v", file, err)
	}
}

// TestEachFunctionHasALook fails when pictures leave out a function.
func TestEachFunctionHasALook(t *testing.T) {
	for _, name := range rows() {
		if !slices.ContainsFunc(byFunction, func(s series) bool { return s.name == name }) {
			t.Errorf("byFunction has no colour and mark for %s", name)
		}
	}
}

// TestSnippet holds the page's code to the example that is compiled and run.
func TestSnippet(t *testing.T) {
	example, err := os.ReadFile("../../../allocfn/example_measure_test.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(docs, functionsPage))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(example), "{\n")
	body, _, ok := strings.Cut(body, "\t// Output:")
	if !ok {
		t.Fatal("the example has no output")
	}
	var want strings.Builder
	want.WriteString("```go\n")
	for line := range strings.Lines(body) {
		want.WriteString(strings.TrimPrefix(line, "\t"))
	}
	want.WriteString("```\n")
	if !strings.Contains(string(text), want.String()) {
		t.Errorf("%s has another example than\n%s", functionsPage, want.String())
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	text := "old\n<!-- begin figures (x) -->\nold table\n<!-- end figures -->\n" +
		"<!-- begin movement (x) -->\n<!-- end movement -->\n<!-- begin switches (x) -->\n<!-- end switches -->\n<!-- begin times (x) -->\n<!-- end times -->\n"
	file := filepath.Join(dir, functionsPage)
	for _, page := range []string{dataPathPage, movesPage} {
		text, err := os.ReadFile(filepath.Join(docs, page))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, page), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var out, errOut bytes.Buffer
	command := func(content string) int {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return run([]string{"-results=" + results, "-docs=" + dir}, &out, &errOut)
	}
	if code := command(text); code != 1 || !strings.Contains(errOut.String(), "no marks for machine") {
		t.Errorf("exit code %d, %s", code, &errOut)
	}
	if code := command(text + "<!-- begin machine (x) -->\n<!-- end machine -->\nlast"); code != 0 {
		t.Fatalf("exit code %d, %s", code, &errOut)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"old\n<!-- begin figures (x) -->\n| function |", "| `Balanced` |", "<!-- end machine -->\nlast",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("got\n%s\nwant in it %q", got, want)
		}
	}
	if strings.Contains(string(got), "old table") {
		t.Errorf("got\n%s", got)
	}
	if code := run([]string{"-none"}, &out, &errOut); code != 2 {
		t.Errorf("exit code %d for a flag that does not exist", code)
	}
}
