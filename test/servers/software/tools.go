package software

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A tool is something that the system has to bring.
type tool struct {
	what     string   // for a human
	packages []string // of Debian
	check    func(ctx context.Context) error
}

// need installs those of the tools that the system lacks, or says what to install.
func need(ctx context.Context, out io.Writer, wanted []tool) error {
	var lacking []tool
	for _, t := range wanted {
		if t.check(ctx) != nil {
			lacking = append(lacking, t)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	var packages, lines []string
	for _, t := range lacking {
		packages = append(packages, t.packages...)
		lines = append(lines, fmt.Sprintf("  %-38s Debian: %s", t.what, strings.Join(t.packages, " ")))
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("the tests need what this machine lacks; please install:\n%s\non Debian: sudo apt-get install %s",
			strings.Join(lines, "\n"), strings.Join(packages, " "))
	}
	start := time.Now()
	fmt.Fprintf(out, "setup: apt-get install %s\n", strings.Join(packages, " "))
	env := []string{"env", "DEBIAN_FRONTEND=noninteractive", apt, "-q", "-y"}
	if err := run(ctx, env[0], append(env[1:], "update")...); err != nil {
		return err
	}
	if err := run(ctx, env[0], append(append(env[1:], "install", "--no-install-recommends"), packages...)...); err != nil {
		return err
	}
	for _, t := range lacking {
		if err := t.check(ctx); err != nil {
			return fmt.Errorf("%s: still missing after apt-get install %s: %w", t.what, strings.Join(t.packages, " "), err)
		}
	}
	fmt.Fprintf(out, "setup: packages are there (%.1fs)\n", time.Since(start).Seconds())
	return nil
}

func wanted() []tool {
	list := []tool{
		{"a C compiler (for the race detector)", []string{"gcc", "libc6-dev"}, compiler},
		{"a Java runtime, 17 or newer", []string{"default-jre-headless"}, java},
		{"Docker Compose, any version", []string{"docker-compose"}, compose},
		{"Chromium (for tests of the page)", []string{"chromium", "fonts-dejavu-core"}, chromium},
	}
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		list = append(list, tool{"qemu-aarch64-static (for tests as on arm64)", []string{"qemu-user-static"}, arm64})
	}
	if slices.ContainsFunc(pythons(), missing) {
		list = append(list, tool{"Python 3.11 with its venv module", []string{"python3", "python3-venv"}, python311})
	}
	if missing(axe()) {
		list = append(list, tool{"npm (to get axe-core with)", []string{"npm"}, npmThere})
	}
	if _, err := Prometheus(); err != nil {
		list = append(list, tool{"Prometheus, or apt-get to get it with", []string{"prometheus"}, apt})
	}
	if slices.ContainsFunc(servers(), missing) {
		list = append(list, tool{"Maven", []string{"maven"}, mavenThere})
	}
	return list
}

func missing(p part) bool {
	_, err := find(p)
	return err != nil
}

func compiler(ctx context.Context) error {
	cc, err := exec.CommandContext(ctx, "go", "env", "CC").Output()
	if err != nil {
		return fmt.Errorf("go env CC: %w", err)
	}
	command := append(strings.Fields(string(cc)), "-fsyntax-only", "-x", "c", "-include", "stdlib.h", os.DevNull)
	return run(ctx, command[0], command[1:]...)
}

func java(ctx context.Context) error {
	text, err := exec.CommandContext(ctx, "java", "-version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("java -version: %w", err)
	}
	// openjdk version "17.0.15" 2025-04-15; Java 8 says "1.8.0_…"
	_, rest, _ := strings.Cut(string(text), `"`)
	var major int
	if _, err := fmt.Sscanf(rest, "%d", &major); err != nil || major < 17 {
		return fmt.Errorf("java is too old: %s", text)
	}
	return nil
}

func npmThere(ctx context.Context) error { return run(ctx, "npm", "--version") }

func chromium(context.Context) error {
	_, err := Browser()
	return err
}

func mavenThere(ctx context.Context) error { return run(ctx, "mvn", "-version") }

func apt(ctx context.Context) error { return run(ctx, "apt-get", "--version") }

func arm64(ctx context.Context) error { return run(ctx, "qemu-aarch64-static", "--version") }

func compose(ctx context.Context) error {
	_, err := Compose(ctx)
	return err
}

// Compose returns the command, with its first arguments, that is Docker Compose here.
func Compose(ctx context.Context) ([]string, error) {
	for _, command := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if run(ctx, command[0], append(command[1:], "version")...) == nil {
			return command, nil
		}
	}
	return nil, fmt.Errorf("docker compose: %w", ErrMissing)
}

func python311(ctx context.Context) error {
	_, err := findPython(ctx)
	return err
}

// findPython looks for a Python 3.11 that can make a virtual environment.
func findPython(ctx context.Context) (string, error) {
	for _, name := range []string{"python3.11", "python3", "/usr/bin/python3.11", "/usr/bin/python3"} {
		const check = "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))"
		if run(ctx, name, "-c", check) == nil {
			return name, nil
		}
	}
	return "", errors.New("no Python 3.11 with a venv module among python3.11 and python3")
}
