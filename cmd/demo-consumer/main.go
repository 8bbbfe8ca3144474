// Command demo-consumer shows kiel at work: without arguments it plays a
// narrated scenario on embedded servers; with produce, consume and servers it is
// one real process against a ZooKeeper and a Kafka.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the command failed, or the demo found a message lost or a partition owned twice
	exitUsage  = 2 // bad flags
)

func main() {
	// The first signal asks for an orderly end, the second takes what is left.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// console is where a command reads and writes.
type console struct {
	in       io.Reader
	out, err io.Writer
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	var flags cli
	helped := false
	parser, err := kong.New(&flags,
		kong.Name("demo-consumer"),
		kong.Description(description),
		kong.Writers(out, errOut),
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: helpWidth}),
		kong.Help(helpWithExamples),
		kong.UsageOnError(),
	)
	if err != nil {
		fmt.Fprintln(errOut, "demo-consumer:", err)
		return exitFailed
	}
	kctx, err := parser.Parse(args)
	if helped {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(errOut, "demo-consumer: %v\nTry 'demo-consumer --help'.\n", err)
		return exitUsage
	}

	err = kctx.Run(&runContext{Context: ctx, console: console{in, out, errOut}})
	if usage, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintf(errOut, "demo-consumer: %v\nTry 'demo-consumer --help'.\n", usage)
		return exitUsage
	}
	if err != nil {
		fmt.Fprintln(errOut, "demo-consumer:", err)
		return exitFailed
	}
	return exitOK
}

// runContext is what every command gets: a context that the first signal ends,
// and its console.
type runContext struct {
	context.Context //nolint:containedctx // the value is the process's lifetime, bound by the CLI library to Run methods
	console
}

// usageError is a flag value that the parser could not check by itself.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }
