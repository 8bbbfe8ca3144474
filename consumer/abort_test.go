package consumer

import (
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
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

// When trust ends, the connections that carry commits are closed with all that is written and not sent, in each
// incarnation, and before the servers end the session: after that the next owner may have committed, and an older commit
// that still arrives would set it back.
func TestCommitsAreAbortedWhenTrustEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, network := zktest.StartVirtual(t, zktest.Options{})
		link := network.Client("m")
		zk, err := session.New([]string{"zk:2181"}, session.Options{Dial: link.Dial, Timeout: sessionTimeout})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		d := newDialer(ctx, testConfig(), 0)
		ran, watched := make(chan error, 1), make(chan struct{})
		go func() { ran <- zk.Run(ctx) }()
		go func() {
			defer close(watched)
			(&Group{zk: zk}).watchTrust(ctx, &kafka{dialer: d})
		}()
		for range 2 {
			inc, err := zk.Incarnation(ctx)
			if err != nil {
				t.Fatal(err)
			}
			_, s := connOn(d)
			time.Sleep(2 * sessionTimeout)
			if s.aborted() {
				t.Error("the connection was closed while the session was trusted")
			}
			link.BlackHole(zktest.Both)
			<-inc.Context().Done()
			synctest.Wait()
			if !s.aborted() {
				t.Error("trust has ended, and what is written to the connection may still be sent")
			}
			if srv.Stats().Sessions != 1 {
				t.Error("the session ended before its trust did")
			}
			time.Sleep(2 * sessionTimeout)
			link.Heal()
		}
		stop()
		<-watched
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

// aborted says whether the connection was closed so that nothing more is sent.
func (s *sink) aborted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed && slices.Equal(s.linger, []int{0})
}
