package reporting

import "sync"

// queue is a channel of errors to which put writes without blocking. When the channel is full, put drops the oldest error.
type queue struct {
	mu      sync.Mutex
	ch      chan error
	closed  bool
	dropped func() // called for each dropped error
}

func newQueue(size int, dropped func()) *queue {
	return &queue{ch: make(chan error, max(size, 1)), dropped: dropped}
}

func (q *queue) put(err error) {
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

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.ch)
	}
}
