package offsets

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
)

// Reader reads committed offsets. Requests that arrive while a read is in flight are read together after it.
type Reader struct {
	store    Store
	requests chan readRequest
	done     chan struct{} // closed when Run has returned
}

// readRequest asks for the committed offsets of partitions.
type readRequest struct {
	partitions []kiel.Partition
	topic      *Topic          // what Beginning asks for; nil for GetAll
	answer     chan readAnswer // has room for one answer
}

// readAnswer is the answer to a readRequest. Requests that were read together share found.
type readAnswer struct {
	found     map[kiel.Partition]Stored
	beginning Beginning
	err       error
}

// NewReader returns a Reader; it works while its Run does.
func NewReader(store Store) *Reader {
	return &Reader{store: store, requests: make(chan readRequest), done: make(chan struct{})}
}

// Get returns the committed offset of p.
func (r *Reader) Get(ctx context.Context, p kiel.Partition) (Stored, error) {
	found, err := r.GetAll(ctx, []kiel.Partition{p})
	if err != nil {
		return Stored{Offset: -1}, err
	}
	return found[p], found[p].Err
}

// GetAll returns the committed offset of each of ps. The error is that of the whole request. The map must not be written to.
func (r *Reader) GetAll(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]Stored, error) {
	a := r.ask(ctx, readRequest{partitions: ps, answer: make(chan readAnswer, 1)})
	return a.found, a.err
}

// ask has Run answer q.
func (r *Reader) ask(ctx context.Context, q readRequest) readAnswer {
	select {
	case r.requests <- q:
	case <-ctx.Done():
		return readAnswer{err: operr.New("consumer", "read offsets", "", context.Cause(ctx))}
	case <-r.done:
		return readAnswer{err: operr.New("consumer", "read offsets", "", ErrEnded)}
	}
	select {
	case a := <-q.answer:
		return a
	case <-ctx.Done():
		return readAnswer{err: operr.New("consumer", "read offsets", "", context.Cause(ctx))}
	case <-r.done:
		return readAnswer{err: operr.New("consumer", "read offsets", "", ErrEnded)}
	}
}

// Topic is a topic as it is known now.
type Topic struct {
	Name       string
	ID         sarama.Uuid
	Cluster    ID
	Partitions []int32 // all of them; must not be changed
}

// topicKey tells Topics apart: they have the same partitions if they have as many.
type topicKey struct {
	name       string
	id         sarama.Uuid
	cluster    ID
	partitions int
}

func (t *Topic) key() topicKey { return topicKey{t.Name, t.ID, t.Cluster, len(t.Partitions)} }

// Beginning is what the stored offsets of a topic's partitions say of the group's beginning on the topic.
type Beginning struct {
	// Stored says that an offset is stored in one of the partitions; one that was copied from another cluster, or that is of an
	// earlier topic of the same name, counts.
	Stored bool
	// FirstPartitions is how many partitions the topic had when the group first started on it: the smallest number that the
	// commits have; 0 when none has it. Commits that were copied from another cluster count, too: the group had started there.
	FirstPartitions int32
	// At is the earliest OffsetCommit.Began of the commits of this topic in this cluster; zero if none has it.
	At time.Time
}

// Beginning reads the offsets of a topic. All partitions of a topic may ask at the same time: those that are read together share
// the work, too.
func (r *Reader) Beginning(ctx context.Context, t Topic) (Beginning, error) {
	a := r.ask(ctx, readRequest{topic: &t, answer: make(chan readAnswer, 1)})
	return a.beginning, a.err
}

// BeginningIn returns what the stored offsets of the topic's partitions say.
func (t *Topic) BeginningIn(found map[kiel.Partition]Stored) (b Beginning, err error) {
	for _, id := range t.Partitions {
		s := found[kiel.Partition{Topic: t.Name, ID: id}]
		if s.Err != nil {
			return Beginning{}, s.Err
		}
		b.Stored = b.Stored || s.Offset >= 0
		n := s.FirstPartitions
		switch {
		case s.IsCopied(t.Cluster):
			n = min(n, int32(len(t.Partitions))) // what the topic gets here later is new
		case !SameTopic(s.TopicID, t.ID):
			n = 0
		case !s.Began.IsZero() && (b.At.IsZero() || s.Began.Before(b.At)):
			b.At = s.Began
		}
		if n > 0 && (b.FirstPartitions == 0 || n < b.FirstPartitions) {
			b.FirstPartitions = n
		}
	}
	return b, nil
}

// Run reads until ctx ends.
func (r *Reader) Run(ctx context.Context) {
	defer close(r.done)
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-r.requests:
			r.answer(ctx, gather(r.requests, q))
		}
	}
}

// answer reads the partitions of all requests together, each once.
func (r *Reader) answer(ctx context.Context, requests []readRequest) {
	all, topics := map[kiel.Partition]struct{}{}, map[topicKey]readAnswer{}
	for _, q := range requests {
		for _, p := range q.partitions {
			all[p] = struct{}{}
		}
		if q.topic == nil {
			continue
		}
		if _, known := topics[q.topic.key()]; known {
			continue
		}
		topics[q.topic.key()] = readAnswer{}
		for _, id := range q.topic.Partitions {
			all[kiel.Partition{Topic: q.topic.Name, ID: id}] = struct{}{}
		}
	}
	found, err := r.store.Fetch(ctx, slices.Collect(maps.Keys(all)))
	for _, q := range requests {
		a := readAnswer{found: found, err: err}
		if q.topic != nil && err == nil {
			a = topics[q.topic.key()]
			if a.found == nil {
				a.found = found
				a.beginning, a.err = q.topic.BeginningIn(found)
				topics[q.topic.key()] = a
			}
		}
		q.answer <- a
	}
}
