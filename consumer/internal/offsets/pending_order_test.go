package offsets

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/testonly/conntest"
)

// pausing makes one check of trust wait that has found the claim trusted.
type pausing struct {
	next atomic.Bool // the next question waits
	gate chan struct{}
}

func pauseIn(cm *Committer) *pausing {
	p := &pausing{gate: make(chan struct{})}
	cm.options.CurrentID = func(string) sarama.Uuid {
		if p.next.CompareAndSwap(true, false) {
			<-p.gate
		}
		return sarama.Uuid{}
	}
	return p
}

// twoInOneRequest returns two pending commits that were written once.
func twoInOneRequest(t *testing.T, cm *Committer) (pending [2]*pendingCommit, holders [2]*fakeClaim) {
	t.Helper()
	for i := range holders {
		p := tp("t", int32(i))
		holders[i] = newClaim(t)
		pending[i] = cm.Open(p, holders[i], sarama.Uuid{}, 0, "").prepare(cm, marked)
		if err := pending[i].authorize(); err != nil {
			t.Fatal(err)
		}
	}
	return pending, holders
}

// A write is stopped after it was authorized, and goes on after its partition was given up. It finds its connection closed, or is
// refused, also when the connections were aborted for another partition before.
func TestWriteThatWasStoppedIsThrownAway(t *testing.T) {
	for name, answered := range map[string]bool{"while it asked": false, "when it had asked": true} {
		t.Run(name, func(t *testing.T) {
			withCommitter(t, true, func(t *testing.T, cm *Committer, _ *MemoryStore) {
				sinks := &conntest.Sinks{}
				d := kafkaconn.NewDialer(t.Context(), sinks.Config(), 0)
				cm.options.Abort = d.Abort
				pause := pauseIn(cm)
				ps, hs := twoInOneRequest(t, cm)
				hs[0].lose()
				cm.Close(hs[0].Context(), ps[0].tracker) // ends the connections once
				c, s := sinks.Dial(t, d)                 // the second is sent again, on a new one
				pause.next.Store(!answered)
				defer d.Gate(func() error {
					err := ps[1].authorize()
					if answered {
						<-pause.gate
					}
					return err
				})()
				done := make(chan error)
				go func() {
					_, err := c.Write([]byte("commit of t:1"))
					done <- err
				}()
				synctest.Wait() // trust was looked at
				hs[1].lose()
				cm.Close(hs[1].Context(), ps[1].tracker)
				close(pause.gate)
				if err := <-done; err == nil || s.Written() != "" {
					t.Errorf("%q was written after the partition was given up: %v", s.Written(), err)
				}
			})
		})
	}
}

// An authorization by the write of another connection, begun before an abort and ended after it, does not hide that the commit
// was sent again since.
func TestQuestionThatWasStoppedHidesNothing(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, _ *MemoryStore) {
		aborted := 0
		cm.options.Abort = func() { aborted++ }
		pause := pauseIn(cm)
		ps, hs := twoInOneRequest(t, cm)
		pause.next.Store(true)
		go func() { _ = ps[1].authorize() }() // at the write of something else
		synctest.Wait()
		hs[0].lose()
		cm.Close(hs[0].Context(), ps[0].tracker)
		if err := ps[1].authorize(); err != nil { // sent again
			t.Fatal(err)
		}
		close(pause.gate)
		synctest.Wait()
		hs[1].lose()
		cm.Close(hs[1].Context(), ps[1].tracker)
		if aborted != 2 {
			t.Errorf("connections were thrown away %d times, want 2: the second commit is on the wire", aborted)
		}
	})
}

// Partitions that are lost together abort the connections once, although the others are authorized again when the request fails.
func TestWhatIsRefusedCostsNoConnection(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, _ *MemoryStore) {
		aborted := 0
		cm.options.Abort = func() { aborted++ }
		ps, hs := twoInOneRequest(t, cm)
		hs[0].lose()
		hs[1].lose()
		cm.Close(hs[0].Context(), ps[0].tracker)
		if ps[1].authorize() == nil {
			t.Error("a lost partition may be committed")
		}
		cm.Close(hs[1].Context(), ps[1].tracker)
		if aborted != 1 {
			t.Errorf("connections were thrown away %d times", aborted)
		}
	})
}

// While the last commit of a partition is in flight, other commits are written, also on the same connection. When the wait is
// over, that commit is not written any more.
func TestCommitThatIsWaitedForDisturbsNobody(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, _ *MemoryStore) {
		sinks := &conntest.Sinks{}
		d := kafkaconn.NewDialer(t.Context(), sinks.Config(), 0)
		cm.options.Abort = d.Abort
		tr := cm.Open(tp("t", 0), newClaim(t), sarama.Uuid{}, 0, "")
		coordinator, _ := sinks.Dial(t, d)
		other, _ := sinks.Dial(t, d)
		defer d.Gate(tr.prepare(cm, marked).authorize)()
		write := func(when string, c net.Conn, allowed bool) {
			t.Helper()
			if _, err := c.Write([]byte("request")); (err == nil) != allowed {
				t.Errorf("%s: %v", when, err)
			}
		}
		write("commit", coordinator, true)
		done := make(chan struct{})
		go func() {
			defer close(done)
			cm.Close(t.Context(), tr)
		}()
		synctest.Wait()
		write("metadata", other, true)
		write("another partition's offsets", coordinator, true)
		posted := tr.prepare(cm, marked)
		if posted.authorize() == nil {
			t.Error("what was posted when the Tracker was closed may be written")
		}
		start := time.Now()
		<-done
		if took := time.Since(start); took != LastCommitTimeout {
			t.Errorf("waited for %v", took)
		}
		write("commit", coordinator, false)
		late, _ := sinks.Dial(t, d)
		write("commit, sent again", late, false)
		again := make(chan struct{})
		go func() {
			defer close(again)
			cm.Close(t.Context(), tr)
		}()
		synctest.Wait() // it waits, and allows nothing
		if posted.authorize() == nil {
			t.Error("what was posted when the Tracker was closed may be written when it is closed again")
		}
		late, _ = sinks.Dial(t, d)
		write("commit, sent again after all", late, false)
		<-again
	})
}
