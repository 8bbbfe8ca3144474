package session

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// Watch tells when to read again what was read with it. It is a hint, good for one time.
type Watch struct {
	hub  *hub
	wait *wait
	once sync.Once
}

// C is closed when to look again: what was read has changed, the connection was dropped, the incarnation has ended, or
// the session's timeout has passed, or nearly, without any of these. The watch of an incarnation that has ended is closed from
// the start. The watch of ChildrenLasting is not closed because time has passed.
func (w *Watch) C() <-chan struct{} { return w.wait.c }

// Deleted reports, when C is closed, whether that is because the server said that the znode was deleted. It may have been
// made again since.
func (w *Watch) Deleted() bool {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.wait.deleted
}

// Changed reports, when C is closed, whether that is because the server said that something has changed. Otherwise what was
// read with the watch may be as it was: its metadata tell.
func (w *Watch) Changed() bool {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.wait.changed
}

// Stop says that nobody waits for this watch any more, and frees at once what otherwise the next hint frees. C may then
// never be closed. It may be called any number of times.
func (w *Watch) Stop() { w.once.Do(func() { w.hub.leave(w.wait) }) }

// watchKey is what a server watch is registered for; the operation tells the kind.
type watchKey struct {
	op      int32
	path    string
	lasting bool // it does not end because time has passed
}

// wait is what all who wait for the same thing share. It ends with the first hint.
type wait struct {
	key     watchKey
	c       chan struct{}
	users   int
	timer   *time.Timer // nil when the wait is lasting
	changed bool        // it ended because the server told of a change
	deleted bool        // … and the change is that the znode was deleted
}

// hub holds what somebody waits for, on one client. As long as there is a wait, every read of the same kind and path
// asks the server for a watch; the server keeps one for each kind and path, however often it is asked. So nothing
// piles up, and a watch that got lost is set again by the next read.
type hub struct {
	mu     sync.Mutex
	waits  map[watchKey]*wait
	closed bool
}

// join returns a Watch for key, which wakes after 4/5 of limit at the earliest and limit at the latest, unless it is lasting. It must
// be called before the read is sent, so that no change is missed in between.
func (h *hub) join(key watchKey, limit time.Duration) *Watch {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.waits[key]
	if w == nil {
		w = &wait{key: key, c: make(chan struct{})}
		if h.closed {
			close(w.c)
			return &Watch{hub: h, wait: w}
		}
		if h.waits == nil {
			h.waits = make(map[watchKey]*wait)
		}
		h.waits[key] = w
		if !key.lasting {
			w.timer = time.AfterFunc(limit-rand.N(limit/5), func() { h.end(w) }) // those who came together do not come again together
		}
	}
	w.users++
	return &Watch{hub: h, wait: w}
}

func (h *hub) leave(w *wait) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.users--
	if w.users == 0 && h.waits[w.key] == w {
		h.remove(w)
	}
}

// remove needs mu.
func (h *hub) remove(w *wait) {
	delete(h.waits, w.key)
	if w.timer != nil {
		w.timer.Stop()
	}
}

// wanted reports whether somebody waits for what a read of that kind tells.
func (h *hub) wanted(op int32, path string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waits[watchKey{op: op, path: path}] != nil || h.waits[watchKey{op: op, path: path, lasting: true}] != nil
}

// event wakes whom an event from the server concerns. It is called from go-zookeeper's receiving loop, before a reply
// that shows the change is handed on.
func (h *hub) event(kind zk.EventType, path string) {
	var ops []int32
	switch kind {
	case zk.EventNodeCreated, zk.EventNodeDataChanged:
		ops = []int32{opExists, opGetData}
	case zk.EventNodeDeleted:
		ops = []int32{opExists, opGetData, opChildren2}
	case zk.EventNodeChildrenChanged:
		ops = []int32{opChildren2}
	default:
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, op := range ops {
		for _, lasting := range []bool{false, true} {
			if w := h.waits[watchKey{op, path, lasting}]; w != nil {
				w.changed, w.deleted = true, kind == zk.EventNodeDeleted
				h.wake(w)
			}
		}
	}
}

// wakeAll wakes everybody.
func (h *hub) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.waits {
		h.wake(w)
	}
}

// close wakes everybody; what joins later is awake from the start.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.wakeAll()
}

// end wakes those of one wait.
func (h *hub) end(w *wait) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waits[w.key] == w {
		h.wake(w)
	}
}

// wake needs mu.
func (h *hub) wake(w *wait) {
	h.remove(w)
	close(w.c)
}

// size is how many waits there are.
func (h *hub) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waits)
}
