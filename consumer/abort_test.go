package consumer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/testonly/conntest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// When trust ends, the connections that carry commits are closed with all that is written and not sent, in each incarnation, and
// before the servers end the session: after that the next owner may have committed, and an older commit that still arrives would
// set it back.
func TestCommitsAreAbortedWhenTrustEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, network := zktest.StartVirtual(t, zktest.Options{})
		link := network.Client("m")
		zk, err := session.New([]string{"zk:2181"}, session.Options{Dial: link.Dial, Timeout: sessionTimeout})
		noerr.Must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		sinks := &conntest.Sinks{}
		d := kafkaconn.NewDialer(ctx, sinks.Config(), 0)
		ran, watched := make(chan error, 1), make(chan struct{})
		go func() { ran <- zk.Run(ctx) }()
		go func() {
			defer close(watched)
			(&membership{group: &Group{zk: zk}, kafka: &kafka{dialer: d}}).watchTrust(ctx)
		}()
		for range 2 {
			inc, err := zk.Incarnation(ctx)
			noerr.Must(t, err)
			_, s := sinks.Dial(t, d)
			time.Sleep(2 * sessionTimeout)
			if s.Aborted() {
				t.Error("the connection was closed while the session was trusted")
			}
			link.BlackHole(zktest.Both)
			<-inc.Context().Done()
			synctest.Wait()
			if !s.Aborted() {
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
		noerr.Want(t, <-ran)
	})
}
