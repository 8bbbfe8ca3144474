package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// trial is what came of a mutant.
type trial struct {
	err       error // why it was not killed as it says
	output    string
	took, cpu time.Duration
	runs      int  // of the test that ran most often until it failed as the mutant says
	harmless  bool // no test has to fail
}

// word is a trial in a word, or in a few.
func (t trial) word() string {
	switch {
	case t.err != nil:
		return "FAILED"
	case t.harmless:
		return "harmless"
	case t.runs > 1:
		return fmt.Sprintf("killed in run %d", t.runs)
	default:
		return "killed"
	}
}

// kill applies a mutant and runs its tests, until one does not end as the mutant says.
func (c *cli) kill(ctx context.Context, m *mutant) (t trial) {
	began := time.Now()
	defer func() { t.took, t.harmless = time.Since(began), m.harmless() }()
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return trial{err: err}
	}
	defer func() { t.err = errors.Join(t.err, os.RemoveAll(dir)) }()
	root, err := filepath.Abs(c.Root)
	if err != nil {
		return trial{err: err}
	}
	overlay, err := m.overlay(root, dir)
	if err != nil {
		return trial{err: fmt.Errorf("the patch does not apply: %w", err)}
	}
	for _, k := range m.tests {
		if err := c.runUntilKilled(ctx, root, overlay, k, &t); err != nil {
			t.err = fmt.Errorf("%s %s: %w", k.pkg, k.name, err)
			return t
		}
	}
	return t
}

// maxRuns is how often a test may run until it fails as the mutant says. Which goroutine comes first in one virtual instant is
// not always the same, so a test may meet the mutant in some runs only. A test that must stay green runs once.
const maxRuns = 10

// runUntilKilled runs a test until it ends as the mutant says, maxRuns times at most, and adds the runs to t. The error is that
// of the last run.
func (c *cli) runUntilKilled(ctx context.Context, root, overlay string, k test, t *trial) error {
	for run := 1; ; run++ {
		r, err := c.runTest(ctx, root, overlay, k)
		t.cpu += r.cpu
		t.output += r.text()
		if err != nil {
			return err
		}
		err = r.judge(k)
		if err == nil {
			t.runs = max(t.runs, run)
			return nil
		}
		if _, again := errors.AsType[survived](err); !again || run == maxRuns {
			return err
		}
	}
}

// survived is the error that a test did not fail as the mutant says, and may do so in another run.
type survived struct{ error }

// overlay writes the file that go's -overlay reads.
func (m *mutant) overlay(root, dir string) (file string, err error) {
	replaced, err := m.apply(root, dir)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o600)
}

// result is what go test wrote.
type result struct {
	output map[string]string // by test; "" is the package's own, and what the compiler wrote
	ended  map[string]string // how: pass, fail or skip
	built  bool
	cpu    time.Duration
}

// text is all of it.
func (r result) text() string {
	var b strings.Builder
	b.WriteString(r.output[""])
	for name, text := range r.output {
		if name != "" {
			b.WriteString(text)
		}
	}
	return b.String()
}

// runTest runs a test with the mutant. The error is that there is no result.
func (c *cli) runTest(ctx context.Context, root, overlay string, k test) (result, error) {
	// A mutant may be bad style, too: that is no reason for the test to fail.
	args := []string{"test", "-json", "-vet=off", "-count=1", "-overlay=" + overlay, "-timeout=" + c.Timeout.String(), "-run=" + k.pattern(), k.pkg}
	cmd := exec.CommandContext(ctx, "go", append(args, k.args...)...)
	cmd.Dir = root
	cmd.WaitDelay = time.Second
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended || ctx.Err() != nil {
		return result{}, errors.Join(err, ctx.Err())
	}
	r := parse(out.Bytes())
	r.output[""] += errOut.String()
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r, nil
}

// parse reads what go test -json wrote; see go doc test2json and go help buildjson.
func parse(out []byte) result {
	r := result{output: map[string]string{}, ended: map[string]string{}, built: true}
	for line := range bytes.Lines(out) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(line, &e) != nil {
			r.output[""] += string(line)
			continue
		}
		r.output[e.Test] += e.Output
		switch e.Action {
		case "build-fail":
			r.built = false
		case "pass", "fail", "skip":
			r.ended[e.Test] = e.Action
		}
	}
	return r
}

// judge says why a test did not end as it must.
func (r result) judge(k test) error {
	switch how, ran := r.ended[k.name]; {
	case !r.built:
		return errors.New("it does not build")
	case !ran && r.ended[""] == "pass":
		return errors.New("there is no such test")
	case !ran:
		return errors.New("the test did not end")
	case how == "skip":
		return errors.New("the test was skipped")
	case k.green && how == "fail":
		return errors.New("it must stay green and failed")
	case k.green:
		return nil
	case how == "pass":
		return survived{fmt.Errorf("the test stays green in %d runs", maxRuns)}
	}
	for name, text := range r.output {
		if name != "" && r.ended[name] == "fail" && strings.Contains(text, k.says) {
			return nil
		}
	}
	return survived{fmt.Errorf("it fails otherwise in %d runs: nothing says %q", maxRuns, k.says)}
}
