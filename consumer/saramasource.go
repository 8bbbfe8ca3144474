package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/fetch"
)

const (
	// patience is how long a full queue waits for its reader before it takes what
	// was fetched all the same and pauses its partition. sarama fetches all
	// partitions of a broker in one loop, which waits for the slowest: nobody
	// waits for a slow handler longer than this, and a handler that empties a
	// queue within patience is never paused.
	patience = 50 * time.Millisecond
	// overhead is what a message takes in memory beside its key and value.
	overhead = 160
)

// errStreamEnded says that a stream closed by itself.
var errStreamEnded = errors.New("consumer: reading ended by itself")

// stream is a sarama.PartitionConsumer. Both channels must be read until they are
// closed; they close after AsyncClose, or by themselves when reading can't go on.
type stream interface {
	Messages() <-chan *sarama.ConsumerMessage
	Errors() <-chan *sarama.ConsumerError
	HighWaterMarkOffset() int64
	Pause()
	Resume()
	AsyncClose()
}

// streamSource is a source that reads from a stream. It keeps what was fetched in
// a queue of about limit bytes, so that the other partitions of the broker go on.
type streamSource struct {
	stream stream
	limit  int
	filled chan struct{} // holds a token when the queue may hold messages
	room   chan struct{} // holds a token when the queue may have room
	closed chan struct{} // closed by Close
	ended  chan struct{} // closed when both channels of the stream are closed and read
	once   sync.Once     // of Close

	mu    sync.Mutex
	queue []sarama.ConsumerMessage
	bytes int   // of queue
	next  int64 // the offset after what Next returned
	user  bool  // the user has paused the partition
	full  bool  // the partition is paused because the queue is full
}

// newStreamSource starts to read s, which starts at offset, with start.
func newStreamSource(s stream, offset int64, limit int, start func(func()), report func(error)) *streamSource {
	src := &streamSource{
		stream: s, limit: limit, next: offset,
		filled: make(chan struct{}, 1), room: make(chan struct{}, 1), closed: make(chan struct{}), ended: make(chan struct{}),
	}
	start(func() {
		defer close(src.ended)
		collected := make(chan struct{})
		start(func() {
			defer close(collected)
			src.collect()
		})
		for e := range s.Errors() {
			report(e)
		}
		<-collected
	})
	return src
}

// collect moves messages from the stream to the queue until the stream is closed.
func (s *streamSource) collect() {
	for m := range s.stream.Messages() {
		full := s.push(m)
		signal(s.filled)
		if full {
			s.awaitRoom()
		}
	}
}

// push reports whether the queue is full.
func (s *streamSource) push(m *sarama.ConsumerMessage) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return false
	default:
	}
	s.queue = append(s.queue, *m)
	s.bytes += len(m.Key) + len(m.Value) + overhead
	return s.bytes >= s.limit && !s.full
}

// awaitRoom waits until the queue was taken, or pauses the partition after patience.
func (s *streamSource) awaitRoom() {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for s.isFull() {
		select {
		case <-s.room:
		case <-s.closed:
			return
		case <-timer.C:
			s.pause(func() { s.full = s.bytes >= s.limit })
			return
		}
	}
}

func (s *streamSource) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes >= s.limit
}

// pause changes why the partition is paused, and pauses or resumes it.
func (s *streamSource) pause(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.user || s.full
	change()
	switch after := s.user || s.full; {
	case after && !before:
		s.stream.Pause()
	case before && !after:
		s.stream.Resume()
	}
}

// Next returns all that is in the queue.
func (s *streamSource) Next(ctx context.Context) (fetch.Batch, error) {
	for {
		if b, ok := s.take(); ok {
			return b, nil
		}
		select {
		case <-s.filled:
		case <-s.ended:
			if b, ok := s.take(); ok {
				return b, nil
			}
			return fetch.Batch{}, errStreamEnded
		case <-ctx.Done():
			return fetch.Batch{}, context.Cause(ctx)
		}
	}
}

func (s *streamSource) take() (fetch.Batch, bool) {
	var b fetch.Batch
	s.pause(func() {
		if n := len(s.queue); n > 0 {
			b = fetch.Batch{Messages: s.queue, Next: s.queue[n-1].Offset + 1, LeaderEpoch: -1}
			s.next = b.Next
		}
		s.queue, s.bytes, s.full = nil, 0, false
	})
	signal(s.room)
	return b, len(b.Messages) > 0
}

// Pause suspends fetching for the user.
func (s *streamSource) Pause() { s.pause(func() { s.user = true }) }

// Resume ends that.
func (s *streamSource) Resume() { s.pause(func() { s.user = false }) }

// HighWatermark returns what sarama knows of it.
func (s *streamSource) HighWatermark() int64 { return s.stream.HighWaterMarkOffset() }

// Lag counts from what Next returned.
func (s *streamSource) Lag() (messages int64, behind time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		behind = max(0, time.Since(s.queue[0].Timestamp))
	}
	return max(0, s.stream.HighWaterMarkOffset()-s.next), behind
}

// Close ends reading and drops the queue.
func (s *streamSource) Close() {
	s.once.Do(func() {
		close(s.closed)
		s.stream.AsyncClose()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queue, s.bytes = nil, 0
	})
}

// signal puts a token into c, which holds one at most.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
