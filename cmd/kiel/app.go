package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/session"
)

// maxClaims is the number of partitions above which claims and offsets are read of named topics alone: a second's worth of
// requests.
const maxClaims = 10_000

// app is what every command gets: the process's lifetime, the flags of all commands, and where to print.
type app struct {
	context.Context //nolint:containedctx // the value is the process's lifetime, bound by the CLI library to Run methods
	sourceFlags
	given []string // the flags of the command line that lead to the sources, for commands that somebody copies
	out   printer
	err   io.Writer
}

// open connects. close must be called.
func (a *app) open() (in *inspect.Inspector, closeIt func(), err error) {
	servers, root, err := connect.SplitZooKeeper(a.ZooKeeper)
	if err != nil {
		return nil, nil, err
	}
	level := slog.LevelError + 1 // the findings say what is wrong
	if a.Verbose {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
	from := inspect.Sources{
		Servers: servers, Session: session.Options{Chroot: root, Logger: logger}, Wait: a.Wait, Config: connect.KafkaConfig("kiel"),
		Members: !a.NoMembers, Local: a.LocalMembers, Flags: a.given,
	}
	if !a.NoKafka {
		from.Brokers = a.Kafka
	}
	if err := errors.Join(a.ZooKeeperFlags.Secure(&from.Session), a.KafkaFlags.Secure(from.Config, a.inClear)); err != nil {
		return nil, nil, err
	}
	if in, err = inspect.Open(a, from); err != nil {
		return nil, nil, err
	}
	return in, func() { _ = in.Close(context.WithoutCancel(a)) }, nil
}

// inClear warns of a password that goes in clear.
func (a *app) inClear() { _, _ = fmt.Fprintln(a.err, "warning:", connect.InClear) }

// look connects and looks at one group.
func (a *app) look(group string, opts inspect.Options) (*inspect.Report, error) {
	if err := kiel.CheckGroup(group); err != nil {
		return nil, connect.Usage(err)
	}
	defer a.slow("looking at ZooKeeper and Kafka (at most %v each)", a.Wait)()
	in, closeIt, err := a.open()
	if err != nil {
		return nil, err
	}
	defer closeIt()
	return in.Look(a, group, opts)
}

// needs returns an error unless ZooKeeper has shown the group.
func needs(r *inspect.Report) error {
	for _, f := range r.Findings {
		if slices.Contains([]inspect.Kind{inspect.NoGroup, inspect.ZooKeeperUnreachable, inspect.ZooKeeperRefused}, f.Kind) {
			return errors.New(f.Text + " (kiel doctor says more)")
		}
	}
	return nil
}

// slow prints a line to standard error if the caller has not called end within a second.
func (a *app) slow(format string, args ...any) (end func()) {
	var mu sync.Mutex
	ended := false
	timer := time.AfterFunc(time.Second, func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			fmt.Fprintf(a.err, format+" …\n", args...)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		timer.Stop()
	}
}
