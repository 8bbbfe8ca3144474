package compose_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/servers/software"
)

// An engine is a Docker Engine of the test's own. It lives in namespaces of its own: it has the network for itself, so published
// ports, bridges and rules of iptables touch nothing of the machine's; what it mounts and starts is gone when its first process
// is.
type engine struct {
	t       *testing.T
	dir     string // of Debian's packages
	socket  string
	cgroup  string
	process *servers.Process
}

// startEngine starts the engine. At the test's end nothing of it is left.
func startEngine(t *testing.T) *engine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a Docker Engine needs root")
	}
	dir, err := software.Engine(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.MkdirTemp("", "kiel-engine-") //nolint:usetesting // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t: t, dir: dir, socket: filepath.Join(data, "socket"), cgroup: filepath.Base(data)}
	t.Cleanup(func() { e.clean(data) })
	config := filepath.Join(data, "config.json")
	if err := os.WriteFile(config, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The shell is the first process of the namespace and waits for those whose parents have ended.
	script := fmt.Sprintf("%[1]s/bin/busybox ip link set lo up && mount -t tmpfs none /run && dockerd --storage-driver=vfs --data-root=%[2]s/data "+
		"--exec-root=/run/docker --pidfile=/run/docker.pid -H unix://%[3]s --cgroup-parent=/%[4]s --config-file=%[5]s; exit $?",
		dir, data, e.socket, e.cgroup, config)
	cmd := exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script)
	var libraries []string
	for _, pattern := range []string{"lib/*-linux-gnu", "usr/lib/*-linux-gnu"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		libraries = append(libraries, found...)
	}
	cmd.Env = append(os.Environ(),
		"PATH="+filepath.Join(dir, "usr/sbin")+":"+filepath.Join(dir, "usr/bin")+":"+os.Getenv("PATH"),
		"LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	e.process = servers.Start(t, "dockerd", cmd)
	t.Cleanup(e.kill)
	t.Cleanup(e.showLogs)
	eventually(t, e.process, "the engine answers", func() bool {
		_, err := e.try(e.command(e.docker("version")...))
		return err == nil
	})
	return e
}

// showLogs prints the last lines of each container's log if the test has failed.
func (e *engine) showLogs() {
	if !e.t.Failed() {
		return
	}
	names, err := e.try(e.command(e.docker("ps", "--all", "--format", "{{.Names}}")...))
	if err != nil {
		e.t.Log(err)
	}
	for name := range strings.FieldsSeq(names) {
		log, err := e.command(e.docker("logs", "--tail", "20", name)...).CombinedOutput()
		e.t.Logf("the end of %s's log: %v\n%s", name, err, log)
	}
}

// first returns the id of the first process in the engine's namespaces, 0 when there is none.
func (e *engine) first() int {
	id := e.process.PID()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", id))
	if err != nil {
		return 0
	}
	first, _ := strconv.Atoi(strings.TrimSpace(string(children))) // 0 when there is none
	return first
}

// kill ends everything that the engine has started: the kernel does when the first process of a namespace is gone, and lets its
// parent wait for that.
func (e *engine) kill() {
	if id := e.first(); id != 0 {
		_ = syscall.Kill(id, syscall.SIGKILL) // gone already, or the wait tells
		<-e.process.Done()
	}
}

// clean removes what is left when all processes are gone.
func (e *engine) clean(data string) {
	if err := os.RemoveAll(data); err != nil {
		e.t.Error(err)
	}
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		groups, err := filepath.Glob(filepath.Join(pattern, e.cgroup))
		if err != nil {
			e.t.Error(err)
		}
		for _, group := range groups {
			e.removeGroup(group)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || bytes.Contains(mounts, []byte(data)) {
		e.t.Errorf("mounts are left: %v\n%s", err, mounts)
	}
}

// removeGroup removes a control group and those below it.
func (e *engine) removeGroup(group string) {
	var dirs []string
	err := filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		e.t.Error(err)
	}
	for _, dir := range slices.Backward(dirs) {
		if err := os.Remove(dir); err != nil {
			e.t.Error(err)
		}
	}
}

func (e *engine) docker(args ...string) []string {
	return append([]string{filepath.Join(e.dir, "usr/bin/docker")}, args...)
}

// command returns a command that talks to the engine.
func (e *engine) command(command ...string) *exec.Cmd {
	// A test that fails asks for logs after its context has ended.
	cmd := exec.CommandContext(context.WithoutCancel(e.t.Context()), command[0], command[1:]...)
	cmd.Dir = top()
	// The engine's own builder: that of newer clients wants images from where they come from.
	cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+e.socket, "DOCKER_BUILDKIT=0", "COMPOSE_DOCKER_CLI_BUILD=0")
	return cmd
}

// try returns what a command prints.
func (e *engine) try(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w\n%s%s", cmd, err, out, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}

func (e *engine) must(cmd *exec.Cmd) string {
	e.t.Helper()
	out, err := e.try(cmd)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// compose runs Docker Compose on the repository's docker-compose.yml.
func (e *engine) compose(args ...string) {
	e.t.Helper()
	command, err := software.Compose(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	command = append(command, "--project-name", "kiel", "--file", filepath.Join(top(), "docker-compose.yml"))
	e.must(e.command(append(command, args...)...))
}

// load makes an image of a root folder that write writes as a tar.
func (e *engine) load(image string, changes []string, write func(w io.Writer) error) {
	e.t.Helper()
	args := []string{"import"}
	for _, change := range changes {
		args = append(args, "--change", change)
	}
	cmd := e.command(e.docker(append(args, "-", image)...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	err = write(in)
	if closed := in.Close(); err == nil {
		err = closed
	}
	if ended := cmd.Wait(); err != nil || ended != nil {
		e.t.Fatalf("make the image %s: %v, %v\n%s", image, err, ended, &out)
	}
}

// containers returns how many containers each service has in a state, which is as `docker ps` has it: "Up 5 seconds (healthy)".
func (e *engine) containers(state string) map[string]int {
	e.t.Helper()
	found := map[string]int{}
	out := e.must(e.command(e.docker("ps", "--all", "--format", `{{.Label "com.docker.compose.service"}} {{.Status}}`)...))
	for line := range strings.Lines(out) {
		service, status, _ := strings.Cut(line, " ")
		if strings.Contains(status, state) {
			found[service]++
		}
	}
	return found
}

// talk connects from the engine's machine, says something unless that is empty, and returns what comes back until the end.
func (e *engine) talk(address, say string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	script := fmt.Sprintf("exec 3<>/dev/tcp/%s/%s", host, port)
	if say != "" {
		script += fmt.Sprintf(" && printf '%s' >&3 && timeout 10 cat <&3", say)
	}
	return e.try(e.command("nsenter", "--net", "--target", strconv.Itoa(e.first()), "bash", "-c", script))
}
