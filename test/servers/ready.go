package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"
)

const (
	pollInterval = 20 * time.Millisecond

	// startTimeout is how long a server may take until it serves. A start takes seconds, and a minute or two on a machine that
	// has to do fifty times as much as it can: then it is the machine that is judged, not what the test is about.
	startTimeout = 4 * time.Minute
	// A server that starts may never answer a connection that it took too early: the first answer is waited for briefly, each
	// following one twice as long, for the sake of servers that are slow.
	firstAnswer = 250 * time.Millisecond
	startAnswer = 10 * time.Second

	clashTries = 5 // for ports that somebody else took in between
	slowTries  = 2 // for servers that have not started
)

// errNotStarted says that a server has not begun to serve, which is no verdict on what the test is about.
var errNotStarted = errors.New("no verdict, the test has not begun")

// again says whether servers are started again, with other ports, after a try that ended with err.
func again(try int, err error, clashed bool) bool {
	return clashed && try < clashTries || errors.Is(err, errNotStarted) && try < slowTries
}

// poll asks until the answer is yes or an error, the process is gone, or time is up.
func poll(tb testing.TB, p *Process, ask func() (bool, error)) error {
	tb.Helper()
	return pollFor(tb, p, startTimeout, ask)
}

func pollFor(tb testing.TB, p *Process, limit time.Duration, ask func() (bool, error)) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			if tb.Context().Err() != nil {
				return fmt.Errorf("%s is not ready: %w", p.name, context.Cause(ctx))
			}
			return fmt.Errorf("%w: %s is not ready after %v%s", errNotStarted, p.name, limit, Load())
		case <-p.done:
			return fmt.Errorf("%s ended while it started: %w", p.name, p.err)
		case <-ticker.C:
		}
	}
}

// Load tells how busy the machine is, as the end of a sentence; "" where that can't be learnt.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return fmt.Sprintf(", with a load of %s on %d processors", bytes.TrimSpace(text), runtime.NumCPU())
}

// Ask sends one of ZooKeeper's four-letter commands (srvr, mntr, cons, dump, wchp …) and returns the answer.
func (n *ZooKeeperNode) Ask(command string) (string, error) { return n.ask(command, 2*time.Second) }

func (n *ZooKeeperNode) ask(command string, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(n.zk.tb.Context(), limit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.Addr())
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", command, err)
	}
	defer func() { _ = conn.Close() }() // the answer is complete or not, whatever Close says
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, command); err != nil {
		return "", fmt.Errorf("ask %s: %w", command, err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", command, err)
	}
	return string(answer), nil
}
