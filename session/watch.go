package session

import (
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/internal/pause"
)

// Watch tells when to repeat the read that returned it. It is a hint, and wakes once.
type Watch struct {
	hub  *hub
	wait *wait
	once sync.Once
}

// C returns a channel that is closed when the caller should read again: what was read has changed, the connection was lost, the
// incarnation has ended, or 4/5 T to T have passed without any of these (T is the session timeout). The channel of an incarnation
// that has ended is closed from the start. The channel of ChildrenLasting is not closed because time has passed.
func (w *Watch) C() <-chan struct{} { return w.wait.c }

// Deleted reports, once C is closed, whether the reason is that the server reported the znode's deletion. The znode may have been
// created again since.
func (w *Watch) Deleted() bool {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.wait.deleted
}

// Changed reports, once C is closed, whether the reason is that the server reported a change. Otherwise what was read with the
// watch may be unchanged; the znode's metadata show whether it is.
func (w *Watch) Changed() bool {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.wait.changed
}

// Stop says that nobody waits for this watch any more, and frees at once what the next hint would free. C may then never be
// closed. Stop may be called any number of times.
func (w *Watch) Stop() { w.once.Do(func() { w.hub.leave(w.wait) }) }

// watchKey says what a watch is for.
type watchKey struct {
	op      int32  // of the read, which tells the kind of the watch
	path    string // as the servers know it
	lasting bool   // the watch does not wake because time has passed
}

// wait is shared by all Watches with the same key. It ends with the first hint.
type wait struct {
	key     watchKey
	c       chan struct{} // closed when the wait ends with a hint
	users   int           // Watches that were not stopped
	timer   *time.Timer   // ends the wait; nil when the wait is lasting
	changed bool          // the wait ended because the server reported a change
	deleted bool          // … and the change is the znode's deletion
}

// hub holds the waits of one client. As long as there is a wait, every read of the same kind and path asks the server for a
// watch; the server keeps one watch for each kind and path, however often it is asked. So watches do not pile up on the server,
// and the next read sets a lost watch again.
type hub struct {
	mu     sync.Mutex
	waits  map[watchKey]*wait
	closed bool // the client has ended

	sets map[*DataWatches]struct{}
	link *netConn // the connection that has been told of the sets' watches, and is told of further ones; nil for none
}

// join returns a Watch for key. Unless key is lasting, the Watch wakes by itself after 4/5 of limit to limit. join must be called
// before the read is sent, or a change between the two would be missed.
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
			w.timer = time.AfterFunc(pause.Early(limit, limit/5), func() { h.end(w) }) // at random, so that members do not all read at once again
		}
	}
	w.users++
	return &Watch{hub: h, wait: w}
}

// leave takes one Watch away from w, and removes w with its last one.
func (h *hub) leave(w *wait) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.users--
	if w.users == 0 && h.waits[w.key] == w {
		h.remove(w)
	}
}

// remove takes w out of the waits. The caller holds mu.
func (h *hub) remove(w *wait) {
	delete(h.waits, w.key)
	if w.timer != nil {
		w.timer.Stop()
	}
}

// wanted reports whether somebody waits on a watch of that kind and path.
func (h *hub) wanted(op int32, path string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waits[watchKey{op: op, path: path}] != nil || h.waits[watchKey{op: op, path: path, lasting: true}] != nil
}

// event wakes the waits that an event of the server concerns. go-zookeeper's receiving loop calls it before it passes on any
// reply that shows the change.
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
	if slices.Contains(ops, opGetData) {
		for w := range h.sets {
			w.note(path)
		}
	}
	for _, op := range ops {
		for _, lasting := range []bool{false, true} {
			if w := h.waits[watchKey{op, path, lasting}]; w != nil {
				w.changed, w.deleted = true, kind == zk.EventNodeDeleted
				h.wake(w)
			}
		}
	}
}

// wakeAll ends all waits with a hint.
func (h *hub) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.waits {
		h.wake(w)
	}
}

// close ends all waits with a hint; the channels of later Watches are closed from the start.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.wakeAll()
}

// end ends w with a hint, if it has not ended yet.
func (h *hub) end(w *wait) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waits[w.key] == w {
		h.wake(w)
	}
}

// wake ends w with a hint. The caller holds mu.
func (h *hub) wake(w *wait) {
	h.remove(w)
	close(w.c)
}

// size returns how many waits there are.
func (h *hub) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waits)
}
