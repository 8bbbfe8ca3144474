package servers_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/test/servers"
)

// parent makes this test binary the parent in TestNoOrphans.
const parent = "KIEL_TEST_PARENT"

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// sarama's metrics start it once per process and have no way to end it.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

func TestProcess(t *testing.T) {
	p := servers.Start(t, "sleep", exec.Command("sh", "-c", "echo hello; exec sleep 600"))
	eventually(t, "the log says hello", func() bool { return strings.Contains(p.Log(), "hello") })
	p.Pause()
	eventually(t, "the process is stopped", func() bool { return state(t, p.PID()) == "T" })
	p.Resume()
	p.Stop()
	if err := p.Wait(); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("Wait() = %v, want an error that names the signal", err)
	}
}

// A parent that is killed has no time to clean up. Its ZooKeeper must go all the same, and must not go before: Go ends threads
// that nobody uses, and the kernel takes the thread that started a child for its parent.
func TestNoOrphans(t *testing.T) {
	if os.Getenv(parent) != "" {
		zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
		os.Stdout.WriteString("pid " + strconv.Itoa(zk.Nodes()[0].PID()) + "\n")
		select {} // until killed
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	cmd := exec.Command(exe, "-test.run=^TestNoOrphans$")
	cmd.Env = append(os.Environ(), parent+"=1", "TMPDIR="+t.TempDir())
	cmd.Stdout = in
	p := servers.Start(t, "parent", cmd)
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	var pid int
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "pid %d", &pid)
	}
	if pid == 0 || !alive(t, pid) {
		t.Fatalf("the parent did not start ZooKeeper (pid %d)", pid)
	}
	p.Kill()
	eventually(t, "ZooKeeper is gone", func() bool { return !alive(t, pid) })
}

func alive(t *testing.T, pid int) bool {
	t.Helper()
	s := state(t, pid)
	return s != "" && s != "Z"
}

// state returns the letter of the process's state in proc(5), or "" when there is none.
func state(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:1]
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !is() {
		select {
		case <-deadline.C:
			t.Fatalf("not within 30 s: %s", what)
		case <-ticker.C:
		}
	}
}
