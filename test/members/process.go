// Package members starts whole consuming processes for tests (demo-consumer with an event log each), kills and stops them, and
// reads what they logged.
package members

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/servers"
)

// Monotonic is CLOCK_MONOTONIC in nanoseconds, the clock of the event logs.
func Monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// MonotonicOf returns a moment as Monotonic would have.
func MonotonicOf(t time.Time) int64 { return clock().Of(t) }

var clock = sync.OnceValue(func() eventlog.Clock { return eventlog.NewClock(Monotonic) })

// Build builds demo-consumer into dir and returns the binary's path.
func Build(ctx context.Context, dir string) (string, error) {
	return build(ctx, dir, "github.com/kielgo/kiel/cmd/demo-consumer")
}

// BuildChecker builds check-events, which judges event logs.
func BuildChecker(ctx context.Context, dir string) (string, error) {
	return build(ctx, dir, "github.com/kielgo/kiel/test/cmd/check-events")
}

func build(ctx context.Context, dir, pkg string) (string, error) {
	bin := filepath.Join(dir, path.Base(pkg))
	out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, pkg).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return bin, nil
}

// Process is one consuming process and its event log.
type Process struct {
	Name   string // of the member
	Events string // file of its event log
	Killed int64  // [Monotonic] at which it was killed, or since which it was paused until it was; 0 while it was not

	p       *servers.Process
	paused  int64 // [Monotonic] since which it is paused, or 0
	mu      sync.Mutex
	offset  int64  // read so far from Events
	partial []byte // the line that is being written
}

// stopTimeout is how long leaving may take: the consumer's own limit is 30 s.
const stopTimeout = 40 * time.Second

// Start starts a process that dies with this test.
func Start(t *testing.T, bin, name, events string, args ...string) *Process {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), bin, append([]string{"consume", "--name", name, "--events", events}, args...)...)
	return &Process{Name: name, Events: events, p: servers.Start(t, name, cmd)}
}

// Kill ends the process as a crash does.
func (p *Process) Kill() {
	p.p.Kill()
	p.Killed = cmp.Or(p.paused, Monotonic())
}

// Pause stops the process in its tracks (SIGSTOP) and returns the time.
func (p *Process) Pause() int64 {
	p.p.Pause()
	p.paused = cmp.Or(p.paused, Monotonic())
	return p.paused
}

// Resume lets a paused process go on, and returns the time just before.
func (p *Process) Resume() int64 {
	p.paused = 0
	now := Monotonic()
	p.p.Resume()
	return now
}

// Terminate asks it to leave in order.
func (p *Process) Terminate() { p.p.Signal(syscall.SIGTERM) }

// Done is closed when the process is gone.
func (p *Process) Done() <-chan struct{} { return p.p.Done() }

// Wait waits until the process is gone and returns what [exec.Cmd.Wait] did.
func (p *Process) Wait() error { return p.p.Wait() }

// Log returns what it has printed: its own log, and not that of events.
func (p *Process) Log() string { return p.p.Log() }

// Stop asks it to leave in order and waits; an exit code but 0 fails the test.
func (p *Process) Stop(t *testing.T) {
	t.Helper()
	p.Terminate()
	p.WaitLeft(t)
}

// WaitLeft waits until a process that was asked to leave has left.
func (p *Process) WaitLeft(t *testing.T) {
	t.Helper()
	select {
	case <-p.p.Done():
	case <-time.After(stopTimeout):
		t.Errorf("%s did not leave within %v", p.Name, stopTimeout)
		p.Kill()
		return
	}
	if err := p.p.Wait(); err != nil {
		t.Errorf("%s left with %v", p.Name, err)
	}
}

// Read returns what has been logged since the last call.
func (p *Process) Read(t *testing.T) []eventlog.Event {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	f, err := os.Open(p.Events)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
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
		t.Fatalf("%s: %v", p.Events, err)
	}
	return events
}

// History reads the whole log for the checker.
func (p *Process) History(t *testing.T) eventlog.Log {
	t.Helper()
	f, err := os.Open(p.Events)
	if errors.Is(err, fs.ErrNotExist) && p.Killed != 0 {
		return eventlog.Log{Name: filepath.Base(p.Events), Killed: p.Killed} // before it had done anything
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	events, err := eventlog.Read(f)
	if err != nil {
		t.Fatalf("%s: %v", p.Events, err)
	}
	return eventlog.Log{Name: filepath.Base(p.Events), Events: events, Killed: p.Killed}
}
