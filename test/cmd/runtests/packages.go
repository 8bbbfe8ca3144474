package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	project = "github.com/kielgo/kiel"
	// needsServers is imported by all tests that start servers.
	needsServers = project + "/test/servers"
)

// job is a part of a plan whose packages are known.
type job struct {
	part
	targets []string // import paths
}

// resolve finds the packages of all parts. Each package has one part at most, besides those that add to it; of a whole plan each
// has one.
func (p plan) resolve(all map[string]kind, whole bool) ([][][]job, error) {
	var errs []error
	in := map[string]string{} // the part of each package
	take := func(pkg string, p part) {
		if other, ok := in[pkg]; ok {
			errs = append(errs, fmt.Errorf("%s is in two parts: %s and %s", pkg, other, p.name))
		}
		in[pkg] = p.name
	}
	for p := range p.parts() {
		for _, pkg := range p.packages {
			if _, ok := all[path(pkg)]; !ok {
				errs = append(errs, fmt.Errorf("part %s names %s, which is no package", p.name, path(pkg)))
			}
			if !p.more {
				take(path(pkg), p)
			}
		}
	}
	rest := map[kind][]string{}
	for pkg, k := range all {
		if in[pkg] == "" {
			rest[k] = append(rest[k], pkg)
		}
	}
	stages := make([][][]job, len(p))
	for i, lanes := range p {
		stages[i] = make([][]job, len(lanes))
		for k, parts := range lanes {
			for _, p := range parts {
				j := job{part: p, targets: paths(p.packages)}
				if p.rest != "" {
					slices.Sort(rest[p.rest])
					j.targets = append(j.targets, rest[p.rest]...)
					for _, pkg := range rest[p.rest] {
						take(pkg, p)
					}
				}
				stages[i][k] = append(stages[i][k], j)
			}
		}
	}
	for pkg := range all {
		if whole && in[pkg] == "" {
			errs = append(errs, fmt.Errorf("%s is in no part", pkg))
		}
	}
	return stages, errors.Join(errs...)
}

func (p plan) parts() func(yield func(part) bool) {
	return func(yield func(part) bool) {
		for _, lanes := range p {
			for _, parts := range lanes {
				for _, p := range parts {
					if !yield(p) {
						return
					}
				}
			}
		}
	}
}

func path(pkg string) string { return strings.TrimSuffix(project+"/"+pkg, "/.") }

func paths(pkgs []string) []string {
	list := make([]string, len(pkgs))
	for i, pkg := range pkgs {
		list[i] = path(pkg)
	}
	return list
}

// workspace finds the directory of go.work.
func workspace(ctx context.Context) (string, error) {
	out, err := output(exec.CommandContext(ctx, "go", "env", "GOWORK"))
	file := strings.TrimSpace(out)
	if err == nil && (file == "" || file == "off") {
		err = errors.New("there is no go.work: run it inside the project's tree, with GOWORK unset")
	}
	return filepath.Dir(file), err
}

// packages lists the packages of all modules of the workspace in root.
func packages(ctx context.Context, root string) (map[string]kind, error) {
	list := func(args ...string) ([]string, error) {
		cmd := exec.CommandContext(ctx, "go", append([]string{"list"}, args...)...)
		cmd.Dir = root
		out, err := output(cmd)
		return strings.Split(strings.TrimSpace(out), "\n"), err
	}
	modules, err := list("-m")
	if err != nil {
		return nil, err
	}
	for i := range modules {
		modules[i] += "/..."
	}
	// With -e a package that does not compile is listed, so that go test says why.
	names, err := list(append([]string{"-e"}, modules...)...)
	if err != nil {
		return nil, err
	}
	tests, err := list(append([]string{"-e", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`}, modules...)...)
	if err != nil {
		return nil, err
	}
	all := map[string]kind{}
	for _, name := range names {
		all[name] = units
	}
	for _, line := range tests {
		words := strings.Fields(line)
		if pkg, ok := strings.CutSuffix(words[0], ".test"); ok && slices.Contains(words[1:], needsServers) {
			all[pkg] = servers
		}
	}
	return all, nil
}

func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args[:2], " "), err)
	}
	return string(out), nil
}
