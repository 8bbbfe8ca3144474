// Command demo-consumer shows kiel at work: without arguments it plays a narrated scenario on embedded servers; with produce,
// consume and servers it is one real process against a ZooKeeper and a Kafka.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/kielgo/kiel/cmd/internal/connect"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailed  = 1   // the command failed, or the demo found a message lost or a partition owned twice
	exitUsage   = 2   // bad flags
	exitAborted = 130 // a second signal, where a process can't send it to itself
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	signal.Ignore(syscall.SIGPIPE) // writing fails instead, and consume leaves in order
	go func() {
		<-signals
		cancel() // the first asks for an orderly end
		last(<-signals)
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// last ends the process at once, as the signal would have without us.
func last(sig os.Signal) {
	signal.Reset(sig)
	if self, err := os.FindProcess(os.Getpid()); err == nil && self.Signal(sig) == nil {
		time.Sleep(time.Second) // the signal is on its way
	}
	os.Exit(exitAborted)
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
		kong.Vars{"version": connect.Version("demo-consumer"), "functions": names(everyFunction), "weighted": names(weighted)},
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
	if usage, ok := errors.AsType[*connect.UsageError](err); ok {
		fmt.Fprintf(errOut, "demo-consumer: %v\nTry 'demo-consumer --help'.\n", usage)
		return exitUsage
	}
	if err != nil {
		fail(console{in, out, errOut}, kctx.Selected().Name, err)
		return exitFailed
	}
	return exitOK
}

// fail says why a command has failed: in its log, which others may read by program, or in the words of the demo.
func fail(c console, command string, err error) {
	if command == "demo" {
		fmt.Fprintln(c.err, "demo-consumer:", err)
		return
	}
	newLogger(c, false).Error("command failed", "command", command, "error", err)
}

// warning returns a function that warns of a password that goes in clear.
func warning(logger *slog.Logger) func() {
	return func() { logger.Warn("password goes in clear", "warning", connect.InClear) }
}

// runContext is what every command gets: a context that the first signal ends, and its console.
type runContext struct {
	context.Context //nolint:containedctx // the value is the process's lifetime, bound by the CLI library to Run methods
	console
}
