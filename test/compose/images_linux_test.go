package compose_test

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/test/servers/software"
)

// Images can't be pulled here, so each has a stand-in under its tag, of what the machine has and `make setup` has got.
func (e *engine) loadImages(all map[string]service) {
	e.t.Helper()
	path := "ENV PATH=/opt/java/bin:/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin"
	for line := range strings.Lines(string(read(e.t, "Dockerfile"))) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] != "FROM":
		case strings.HasPrefix(words[1], "golang:"):
			e.load(words[1], []string{path, "ENV GOPROXY=file:///mod GOTOOLCHAIN=local HOME=/root"}, e.image((*root).golang))
		default:
			e.load(words[1], []string{path}, e.image(func(*root) {}))
		}
	}
	for name, add := range map[string]func(*root){
		"zookeeper": (*root).zookeeper, "kafka": (*root).kafka, "prometheus": (*root).prometheus, "grafana": (*root).grafana,
	} {
		e.load(all[name].Image, []string{path, `ENTRYPOINT ["/start"]`}, e.image(add))
	}
}

// A root is the root folder of an image while it is written.
type root struct {
	t    *testing.T
	tar  *tar.Writer
	has  map[string]bool
	base string // folder of busybox
}

// image returns what writes a root folder with a shell, what health checks use, and what add adds.
func (e *engine) image(add func(*root)) func(io.Writer) error {
	return func(w io.Writer) error {
		r := &root{t: e.t, tar: tar.NewWriter(w), has: map[string]bool{}, base: e.dir}
		r.text("/etc/passwd", "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
		r.text("/etc/group", "root:x:0:\nnogroup:x:65534:\n")
		r.text("/etc/nsswitch.conf", "hosts: files dns\n")
		r.header(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777})
		r.file("/bin/busybox", filepath.Join(r.base, "bin/busybox"))
		for _, applet := range []string{"cat", "grep", "head", "httpd", "mkdir", "nc", "sh", "wget"} {
			r.header(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox"})
		}
		r.program("/bin/bash", "/bin/bash")
		add(r)
		return r.tar.Close()
	}
}

func (r *root) golang() {
	goroot := strings.TrimSpace(r.output("", "go", "env", "GOROOT"))
	for _, dir := range []string{"bin", "lib", "pkg/include", "pkg/tool", "src", "VERSION", "go.env"} {
		r.tree("/usr/local/go/"+dir, filepath.Join(goroot, dir), "testdata")
	}
	// The modules that the Dockerfile asks for, as a proxy would serve them.
	modules := r.t.TempDir()
	cache := strings.TrimSpace(r.output("", "go", "env", "GOMODCACHE"))
	proxy := strings.TrimSpace(r.output("", "go", "env", "GOPROXY"))
	r.output(filepath.Join(top(), "cmd"), "env", "GOWORK=off", "GOFLAGS=-modcacherw", "GOMODCACHE="+modules,
		"GOPROXY=file://"+cache+"/cache/download,"+proxy, "go", "mod", "download")
	r.tree("/mod", filepath.Join(modules, "cache/download"))
}

func (r *root) zookeeper() {
	r.java(software.ZooKeeper(software.ZooKeeper39))
	r.script("/start", `mkdir /data /conf
cat >/conf/zoo.cfg <<END
tickTime=$ZOO_TICK_TIME
dataDir=/data
clientPort=2181
maxClientCnxns=$ZOO_MAX_CLIENT_CNXNS
admin.enableServer=$ZOO_ADMINSERVER_ENABLED
4lw.commands.whitelist=$ZOO_4LW_COMMANDS_WHITELIST
END
exec java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp '/opt/jars/*' org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg`)
}

func (r *root) kafka() {
	r.java(software.Kafka(software.Kafka4))
	const run = `java -Xmx$1 -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp '/opt/jars/*' "${@:2}"`
	r.script("/start", `run() { `+run+`; }
for name in "${!KAFKA_@}"; do
  key=${name#KAFKA_} key=${key,,}
  echo "${key//_/.}=${!name}"
done >/server.properties
echo log.dirs=/data >>/server.properties
run 128m kafka.tools.StorageTool format --cluster-id=5L6g3nShT-eMCtK--X86sw --config /server.properties
set -- 512m kafka.Kafka /server.properties
exec `+run)
	r.script("/opt/kafka/bin/kafka-broker-api-versions.sh", `set -- 128m org.apache.kafka.tools.BrokerApiVersionsCommand "$@"
exec `+run)
}

func (r *root) prometheus() {
	dir, err := software.Prometheus()
	if err != nil {
		r.t.Fatal(err)
	}
	r.program("/usr/bin/prometheus", filepath.Join(dir, "prometheus"))
	r.script("/start", `exec prometheus --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/data`)
}

// Debian has no Grafana: a server of files answers at the path of its health.
func (r *root) grafana() {
	r.text("/www/api/health", `{"database": "ok"}`)
	r.script("/start", `exec httpd -f -p 3000 -h /www`)
}

// java adds a Java runtime and a server's jars.
func (r *root) java(jars string, err error) {
	if err != nil {
		r.t.Fatal(err)
	}
	r.tree("/opt/jars", jars)
	java, err := software.Java()
	if err == nil {
		java, err = filepath.EvalSymlinks(java)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	home := filepath.Dir(filepath.Dir(java))
	for _, dir := range []string{"bin", "conf", "lib"} {
		r.tree("/opt/java/"+dir, filepath.Join(home, dir), "src.zip", "ct.sym")
	}
	for _, name := range []string{"bin/java", "lib/libjli.so", "lib/libzip.so", "lib/server/libjvm.so"} {
		r.libraries(filepath.Join(home, name))
	}
}

func (r *root) script(to, text string) { r.write(to, 0o755, []byte("#!/bin/bash\n"+text+"\n")) }

func (r *root) text(to, text string) { r.write(to, 0o644, []byte(text)) }

// program adds an executable and the libraries that it needs.
func (r *root) program(to, from string) {
	r.file(to, from)
	r.libraries(from)
}

var library = regexp.MustCompile(`(/\S+) \(0x`)

func (r *root) libraries(of string) {
	out, err := exec.Command("ldd", of).Output() // fails for what needs none
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	for _, match := range library.FindAllStringSubmatch(string(out), -1) {
		r.file(match[1], match[1])
	}
}

// tree adds a folder or a file, but for what has one of the names in without.
func (r *root) tree(to, from string, without ...string) {
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(without, d.Name()):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		}
		r.file(to+strings.TrimPrefix(path, from), path)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// file adds a file; of a link what it leads to, and nothing of one that leads nowhere or to a folder.
func (r *root) file(to, from string) {
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
		return
	}
	var content []byte
	if err == nil {
		content, err = os.ReadFile(from)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(to, int64(info.Mode().Perm()|0o444), content)
}

func (r *root) write(to string, mode int64, content []byte) {
	name := strings.TrimPrefix(to, "/")
	if r.has[name] {
		return
	}
	r.has[name] = true
	r.parent(name)
	r.header(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))})
	if _, err := r.tar.Write(content); err != nil {
		r.t.Fatal(err)
	}
}

// parent adds the folder of what has that name, which users that are not root may enter too.
func (r *root) parent(of string) {
	dir := filepath.Dir(of)
	if r.has[dir] {
		return
	}
	r.has[dir] = true
	if dir != "." {
		r.parent(dir)
	}
	r.header(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755})
}

func (r *root) header(h tar.Header) {
	if err := r.tar.WriteHeader(&h); err != nil {
		r.t.Fatal(err)
	}
}

func (r *root) output(dir, name string, args ...string) string {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("%v: %v", cmd, err)
	}
	return string(out)
}
