package ownership

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// maxErrors is how many errors wait behind a slow OnError.
const maxErrors = 64

// mailbox runs functions one after the other, in order, on a goroutine of its
// own. Putting one in never blocks.
type mailbox struct {
	mu      sync.Mutex
	queue   []mail
	limit   int                // of the queue, 0 for none
	dropped prometheus.Counter // counts what went over the limit
	wake    chan struct{}      // one slot
	shut    bool
	done    chan struct{} // closed when run returned
}

// mail is a function that waits.
type mail struct {
	kind EventKind // of the event that it tells of, 0 when that is about a partition, or there is none
	f    func()
}

func newMailbox(limit int, dropped prometheus.Counter) *mailbox {
	return &mailbox{limit: limit, dropped: dropped, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// put adds f; after shut it is dropped. Over the limit the oldest is dropped.
func (m *mailbox) put(f func()) {
	m.mu.Lock()
	if !m.shut {
		m.queue = append(m.queue, mail{f: f})
		if m.limit > 0 && len(m.queue) > m.limit {
			m.queue = slices.Delete(m.queue, 0, 1)
			m.dropped.Inc()
		}
	}
	m.mu.Unlock()
	m.ring()
}

// putKind adds f, which tells of an event that is not about a partition. Of
// several of a kind that wait with nothing about a partition in between one is
// told: the newest, but of Untrusted the oldest, since which nothing was owned.
func (m *mailbox) putKind(kind EventKind, f func()) {
	m.mu.Lock()
	defer m.ring()
	defer m.mu.Unlock()
	if m.shut {
		return
	}
	for i, waits := range slices.Backward(m.queue) {
		if waits.kind == 0 {
			break
		}
		if waits.kind == kind {
			if kind == Untrusted {
				return
			}
			m.queue = slices.Delete(m.queue, i, i+1)
			break
		}
	}
	m.queue = append(m.queue, mail{kind: kind, f: f})
}

// close lets run return once it has run what was put in before.
func (m *mailbox) close() {
	m.mu.Lock()
	m.shut = true
	m.mu.Unlock()
	m.ring()
}

// discard drops what waits, so that only a function that runs now goes on.
func (m *mailbox) discard() {
	m.mu.Lock()
	m.shut, m.queue = true, nil
	m.mu.Unlock()
	m.ring()
}

func (m *mailbox) ring() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// run runs the functions until close.
func (m *mailbox) run() {
	defer close(m.done)
	for {
		f, shut := m.take()
		switch {
		case f != nil:
			f()
		case shut:
			return
		default:
			<-m.wake
		}
	}
}

func (m *mailbox) take() (f func(), shut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) == 0 {
		m.queue = nil
		return nil, m.shut
	}
	f = m.queue[0].f
	m.queue[0] = mail{}
	m.queue = m.queue[1:]
	return f, false
}
