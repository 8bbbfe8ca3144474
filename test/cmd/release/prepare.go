package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// prepare makes the tags of a release of what HEAD is: of the library on HEAD, of the commands on a commit of its own, whose
// go.mod requires that version instead of replacing it by the folder above. A module with replace lines can't be installed by its
// version.
func prepare(ctx context.Context, out io.Writer, repo, version string, try func(context.Context, proxy, string) error) error {
	if err := ready(ctx, repo, version); err != nil {
		return err
	}
	p, clean, err := newProxy()
	if err != nil {
		return err
	}
	head, err := in(ctx, repo, nil, "git", "rev-parse", "HEAD")
	var commit string
	if err == nil {
		commit, err = p.release(ctx, repo, head, version)
	}
	if err == nil {
		err = try(ctx, p, version)
	}
	if err := errors.Join(err, clean()); err != nil {
		return err
	}
	for tag, at := range map[string]string{version: head, "cmd/" + version: commit} {
		if _, err := in(ctx, repo, nil, "git", "tag", "-a", "-m", "kiel "+tag, tag, at); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "Tagged and tried. To publish it:\n  git push origin %s cmd/%s\n", version, version)
	return nil
}

// ready says what keeps a version from being released.
func ready(ctx context.Context, repo, version string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("%s is not a version such as v0.1.0", version)
	}
	changed, err := in(ctx, repo, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("there are changes without a commit:\n%s", changed)
	}
	tags, err := in(ctx, repo, nil, "git", "tag", "--list", version, "cmd/"+version)
	if err != nil {
		return err
	}
	if tags != "" {
		return fmt.Errorf("%s has been tagged", version)
	}
	log, err := os.ReadFile(filepath.Join(repo, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if !strings.Contains(string(log), "\n## ["+version[1:]+"]") {
		return fmt.Errorf("CHANGELOG.md has no section ## [%s]", version[1:])
	}
	return nil
}

// release adds both modules to the proxy, and returns the commit of that of the commands.
func (p proxy) release(ctx context.Context, repo, head, version string) (commit string, err error) {
	if err := p.add(ctx, repo, head, "", module.Version{Path: library, Version: version}); err != nil {
		return "", err
	}
	env, err := p.env(ctx)
	if err != nil {
		return "", err
	}
	tree := filepath.Join(p.dir, "tree")
	if _, err := in(ctx, repo, nil, "git", "worktree", "add", "--detach", tree, head); err != nil {
		return "", err
	}
	defer func() {
		_, err2 := in(ctx, repo, nil, "git", "worktree", "remove", "--force", tree)
		err = errors.Join(err, err2)
	}()
	folder := filepath.Join(tree, "cmd")
	for _, args := range [][]string{
		{"go", "mod", "edit", "-dropreplace=" + library, "-require=" + library + "@" + version},
		{"go", "mod", "tidy"},
		{"git", "commit", "--quiet", "-am", "cmd: require kiel " + version + "\n\nOf this commit is the tag cmd/" + version + "; it is on no branch."},
	} {
		if _, err := in(ctx, folder, env, args[0], args[1:]...); err != nil {
			return "", err
		}
	}
	commit, err = in(ctx, folder, nil, "git", "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	return commit, p.add(ctx, repo, commit, "cmd", module.Version{Path: commands, Version: version})
}

// user does what users do: install the commands by their version, and build a program of their own. With plan it only finds out
// what there would be to compile.
func (p proxy) user(ctx context.Context, version string, plan ...string) error {
	env, err := p.env(ctx)
	if err != nil {
		return err
	}
	folder := filepath.Join(p.dir, "program")
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	const program = "package main\n\nimport _ \"" + library + "/consumer\"\n\nfunc main() {}\n"
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		append(append([]string{"install"}, plan...), commands+"/demo-consumer@"+version, commands+"/kiel@"+version),
		{"mod", "init", "example.com/program"},
		{"get", library + "/consumer@" + version},
		append(append([]string{"build"}, plan...), "."),
	} {
		if _, err := in(ctx, folder, env, "go", args...); err != nil {
			return err
		}
	}
	return nil
}

// install installs the commands by their version and runs them.
func install(ctx context.Context, p proxy, version string) error {
	if err := p.user(ctx, version); err != nil {
		return err
	}
	for _, command := range []string{"demo-consumer", "kiel"} {
		if _, err := in(ctx, p.dir, nil, filepath.Join(p.dir, command), "--help"); err != nil {
			return err
		}
	}
	return nil
}
