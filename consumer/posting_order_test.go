package consumer

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
)

// pausing makes one question wait that has found the claim trusted.
type pausing struct {
	next atomic.Bool // the next question waits
	gate chan struct{}
}

func pauseIn(l *ledger) *pausing {
	p := &pausing{gate: make(chan struct{})}
	l.current = func(string) sarama.Uuid {
		if p.next.CompareAndSwap(true, false) {
			<-p.gate
		}
		return sarama.Uuid{}
	}
	return p
}

// twoInOneRequest returns two postings that were written once.
func twoInOneRequest(t *testing.T, l *ledger) (postings [2]*posting, holders [2]*fakeHolder) {
	t.Helper()
	for i := range holders {
		p := tp("t", int32(i))
		holders[i] = newHolder(t, p)
		postings[i] = l.open(p, holders[i], sarama.Uuid{}, 0, "").post(l, true)
		if err := postings[i].ask(); err != nil {
			t.Fatal(err)
		}
	}
	return postings, holders
}

// A write that was stopped when it had been found to be allowed goes on after its partition was given up: it finds its
// connection closed, or is refused, also when the connections were thrown away for another partition before.
func TestWriteThatWasStoppedIsThrownAway(t *testing.T) {
	for name, answered := range map[string]bool{"while it asked": false, "when it had asked": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDialer(t.Context(), testConfig(), 0)
				l, stop := ledgerOn(t, &fakeStore{}, true)
				defer stop()
				l.abort = d.abort
				pause := pauseIn(l)
				ps, hs := twoInOneRequest(t, l)
				hs[0].lose()
				l.close(hs[0].Context(), ps[0].book) // ends the connections once
				c, s := connOn(d)                    // the second is sent again, on a new one
				pause.next.Store(!answered)
				defer d.guard(func() error {
					err := ps[1].ask()
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
				l.close(hs[1].Context(), ps[1].book)
				close(pause.gate)
				if err := <-done; err == nil || s.String() != "" {
					t.Errorf("%q was written after the partition was given up: %v", s.String(), err)
				}
			})
		})
	}
}

// A question that another connection's write asked before the connections were thrown away, and that ends later, does not
// hide that the commit was sent again since.
func TestQuestionThatWasStoppedHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := ledgerOn(t, &fakeStore{}, true)
		defer stop()
		aborted := 0
		l.abort = func() { aborted++ }
		pause := pauseIn(l)
		ps, hs := twoInOneRequest(t, l)
		pause.next.Store(true)
		go func() { _ = ps[1].ask() }() // at the write of something else
		synctest.Wait()
		hs[0].lose()
		l.close(hs[0].Context(), ps[0].book)
		if err := ps[1].ask(); err != nil { // sent again
			t.Fatal(err)
		}
		close(pause.gate)
		synctest.Wait()
		hs[1].lose()
		l.close(hs[1].Context(), ps[1].book)
		if aborted != 2 {
			t.Errorf("connections were thrown away %d times, want 2: the second commit is on the wire", aborted)
		}
	})
}

// Partitions that are lost together cost the connections once, though those not given up yet are asked about again when
// the request fails.
func TestWhatIsRefusedCostsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := ledgerOn(t, &fakeStore{}, true)
		defer stop()
		aborted := 0
		l.abort = func() { aborted++ }
		ps, hs := twoInOneRequest(t, l)
		hs[0].lose()
		hs[1].lose()
		l.close(hs[0].Context(), ps[0].book)
		if ps[1].ask() == nil {
			t.Error("a lost partition may be committed")
		}
		l.close(hs[1].Context(), ps[1].book)
		if aborted != 1 {
			t.Errorf("connections were thrown away %d times", aborted)
		}
	})
}

// While the last commit of a partition is waited for, others write on, on its own connection too; and nothing is written
// for it when that is over.
func TestCommitThatIsWaitedForDisturbsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(t.Context(), testConfig(), 0)
		l, stop := ledgerOn(t, &fakeStore{}, true)
		defer stop()
		l.abort = d.abort
		b := l.open(tp("t", 0), newHolder(t, tp("t", 0)), sarama.Uuid{}, 0, "")
		coordinator, _ := connOn(d)
		other, _ := connOn(d)
		defer d.guard(b.post(l, true).ask)()
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
			l.close(t.Context(), b)
		}()
		synctest.Wait()
		write("metadata", other, true)
		write("another partition's offsets", coordinator, true)
		posted := b.post(l, true)
		if posted.ask() == nil {
			t.Error("what was posted when the book was closed may be written")
		}
		start := time.Now()
		<-done
		if took := time.Since(start); took != settleTimeout {
			t.Errorf("waited for %v", took)
		}
		write("commit", coordinator, false)
		late, _ := connOn(d)
		write("commit, sent again", late, false)
		again := make(chan struct{})
		go func() {
			defer close(again)
			l.close(t.Context(), b)
		}()
		synctest.Wait() // it waits, and allows nothing
		if posted.ask() == nil {
			t.Error("what was posted when the book was closed may be written when it is closed again")
		}
		late, _ = connOn(d)
		write("commit, sent again after all", late, false)
		<-again
	})
}
