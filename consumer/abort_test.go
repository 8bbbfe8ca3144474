package consumer

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
)

// stuckConn is a connection that does not close before its test ends.
type stuckConn struct {
	net.Conn
	gate chan struct{}
}

func (c stuckConn) Close() error {
	<-c.gate
	return nil
}

// A connection that does not close holds up neither the end of a partition nor that of the next.
func TestAbortIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{life: t.Context(), conns: map[*conn]struct{}{}, guards: map[*guard]struct{}{}}
		gate := make(chan struct{})
		defer close(gate)
		d.conns[&conn{Conn: stuckConn{gate: gate}, of: d}] = struct{}{}
		l, stop := ledgerOn(t, &fakeStore{}, true)
		defer stop()
		l.abort = d.abort
		began := time.Now()
		for id := range int32(2) {
			h := newHolder(t, tp("t", id))
			b := l.open(tp("t", id), h, sarama.Uuid{}, 0, "")
			if err := b.post(l, true).ask(); err != nil {
				t.Fatal(err)
			}
			h.lose()
			l.close(h.Context(), b)
		}
		if d := time.Since(began); d > 2*abortTimeout {
			t.Errorf("closing took %v", d)
		}
	})
}
