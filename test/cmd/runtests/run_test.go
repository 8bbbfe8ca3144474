//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/test/internal/results"
	"github.com/kielgo/kiel/test/wait"
)

// fakeGo in the environment makes this program a go command. It names a directory for what the command has been told: a line per
// call.
const fakeGo = "RUNTESTS_FAKE_GO"

func TestMain(m *testing.M) {
	if dir := os.Getenv(fakeGo); dir != "" {
		os.Exit(fake(dir, os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// fake does what go test does with packages of these names.
func fake(dir string, args []string) (code int) {
	calls := filepath.Join(dir, "calls")
	before, _ := os.ReadFile(calls)
	_ = os.WriteFile(calls, append(before, strings.Join(args, " ")+"\n"...), 0o600)
	say := func(action, pkg, test, output string) {
		fmt.Printf(`{"Action":%q,"Package":%q,"Test":%q,"Output":%q}`+"\n", action, pkg, test, output)
	}
	for _, arg := range args {
		pkg, ok := strings.CutPrefix(arg, project+"/")
		if !ok {
			continue
		}
		say("start", arg, "", "")
		say("pass", arg, "TestFirst", "")
		before := strings.Count(string(before), arg)
		crashes, _ := strconv.Atoi(strings.TrimPrefix(pkg, "crashes"))
		switch {
		case pkg == "fails", pkg == "failsAndCrashes":
			say("fail", arg, "TestSecond", "")
			if pkg == "failsAndCrashes" {
				say("output", arg, "TestThird", "ThreadSanitizer: CHECK failed: x\n")
			}
		case before < crashes:
			say("output", arg, "TestSecond", "ThreadSanitizer: CHECK failed: x\n")
		case pkg == "hangs":
			hang(dir)
		case pkg == "silent":
			code = 2
			fallthrough
		default:
			say("pass", arg, "", "")
			continue
		}
		say("fail", arg, "", "")
		code = 1
	}
	return code
}

// hang ignores interrupts, and has a child that does, too.
func hang(dir string) {
	signal.Ignore(os.Interrupt)
	if os.Getenv("RUNTESTS_CHILD") == "" {
		child := exec.Command(os.Args[0], project+"/hangs")
		child.Env = append(os.Environ(), "RUNTESTS_CHILD=yes")
		if child.Start() != nil {
			os.Exit(3)
		}
	} else if lock(dir) {
		_ = os.WriteFile(filepath.Join(dir, "locked"), nil, 0o600)
	}
	select {}
}

// lock takes a lock, if it is free, until the process ends.
func lock(dir string) bool {
	file, err := os.Create(filepath.Join(dir, "lock"))
	return err == nil && syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// try runs stages with the fake go command.
func try(t *testing.T, stages [][][]job) (code int, out, log, calls string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv(fakeGo, dir)
	var said, kept bytes.Buffer
	r := &runner{root: dir, goTool: os.Args[0], report: results.New(&said), stderr: io.Discard, log: &kept}
	code = r.all(t.Context(), stages, &said)
	called, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return code, said.String(), kept.String(), string(called)
}

func one(p part, pkgs ...string) [][][]job { return [][][]job{{{{p, paths(pkgs)}}}} }

func TestEnds(t *testing.T) {
	race := part{name: "some", race: true}
	for name, c := range map[string]struct {
		stages [][][]job
		code   int
		calls  int
		says   string
	}{
		"all well":                            {one(race, "a", "b"), exitOK, 1, "PASS: 2 tests, 0 failed"},
		"a test fails":                        {one(race, "a", "fails"), exitFailed, 1, "FAILED: " + path("fails") + " TestSecond\n"},
		"no event says why":                   {one(race, "silent"), exitFailed, 1, "FAILED: some exit status 2\n"},
		"the race detector crashes":           {one(race, "a", "crashes1"), exitOK, 2, "AGAIN " + path("crashes1")},
		"… twice":                             {one(race, "crashes2"), exitOK, 3, "AGAIN"},
		"… three times":                       {one(race, "crashes3"), exitFailed, 3, "FAILED: " + path("crashes3")},
		"… where there is none":               {one(part{name: "some"}, "crashes1"), exitFailed, 1, "FAILED: " + path("crashes1")},
		"… after a test failed":               {one(race, "failsAndCrashes"), exitFailed, 1, "FAILED: " + path("failsAndCrashes")},
		"… and a test of another part failed": {[][][]job{{{{part{name: "x", race: true}, paths([]string{"crashes1"})}}}, {{{part{name: "y"}, paths([]string{"fails"})}}}}, exitFailed, 3, "FAILED: " + path("fails")},
		"no test":                             {nil, exitFailed, 0, "FAIL: 0 tests"},
		"another program ends well":           {append(one(part{name: "lint", command: []string{"true"}}), one(race, "a")...), exitOK, 1, "ok    lint"},
		"another program ends badly":          {append(one(part{name: "lint", command: []string{"sh", "-c", "echo why; false"}}), one(race, "a")...), exitFailed, 1, "why\n"},
		"another program is not there":        {append(one(part{name: "lint", command: []string{"/no/such"}}), one(race, "a")...), exitFailed, 1, "FAILED: lint"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, _, calls := try(t, c.stages)
			if code != c.code || strings.Count(calls, "\n") != c.calls || !strings.Contains(out, c.says) {
				t.Errorf("ended with %d, want %d; %q in\n%s\nand %d calls of\n%s", code, c.code, c.says, out, c.calls, calls)
			}
		})
	}
}

// A package runs again with the flags of its part, one at a time, without the tests that have passed, and no other does.
func TestAgain(t *testing.T) {
	_, out, log, calls := try(t, one(part{name: "some", race: true, flags: []string{"-skip=X"}, timeout: time.Minute}, "a", "crashes1"))
	lines := strings.Split(strings.TrimSpace(calls), "\n")
	want := "test -json -vet=off -count=1 -timeout=1m0s -race -p=1 -skip=X|^TestFirst$ " + path("crashes1")
	if len(lines) != 2 || lines[1] != want {
		t.Errorf("called %q, want %q in the end", lines, want)
	}
	if !strings.Contains(log, `{"Part":"some","Action":"start","Package":"`+path("a")) {
		t.Errorf("kept %s", log)
	}
	if !strings.Contains(out, "time per part:\n") {
		t.Error(out)
	}
}

// A line in which another program says what it has not checked is passed on, though the program ended well.
func TestNotChecked(t *testing.T) {
	var said, errs, kept bytes.Buffer
	r := &runner{root: t.TempDir(), goTool: os.Args[0], report: results.New(&said), stderr: &errs, log: &kept}
	run := one(part{name: "vuln", command: []string{"sh", "-c", "echo well; echo NOT CHECKED for something"}})
	r.all(t.Context(), run, &said)
	if errs.String() != "NOT CHECKED for something\n" || !strings.Contains(said.String(), "ok    vuln") {
		t.Errorf("passed on %q, said\n%s", &errs, &said)
	}
}

func TestInterruptEndsAll(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	t.Setenv(fakeGo, dir)
	var said, kept bytes.Buffer
	r := &runner{root: dir, goTool: os.Args[0], report: results.New(&said), stderr: io.Discard, log: &kept, grace: time.Millisecond}
	ended := make(chan int)
	go func() {
		ended <- r.all(ctx, append(one(part{name: "x"}, "hangs"), one(part{name: "y"}, "a")...), &said)
	}()
	wait.Until(t, time.Minute, func() bool {
		_, err := os.Stat(filepath.Join(dir, "locked"))
		return err == nil
	}, func() string { return "nothing hangs" })
	cancel()
	if code := <-ended; code != exitInterrupted {
		t.Errorf("ended with %d:\n%s", code, &said)
	}
	if calls, _ := os.ReadFile(filepath.Join(dir, "calls")); strings.Contains(string(calls), path("a")) {
		t.Errorf("went on with\n%s", calls)
	}
	wait.Until(t, time.Minute, func() bool { return lock(dir) }, func() string { return "a child of a child lives on" })
}
