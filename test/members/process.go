// Package members starts whole consuming processes for tests (demo-consumer with
// an event log each), kills and stops them, and reads what they logged.
package members

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kielgo/kiel/internal/eventlog"
)

// Monotonic is CLOCK_MONOTONIC in nanoseconds, the clock of the event logs.
func Monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// Build builds demo-consumer into dir and returns the binary's path.
func Build(dir string) (string, error) {
	bin := filepath.Join(dir, "demo-consumer")
	out, err := exec.Command("go", "build", "-o", bin, "github.com/kielgo/kiel/cmd/demo-consumer").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build demo-consumer: %w\n%s", err, out)
	}
	return bin, nil
}

// Process is one consuming process and its event log.
type Process struct {
	Name   string // of the member
	Log    string // file of its events
	Killed int64  // [Monotonic] at which it was killed; 0 while it was not

	cmd    *exec.Cmd
	stderr bytes.Buffer
	done   chan struct{}
	err    error // after done

	mu      sync.Mutex
	offset  int64  // read so far from Log
	partial []byte // the line that is being written
}

// Start starts a process that dies with this test.
func Start(t *testing.T, bin, name, log string, args ...string) *Process {
	t.Helper()
	p := &Process{Name: name, Log: log, done: make(chan struct{})}
	p.cmd = exec.Command(bin, append([]string{"consume", "--name", name, "--events", log}, args...)...)
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s (%s):\n%s", name, filepath.Base(log), tail(p.stderr.Bytes(), 4000))
		}
	})
	return p
}

func tail(b []byte, n int) []byte {
	if len(b) > n {
		return b[len(b)-n:]
	}
	return b
}

// Kill ends the process as a crash does.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
	p.Killed = Monotonic()
}

// Stop asks it to leave in order and waits; an exit code but 0 fails the test.
func (p *Process) Stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("%s: %v", p.Name, err)
	}
	select {
	case <-p.done:
	case <-time.After(40 * time.Second):
		t.Errorf("%s did not leave within 40 s", p.Name)
		p.Kill()
		return
	}
	if p.err != nil {
		t.Errorf("%s left with %v", p.Name, p.err)
	}
}

// Events returns what has been logged since the last call.
func (p *Process) Events(t *testing.T) []eventlog.Event {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	f, err := os.Open(p.Log)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var buf bytes.Buffer
	buf.Write(p.partial)
	if _, err := f.Seek(p.offset, 0); err != nil {
		t.Fatal(err)
	}
	n, err := buf.ReadFrom(f)
	if err != nil {
		t.Fatal(err)
	}
	p.offset += n
	whole := buf.Bytes()
	cut := bytes.LastIndexByte(whole, '\n') + 1
	p.partial = bytes.Clone(whole[cut:])
	events, err := eventlog.Read(bytes.NewReader(whole[:cut]))
	if err != nil {
		t.Fatalf("%s: %v", p.Log, err)
	}
	return events
}

// History reads the whole log for the checker.
func (p *Process) History(t *testing.T) eventlog.Log {
	t.Helper()
	f, err := os.Open(p.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	events, err := eventlog.Read(f)
	if err != nil {
		t.Fatalf("%s: %v", p.Log, err)
	}
	return eventlog.Log{Name: filepath.Base(p.Log), Events: events, Killed: p.Killed}
}
