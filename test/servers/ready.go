package servers

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

const pollInterval = 20 * time.Millisecond

// poll asks until the answer is yes or an error, the process is gone, or time is up.
func poll(tb testing.TB, p *Process, ask func() (bool, error)) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.name, ctx.Err())
		case <-p.done:
			return fmt.Errorf("%s ended while it started: %w", p.name, p.err)
		case <-ticker.C:
		}
	}
}

// Ask sends one of ZooKeeper's four-letter commands (srvr, mntr, cons, dump, wchp …) and returns the answer.
func (n *ZooKeeperNode) Ask(command string) (string, error) {
	ctx, cancel := context.WithTimeout(n.zk.tb.Context(), 2*time.Second)
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
