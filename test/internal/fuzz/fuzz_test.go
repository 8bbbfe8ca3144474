package fuzz

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inModule makes a module with the given test file the working directory.
func inModule(t *testing.T, source string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module fuzzed\n\ngo 1.26\n", "x_test.go": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
}

func goCommand(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "go", args...)
}

// events runs all fuzz tests and returns what was written, as "action test: text".
func events(t *testing.T) (well bool, text string) {
	t.Helper()
	r := Runner{Go: goCommand, Length: time.Second, Jobs: 2}
	targets, err := r.All(t.Context())
	if err != nil || len(targets) != 1 {
		t.Fatalf("found %v, %v", targets, err)
	}
	var out bytes.Buffer
	r.Out = &out
	well = r.Run(t.Context(), targets) == nil
	var b strings.Builder
	for line := range strings.Lines(out.String()) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		b.WriteString(e.Action + " " + e.Test + ": " + e.Output + e.Key + "\n")
	}
	return well, b.String()
}

func TestFailingInputIsShown(t *testing.T) {
	inModule(t, `package fuzzed

import "testing"

func FuzzX(f *testing.F) {
	f.Add("a")
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 2 {
			panic("longer than two")
		}
	})
}
`)
	well, text := events(t)
	if well {
		t.Error("all is well")
	}
	for _, want := range []string{"longer than two", "Failing input", "go test fuzz v1", `output FuzzX:     string("`, "attr FuzzX: execs", "fail FuzzX"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func TestSuccess(t *testing.T) {
	inModule(t, "package fuzzed\n\nimport \"testing\"\n\nfunc FuzzX(f *testing.F) { f.Fuzz(func(*testing.T, string) {}) }\n")
	well, text := events(t)
	if !well || !strings.Contains(text, "attr FuzzX: execs") || !strings.Contains(text, "pass FuzzX") {
		t.Errorf("%t\n%s", well, text)
	}
}

// What could not even be started has failed.
func TestNoSuchPackage(t *testing.T) {
	inModule(t, "package fuzzed\n")
	var out bytes.Buffer
	r := Runner{Go: goCommand, Out: &out, Length: time.Second, Jobs: 1}
	if r.Run(t.Context(), []Target{{"./nosuch", "FuzzX"}}) == nil || !strings.Contains(out.String(), `"Action":"fail","Package":"./nosuch","Test":"FuzzX"`) {
		t.Error(out.String())
	}
	if r.Run(t.Context(), nil) == nil {
		t.Error("nothing to run is no success")
	}
}

func TestArguments(t *testing.T) {
	got, err := Parse([]string{"./session.FuzzFrames", "example.com/x/y.FuzzA"})
	if err != nil || len(got) != 2 || got[0] != (Target{"./session", "FuzzFrames"}) || got[1] != (Target{"example.com/x/y", "FuzzA"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"FuzzA", "./session", "./session.TestA"} {
		if _, err := Parse([]string{bad}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

func TestCutShort(t *testing.T) {
	for text, want := range map[string]bool{
		"--- FAIL: FuzzX (20.33s)\n    context deadline exceeded\n":                                   true,
		"--- FAIL: FuzzX (0.1s)\n    Failing input written to testdata/x\n context deadline exceeded": false,
		"--- FAIL: FuzzX (0.1s)\n    panic\n":                                                         false,
	} {
		if got := cutShort([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
