// Command mutants shows what each safety rule is for: it breaks the library by one patch at a time, and the test that the patch
// names must fail as the patch says. The patches are test/mutants/*.patch; test/mutants/README.md says how to write one.
//
//	go run ./test/cmd/mutants --run '^session'
//
// A patch is applied to copies, which `go test -overlay` compiles in place of the files: the working tree stays as it is.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // a test did not end as a patch says
	exitUsage  = 2
)

const (
	helpWidth   = 80
	description = `Breaks the library by one patch at a time and runs the tests that the patch names: they must fail as it says, or stay green if it says so. The working tree stays as it is. A mutant is a patch in test/mutants; test/mutants/README.md says how to write one.`
	examples    = `
Examples (in the repository's directory):
  mutants                      all mutants
  mutants --run '^session-'    those whose names match
  mutants --list               what there is: each rule, and what is wrong without it
  mutants --run quorum -v      with what go test wrote

A mutant passes when each of its tests fails and writes the line that the patch
expects; a test has 10 runs for that. It fails when
  its patch does not apply    the lines are not in the file, or there twice
  it does not build
  a test stays green          nothing notices that the rule is gone
  a test fails otherwise      in another way than the patch says
  a green test fails          the patch says that another rule is enough for it
Exit codes: 0 all tests ended as said; 1 one did not; 2 bad usage.
`
)

// cli is the command line.
type cli struct {
	Run      string        `placeholder:"REGEXP" help:"Only mutants whose names match."`
	List     bool          `help:"Print the mutants and run none."`
	Parallel int           `default:"2" short:"p" help:"How many to run at a time (${default})."`
	Timeout  time.Duration `default:"10m" help:"How long a test may run (${default})."`
	Verbose  bool          `short:"v" help:"Print what go test wrote, of those that were killed too."`
	Root     string        `default:"." type:"existingdir" placeholder:"DIR" help:"The repository (${default})."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	var flags cli
	helped := false
	parser, err := kong.New(&flags,
		kong.Name("mutants"),
		kong.Description(description),
		kong.Writers(out, errOut),
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: helpWidth}),
		kong.Help(helpWithExamples),
	)
	if err != nil {
		fmt.Fprintln(errOut, "mutants:", err)
		return exitFailed
	}
	_, err = parser.Parse(args)
	if helped {
		return exitOK
	}
	var chosen *regexp.Regexp
	if err == nil {
		chosen, err = regexp.Compile(flags.Run)
	}
	if err != nil {
		fmt.Fprintf(errOut, "mutants: %v\nTry 'mutants --help'.\n", err)
		return exitUsage
	}
	mutants, err := load(flags.Root, chosen)
	if err != nil {
		fmt.Fprintln(errOut, "mutants:", err)
		return exitFailed
	}
	if flags.List {
		list(out, mutants)
		return exitOK
	}
	if !flags.try(ctx, out, mutants) {
		return exitFailed
	}
	return exitOK
}

// helpWithExamples prints kong's help and examples.
func helpWithExamples(options kong.HelpOptions, ctx *kong.Context) error {
	err := kong.DefaultHelpPrinter(options, ctx)
	fmt.Fprint(ctx.Stdout, examples)
	return err
}

// load reads the mutants whose names match.
func load(root string, chosen *regexp.Regexp) ([]*mutant, error) {
	files, err := filepath.Glob(filepath.Join(root, "test", "mutants", "*"+suffix))
	if err != nil {
		return nil, err
	}
	var mutants []*mutant
	var errs []error
	for _, file := range files {
		if m, err := read(file); err != nil {
			errs = append(errs, err)
		} else if chosen.MatchString(m.name) {
			mutants = append(mutants, m)
		}
	}
	if len(errs) == 0 && len(mutants) == 0 {
		errs = append(errs, errors.New("no such mutant: see mutants --list"))
	}
	return mutants, errors.Join(errs...)
}

func list(out io.Writer, mutants []*mutant) {
	for _, m := range mutants {
		fmt.Fprintf(out, "%s\n  rule: %s\n  harm: %s\n", m.name, m.rule, m.harm)
		for _, k := range m.tests {
			fmt.Fprintf(out, "  test: %s\n", k)
		}
	}
}

// try runs mutants, prints what came of them, and reports whether all tests ended as the mutants say.
func (c *cli) try(ctx context.Context, out io.Writer, mutants []*mutant) bool {
	began := time.Now()
	trials := make([]trial, len(mutants))
	var wg sync.WaitGroup
	var mu sync.Mutex
	free := make(chan struct{}, max(c.Parallel, 1))
	done := 0
	for i, m := range mutants {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			t := c.kill(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			trials[i] = t
			done++
			fmt.Fprintf(out, "[%d/%d] %s: %s (%s)\n", done, len(mutants), m.name, t.word(), seconds(t.took))
			if t.err != nil {
				fmt.Fprintf(out, "    %v\n", t.err)
			}
			if t.err != nil || c.Verbose {
				fmt.Fprintln(out, t.output)
			}
		})
	}
	wg.Wait()
	return summary(out, mutants, trials, time.Since(began))
}

// summary prints a table of what came of all.
func summary(out io.Writer, mutants []*mutant, trials []trial, took time.Duration) bool {
	asSaid := 0
	var cpu time.Duration
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nmutant\tresult\ttime\tCPU")
	for i, t := range trials {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", mutants[i].name, t.word(), seconds(t.took), seconds(t.cpu))
		cpu += t.cpu
		if t.err == nil {
			asSaid++
		}
	}
	_ = w.Flush() // what can't be written to a terminal, can be told to nobody
	fmt.Fprintf(out, "%d of %d mutants ended as they say, in %s, %s of CPU\n", asSaid, len(trials), seconds(took), seconds(cpu))
	return asSaid == len(trials)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
