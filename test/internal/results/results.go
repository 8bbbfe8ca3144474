// Package results reads what `go test -json` writes and prints it for humans: a line per package, the whole output of what
// failed, the figures that tests report by T.Attr, and at the end a summary. All is well when no test failed, one ran at least,
// and none was skipped: what was not tested does not count as tested.
//
// The race detector of Go 1.26 sometimes fails in a synctest bubble and ends the process (golang/go#78156). A package that ended
// so is not a failure of a run that may be repeated: Run.End names it.
package results

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// crashes are how a process ends in which the race detector failed, instead of finding a race: by a check of its own, or by a
// fault outside of Go code, which Go reports with the processor's registers. Our code has no part that is not Go.
var crashes = []string{"ThreadSanitizer: CHECK failed", "SIGSEGV: segmentation violation"}

// event is one line, see `go doc test2json` and `go help buildjson`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build events
	FailedBuild string // of a package's failure: whose build events tell why
	Test        string
	Output      string
	Elapsed     float64 // seconds
	Key, Value  string  // of attributes
}

type test struct{ pkg, name string }

// Report is what some runs have told. Their lines may come at the same time.
type Report struct {
	mu      sync.Mutex
	out     io.Writer
	times   map[test]float64 // of tests without subtests
	total   int
	failed  []test
	why     map[test][]string // of failed tests
	skipped []test
}

// New returns a Report that prints to out.
func New(out io.Writer) *Report {
	return &Report{out: out, times: make(map[test]float64), why: make(map[test][]string)}
}

// Run is one run of go test.
type Run struct {
	*Report
	name    string
	forgive bool                // of crashed
	bad     map[string]bool     // packages that failed, or a test of theirs did
	output  map[test][]string   // of running tests; name "" is the package's own
	built   map[string][]string // what building a package said
	figures map[string][]string // of running packages
	tests   map[string]int      // of running packages
	passed  map[string][]string // of running packages: tests, not subtests
	open    map[string]bool     // packages that have begun and not ended
	crashed []Crash
}

// Crash is a package whose process the race detector has ended.
type Crash struct {
	Package string
	Passed  []string // its tests that had passed before
}

// Run begins a run of that name. If it may be repeated, crashes of the race detector do not count as failures.
func (r *Report) Run(name string, repeatable bool) *Run {
	return &Run{
		Report: r, name: name, forgive: repeatable,
		output:  make(map[test][]string),
		built:   make(map[string][]string),
		figures: make(map[string][]string),
		tests:   make(map[string]int),
		passed:  make(map[string][]string),
		open:    make(map[string]bool),
		bad:     make(map[string]bool),
	}
}

// Read takes all lines of in.
func (r *Run) Read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.Line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read go test's output: %w", err)
		}
	}
}

// Line takes a line that go test has written.
func (r *Run) Line(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e event
	if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
		r.add(e)
	} else {
		fmt.Fprint(r.out, line) // the go command itself, as it likes to speak
	}
}

// End ends the run, with the error of its process. It returns the crashes of the race detector, if the run may be
// repeated. A bad end that no event explains is a failure.
func (r *Run) End(err error) []Crash {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pkg := range r.open {
		r.fail(test{pkg, "never ended"})
	}
	if err != nil && len(r.bad) == 0 && len(r.crashed) == 0 {
		r.fail(test{r.name, err.Error()})
	}
	return r.crashed
}

func (r *Run) fail(t test) {
	r.bad[t.pkg] = true
	r.failed = append(r.failed, t)
}

func (r *Run) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "start":
		r.open[e.Package] = true
	case "build-output":
		r.built[e.ImportPath] = append(r.built[e.ImportPath], e.Output)
	case "output":
		r.output[t] = append(r.output[t], e.Output)
	case "attr":
		r.figures[e.Package] = append(r.figures[e.Package], fmt.Sprintf("%s: %s = %s", e.Test, e.Key, e.Value))
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(e)
		}
	}
}

func (r *Run) endTest(e event) {
	t := test{e.Package, e.Test}
	r.times[t] = e.Elapsed
	r.tests[e.Package]++
	r.total++
	switch e.Action {
	case "pass":
		if !strings.Contains(e.Test, "/") {
			r.passed[e.Package] = append(r.passed[e.Package], e.Test)
		}
	case "fail":
		r.fail(t)
		r.why[t] = remarks(r.output[t])
		r.print(r.output[t])
	case "skip":
		r.skipped = append(r.skipped, t)
		r.print(r.output[t])
	}
	delete(r.output, t)
}

// The summary repeats at most maxRemarks lines of a failed test, each cut to maxRemark bytes.
const (
	maxRemarks = 12
	maxRemark  = 400
)

