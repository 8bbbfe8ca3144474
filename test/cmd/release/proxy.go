package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	library  = "github.com/kielgo/kiel"
	commands = library + "/cmd"
)

// proxy is a folder in the layout of a module proxy, and a module cache of its own, so that no other program meets a version that
// was only tried.
type proxy struct{ dir string }

// newProxy makes one; clean removes it.
func newProxy() (p proxy, clean func() error, err error) {
	dir, err := os.MkdirTemp("", "kiel-release-")
	return proxy{dir}, func() error { return os.RemoveAll(dir) }, err
}

// add adds a module as it stands in a commit of a repository, in its folder subdir.
func (p proxy) add(ctx context.Context, repo, commit, subdir string, m module.Version) error {
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	dir := filepath.Join(p.dir, "proxy", escaped, "@v")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	file := "go.mod"
	if subdir != "" {
		file = subdir + "/go.mod"
	}
	mod, err := in(ctx, repo, nil, "git", "show", commit+":"+file)
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{m.Version, time.Now().UTC()})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"list": []byte(m.Version + "\n"), m.Version + ".info": info, m.Version + ".mod": []byte(mod + "\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	out, err := os.Create(filepath.Join(dir, m.Version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(zip.CreateFromVCS(out, m, repo, commit, subdir), out.Close())
}

// env is the environment of go commands that see what was added as if it were public. What the user has in the module cache needs
// no network: there it has been verified, so the checksum database, which does not know the new version, is not asked.
func (p proxy) env(ctx context.Context) ([]string, error) {
	out, err := in(ctx, p.dir, nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	words := strings.Fields(out)
	if len(words) != 2 {
		return nil, fmt.Errorf("go env says %q", out)
	}
	return append(os.Environ(),
		"GOWORK=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -modcacherw", "GOPRIVATE=", "GONOPROXY=none", "GOSUMDB=off",
		"GOMODCACHE="+filepath.Join(p.dir, "modules"), "GOBIN="+p.dir,
		"GOPROXY=file://"+filepath.Join(p.dir, "proxy")+",file://"+filepath.Join(words[0], "cache", "download")+","+words[1],
	), nil
}

// in runs a command in a directory and returns what it says.
func in(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
