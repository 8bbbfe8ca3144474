package session

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// maxWatchRequest bounds the size of a request that sets watches: well below any jute.maxbuffer, since a server that takes
	// less ends the connection.
	maxWatchRequest = 4 << 10
	// setWatchesAgain is the pause before watches are set again that a server has refused to set, because it has too much to do
	// for instance.
	setWatchesAgain = time.Second
)

// DataWatches tells of changes of the data of many znodes, and of their deletion. It sends a request for some fifty znodes when
// they are added, and when a connection was lost and made again, and none besides. It rests on what the servers promise: the
// event of a watch comes before any answer that shows the change, and a client that connects again learns of what has changed
// since its last answer. All methods may be called from any goroutine; none blocks.
//
// Two things are not told. When an ensemble goes back to a backup and accepts its clients as if nothing had happened (LeaderEpoch
// changes, History does not), znodes are as they were before, which no watch notices. And ZooKeeper 3.8 and newer do not send the
// event of a znode that its ACL does not let the session read.
type DataWatches struct {
	c    *client
	wake chan struct{} // has one slot

	// The hub's mu guards the fields below.
	since   map[string]int64 // by path as the servers know it; see add
	changed []string
	ended   bool
}

// DataWatches returns a DataWatches without a znode, which ends with the incarnation.
func (i *Incarnation) DataWatches() *DataWatches {
	w := &DataWatches{c: i.c, wake: make(chan struct{}, 1), since: make(map[string]int64)}
	i.c.watches.addSet(w)
	context.AfterFunc(i.ctx, w.End)
	return w
}

// Add watches the znodes with these paths, of which the caller knows the state as of the transaction since: of any later change
// it is told, be it before the watch reaches the server or after. A path that is watched already is watched from since on.
func (w *DataWatches) Add(since int64, paths ...string) {
	full := make([]string, len(paths))
	for i, path := range paths {
		full[i] = w.c.full(path)
	}
	if link := w.c.watches.add(w, since, full); link != nil {
		w.c.start(func() { link.setWatches(since, full) })
	}
}

// Remove ends the watches of these paths. The server forgets them with the next change, or with the connection.
func (w *DataWatches) Remove(paths ...string) {
	h := &w.c.watches
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, path := range paths {
		delete(w.since, w.c.full(path))
	}
}

// End ends all watches.
func (w *DataWatches) End() {
	h := &w.c.watches
	h.mu.Lock()
	defer h.mu.Unlock()
	w.ended, w.since, w.changed = true, nil, nil
	delete(h.sets, w)
}

// C returns a channel from which a value can be received when Changed has something to return.
func (w *DataWatches) C() <-chan struct{} { return w.wake }

// Changed returns the paths of which a change was told since the last call. They are not watched any more.
func (w *DataWatches) Changed() []string {
	h := &w.c.watches
	h.mu.Lock()
	defer h.mu.Unlock()
	changed := w.changed
	w.changed = nil
	return changed
}

// note notes a change of a znode, if it is watched. The caller holds the hub's mu.
func (w *DataWatches) note(full string) {
	if _, watched := w.since[full]; !watched {
		return
	}
	delete(w.since, full)
	w.changed = append(w.changed, cmp.Or(full[len(w.c.opts.Chroot):], "/"))
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// answered says for each path of a DataWatches that the server has set its watch.
const answered = -1

func (h *hub) addSet(w *DataWatches) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sets == nil {
		h.sets = make(map[*DataWatches]struct{})
	}
	h.sets[w] = struct{}{}
}

// add notes that paths are to be watched from since on, and returns the connection that is to be told, or nil if there is none:
// the next one is told when it is made.
func (h *hub) add(w *DataWatches, since int64, full []string) *netConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.ended {
		return nil
	}
	for _, path := range full {
		w.since[path] = since
	}
	return h.link
}