// place finds the file and line that a test's output names in front of what it logs.
var place = regexp.MustCompile(`^\s+\w+\.go:\d+: `)

// remarks returns the lines of a test's output that most likely say why it failed, the last ones if there are many: those from
// places that spoke at most twice. Go's output does not tell errors from what is only logged, and the logs of a long test come
// from few places.
func remarks(output []string) []string {
	spoke := map[string]int{}
	for _, line := range output {
		spoke[place.FindString(line)]++
	}
	var rare []string
	for _, line := range output {
		if p := place.FindString(line); p != "" && spoke[p] <= 2 {
			rare = append(rare, line)
		}
	}
	return rare[max(0, len(rare)-maxRemarks):]
}

func (r *Run) endPackage(e event) {
	delete(r.open, e.Package)
	switch e.Action {
	case "skip":
		fmt.Fprintf(r.out, "?     %-44s no tests\n", e.Package)
	case "pass":
		fmt.Fprintf(r.out, "ok    %-44s %7.1fs %5d tests\n", e.Package, e.Elapsed, r.tests[e.Package])
	case "fail":
		failed := r.bad[e.Package]
		if r.forgive && !failed && r.hasCrashed(e.Package) {
			r.crashed = append(r.crashed, Crash{e.Package, r.passed[e.Package]})
			fmt.Fprintf(r.out, "AGAIN %-44s %7.1fs the race detector crashed (golang/go#78156), not the tests\n", e.Package, e.Elapsed)
			break
		}
		if !failed {
			r.fail(test{e.Package, "(as a whole)"})
		}
		r.print(r.built[e.FailedBuild])
		for _, t := range r.unfinished(e.Package) {
			r.print(r.output[t]) // what it was at when it panicked or time was up
		}
		fmt.Fprintf(r.out, "FAIL  %-44s %7.1fs %5d tests\n", e.Package, e.Elapsed, r.tests[e.Package])
	}
	for _, figure := range r.figures[e.Package] {
		fmt.Fprintf(r.out, "      %s\n", figure)
	}
	for _, t := range r.unfinished(e.Package) {
		delete(r.output, t)
	}
}

// hasCrashed tells if the race detector ended the package's process.
func (r *Run) hasCrashed(pkg string) bool {
	return slices.ContainsFunc(r.unfinished(pkg), func(t test) bool {
		return slices.ContainsFunc(r.output[t], func(line string) bool {
			return slices.ContainsFunc(crashes, func(crash string) bool { return strings.HasPrefix(line, crash) })
		})
	})
}

func (r *Run) unfinished(pkg string) []test {
	var list []test
	for t := range r.output {
		if t.pkg == pkg {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b test) int { return strings.Compare(b.name, a.name) })
	return list
}

func (r *Run) print(lines []string) {
	for _, line := range lines {
		if line != "FAIL\n" && !strings.HasPrefix(line, "FAIL\t") { // we say it ourselves
			fmt.Fprint(r.out, line)
		}
	}
}

// Summary prints the end and tells if all is well.
func (r *Report) Summary(took time.Duration) bool {
	r.slowest(10)
	list := func(what string, tests []test) {
		for _, t := range tests {
			fmt.Fprintf(r.out, "%s: %s %s\n", what, t.pkg, t.name)
		}
	}
	list("FAILED", r.failed)
	for _, t := range r.failed {
		for _, line := range r.why[t] {
			fmt.Fprintf(r.out, "%s: %.*s\n", t.name, maxRemark, strings.TrimSpace(line))
		}
	}
	list("SKIPPED (counts as failed)", r.skipped)
	well := len(r.failed)+len(r.skipped) == 0 && r.total > 0
	verdict := "FAIL"
	if well {
		verdict = "PASS"
	}
	fmt.Fprintf(r.out, "%s: %d tests, %d failed, %d skipped, in %v\n",
		verdict, r.total, len(r.failed), len(r.skipped), took.Round(time.Second))
	return well
}

func (r *Report) slowest(n int) {
	var tests []test
	for t, seconds := range r.times {
		if seconds >= 1 && !strings.Contains(t.name, "/") {
			tests = append(tests, t)
		}
	}
	slices.SortFunc(tests, func(a, b test) int { return cmp.Compare(r.times[b], r.times[a]) })
	if len(tests) == 0 {
		return
	}
	fmt.Fprintln(r.out, "the slowest tests:")
	for _, t := range tests[:min(n, len(tests))] {
		fmt.Fprintf(r.out, "  %7.1fs %s %s\n", r.times[t], t.pkg, t.name)
	}
}
