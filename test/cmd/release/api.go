package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"
)

const apidiff = "golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e"

// compare compares the library's API with that of the last tag, and prints what breaks users' programs.
func compare(ctx context.Context, out io.Writer, repo string) (err error) {
	last, err := lastTag(ctx, repo)
	if err != nil {
		return err
	}
	if last == "" {
		fmt.Fprintln(out, "API: there is no tag yet to compare it with; the first release sets it")
		return nil
	}
	dir, err := os.MkdirTemp("", "kiel-api-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tree := filepath.Join(dir, "tree")
	if _, err := in(ctx, repo, nil, "git", "worktree", "add", "--detach", tree, last); err != nil {
		return err
	}
	defer func() {
		_, err2 := in(ctx, repo, nil, "git", "worktree", "remove", "--force", tree)
		err = errors.Join(err, err2)
	}()
	env := append(os.Environ(), "GOWORK=off")
	before, after := filepath.Join(dir, "before"), filepath.Join(dir, "after")
	if _, err := in(ctx, tree, env, "go", "run", apidiff, "-m", "-w", before, library); err != nil {
		return err
	}
	if _, err := in(ctx, repo, env, "go", "run", apidiff, "-m", "-w", after, library); err != nil {
		return err
	}
	changes, err := in(ctx, repo, env, "go", "run", apidiff, "-m", "-incompatible", before, after)
	if err != nil {
		return err
	}
	return judge(out, repo, last, changes)
}

// judge fails when changes break users' programs and CHANGELOG.md does not tell them so, or from v1 on.
func judge(out io.Writer, repo, last, changes string) error {
	if changes == "" {
		fmt.Fprintln(out, "API: compatible with", last)
		return nil
	}
	fmt.Fprintf(out, "API: these changes since %s break users' programs:\n%s\n", last, changes)
	log, err := os.ReadFile(filepath.Join(repo, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	_, unreleased, _ := strings.Cut(string(log), "\n## [Unreleased]")
	unreleased, _, _ = strings.Cut(unreleased, "\n## ")
	switch {
	case semver.Major(last) != "v0":
		return fmt.Errorf("they need a new major version, since %s promised them", last)
	case !strings.Contains(unreleased, "\n### Incompatible\n"):
		return errors.New("CHANGELOG.md has no section ### Incompatible under [Unreleased] that tells users")
	}
	return nil
}

// lastTag returns the library's highest version among the tags that HEAD has; "" for none.
func lastTag(ctx context.Context, repo string) (string, error) {
	tags, err := in(ctx, repo, nil, "git", "tag", "--list", "v*", "--merged", "HEAD")
	if err != nil {
		return "", err
	}
	last := ""
	for tag := range strings.FieldsSeq(tags) {
		if semver.IsValid(tag) && semver.Compare(tag, last) > 0 {
			last = tag
		}
	}
	return last, nil
}