// linked returns what is to be set on a new connection, by the transaction since which each path is to be watched. Those of which
// the server before had set the watch are watched since last, the last transaction of any answer.
func (h *hub) linked(link *netConn, last int64) map[int64][]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.link = link
	again := make(map[int64][]string)
	for w := range h.sets {
		for path, since := range w.since {
			if since == answered {
				since = last
				w.since[path] = last
			}
			again[since] = append(again[since], path)
		}
	}
	return again
}

// unlinked notes that a connection has ended.
func (h *hub) unlinked(link *netConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link == link {
		h.link = nil
	}
}

// set notes that a server has set the watches of a request.
func (h *hub) set(r watchRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.sets {
		for _, path := range r.paths {
			if since, watched := w.since[path]; watched && since == r.since {
				w.since[path] = answered
			}
		}
	}
}

// notSet returns those paths of a request whose watches are still to be set.
func (h *hub) notSet(r watchRequest) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.paths), func(path string) bool {
		for w := range h.sets {
			if since, watched := w.since[path]; watched && since == r.since {
				return false
			}
		}
		return true
	})
}

// watchRequest is a request that has set watches and was not answered yet.
type watchRequest struct {
	since int64
	paths []string
}

// watchRequests are those of one connection.
type watchRequests struct {
	writing sync.Mutex // held while requests are written, which may block
	mu      sync.Mutex
	sent    []watchRequest // in the order in which they are written
}

func (r *watchRequests) add(w watchRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, w)
}

// setWatches has the server watch paths since a transaction.
func (n *netConn) setWatches(since int64, paths []string) {
	n.watching.writing.Lock()
	defer n.watching.writing.Unlock()
	limit := min(maxWatchRequest, n.c.opts.MaxPacket-setWatchesSize)
	for len(paths) > 0 {
		size, fit := 0, 0
		for fit < len(paths) && (fit == 0 || size+4+len(paths[fit]) <= limit) {
			size += 4 + len(paths[fit])
			fit++
		}
		n.watching.add(watchRequest{since, paths[:fit:fit]})
		if _, err := n.Conn.Write(appendSetWatches(nil, since, paths[:fit])); err != nil {
			n.fail(err)
			return
		}
		paths = paths[fit:]
	}
}

// watchesSet takes the answer to the oldest request of setWatches.
func (n *netConn) watchesSet(code int32) error {
	n.watching.mu.Lock()
	if len(n.watching.sent) == 0 {
		n.watching.mu.Unlock()
		return malformed("an answer to watches that were not set")
	}
	r := n.watching.sent[0]
	n.watching.sent = slices.Delete(n.watching.sent, 0, 1)
	n.watching.mu.Unlock()
	if code == 0 {
		n.c.watches.set(r)
		return nil
	}
	n.c.log.Debug("server has refused to set watches", keyServer, n.address, keyText, fmt.Sprintf("code %d", code))
	time.AfterFunc(setWatchesAgain, func() {
		n.c.start(func() { n.setWatches(r.since, n.c.watches.notSet(r)) })
	})
	return nil
}

// setWatchesSize is the size of a request that sets no watch.
const setWatchesSize = 4 + 4 + 4 + 8 + 3*4

// appendSetWatches appends the frame of a request that sets watches on data.
func appendSetWatches(b []byte, since int64, paths []string) []byte {
	start, xid := len(b), int32(xidSetWatches)
	b = binary.BigEndian.AppendUint32(b, 0) // the length, see below
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, opSetWatches)
	b = binary.BigEndian.AppendUint64(b, uint64(since))
	b = binary.BigEndian.AppendUint32(b, uint32(len(paths)))
	for _, path := range paths {
		b = binary.BigEndian.AppendUint32(b, uint32(len(path)))
		b = append(b, path...)
	}
	b = binary.BigEndian.AppendUint32(b, 0) // watches of znodes that do not exist
	b = binary.BigEndian.AppendUint32(b, 0) // watches of children
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}
