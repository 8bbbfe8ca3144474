package consumer

import "sync"

// errorQueue is a channel of errors to which put writes without blocking. When the channel is full, put drops the oldest error.
type errorQueue struct {
	mu      sync.Mutex
	ch      chan error
	closed  bool
	dropped func() // called for each dropped error
}

func newErrorQueue(size int, dropped func()) *errorQueue {
	return &errorQueue{ch: make(chan error, max(size, 1)), dropped: dropped}
}

func (q *errorQueue) put(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	for {
		select {
		case q.ch <- err:
			return
		default:
		}
		select {
		case <-q.ch: //nolint:errcheck // the oldest error is dropped
			q.dropped()
		default: // a reader has made room
		}
	}
}

func (q *errorQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.ch)
	}
}
