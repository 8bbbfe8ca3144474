package servers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

const terminate = syscall.SIGTERM

// stopTimeout is how long a process may take to end after a signal: seconds, and far more on a machine that has too much to do.
const stopTimeout = time.Minute

// Process is a child process of the test.
type Process struct {
	tb   testing.TB
	name string
	cmd  *exec.Cmd
	log  string

	done chan struct{} // closed when the process is gone
	err  error         // of Wait; to be read after done
}

// Start starts a program as a child of the test and kills it at the test's end. Standard output and standard error go to a log,
// unless cmd sends them elsewhere. To read them use an [os.Pipe]: cmd.StdoutPipe is closed when the process ends, whether it was
// read or not, and behind a Writer that blocks the process does not end.
//
// The kernel kills the child when the test process is gone (Pdeathsig, on Linux). It does so in fact when the *thread* that
// started the child ends, so each child has a thread of its own that starts it, waits for it, and lives as long.
func Start(tb testing.TB, name string, cmd *exec.Cmd) *Process {
	tb.Helper()
	return start(tb, name, cmd, newDir(tb, name))
}

func start(tb testing.TB, name string, cmd *exec.Cmd, dir string) *Process {
	tb.Helper()
	p := &Process{
		tb:   tb,
		name: name,
		cmd:  cmd,
		log:  filepath.Join(dir, name+".log"),
		done: make(chan struct{}),
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		tb.Fatalf("open the log of %s: %v", name, err)
	}
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	if cmd.Stderr == nil {
		cmd.Stderr = log
	}
	cmd.SysProcAttr = diesWithParent()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	err = <-started
	if err := errors.Join(err, log.Close()); err != nil {
		tb.Fatalf("start %s: %v", name, err)
	}
	tb.Cleanup(func() {
		if p.end() {
			return
		}
		tb.Errorf("%s (pid %d) does not end after SIGKILL", name, p.PID())
	})
	return p
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the process is gone and returns what [exec.Cmd.Wait] did.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Log returns what the process has written so far, apart from what its command sent elsewhere.
func (p *Process) Log() string {
	p.tb.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.tb.Fatalf("log of %s: %v", p.name, err)
	}
	return string(text)
}

// Signal sends a signal; a process that is gone is no error.
func (p *Process) Signal(sig os.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Fatalf("send %v to %s: %v", sig, p.name, err)
	}
}

// Kill ends the process by SIGKILL and waits until it is gone.
func (p *Process) Kill() {
	p.tb.Helper()
	if !p.end() {
		p.tb.Fatalf("%s (pid %d) does not end after SIGKILL", p.name, p.PID())
	}
}

func (p *Process) end() bool {
	_ = p.cmd.Process.Kill() // gone already, or the wait below tells
	return p.gone(stopTimeout)
}

// Stop ends the process by SIGTERM and waits until it is gone; one that does not end fails the test.
func (p *Process) Stop() {
	p.tb.Helper()
	p.Signal(terminate)
	if !p.gone(stopTimeout) {
		p.tb.Fatalf("%s (pid %d) does not end within %v after SIGTERM", p.name, p.PID(), stopTimeout)
	}
}

func (p *Process) gone(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

// Pause stops the process in its tracks (SIGSTOP), until [Process.Resume].
func (p *Process) Pause() {
	p.tb.Helper()
	p.Signal(syscall.SIGSTOP)
}

// Resume lets a paused process go on.
func (p *Process) Resume() {
	p.tb.Helper()
	p.Signal(syscall.SIGCONT)
}

// newDir makes a folder that is removed at the end of the test, unless the test failed: then the ends of the logs in it are
// printed, and all but the data stays.
func newDir(tb testing.TB, name string) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "kiel-"+name+"-") //nolint:usetesting // it has to outlive a test that failed
	if err != nil {
		tb.Fatalf("make a folder for %s: %v", name, err)
	}
	tb.Cleanup(func() {
		if !tb.Failed() {
			if err := os.RemoveAll(dir); err != nil {
				tb.Errorf("remove the folder of %s: %v", name, err)
			}
			return
		}
		printLogs(tb, dir)
	})
	return dir
}

func printLogs(tb testing.TB, dir string) {
	tb.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		tb.Logf("logs in %s: %v", dir, err)
	}
	for _, path := range logs {
		tb.Logf("the end of %s:\n%s", path, tail(path, 30))
	}
	data, err := filepath.Glob(filepath.Join(dir, "data*"))
	if err != nil {
		tb.Logf("data in %s: %v", dir, err)
	}
	for _, path := range data {
		if err := os.RemoveAll(path); err != nil {
			tb.Logf("remove data: %v", err)
		}
	}
}

func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("(unreadable: %v)", err)
	}
	all := bytes.SplitAfter(text, []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-1-lines):], nil))
}
