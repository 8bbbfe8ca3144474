package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

var full = flag.Bool("full", false, "compile what users get, too, and compare APIs")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// git runs git in a repository.
func git(t *testing.T, repo string, args ...string) string {
	t.Helper()
	out, err := in(t.Context(), repo, nil, "git", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// identify tells git who commits.
func identify(t *testing.T) {
	t.Helper()
	for _, name := range []string{"GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"} {
		t.Setenv(name, "Test")
	}
	for _, name := range []string{"GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"} {
		t.Setenv(name, "test@example.com")
	}
}

// edit replaces text in a file of a repository and commits that.
func edit(t *testing.T, repo, name, before, after string) {
	t.Helper()
	file := filepath.Join(repo, name)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), before) {
		t.Fatalf("%s has no %q", name, before)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), before, after, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, repo, "commit", "--quiet", "-am", "edit")
}

// The last commit of this repository can be released: by its versions, without go.work, users can install the command and build
// on the library.
func TestRelease(t *testing.T) {
	identify(t)
	repo := filepath.Join(t.TempDir(), "kiel")
	git(t, ".", "clone", "--quiet", "--no-tags", git(t, ".", "rev-parse", "--show-toplevel"), repo)
	edit(t, repo, "CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n\n## [0.1.0]\n")
	try := func(ctx context.Context, p proxy, version string) error { return p.user(ctx, version, "-n") }
	if *full {
		try = install
	}
	if err := prepare(t.Context(), io.Discard, repo, "v0.1.0", try); err != nil {
		t.Fatal(err)
	}
	if git(t, repo, "rev-parse", "v0.1.0^{commit}") != git(t, repo, "rev-parse", "HEAD") {
		t.Error("v0.1.0 is not on HEAD")
	}
	if mod := git(t, repo, "show", "cmd/v0.1.0:cmd/go.mod"); strings.Contains(mod, "replace") || !strings.Contains(mod, library+" v0.1.0\n") {
		t.Error("tagged", mod)
	}
	if changed := git(t, repo, "diff", "--name-only", "v0.1.0", "cmd/v0.1.0"); changed != "cmd/go.mod\ncmd/go.sum" {
		t.Error("the commands' commit changes", changed)
	}
	if trees := git(t, repo, "worktree", "list"); strings.Contains(trees, "\n") {
		t.Error("left", trees)
	}
	if *full {
		breakAPI(t, repo)
	}
}

// breakAPI has compare find a change.
func breakAPI(t *testing.T, repo string) {
	t.Helper()
	if err := compare(t.Context(), io.Discard, repo); err != nil {
		t.Error("nothing has changed:", err)
	}
	edit(t, repo, "allocfn/roundrobin.go", "func RoundRobin() Func", "func RoundRobin(...int) Func")
	var out bytes.Buffer
	if err := compare(t.Context(), &out, repo); err == nil || !strings.Contains(out.String(), "RoundRobin: changed") {
		t.Errorf("%v, %s", err, &out)
	}
}

func TestNotReady(t *testing.T) {
	identify(t)
	repo := t.TempDir()
	git(t, repo, "init", "--quiet")
	if err := os.WriteFile(filepath.Join(repo, "CHANGELOG.md"), []byte("# Changelog\n\n## [Unreleased]\n\n## [0.1.0]\n\n## [0.2.0]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ready(t.Context(), repo, "v0.1.0"); err == nil || !strings.Contains(err.Error(), "without a commit") {
		t.Error(err)
	}
	git(t, repo, "add", ".")
	git(t, repo, "commit", "--quiet", "-m", "first")
	git(t, repo, "tag", "cmd/v0.2.0")
	for version, want := range map[string]string{
		"v0.1.0": "", "0.1.0": "not a version", "v0.1": "not a version", "v0.2.0": "has been tagged", "v0.3.0": "no section ## [0.3.0]",
	} {
		if err := ready(t.Context(), repo, version); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", version, err, want)
		}
	}
}

func TestLastTag(t *testing.T) {
	identify(t)
	repo := t.TempDir()
	git(t, repo, "init", "--quiet")
	git(t, repo, "commit", "--quiet", "--allow-empty", "-m", "first")
	var out bytes.Buffer
	if err := compare(t.Context(), &out, repo); err != nil || !strings.Contains(out.String(), "no tag yet") {
		t.Errorf("%v, %s", err, &out)
	}
	for _, tag := range []string{"v0.9.0", "v0.10.0", "cmd/v0.11.0", "vnext"} {
		git(t, repo, "tag", tag)
	}
	if tag, err := lastTag(t.Context(), repo); tag != "v0.10.0" || err != nil {
		t.Error(tag, err)
	}
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		last, changes, log, want string
	}{
		"compatible":        {"v1.0.0", "", "", ""},
		"told":              {"v0.1.0", "x", "\n## [Unreleased]\n\n### Incompatible\n\n- x\n\n## [0.1.0]\n", ""},
		"not told":          {"v0.1.0", "x", "\n## [Unreleased]\n\n## [0.1.0]\n\n### Incompatible\n\n- x\n", "no section ### Incompatible"},
		"told and promised": {"v1.0.0", "x", "\n## [Unreleased]\n\n### Incompatible\n\n- x\n", "need a new major version"},
	} {
		t.Run(name, func(t *testing.T) {
			repo := t.TempDir()
			if err := os.WriteFile(filepath.Join(repo, "CHANGELOG.md"), []byte(c.log), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := judge(io.Discard, repo, c.last, c.changes); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
