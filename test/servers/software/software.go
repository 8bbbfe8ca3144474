// Package software knows which servers and Python libraries the tests use and where they lie: a cache outside of the source tree,
// filled by [Install] (`make setup`).
package software

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// Versions of the servers.
const (
	ZooKeeper39 = "3.9.5"
	ZooKeeper38 = "3.8.6"
	Kafka4      = "4.3.1"
	Kafka3      = "3.9.2"
)

// ErrMissing means that something has not been installed; `make setup` does it.
var ErrMissing = errors.New("not installed: run `make setup` in the top folder")

//go:embed maven requirements.txt kazoo-tests.txt debian npm
var files embed.FS

// Cache is the folder that holds everything: $KIEL_CACHE, or kiel in the user's cache folder.
func Cache() (string, error) {
	if dir := os.Getenv("KIEL_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder (KIEL_CACHE sets it): %w", err)
	}
	return filepath.Join(base, "kiel"), nil
}

// ZooKeeper returns the folder of the jars of a ZooKeeper server.
func ZooKeeper(version string) (string, error) {
	for _, p := range oldServers() {
		if p.version == version {
			return find(p)
		}
	}
	return find(jars("zookeeper", version))
}

// Kafka returns the folder of the jars of a Kafka broker.
func Kafka(version string) (string, error) { return find(jars("kafka", version)) }

// Java returns the Java runtime.
func Java() (string, error) {
	path, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("java: %w", ErrMissing)
	}
	return path, nil
}

// Python returns the interpreter of the environment that holds kiel and kazoo.
func Python() (string, error) { return findInterpreter(python()) }

// KazooTests returns the interpreter of the environment that holds kazoo and what its own tests need.
func KazooTests() (string, error) { return findInterpreter(kazooTests()) }

// Prometheus returns the folder that holds the programs prometheus and promtool: the one of the machine's own, or the cache's.
func Prometheus() (string, error) {
	if dir, err := installedPrometheus(); err == nil {
		return dir, nil
	}
	dir, err := find(prometheus())
	return filepath.Join(dir, "usr", "bin"), err
}

func installedPrometheus() (string, error) {
	if _, err := exec.LookPath("prometheus"); err != nil {
		return "", err
	}
	promtool, err := exec.LookPath("promtool")
	return filepath.Dir(promtool), err
}

// Browser returns a browser that chromedp can drive.
func Browser() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("chromium: %w", ErrMissing)
}

// Axe returns the file of axe-core, which finds what keeps people from using a page.
func Axe() (string, error) {
	dir, err := find(axe())
	return filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"), err
}

func axe() part { return part{name: "axe", recipe: "npm/package.json", fill: npm} }

func findInterpreter(p part) (string, error) {
	dir, err := find(p)
	if err != nil {
		return "", err
	}
	return pythonIn(dir), nil
}

func pythonIn(venv string) string { return filepath.Join(venv, "bin", "python") }

// A part is one folder of the cache. It is there when it holds a copy of the very recipe that made it.
type part struct {
	name    string // of the folder
	recipe  string // in files
	product string
	version string
	imports string // of Python
	fill    func(ctx context.Context, p part, dir string) error
}

func jars(product, version string) part {
	return part{
		name:    product + "-" + version,
		recipe:  "maven/" + product + ".xml",
		product: product,
		version: version,
		fill:    maven,
	}
}

func servers() []part {
	return []part{
		jars("zookeeper", ZooKeeper39),
		jars("zookeeper", ZooKeeper38),
		jars("kafka", Kafka4),
		jars("kafka", Kafka3),
	}
}

// OldZooKeepers returns the versions of ZooKeeper that only the soak needs.
func OldZooKeepers() []string { return []string{"3.4.14", "3.5.10", "3.6.4", "3.7.2"} }

// oldServers are what InstallOld installs.
func oldServers() []part {
	var parts []part
	for _, version := range OldZooKeepers() {
		p := jars("zookeeper", version)
		p.recipe = "maven/zookeeper-old.xml"
		parts = append(parts, p)
	}
	return parts
}

// pythons are the Python environments.
func pythons() []part { return []part{python(), kazooTests()} }

func python() part {
	return part{name: "python", recipe: "requirements.txt", imports: "kazoo, kiel.zookeeper.allocator", fill: pip}
}

func kazooTests() part {
	return part{name: "python-kazoo-tests", recipe: "kazoo-tests.txt", imports: "kazoo.client, pytest, objgraph, gevent, eventlet", fill: pip}
}

// prometheus holds Prometheus as Debian has it.
func prometheus() part {
	return part{name: "prometheus", recipe: "debian/prometheus.txt", fill: debian}
}

// all are the parts that this machine needs.
func all() []part {
	list := append(append(servers(), pythons()...), axe())
	if _, err := installedPrometheus(); err != nil {
		list = append(list, prometheus())
	}
	return list
}

func find(p part) (string, error) {
	cache, err := Cache()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, p.name)
	there, err := p.in(dir)
	if err != nil {
		return "", err
	}
	if !there {
		return "", fmt.Errorf("%s: %w", dir, ErrMissing)
	}
	return dir, nil
}

// in tells if dir holds the part, made by the recipe as it is now.
func (p part) in(dir string) (bool, error) {
	want, err := files.ReadFile(p.recipe)
	if err != nil {
		return false, fmt.Errorf("recipe of %s: %w", p.name, err)
	}
	got, err := os.ReadFile(p.recipeIn(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("recipe of %s: %w", p.name, err)
	}
	return bytes.Equal(got, want), nil
}

func (p part) recipeIn(dir string) string { return filepath.Join(dir, filepath.Base(p.recipe)) }
