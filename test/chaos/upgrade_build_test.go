package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kielgo/kiel/status"
)

// earlier is the version that shares groups with today's: the last one before package ownership was written anew.
const earlier = "762eed2f7acac287a76979ec5e9b4e6d0be153ad"

// earlierBuild has programs of that version.
type earlierBuild struct {
	demo    string
	reading string // testdata/inspect
}

// buildEarlier compiles that version from the history of this repository.
func buildEarlier(t *testing.T) earlierBuild {
	t.Helper()
	if _, err := output(t.Context(), ".", "git", "cat-file", "-e", earlier+"^{commit}"); err != nil {
		t.Fatalf("the earlier version is not in the history of this repository; git fetch --unshallow gets what a shallow clone lacks: %v", err)
	}
	dir := t.TempDir()
	tree, archive := filepath.Join(dir, "tree"), filepath.Join(dir, "tree.tar")
	run := func(in, name string, args ...string) string {
		t.Helper()
		out, err := output(t.Context(), in, name, args...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	run(run(".", "git", "rev-parse", "--show-toplevel"), "git", "archive", "--output", archive, earlier)
	program, err := os.ReadFile(filepath.Join("testdata", "inspect", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	inspect := filepath.Join(tree, "test", "cmd", "inspect")
	if err := os.MkdirAll(inspect, 0o750); err != nil {
		t.Fatal(err)
	}
	run(tree, "tar", "-xf", archive)
	if err := os.WriteFile(filepath.Join(inspect, "main.go"), program, 0o600); err != nil {
		t.Fatal(err)
	}
	// Without paths in them, packages are in the cache of an earlier run.
	run(tree, "go", "build", "-trimpath", "-o", dir+"/", "./cmd/demo-consumer", "./test/cmd/inspect")
	return earlierBuild{demo: filepath.Join(dir, "demo-consumer"), reading: filepath.Join(dir, "inspect")}
}

// inspect is what the earlier version reads of a group.
func (b earlierBuild) inspect(t *testing.T, servers, group string) *status.Group {
	t.Helper()
	out, err := output(t.Context(), ".", b.reading, servers, group)
	if err != nil {
		t.Fatal(err)
	}
	found := new(status.Group)
	if err := json.Unmarshal(out, found); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return found
}

// output runs a program in a folder and returns what it printed.
func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args, " "), errors.Join(err, errors.New(errOut.String())))
	}
	return out.Bytes(), nil
}
