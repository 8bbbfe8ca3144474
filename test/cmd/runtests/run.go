package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kielgo/kiel/test/internal/fuzz"
	"github.com/kielgo/kiel/test/internal/results"
)

// maxTries is how often a package runs at most: again only if the race detector crashed in it, and no test of it failed.
const maxTries = 3

// runner runs the parts of a plan.
type runner struct {
	root   string
	goTool string // the go command
	report *results.Report
	stderr io.Writer
	grace  time.Duration // how long children have to end after an interrupt

	mu    sync.Mutex
	log   io.Writer // what all children say, as JSON
	start time.Time
	spans []span

	interrupted []*exec.Cmd
}

// span tells when a part ran.
type span struct {
	name        string
	start, took time.Duration
}

// run runs all stages, even if one fails; what it learns is in the report.
func (r *runner) run(ctx context.Context, stages [][][]job) {
	r.start = time.Now()
	for _, lanes := range stages {
		var wg sync.WaitGroup
		for _, jobs := range lanes {
			wg.Go(func() {
				for _, j := range jobs {
					if ctx.Err() == nil {
						r.part(ctx, j)
					}
				}
			})
		}
		wg.Wait()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cmd := range r.interrupted {
		_ = kill(cmd) // what it has started and has not ended itself
	}
}

// part runs a part. Of a package in which the race detector crashed it runs again what had not passed.
func (r *runner) part(ctx context.Context, j job) {
	begin := time.Since(r.start)
	jobs := []job{j}
	for try := 1; len(jobs) > 0 && ctx.Err() == nil; try++ {
		var again []job
		for _, j := range jobs {
			run := r.report.Run(j.name, j.race && try < maxTries)
			for _, crash := range run.End(r.once(ctx, j, run)) {
				again = append(again, j.again(crash))
			}
		}
		jobs = again
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, span{j.name, begin, time.Since(r.start) - begin})
}

func (r *runner) once(ctx context.Context, j job, run *results.Run) error {
	out := &lines{take: func(line string) {
		run.Line(line)
		r.keep(j.name, line)
	}}
	defer out.flush()
	switch {
	case j.fuzzFor > 0:
		return r.fuzz(ctx, j, out)
	case j.command != nil:
		return r.other(ctx, j, out)
	}
	cmd := r.child(ctx, j, append([]string{r.goTool}, j.goTest()...))
	cmd.Stdout, cmd.Stderr = out, r.stderr
	return cmd.Run()
}

// fuzz runs the part's fuzz tests; all of the library, if it names none.
func (r *runner) fuzz(ctx context.Context, j job, out io.Writer) error {
	fuzzer := fuzz.Runner{
		Go: func(ctx context.Context, args ...string) *exec.Cmd {
			return r.child(ctx, j, append([]string{r.goTool}, args...))
		},
		Out: out, Stderr: r.stderr, Length: j.fuzzFor, Jobs: 2,
	}
	targets, err := fuzz.Parse(j.fuzz)
	if len(targets) == 0 && err == nil {
		targets, err = fuzzer.All(ctx)
	}
	if err != nil {
		return err
	}
	return fuzzer.Run(ctx, targets)
}

// again returns the job of one package in which the race detector crashed: the tests that had not passed as often as they are to.
func (j job) again(crash results.Crash) job {
	j.targets, j.jobs = []string{crash.Package}, 1
	if j.count > 1 || len(crash.Passed) == 0 {
		return j
	}
	const flag = "-skip="
	j.flags = slices.Clone(j.flags)
	i := slices.IndexFunc(j.flags, func(f string) bool { return strings.HasPrefix(f, flag) })
	if i < 0 {
		i = len(j.flags)
		j.flags = append(j.flags, flag)
	} else {
		j.flags[i] += "|"
	}
	j.flags[i] += "^" + strings.Join(crash.Passed, "$|^") + "$"
	return j
}

// goTest is the arguments of the go command. The checks of go vet are left to the linters, which have all of them.
func (j job) goTest() []string {
	args := []string{"test", "-json", "-vet=off", "-count=" + strconv.Itoa(max(j.count, 1)), "-timeout=" + j.timeout.String()}
	if j.race {
		args = append(args, "-race")
	}
	if j.shuffle {
		args = append(args, "-shuffle=on")
	}
	if j.jobs > 0 {
		args = append(args, "-p="+strconv.Itoa(j.jobs))
	}
	return slices.Concat(args, j.flags, j.targets, j.args)
}

// other runs a program that is not go test, as a package without tests.
func (r *runner) other(ctx context.Context, j job, out io.Writer) error {
	start := time.Now()
	cmd := r.child(ctx, j, j.command)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	event := func(action, output string) {
		e := struct {
			Action, Package, Output string
			Elapsed                 float64
		}{action, j.name, output, time.Since(start).Seconds()}
		if line, err := json.Marshal(e); err == nil { // as it always is
			fmt.Fprintf(out, "%s\n", line)
		}
	}
	event("start", "")
	err := cmd.Run()
	if err == nil {
		for line := range bytes.Lines(said.Bytes()) {
			if bytes.HasPrefix(line, []byte("NOT CHECKED")) { // what a command leaves out is not to be passed over in silence
				_, _ = r.stderr.Write(line) // nobody else could be told
			}
		}
		event("pass", "")
		return nil
	}
	for line := range bytes.Lines(said.Bytes()) {
		event("output", string(line))
	}
	event("output", err.Error()+"\n")
	event("fail", "")
	return err
}

// child makes a process that ends with ctx, and all that it starts: by an interrupt first.
func (r *runner) child(ctx context.Context, j job, args []string) *exec.Cmd {
	if j.low {
		args = niced(args)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), j.env...)
	inGroup(cmd)
	cmd.Cancel = func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.interrupted = append(r.interrupted, cmd)
		time.AfterFunc(r.grace, func() { _ = kill(cmd) }) // mostly there is nothing left
		return interrupt(cmd)
	}
	cmd.WaitDelay = 2 * r.grace
	return cmd
}

// keep writes a line to the log.
func (r *runner) keep(part, line string) {
	if !json.Valid([]byte(line)) || line[0] != '{' {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.log, `{"Part":%q,%s`+"\n", part, strings.TrimSpace(line[1:]))
}

// times prints when each part ran.
func (r *runner) times(out io.Writer) {
	fmt.Fprintln(out, "time per part:")
	slices.SortStableFunc(r.spans, func(a, b span) int { return int(a.start - b.start) })
	for _, s := range r.spans {
		fmt.Fprintf(out, "  %7.1fs %s, from %v\n", s.took.Seconds(), s.name, s.start.Round(time.Second))
	}
}

// lines is a writer that hands on whole lines.
type lines struct {
	take func(line string)
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 {
			return len(p), nil
		}
		l.take(string(l.rest[:end+1]))
		l.rest = l.rest[end+1:]
	}
}

func (l *lines) flush() {
	if len(l.rest) > 0 {
		l.take(string(l.rest))
	}
}
