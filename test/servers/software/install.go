package software

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Install puts everything into the cache that is not there yet, and says on out what it does. Packages of the system are
// installed by apt when this is root on Debian; otherwise the error names them. It is quick when all is there, and several at
// once wait for each other.
func Install(ctx context.Context, out io.Writer) error { return install(ctx, out, wanted(), all()) }

// InstallOld does the same with the versions of ZooKeeper that only the soak needs.
func InstallOld(ctx context.Context, out io.Writer) error {
	var tools []tool
	if slices.ContainsFunc(oldServers(), missing) {
		tools = append(tools, tool{"Maven", []string{"maven"}, mavenThere})
	}
	return install(ctx, out, tools, oldServers())
}

func install(ctx context.Context, out io.Writer, tools []tool, parts []part) error {
	if err := need(ctx, out, tools); err != nil {
		return err
	}
	cache, err := Cache()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	unlock, err := lock(filepath.Join(cache, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	for _, p := range parts {
		if err := p.install(ctx, out, cache); err != nil {
			return fmt.Errorf("install %s: %w", p.name, err)
		}
	}
	var archives sync.WaitGroup
	for _, p := range parts {
		if p.product != "" {
			archives.Go(func() { archive(ctx, out, p, filepath.Join(cache, p.name)) })
		}
	}
	archives.Wait()
	return nil
}

// Clean removes from the cache what Install and Engine have put there.
func Clean(_ context.Context, out io.Writer) error {
	cache, err := Cache()
	if err != nil {
		return err
	}
	for _, p := range slices.Concat(all(), oldServers(), []part{engine()}) {
		if err := os.RemoveAll(filepath.Join(cache, p.name)); err != nil {
			return fmt.Errorf("clean the cache: %w", err)
		}
	}
	fmt.Fprintln(out, "setup: cleaned", cache)
	return nil
}

// lock makes Installs of several processes take turns; the lock is free when its process is gone.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the cache: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// install makes the part in a folder of its own and renames that at the end, so a broken download never counts as there.
func (p part) install(ctx context.Context, out io.Writer, cache string) (err error) {
	dir := filepath.Join(cache, p.name)
	there, err := p.in(dir)
	if err != nil || there {
		return err
	}
	start := time.Now()
	fmt.Fprintf(out, "setup: installing %s into %s\n", p.name, cache)
	tmp, err := os.MkdirTemp(cache, ".new-"+p.name+"-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	recipe, err := files.ReadFile(p.recipe)
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.recipeIn(tmp), recipe, 0o644); err != nil {
		return err
	}
	if err := p.fill(ctx, p, tmp); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	fmt.Fprintf(out, "setup: %s is there (%.1fs)\n", p.name, time.Since(start).Seconds())
	return nil
}

func maven(ctx context.Context, p part, dir string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("install Maven (Debian: apt-get install maven): %w", err)
	}
	return run(ctx, mvn, "-q", "-B", "-f", p.recipeIn(dir), "-Dserver.version="+p.version,
		"dependency:copy-dependencies", "-DoutputDirectory="+dir)
}

// npm gets what the recipe names. It runs no scripts of packages.
func npm(ctx context.Context, _ part, dir string) error {
	return runIn(ctx, dir, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
}

func pip(ctx context.Context, p part, dir string) error {
	python, err := findPython(ctx)
	if err != nil {
		return err
	}
	if err := run(ctx, python, "-m", "venv", dir); err != nil {
		return err
	}
	if err := run(ctx, pythonIn(dir), "-m", "pip", "install", "-q", "-r", p.recipeIn(dir)); err != nil {
		return err
	}
	return run(ctx, pythonIn(dir), "-c", "import "+p.imports)
}

// debian downloads the Debian packages that the recipe names and unpacks them into dir. It does not install them: nothing outside
// of dir changes, and no service starts.
func debian(ctx context.Context, p part, dir string) error {
	names, err := os.ReadFile(p.recipeIn(dir))
	if err != nil {
		return err
	}
	download := append([]string{"download", "-q"}, strings.Fields(string(names))...)
	err = runIn(ctx, dir, "apt-get", download...)
	if err != nil && os.Geteuid() == 0 { // a new machine has no lists of packages
		err = errors.Join(run(ctx, "apt-get", "update", "-q"), runIn(ctx, dir, "apt-get", download...))
	}
	if err != nil {
		return err
	}
	packages, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	for _, file := range packages {
		if err := errors.Join(run(ctx, "dpkg-deb", "-x", file, dir), os.Remove(file)); err != nil {
			return err
		}
	}
	return nil
}

// run runs a command; its output is part of the error, and shown only then.
func run(ctx context.Context, name string, args ...string) error {
	return runIn(ctx, "", name, args...)
}

func runIn(ctx context.Context, dir, name string, args ...string) error {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, output.Bytes())
	}
	return nil
}
