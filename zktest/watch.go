package zktest

import (
	"slices"
	"strings"
)

// eventKind is the type of a watch event on the wire.
type eventKind int32

const (
	eventCreated  eventKind = 1
	eventDeleted  eventKind = 2
	eventData     eventKind = 3
	eventChildren eventKind = 4
)

// event is a change of a znode.
type event struct {
	kind  eventKind
	path  string
	acl   []ACL // the znode's ACL: only clients that may read the znode get the event
	owner int64 // the session that owns the ephemeral znode that was created or deleted
}

// watchMode is a set of the ways in which a connection watches a path.
type watchMode uint8

const (
	watchOnce watchMode = 1 << iota
	watchPersistent
	watchRecursive
)

// watchTable has the watches of one kind: data watches (exists sets these too) or child watches. A watch belongs to a connection
// and ends with it.
type watchTable struct {
	byPath    map[string][]*conn             // the connections that watch a path, in the order in which they began
	byConn    map[*conn]map[string]watchMode // the paths that a connection watches
	recursive int                            // how many recursive watches there are
}

func newWatchTable() *watchTable {
	return &watchTable{byPath: map[string][]*conn{}, byConn: map[*conn]map[string]watchMode{}}
}

// add adds modes to a watch.
func (t *watchTable) add(path string, c *conn, mode watchMode) {
	paths := t.byConn[c]
	if paths == nil {
		paths = map[string]watchMode{}
		t.byConn[c] = paths
	}
	old := paths[path]
	if old == 0 {
		t.byPath[path] = append(t.byPath[path], c)
	}
	if mode&^old&watchRecursive != 0 {
		t.recursive++
	}
	paths[path] = old | mode
}

// remove removes modes from a watch, and reports whether any of them was set.
func (t *watchTable) remove(path string, c *conn, modes watchMode) bool {
	old := t.byConn[c][path]
	if old&modes == 0 {
		return false
	}
	if old&modes&watchRecursive != 0 {
		t.recursive--
	}
	if left := old &^ modes; left != 0 {
		t.byConn[c][path] = left
		return true
	}
	delete(t.byConn[c], path)
	if len(t.byConn[c]) == 0 {
		delete(t.byConn, c)
	}
	list := slices.DeleteFunc(t.byPath[path], func(o *conn) bool { return o == c })
	if len(list) == 0 {
		delete(t.byPath, path)
	} else {
		t.byPath[path] = list
	}
	return true
}

// removeConn removes a connection's watches.
func (t *watchTable) removeConn(c *conn) {
	for path := range t.byConn[c] {
		t.remove(path, c, watchOnce|watchPersistent|watchRecursive)
	}
}

func (t *watchTable) has(path string, c *conn, modes watchMode) bool {
	return t.byConn[c][path]&modes != 0
}

func (t *watchTable) count(c *conn) int { return len(t.byConn[c]) }

// size returns how many watches there are.
func (t *watchTable) size() int {
	n := 0
	for _, paths := range t.byConn {
		n += len(paths)
	}
	return n
}

// trigger returns the connections that watch path and for which sees returns true, each once, and removes their one-shot watches.
// Recursive watches above path count too.
func (t *watchTable) trigger(path string, sees func(*conn) bool) []*conn {
	hit := slices.DeleteFunc(slices.Clone(t.byPath[path]), func(c *conn) bool { return !sees(c) })
	for _, c := range hit {
		t.remove(path, c, watchOnce)
	}
	for above := path; t.recursive > 0 && above != "/" && above != ""; {
		if i := strings.LastIndexByte(above, '/'); i > 0 {
			above = above[:i]
		} else {
			above = "/"
		}
		for _, c := range t.byPath[above] {
			if t.has(above, c, watchRecursive) && sees(c) && !slices.Contains(hit, c) {
				hit = append(hit, c)
			}
		}
	}
	return hit
}

// fireAt sends the events of a transaction to the connections that watch and for which sees returns true. Called with the lock
// held.
func (s *Server) fireAt(t transaction, sees func(*conn) bool) {
	zxid := t.zxid
	for _, e := range t.events {
		switch e.kind {
		case eventCreated, eventData:
			notify(s.dataWatches.trigger(e.path, sees), zxid, e)
		case eventDeleted:
			first := s.dataWatches.trigger(e.path, sees)
			second := slices.DeleteFunc(s.childWatches.trigger(e.path, sees), func(c *conn) bool {
				return slices.Contains(first, c)
			})
			notify(first, zxid, e)
			notify(second, zxid, e)
		case eventChildren:
			notify(s.childWatches.trigger(e.path, sees), zxid, e)
		}
	}
}

// notify sends an event to the connections that may read the znode.
func notify(conns []*conn, zxid int64, e event) {
	for _, c := range conns {
		if permits(e.acl, PermRead, c.who) {
			c.sendEvent(zxid, e)
		}
	}
}

// sendEvent queues the notification of an event.
func (c *conn) sendEvent(zxid int64, e event) {
	enc := newEncoder()
	enc.int32(-1)
	enc.int64(zxid)
	enc.int32(0)
	enc.int32(int32(e.kind))
	enc.int32(3) // SyncConnected
	enc.string(e.path)
	c.send(enc.frame())
}
