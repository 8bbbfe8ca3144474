// Package fuzz runs fuzz tests, some at a time, and writes what `go test -json` writes, for package results to read. It adds the
// number of calls as an attribute, and the input of a failure, which go test leaves in a file.
package fuzz

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Runner runs fuzz tests.
type Runner struct {
	Go     func(ctx context.Context, args ...string) *exec.Cmd // makes a go command that ends with ctx
	Out    io.Writer                                           // for what go test says in JSON, by one goroutine at a time
	Stderr io.Writer
	Length time.Duration // how long to run each
	Jobs   int           // how many to run at a time, each on one core
}

// Target is one fuzz test.
type Target struct{ Package, Name string }

// Parse reads names such as ./session.FuzzFrames.
func Parse(args []string) (targets []Target, err error) {
	for _, arg := range args {
		pkg, name, ok := cutLast(arg, ".")
		if !ok || !strings.HasPrefix(name, "Fuzz") {
			return nil, fmt.Errorf("%s is not <package>.Fuzz<name>", arg)
		}
		targets = append(targets, Target{pkg, name})
	}
	return targets, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// All finds the fuzz tests of the module of the working directory.
func (r Runner) All(ctx context.Context) (targets []Target, err error) {
	const format = `{{$p := .}}{{range .TestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}
{{end}}{{range .XTestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}
{{end}}`
	out, err := r.Go(ctx, "list", "-f", format, "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	fuzz := regexp.MustCompile(`(?m)^func (Fuzz\w*)\(`)
	for line := range strings.Lines(string(out)) {
		pkg, file, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, found := range fuzz.FindAllSubmatch(source, -1) {
			targets = append(targets, Target{pkg, string(found[1])})
		}
	}
	return targets, nil
}

var errFailed = errors.New("a fuzz test failed, or there was none")

// Run runs the targets. What each writes stays together.
func (r Runner) Run(ctx context.Context, targets []Target) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	well := len(targets) > 0
	free := make(chan struct{}, r.Jobs)
	for _, t := range targets {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			var written bytes.Buffer
			err := r.one(ctx, &written, t)
			for try := 1; try < tries && err != nil && cutShort(written.Bytes()); try++ {
				written.Reset()
				err = r.one(ctx, &written, t)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				well = false
				if !bytes.Contains(written.Bytes(), []byte(`"Action":"fail"`)) {
					write(&written, event{Action: "output", Package: t.Package, Test: t.Name, Output: err.Error() + "\n"})
					write(&written, event{Action: "fail", Package: t.Package, Test: t.Name})
				}
			}
			if _, err := written.WriteTo(r.Out); err != nil {
				well = false
			}
		})
	}
	wg.Wait()
	if !well {
		return errFailed
	}
	return nil
}

// tries is how often a fuzz test is run at most that go test itself has ended badly.
const tries = 3

// cutShort says whether go test failed because its own time to fuzz was over at the wrong moment (golang/go#75804), and not
// because of any input.
func cutShort(written []byte) bool {
	return bytes.Contains(written, []byte("context deadline exceeded")) && !bytes.Contains(written, []byte("Failing input"))
}

func (r Runner) one(ctx context.Context, out io.Writer, t Target) error {
	dir, err := r.Go(ctx, "list", "-f", "{{.Dir}}", t.Package).Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	cmd := r.Go(ctx, "test", "-json", "-run=^$", "-fuzz=^"+t.Name+"$", "-fuzztime="+r.Length.String(), "-parallel=1", t.Package)
	cmd.Stderr = r.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	relayed := t.relay(out, stdout, strings.TrimSpace(string(dir)))
	return errors.Join(relayed, cmd.Wait())
}

// event is what of a line is of interest here.
type event struct {
	Action, Package, Test string
	Output                string `json:",omitempty"`
	Key                   string `json:",omitempty"`
	Value                 string `json:",omitempty"`
}

// What go test says while it fuzzes.
var (
	executed = regexp.MustCompile(`execs: (\d+)`)
	failing  = regexp.MustCompile(`Failing input written to (\S+)`)
)

// relay copies go test's output, and adds what is only in it for humans.
func (t Target) relay(out io.Writer, in io.Reader, dir string) error {
	lines := bufio.NewReader(in)
	execs := "0"
	for {
		line, err := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil {
			if found := executed.FindStringSubmatch(e.Output); found != nil {
				execs = found[1]
			}
			if e.Test == "" && (e.Action == "pass" || e.Action == "fail") {
				write(out, event{Action: "attr", Package: e.Package, Test: t.Name, Key: "execs", Value: execs})
			}
		}
		if _, err := io.WriteString(out, line); err != nil {
			return err
		}
		if found := failing.FindStringSubmatch(e.Output); found != nil {
			input, err := os.ReadFile(filepath.Join(dir, found[1]))
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(input)) {
				write(out, event{Action: "output", Package: e.Package, Test: t.Name, Output: "    " + strings.TrimSuffix(line, "\n") + "\n"})
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read go test's output: %w", err)
		}
	}
}

func write(out io.Writer, e event) {
	line, err := json.Marshal(e)
	if err != nil {
		return // strings always can be
	}
	fmt.Fprintf(out, "%s\n", line)
}
