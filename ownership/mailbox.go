package ownership

import "sync"

// mailbox runs functions one after the other, in order, on a goroutine of its
// own. Putting one in never blocks.
type mailbox struct {
	mu    sync.Mutex
	queue []func()
	wake  chan struct{} // one slot
	shut  bool
	done  chan struct{} // closed when run returned
}

func newMailbox() *mailbox {
	return &mailbox{wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// put adds f; after shut it is dropped.
func (m *mailbox) put(f func()) {
	m.mu.Lock()
	if !m.shut {
		m.queue = append(m.queue, f)
	}
	m.mu.Unlock()
	m.ring()
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
	f = m.queue[0]
	m.queue[0] = nil
	m.queue = m.queue[1:]
	return f, false
}
