// Command runtests runs the project's tests by a plan, see plan.go, and prints for humans what they say.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/kielgo/kiel/test/internal/results"
)

const (
	helpWidth   = 100
	description = `Runs the project's tests by a plan: stages one after the other, in each lanes at the same time, in each lane parts one after the other. A part is one call of go test with some packages, or a program such as the linters. Tests that need servers need "make setup" first, once.`
	more        = `Examples:
  runtests test                       all tests, as make test
  runtests test --list                what that would run, and why there
  runtests test --part=servers,chaos  these parts of it alone
  runtests soak --count=20 --first=7  20 rounds, with the seeds of 7
  runtests show out/test.json         print that run again

For each package it prints how it ended, its time, its number of tests and the figures that they report;
the whole output of what failed; and at the end the times of the parts, the slowest tests, and what failed.
All that the tests say is kept in out/<command>.json, as go test -json writes it, with the part's name.

A package in which the race detector itself crashed (golang/go#78156), and no test failed, runs again, twice
at most, without its tests that have passed. A test that fails is never repeated. A skipped test counts as failed. The plan of "test" must have
each package of all modules in go.work; one that is in no part, or in two, is an error.

Exit codes: 0 all well; 1 a test failed or was skipped, or none ran; 2 wrong usage, or a wrong plan; 130 interrupted.
An interrupt ends all that was started.
`
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// cli is the command line.
type cli struct {
	Test  testCmd  `cmd:"" help:"All tests, on real servers: what must pass before a change goes in."`
	Unit  unitCmd  `cmd:"" help:"The tests that need no servers, without the race detector."`
	Soak  soakCmd  `cmd:"" help:"The tests on real servers many times, their long cases once, long simulations and histories, fuzz tests and mutants."`
	Chaos chaosCmd `cmd:"" help:"Random faults on real processes and servers."`
	Sim   simCmd   `cmd:"" help:"Groups in virtual time under faults."`
	Fuzz  fuzzCmd  `cmd:"" help:"Fuzz tests of the library, each on one core, two at a time."`
	Show  showCmd  `cmd:"" help:"Print again what a run has kept, or what any go test -json has written."`

	Part []string `placeholder:"NAME" help:"Run these parts of the plan alone."`
	List bool     `help:"Print the plan, and run nothing."`
}

// planned is a command that has a plan.
type planned interface{ plan() plan }

type timeoutFlag struct {
	Timeout time.Duration `default:"15m" help:"Longest run of one package's tests (${default})."`
}

type testCmd struct{ timeoutFlag }

func (c testCmd) plan() plan { return testPlan(c.Timeout) }

type unitCmd struct{ timeoutFlag }

func (c unitCmd) plan() plan { return plan{{{unit(c.Timeout, false)}}} }

type soakCmd struct {
	Count int `default:"10" help:"How often the tests on servers run, and how long simulations and histories (${default})."`
	First int `default:"1" help:"Seeds of the simulations and histories to begin with (${default})."`
}

func (c soakCmd) plan() plan { return soakPlan(c.Count, c.First) }

type chaosCmd struct {
	Minutes float64 `default:"10" help:"For how long (${default})."`
	Seed    uint64  `default:"0" help:"Take the steps of this seed; 0: of a new one, which is printed."`
}

func (c chaosCmd) plan() plan { return chaosPlan(c.Minutes, c.Seed) }

type simCmd struct {
	Days  float64 `default:"100" help:"Group-days to run (${default})."`
	First int     `default:"1" help:"The first one's seed (${default})."`
}

func (c simCmd) plan() plan { return plan{{{days(c.Days, c.First)}}} }

type fuzzCmd struct {
	Time time.Duration `default:"5m" help:"For how long each (${default})."`
	Test []string      `arg:"" optional:"" placeholder:"PACKAGE.FuzzNAME" help:"Which, such as ./session.FuzzFrames; all, if none is named."`
}

func (c fuzzCmd) plan() plan {
	return plan{{{{name: "fuzz", fuzz: c.Test, fuzzFor: c.Time, why: "inputs that nobody thought of"}}}}
}

type showCmd struct {
	File string `arg:"" default:"-" help:"File to read; - or none: standard input."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop() // the next signal ends us at once
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	var flags cli
	helped := false
	parser, err := kong.New(&flags, kong.Name("runtests"), kong.Description(description), kong.Writers(out, errOut),
		kong.Exit(func(int) { helped = true }), kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: helpWidth}), kong.Help(help))
	if err != nil {
		fmt.Fprintln(errOut, "runtests:", err)
		return exitUsage
	}
	kctx, err := parser.Parse(args)
	if helped {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(errOut, "runtests: %v\nTry 'runtests --help'.\n", err)
		return exitUsage
	}
	command := kctx.Selected()
	if c, ok := reflect.TypeAssert[planned](command.Target.Addr()); ok {
		return flags.run(ctx, command.Name, c.plan(), out, errOut)
	}
	return flags.Show.show(in, out, errOut)
}

// help prints kong's help and, for the whole program, more.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	if ctx.Selected() == nil {
		fmt.Fprint(ctx.Stdout, "\n"+more)
	}
	return nil
}

// run runs a plan, or prints it.
func (c *cli) run(ctx context.Context, name string, p plan, out, errOut io.Writer) int {
	root, err := workspace(ctx)
	var all map[string]kind
	if err == nil {
		all, err = packages(ctx, root)
	}
	var stages [][][]job
	if err == nil {
		stages, err = p.resolve(all, name == "test")
	}
	if err == nil {
		stages, err = only(stages, c.Part)
	}
	if err != nil {
		fmt.Fprintln(errOut, "runtests:", err)
		return exitUsage
	}
	if c.List {
		printPlan(out, stages)
		return exitOK
	}
	dir := filepath.Join(root, "out")
	err = os.MkdirAll(dir, 0o750)
	var log *os.File
	if err == nil {
		log, err = os.Create(filepath.Join(dir, name+".json"))
	}
	if err != nil {
		fmt.Fprintln(errOut, "runtests:", err)
		return exitFailed
	}
	r := &runner{root: root, goTool: "go", report: results.New(out), stderr: errOut, log: log, grace: 10 * time.Second}
	code := r.all(ctx, stages, out)
	if err := log.Close(); err != nil {
		fmt.Fprintln(errOut, "runtests:", err)
		return exitFailed
	}
	return code
}

// all runs all stages and prints the end; it returns the exit code.
func (r *runner) all(ctx context.Context, stages [][][]job, out io.Writer) int {
	r.run(ctx, stages)
	r.times(out)
	if ctx.Err() != nil {
		fmt.Fprintln(out, "INTERRUPTED: what did not run or end is not tested")
	}
	well := r.report.Summary(time.Since(r.start))
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case !well:
		return exitFailed
	}
	return exitOK
}

// only leaves the parts of these names, if there are any.
func only(stages [][][]job, names []string) ([][][]job, error) {
	if len(names) == 0 {
		return stages, nil
	}
	found := map[string]bool{}
	for _, lanes := range stages {
		for i, jobs := range lanes {
			lanes[i] = slices.DeleteFunc(jobs, func(j job) bool {
				found[j.name] = true
				return !slices.Contains(names, j.name)
			})
		}
	}
	for _, name := range names {
		if !found[name] {
			return nil, fmt.Errorf("no part is called %s; see --list", name)
		}
	}
	return stages, nil
}

func printPlan(out io.Writer, stages [][][]job) {
	for i, lanes := range stages {
		if len(slices.Concat(lanes...)) > 0 {
			fmt.Fprintf(out, "stage %d\n", i+1)
		}
		for k, jobs := range lanes {
			for _, j := range jobs {
				beside := ""
				if k > 0 && len(lanes[0]) > 0 {
					beside = ", beside " + lanes[0][0].name
				}
				fmt.Fprintf(out, "  %s%s: %s\n      %s\n", j.name, beside, j.why, j.line())
			}
		}
	}
}

// line is the part's command, for humans.
func (j job) line() string {
	args := j.command
	switch {
	case j.fuzzFor > 0:
		args = slices.Concat([]string{"go", "test", "-fuzz", "for", j.fuzzFor.String()}, j.fuzz)
	case args == nil:
		args = append([]string{"go"}, j.goTest()...)
	}
	if j.low {
		args = niced(args)
	}
	return strings.Join(slices.Concat(j.env, args), " ")
}

func (c showCmd) show(in io.Reader, out, errOut io.Writer) int {
	if c.File != "-" {
		text, err := os.ReadFile(c.File)
		if err != nil {
			fmt.Fprintln(errOut, "runtests:", err)
			return exitUsage
		}
		in = bytes.NewReader(text)
	}
	report := results.New(out)
	run := report.Run(c.File, false)
	if err := run.Read(in); err != nil {
		fmt.Fprintln(errOut, "runtests:", err)
		return exitFailed
	}
	run.End(nil)
	if !report.Summary(0) {
		return exitFailed
	}
	return exitOK
}
