package consumer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
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
		assert.Equal(t, len(r.fetch.streams), 1, "fetches before the answer")
		assert.Slices(t, r.kinds(p), nil, "events before the answer")
		close(r.store.Slow)
		synctest.Wait()
		assert.Equal(t, len(r.kinds(p)), 5, "committed, opened, and three messages: %v", r.kinds(p))
		assert.Equal(t, len(r.fetch.streams), 1, "fetches")
		h.release(t, done)
		assert.Equal(t, r.store.Get(p).Offset, 43, "stored")
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
		s, done := r.opened(h)
		synctest.Wait()
		assert.Equal(t, s.closed.Load(), true, "the stream is closed when the start position is refused")
		time.Sleep(time.Minute)
		assert.Equal(t, len(r.fetch.streams), 0, "fetches while the start position is refused")
		assert.Slices(t, r.kinds(p), nil, "handed out")
		r.refuse.Store(nil)
		time.Sleep(2 * maxOpenBackoff)
		assert.Equal(t, len(r.fetch.streams), 1, "fetches when the start position was stored")
		assert.Equal(t, len(r.kinds(p)), 6, "committed, opened, three messages, and committed: %v", r.kinds(p))
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
		s, _ := r.opened(h)
		synctest.Wait()
		h.lose()
		synctest.Wait()
		assert.Equal(t, s.closed.Load(), true, "the stream is closed when the claim is lost")
		assert.Slices(t, r.kinds(p), nil, "handed out")
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
		bubble.Run(t, name, func(t *testing.T) {
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
	}
}
