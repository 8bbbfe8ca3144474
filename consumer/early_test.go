package consumer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
)

// newEarlyRig is newMarkRig with a stored position that would be stored just so, of a member that has not stored anything yet.
// Streams have three messages when they are opened.
func newEarlyRig(t *testing.T, p kiel.Partition, change func(*Options)) *rig {
	t.Helper()
	r := newMarkRig(t, change)
	place := placed(r)
	r.store.Set(map[kiel.Partition]offsets.Stored{
		p: {Offset: 40, Ours: true, TopicID: sarama.Uuid{1}, Token: 1, FirstPartitions: 2, Place: place, LeaderEpoch: -1},
	})
	r.fetch.ready = 3
	return r
}

// The first batch of a member that does not know yet whether Kafka takes its commits is fetched while the start position is
// stored, and handed out after the answer.
func TestFirstBatchIsFetchedWhileTheStartPositionIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		r := newEarlyRig(t, p, nil)
		r.store.Slow = make(chan struct{})
		done := r.owned(h)
		time.Sleep(5 * time.Second)
		if len(r.fetch.streams) != 1 {
			t.Error("nothing is fetched before the answer")
		}
		if got := r.kinds(p); len(got) > 0 {
			t.Errorf("before the answer: %v", got)
		}
		close(r.store.Slow)
		synctest.Wait()
		if got, want := len(r.kinds(p)), 5; got != want {
			t.Errorf("%v, want %d events: committed, opened, and three messages", r.kinds(p), want)
		}
		if len(r.fetch.streams) != 1 {
			t.Error("the partition was opened again")
		}
		h.release(t, done)
		if got := r.store.Get(p).Offset; got != 43 {
			t.Errorf("stored %d", got)
		}
	})
}

// When Kafka refuses the start position, as while the group has members of Kafka's own protocol, nothing is handed out, and no
// further attempt fetches anything before Kafka has stored it.
func TestNothingIsHandedOutThatWasFetchedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		r := newEarlyRig(t, p, nil)
		fail := errors.New("the group has members of its own")
		r.refuse.Store(&fail)
		done := r.owned(h)
		s := <-r.fetch.streams
		synctest.Wait()
		if !s.closed.Load() {
			t.Error("the stream is open, though the start position is refused")
		}
		time.Sleep(time.Minute)
		if n := len(r.fetch.streams); n > 0 {
			t.Errorf("opened %d times more while the start position is refused", n)
		}
		if got := r.kinds(p); len(got) > 0 {
			t.Errorf("handed out: %v", got)
		}
		r.refuse.Store(nil)
		time.Sleep(2 * maxOpenBackoff)
		if len(r.fetch.streams) != 1 {
			t.Error("not opened when the start position was stored")
		}
		if got, want := len(r.kinds(p)), 6; got != want {
			t.Errorf("%v, want %d events: committed, opened, three messages, and committed", r.kinds(p), want)
		}
		h.release(t, done)
	})
}

// A partition that is taken away while its first batch is fetched early is closed.
func TestLostWhileItIsFetchedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		r := newEarlyRig(t, p, nil)
		r.store.Slow = make(chan struct{})
		defer close(r.store.Slow)
		go func() { _ = r.own(h.work, h) }()
		s := <-r.fetch.streams
		synctest.Wait()
		h.lose()
		synctest.Wait()
		if !s.closed.Load() {
			t.Error("the stream is open, though the claim is lost")
		}
		if got := r.kinds(p); len(got) > 0 {
			t.Errorf("handed out: %v", got)
		}
	})
}

// Nothing is fetched early where something else than the stored offset may be the start, or where its commit says more than that
// Kafka takes commits.
func TestWhereNothingIsFetchedEarly(t *testing.T) {
	for name, change := range map[string]func(*offsets.Stored){
		"of another program": func(s *offsets.Stored) { s.Ours = false },
		"another tree":       func(s *offsets.Stored) { s.Place.Tree = offsets.ID{8} },
		"another cluster":    func(s *offsets.Stored) { s.Place.Cluster = offsets.ID{8} },
		"another topic":      func(s *offsets.Stored) { s.TopicID = sarama.Uuid{9} },
		"nothing":            func(s *offsets.Stored) { *s = offsets.Stored{Offset: -1} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, h := tp("t", 0), newHolder(t, tp("t", 0))
				r := newEarlyRig(t, p, nil)
				s := r.store.Get(p)
				change(&s)
				r.store.Set(map[kiel.Partition]offsets.Stored{p: s})
				r.store.Slow = make(chan struct{})
				done := r.owned(h)
				time.Sleep(5 * time.Second)
				if n := len(r.fetch.streams); n > 0 {
					t.Errorf("opened %d times before the start position was stored", n)
				}
				close(r.store.Slow)
				<-r.fetch.streams
				h.release(t, done)
			})
		})
	}
}
