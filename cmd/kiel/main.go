// Command kiel shows groups of kiel to whoever is on call: their members, partitions and offsets, what is wrong with them, and
// what to do.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/internal/plain"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the command failed, or doctor has found a problem
	exitUsage  = 2 // bad flags
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	os.Exit(code)
}

// errProblems makes doctor's exit code without a message of its own: its output has said all.
var errProblems = errors.New("problems were found")

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	var flags cli
	helped := false
	parser, err := kong.New(&flags,
		kong.Name("kiel"),
		kong.Description(description),
		kong.Writers(out, errOut),
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: helpWidth, Compact: true}),
		kong.Help(helpWithExamples),
		kong.Vars{"version": connect.Version("kiel")},
		kong.UsageOnError(),
	)
	if err != nil {
		fmt.Fprintln(errOut, "kiel:", err)
		return exitFailed
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	kctx, err := parser.Parse(args)
	if helped {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(errOut, "kiel: %s\nTry 'kiel --help'.\n", plain.Text(err.Error()))
		return exitUsage
	}
	err = kctx.Run(&app{Context: ctx, sourceFlags: flags.sourceFlags, given: given(kctx), out: newPrinter(out), err: errOut})
	usage, isUsage := errors.AsType[*connect.UsageError](err)
	switch {
	case err == nil:
		return exitOK
	case isUsage:
		fmt.Fprintf(errOut, "kiel: %s\nTry 'kiel --help'.\n", oneLine(usage))
		return exitUsage
	case !errors.Is(err, errProblems):
		fmt.Fprintln(errOut, "kiel:", oneLine(err))
	}
	return exitFailed
}

// given returns the flags of the command line that say where and how to look. Those of the environment and the defaults need no
// repeating, and no flag holds a secret.
func given(ctx *kong.Context) (flags []string) {
	for _, path := range ctx.Path {
		f := path.Flag
		if f == nil || path.Resolved || !slices.Contains(ctx.Model.Flags, f) || slices.Contains(flags, "--"+f.Name) || slices.Contains(flags, "--"+f.Name+"=false") {
			continue
		}
		switch f.Name {
		case "output", "verbose", "version", "help":
			continue
		}
		switch value := f.Target.Interface().(type) {
		case bool:
			if !value {
				flags = append(flags, "--"+f.Name+"=false")
				continue
			}
			flags = append(flags, "--"+f.Name)
		case []string:
			flags = append(flags, "--"+f.Name, strings.Join(value, ","))
		default:
			flags = append(flags, "--"+f.Name, fmt.Sprint(value))
		}
	}
	return flags
}

// oneLine returns the text of an error, which may be several that were joined.
func oneLine(err error) string { return plain.Text(strings.ReplaceAll(err.Error(), "\n", "; ")) }
