package consumer

import "sync"

// errorQueue is a channel of errors that never blocks who writes: when it is
// full, the oldest error is dropped.
type errorQueue struct {
	mu      sync.Mutex
	ch      chan error
	closed  bool
	dropped func()
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
		case _, ok := <-q.ch: // not ok can't be: closed is false
			if ok {
				q.dropped()
			}
		default: // a reader was faster
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
