// Command results reads what `go test -json` writes and prints it for humans: a line per package, the whole output of what
// failed, the figures that tests report by T.Attr, and at the end a summary. It exits with 1 when a test failed, when none
// ran, and when one was skipped: what was not tested does not count as tested.
//
// The race detector of Go 1.26 sometimes fails in a synctest bubble and ends the process
// (golang/go#78156). With -again FILE, a package that ended so is not a failure: its name is written to FILE, for it to be
// tested again.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	start := time.Now()
	again := flag.String("again", "", "`file` for the names of packages whose race detector crashed; they do not count as failed")
	flag.Parse()
	r := newReport(os.Stdout)
	r.forgive = *again != ""
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
	well := r.summary(time.Since(start))
	if r.forgive {
		if err := os.WriteFile(*again, []byte(strings.Join(r.crashed, "\n")), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "results:", err)
			well = false
		}
	}
	if !well {
		os.Exit(1)
	}
}

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

type report struct {
	out     io.Writer
	output  map[test][]string // of running tests; name "" is the package's own
	built   map[string][]string
	figures map[string][]string // of running packages
	times   map[test]float64    // of tests without subtests
	tests   map[string]int      // of running packages
	total   int
	failed  []test
	skipped []test
	forgive bool            // of crashed
	crashed []string        // packages whose race detector crashed
	open    map[string]bool // packages that have begun and not ended
}

func newReport(out io.Writer) *report {
	return &report{
		out:     out,
		output:  make(map[test][]string),
		built:   make(map[string][]string),
		figures: make(map[string][]string),
		times:   make(map[test]float64),
		tests:   make(map[string]int),
		open:    make(map[string]bool),
	}
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
				r.add(e)
			} else {
				fmt.Fprint(r.out, line) // the go command itself, as it likes to speak
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

func (r *report) add(e event) {
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

func (r *report) endTest(e event) {
	t := test{e.Package, e.Test}
	r.times[t] = e.Elapsed
	r.tests[e.Package]++
	r.total++
	switch e.Action {
	case "fail":
		r.failed = append(r.failed, t)
		r.print(r.output[t])
	case "skip":
		r.skipped = append(r.skipped, t)
		r.print(r.output[t])
	}
	delete(r.output, t)
}

func (r *report) endPackage(e event) {
	delete(r.open, e.Package)
	switch e.Action {
	case "skip":
		fmt.Fprintf(r.out, "?     %-44s no tests\n", e.Package)
	case "pass":
		fmt.Fprintf(r.out, "ok    %-44s %7.1fs %5d tests\n", e.Package, e.Elapsed, r.tests[e.Package])
	case "fail":
		failed := slices.ContainsFunc(r.failed, func(t test) bool { return t.pkg == e.Package })
		if r.forgive && !failed && r.hasCrashed(e.Package) {
			r.crashed = append(r.crashed, e.Package)
			fmt.Fprintf(r.out, "AGAIN %-44s %7.1fs the race detector crashed (golang/go#78156), not the tests\n", e.Package, e.Elapsed)
			break
		}
		if !failed {
			r.failed = append(r.failed, test{e.Package, "(as a whole)"})
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
func (r *report) hasCrashed(pkg string) bool {
	return slices.ContainsFunc(r.unfinished(pkg), func(t test) bool {
		return slices.ContainsFunc(r.output[t], func(line string) bool {
			return slices.ContainsFunc(crashes, func(crash string) bool { return strings.HasPrefix(line, crash) })
		})
	})
}

func (r *report) unfinished(pkg string) []test {
	var list []test
	for t := range r.output {
		if t.pkg == pkg {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b test) int { return strings.Compare(b.name, a.name) })
	return list
}

func (r *report) print(lines []string) {
	for _, line := range lines {
		if line != "FAIL\n" && !strings.HasPrefix(line, "FAIL\t") { // we say it ourselves
			fmt.Fprint(r.out, line)
		}
	}
}

// summary prints the end and tells if all is well.
func (r *report) summary(took time.Duration) bool {
	r.slowest(10)
	list := func(what string, tests []test) {
		for _, t := range tests {
			fmt.Fprintf(r.out, "%s: %s %s\n", what, t.pkg, t.name)
		}
	}
	list("FAILED", r.failed)
	list("SKIPPED (counts as failed)", r.skipped)
	for pkg := range r.open {
		fmt.Fprintf(r.out, "FAILED: %s never ended\n", pkg)
	}
	well := len(r.failed)+len(r.skipped)+len(r.open) == 0 && r.total > 0
	verdict := "FAIL"
	if well {
		verdict = "PASS"
	}
	fmt.Fprintf(r.out, "%s: %d tests, %d failed, %d skipped, in %v\n",
		verdict, r.total, len(r.failed)+len(r.open), len(r.skipped), took.Round(time.Second))
	return well
}

func (r *report) slowest(n int) {
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
