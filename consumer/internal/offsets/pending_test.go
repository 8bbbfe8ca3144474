package offsets

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/conntest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// Committed.Since is when a commit was written: the commit may have waited for long before, and its answer may come after the end
// of trust.
func TestCommittedTellsWhenItWasSent(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		store.Block = make(chan struct{})
		store.Slow = make(chan struct{})
		var got []Committed
		cm.options.Notify = func(e Committed, _ func()) bool { got = append(got, e); return false }
		h := newClaim(t)
		b := cm.Open(tp("t", 0), h, sarama.Uuid{}, 0, "")
		sent := time.Now().Add(3 * time.Second)
		time.AfterFunc(3*time.Second, func() { close(store.Block) })
		time.AfterFunc(5*time.Second, func() {
			h.distrust.Store(true)
			close(store.Slow)
		})
		noerr.Must(t, cm.Commit(t.Context(), b))
		if len(got) != 1 || !got[0].Since.Equal(sent) {
			t.Errorf("got %+v, want it sent at %v", got, sent)
		}
	})
}

// Close waits for a commit in flight, of a start position or a repeat, too: the commit must not arrive after the next owner's
// commits.
func TestCommitUnderWayIsWaitedFor(t *testing.T) {
	const answer = 3 * time.Second
	for name, giveUp := range map[string]func(*Committer, context.Context, *Tracker){
		"opening was interrupted": func(cm *Committer, claim context.Context, tr *Tracker) { cm.Close(claim, tr) },
		"nothing was marked": func(cm *Committer, claim context.Context, tr *Tracker) {
			tr.mu.Lock()
			tr.dirty = false // so that what is under way is a repetition
			tr.mu.Unlock()
			_ = cm.CommitLast(claim, tr)
		},
	} {
		committerTest(t, name, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
			store.Block = make(chan struct{})
			h := newClaim(t)
			b := cm.Open(tp("t", 0), h, sarama.Uuid{}, 0, "")
			go func() { _ = cm.Commit(t.Context(), b) }()
			synctest.Wait() // it is under way
			time.AfterFunc(answer, func() { close(store.Block) })
			start := time.Now()
			giveUp(cm, h.Context(), b)
			assert.Equal(t, time.Since(start), answer, "given up after")
		})
	}
}

// A commit that is in flight when the time to close its partition is over, or when its claim is lost, is aborted with its
// connection. One abort is enough for all commits of the request, and one time limit holds for all.
func TestCommitOnTheWireIsThrownAway(t *testing.T) {
	const n = 3
	for name, lost := range map[string]bool{"too late": false, "lost": true} {
		committerTest(t, name, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
			store.Slow = make(chan struct{})
			aborted := 0
			cm.options.Abort = func() {
				aborted++
				time.AfterFunc(time.Millisecond, func() { close(store.Slow) }) // when nobody waits for it any more
			}
			var holders []*fakeClaim
			var trackers []*Tracker
			for i := range int32(n) {
				holders = append(holders, newClaim(t))
				trackers = append(trackers, cm.Open(tp("t", i), holders[i], sarama.Uuid{}, 0, ""))
			}
			time.Sleep(1500 * time.Millisecond) // all are sent, and no answer comes
			start, done := time.Now(), make(chan error)
			for i, b := range trackers {
				go func() { done <- cm.CommitLast(holders[i].Context(), b) }()
			}
			want := LastCommitTimeout
			if lost {
				want = 4 * time.Second
				time.Sleep(want)
				for _, h := range holders {
					h.lose()
				}
			}
			for range n {
				if err := <-done; err == nil {
					t.Error("committed without an answer")
				}
			}
			assert.Equal(t, time.Since(start), want, "given up after")
			assert.Equal(t, aborted, 1, "how often connections were thrown away")
		})
	}
}

// silentStore never answers. When its connection is aborted, it sends the commits that are still authorized again.
type silentStore struct {
	MemoryStore
	aborts chan struct{}
	wire   atomic.Pointer[map[kiel.Partition]bool] // what was sent and not thrown away
}

func (s *silentStore) Commit(ctx context.Context, cs []OffsetCommit) map[kiel.Partition]error {
	out := map[kiel.Partition]error{}
	for ctx.Err() == nil {
		wire := map[kiel.Partition]bool{}
		for _, e := range cs {
			if out[e.Partition] = e.Authorize(); out[e.Partition] == nil {
				wire[e.Partition] = true
			}
		}
		s.wire.Store(&wire)
		if len(wire) == 0 {
			return out
		}
		select {
		case <-s.aborts:
		case <-ctx.Done():
		}
	}
	return out
}

// A commit that was sent again on the next connection is aborted, too, when its own time is over.
func TestCommitSentAgainIsThrownAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &silentStore{aborts: make(chan struct{})}
		cm, stop := committerOn(t, store, true)
		defer stop()
		cm.options.Abort = func() { store.aborts <- struct{}{} }
		first, second := tp("t", 0), tp("t", 1)
		one := cm.Open(first, newClaim(t), sarama.Uuid{}, 0, "")
		two := cm.Open(second, newClaim(t), sarama.Uuid{}, 0, "")
		time.Sleep(1500 * time.Millisecond) // both are sent
		giveUp := func(b *Tracker, after time.Duration) <-chan struct{} {
			done := make(chan struct{})
			time.AfterFunc(after, func() {
				defer close(done)
				_ = cm.CommitLast(t.Context(), b)
			})
			return done
		}
		a, b := giveUp(one, 0), giveUp(two, 5*time.Second)
		<-a
		synctest.Wait()
		if wire := *store.wire.Load(); wire[first] || !wire[second] {
			t.Errorf("on the wire when the first was given up: %v", wire)
		}
		<-b
		synctest.Wait()
		if wire := *store.wire.Load(); len(wire) > 0 {
			t.Errorf("on the wire when the second was given up: %v", wire)
		}
	})
}

// A partition is given up after its last commit was observed, also when that commit was under way already.
func TestCommitIsObservedBeforeTheLastOneReturns(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, _ *MemoryStore) {
		var observed atomic.Int32
		cm.options.Notify = func(_ Committed, then func()) bool {
			time.AfterFunc(time.Second, func() {
				observed.Add(1)
				then()
			})
			return true
		}
		b := cm.Open(tp("t", 0), newClaim(t), sarama.Uuid{}, 0, "")
		b.Mark(5, "")
		time.Sleep(1500 * time.Millisecond) // the Committer has stored it by itself, and is notifying
		if err := cm.CommitLast(t.Context(), b); err != nil || observed.Load() == 0 {
			t.Errorf("committed with %v before the commit was observed", err)
		}
	})
}

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
		noerr.Must(t, pending[i].authorize())
	}
	return pending, holders
}

// A write is stopped after it was authorized, and goes on after its partition was given up. It finds its connection closed, or is
// refused, also when the connections were aborted for another partition before.
func TestWriteThatWasStoppedIsThrownAway(t *testing.T) {
	for name, answered := range map[string]bool{"while it asked": false, "when it had asked": true} {
		committerTest(t, name, true, func(t *testing.T, cm *Committer, _ *MemoryStore) {
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
		assert.Equal(t, aborted, 2, "how often connections were thrown away")
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
		assert.Equal(t, aborted, 1, "how often connections were thrown away")
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
		assert.Equal(t, time.Since(start), LastCommitTimeout, "waited for")
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
			noerr.Must(t, tr.prepare(cm, marked).authorize())
			h.lose()
			cm.Close(h.Context(), tr)
		}
		if d := time.Since(began); d > 2*kafkaconn.AbortTimeout {
			t.Errorf("closing took %v", d)
		}
	})
}
