package transactions_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/test/wait"
)

func TestTransactions(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for name, test := range map[string]func(*testing.T, *rig){
			"once": testOnce, "moments": testMoments, "frozen": testFrozen, "pending": testPending, "overtaken": testOvertaken,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, r)
			})
		}
	})
}

// A program in the manner of sarama's example, with our constructor, has each of 50 results there once, in whatever way offsets
// get into transactions, with aborted ones in between, and while a second member comes, processes some, and goes.
func testOnce(t *testing.T, r *rig) {
	for _, c := range []struct {
		way   string
		fence bool
	}{{byMessage, false}, {byMetadata, false}, {byMetadata, true}, {byOffsets, true}} {
		t.Run(fmt.Sprintf("%s-fence-%t", c.way, c.fence), func(t *testing.T) {
			t.Parallel()
			s := r.newScene(t, 5, 7)
			set := s.settings("a")
			set.Way, set.Fence, set.AbortEvery = c.way, c.fence, 4
			a, stopA := s.start(set)
			wait.Until(t, time.Minute, func() bool { at, _ := s.stored(0); return at > 0 }, func() string { return "nothing was processed" })
			set.Name = "b"
			var opened, worked atomic.Bool
			set.observer = func(e consumer.Event) { opened.Store(opened.Load() || e.Kind == consumer.Opened) }
			set.after = func(*sarama.ConsumerMessage, error) { worked.Store(true) }
			b, stopB := s.start(set)
			wait.Until(t, time.Minute, opened.Load, func() string { return "the second member opened nothing" })
			s.produce(3)
			wait.Until(t, time.Minute, worked.Load, func() string { return "the second member processed nothing" })
			stopB()
			s.awaitEnd()
			stopA()
			s.onceEach()
			errsA, abortedA := a.failures()
			errsB, abortedB := b.failures()
			if len(errsA)+len(errsB) > 0 || abortedA+abortedB < 15 {
				t.Errorf("%d and %d were aborted on purpose; failed: %v, %v", abortedA, abortedB, errsA, errsB)
			}
			for p, end := range s.end {
				if at, text := s.stored(p); at != end || c.fence && text != metadata {
					t.Errorf("of partition %d, %d is stored, with %q", p, at, text)
				}
			}
		})
	}
}

// A former owner commits its transaction at any moment of the next owner's opening. With Fence it is either refused or what it
// has committed counts. Without, when producers are made in ConsumeClaim, there is a moment when its result is doubled: that is
// why there is Fence.
func testMoments(t *testing.T, r *rig) {
	for _, c := range []struct {
		moment  string
		fence   bool
		commits bool // whether the former owner can
		doubled bool
	}{
		{"before the fence", true, true, false},
		{"after the fence", true, false, false},
		{"once open", true, false, false},
		{"once open", false, true, true},
	} {
		t.Run(fmt.Sprintf("%s-fence-%t", c.moment, c.fence), func(t *testing.T) {
			t.Parallel()
			s := r.newScene(t, 1, 5)
			set := s.settings("a")
			set.Fence = c.fence
			zombie := s.zombie(set)
			var once sync.Once
			commit := func(moment string) {
				if moment != c.moment {
					return
				}
				once.Do(func() {
					if err := zombie.CommitTxn(); c.commits != (err == nil) || err != nil && !isFenced(err) {
						t.Errorf("the former owner commits: %v", err)
					}
				})
			}
			set.fencing = func(made func() error) error {
				commit("before the fence")
				defer commit("after the fence")
				return made()
			}
			set.observer = func(e consumer.Event) {
				if e.Kind == consumer.Opened {
					commit("once open")
				}
			}
			_, stop := s.start(set)
			s.awaitEnd()
			stop()
			if n := len(s.results()); c.doubled {
				if n != len(s.sent)+1 {
					t.Errorf("%d results for %d messages: without Fence one was to be doubled", n, len(s.sent))
				}
				return
			}
			s.onceEach()
		})
	}
}

// A process is frozen in mid transaction. Its partition goes to another member, which processes the rest. When the process wakes
// up its transaction is refused. With transactional ids of its own for each process it is not, and the result is there twice.
func testFrozen(t *testing.T, r *rig) {
	for _, salted := range []bool{false, true} {
		t.Run(fmt.Sprintf("salted-%t", salted), func(t *testing.T) {
			t.Parallel()
			s := r.newScene(t, 1, 10)
			set := s.settings("frozen")
			if salted {
				set.Salt = "-of-the-first"
			}
			zombie := startProcess(t, set)
			zombie.awaitLine(isMidway)
			zombie.Pause()
			next := s.settings("next")
			if salted {
				next.Salt = "-of-the-second"
			}
			_, stop := s.start(next)
			s.awaitEnd()
			began := time.Now()
			zombie.goOn()
			outcome := zombie.awaitLine(committed, fenced, "failed")
			t.Logf("the frozen process went on, and said %q after %v", outcome, time.Since(began))
			if !salted {
				if outcome != fenced {
					t.Errorf("the frozen process: %s", zombie.Log())
				}
				s.awaitEnd()
				stop()
				s.onceEach()
				return
			}
			if n := len(s.results()); outcome != committed || n != len(s.sent)+1 {
				t.Errorf("%d results for %d messages, the frozen process: %s", n, len(s.sent), zombie.Log())
			}
			wait.Until(t, time.Minute, func() bool { at, _ := s.stored(0); return at == haltAt+1 }, // answered before it is visible
				func() string { return "the frozen process was to lower the offset" })
		})
	}
}

// A former owner has died with an offset in its transaction. The next one does not wait for the timeout of that transaction, a
// minute: Fence ends it.
func testPending(t *testing.T, r *rig) {
	s := r.newScene(t, 1, 5)
	set := s.settings("a")
	s.pending(set, 4)
	began := time.Now()
	_, stop := s.start(set)
	s.awaitEnd()
	took := time.Since(began)
	t.Attr("after-a-pending-offset", took.Round(time.Millisecond).String())
	if took > 30*time.Second {
		t.Errorf("the partition was processed after %v", took)
	}
	stop()
	s.onceEach()
}

// A former owner that wakes up in Fence fences off the rightful owner, in mid transaction. That one's partition is opened again.
func testOvertaken(t *testing.T, r *rig) {
	s := r.newScene(t, 1, 5)
	set := s.settings("a")
	var once sync.Once
	set.midway = func(m *sarama.ConsumerMessage) {
		if m.Offset != 2 {
			return
		}
		once.Do(func() {
			late, err := newProducer(s.brokers, (&program{settings: set}).transactionalID(s.in(), 0))
			if err != nil {
				t.Error(err)
				return
			}
			_ = late.Close()
		})
	}
	p, stop := s.start(set)
	s.awaitEnd()
	stop()
	s.onceEach()
	if errs, _ := p.failures(); len(errs) != 1 || !isFenced(errs[0]) {
		t.Errorf("failed: %v", errs)
	}
}
