package offsets

import (
	"net"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/testonly/conntest"
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
	withCommitter(t, true, func(t *testing.T, cm *Committer, _ *MemoryStore) {
		gate := make(chan struct{})
		defer close(gate)
		d := kafkaconn.NewDialer(t.Context(), conntest.ConfigOn(func(string, string) (net.Conn, error) { return stuckConn{gate: gate}, nil }), 0)
		if _, err := d.Dial("tcp", "stuck:9092"); err != nil {
			t.Fatal(err)
		}
		cm.options.Abort = d.Abort
		began := time.Now()
		for id := range int32(2) {
			h := newClaim(t)
			tr := cm.Open(tp("t", id), h, sarama.Uuid{}, 0, "")
			if err := tr.prepare(cm, marked).authorize(); err != nil {
				t.Fatal(err)
			}
			h.lose()
			cm.Close(h.Context(), tr)
		}
		if d := time.Since(began); d > 2*kafkaconn.AbortTimeout {
			t.Errorf("closing took %v", d)
		}
	})
}
