// Command release prepares a release of the library and of the commands, and compares the library's API with the last one's.
// RELEASING.md says when to call it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

const (
	description = `Prepares releases; see RELEASING.md. Run it in the repository's directory.`
	more        = `
Examples:
  release prepare v0.1.0   tag v0.1.0 and cmd/v0.1.0, after trying both as a user would get them
  release api              what has changed in the library's API since the last tag

Nothing is pushed. Exit codes: 0 all well; 1 failed, or the API broke its promise; 2 bad usage.
`
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

type cli struct {
	Prepare struct {
		Version string `arg:"" help:"The version, such as v0.1.0."`
	} `cmd:"" help:"Make the tags of a release of HEAD, which has a section of that version in CHANGELOG.md, and try them."`
	API struct{} `cmd:"" name:"api" help:"Compare the library's API with that of the last tag. What breaks users' programs needs a section \"### Incompatible\" under [Unreleased] in CHANGELOG.md, and from v1.0.0 on a new major version."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	var flags cli
	helped := false
	parser, err := kong.New(&flags, kong.Name("release"), kong.Description(description), kong.Writers(out, errOut),
		kong.Exit(func(int) { helped = true }), kong.Help(help))
	if err != nil {
		fmt.Fprintln(errOut, "release:", err)
		return exitUsage
	}
	kctx, err := parser.Parse(args)
	switch {
	case helped:
		return exitOK
	case err != nil:
		fmt.Fprintf(errOut, "release: %v\nTry 'release --help'.\n", err)
		return exitUsage
	case kctx.Selected().Name == "api":
		err = compare(ctx, out, ".")
	default:
		err = prepare(ctx, out, ".", flags.Prepare.Version, install)
	}
	if err != nil {
		fmt.Fprintln(errOut, "release:", err)
		return exitFailed
	}
	return exitOK
}

// help prints kong's help and, for the whole program, more.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	if ctx.Selected() == nil {
		fmt.Fprint(ctx.Stdout, more)
	}
	return nil
}
