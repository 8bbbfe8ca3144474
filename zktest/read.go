package zktest

import (
	"slices"
	"strings"
)

// view is what a connection reads: the server's tree, or an older one of a listener that is isolated or lags.
type view struct {
	tree  tree
	zxid  int64
	stale bool   // whether the listener is isolated: no watch fires
	mode  string // the mode of an isolated listener, which is that from before
}

// watch sets a watch, unless it would never fire.
func (v view) watch(t *watchTable, path string, c *conn, mode watchMode) {
	if !v.stale {
		t.add(path, c, mode)
	}
}

// multiRead answers each read of a multiRead separately.
func (v view) multiRead(s *Server, c *conn, r *Request, e *encoder) {
	for _, op := range r.Ops {
		n := v.tree.get(op.Path)
		switch {
		case n == nil:
			e.multiError(ErrNoNode)
		case !permits(n.acl, PermRead, c.who):
			e.multiError(ErrNoAuth)
		default:
			e.multiHeader(op.Op, false, 0)
			v.readNode(s, c, &op, n, e)
		}
	}
	e.multiDone()
}

// read answers an operation that changes nothing.
func (v view) read(s *Server, c *conn, r *Request, e *encoder) Error {
	switch r.Op {
	case OpExists, OpGetData, OpGetChildren, OpGetChildren2, OpGetACL, OpCountChildren:
		return v.readPath(s, c, r, e)
	case OpSync:
		e.string(r.Path)
	case OpSetWatches, OpSetWatches2:
		v.setWatches(s, c, r)
		if r.watches.null {
			return ErrMarshalling
		}
	case OpAddWatch:
		return v.addWatch(s, c, r, e)
	case OpRemoveWatches, OpCheckWatches:
		return s.removeWatches(c, r)
	case OpGetEphemerals:
		var list []string
		prefix := r.Path
		if trimmed := strings.TrimFunc(prefix, func(r rune) bool { return r <= ' ' }); trimmed == "" || trimmed == "/" {
			prefix = "/" // the server trims as Java does
		}
		for path, n := range v.tree {
			if n.stat.EphemeralOwner == c.session.id && strings.HasPrefix(path, prefix) {
				list = append(list, path)
			}
		}
		slices.Sort(list)
		e.strings(list)
	case OpWhoAmI:
		e.int32(int32(len(c.who)))
		for _, i := range c.who {
			user, _, _ := strings.Cut(i.id, ":")
			e.string(i.scheme)
			e.string(user)
		}
	default:
		return ErrUnimplemented
	}
	return 0
}

// readPath answers a read of one znode.
func (v view) readPath(s *Server, c *conn, r *Request, e *encoder) Error {
	n := v.tree.get(r.Path)
	if r.Op == OpExists {
		if strings.IndexByte(r.Path, 0) >= 0 {
			return ErrBadArguments
		}
		if r.Watch && (n == nil || permits(n.acl, PermRead, c.who)) {
			v.watch(s.dataWatches, r.Path, c, watchOnce)
		}
	}
	if n == nil {
		return ErrNoNode
	}
	perm := PermRead
	if r.Op == OpGetACL {
		perm |= PermAdmin
	}
	if !permits(n.acl, perm, c.who) {
		return ErrNoAuth
	}
	v.readNode(s, c, r, n, e)
	return 0
}

// readNode adds the answer about a znode to the reply, and sets the watch.
func (v view) readNode(s *Server, c *conn, r *Request, n *node, e *encoder) {
	switch r.Op {
	case OpExists:
		e.stat(n.statNow())
	case OpGetData:
		if r.Watch {
			v.watch(s.dataWatches, r.Path, c, watchOnce)
		}
		e.bytes(n.data)
		e.stat(n.statNow())
	case OpGetChildren, OpGetChildren2:
		if r.Watch {
			v.watch(s.childWatches, r.Path, c, watchOnce)
		}
		e.strings(n.list())
		if r.Op == OpGetChildren2 {
			e.stat(n.statNow())
		}
	case OpGetACL:
		acl := n.acl
		if !permits(acl, PermAdmin, c.who) {
			acl = maskACL(acl)
		}
		e.acls(acl)
		e.stat(n.statNow())
	case OpCountChildren:
		prefix, count := strings.TrimSuffix(n.path, "/")+"/", int32(0)
		for path := range v.tree {
			if path != "/" && strings.HasPrefix(path, prefix) {
				count++
			}
		}
		e.int32(count)
	default: // the other operations read no znode
	}
}

// setWatches sets the watches again that a client had before it reconnected. Watches whose znode has changed since fire at once.
func (v view) setWatches(s *Server, c *conn, r *Request) {
	notify := func(kind eventKind, path string) { c.sendEvent(-1, event{kind: kind, path: path}) }
	for _, path := range r.watches.data {
		switch n := v.tree.get(path); {
		case n == nil:
			notify(eventDeleted, path)
		case n.stat.Mzxid > r.Zxid:
			notify(eventData, path)
		default:
			v.watch(s.dataWatches, path, c, watchOnce)
		}
	}
	for _, path := range r.watches.exist {
		if v.tree.get(path) != nil {
			notify(eventCreated, path)
		} else {
			v.watch(s.dataWatches, path, c, watchOnce)
		}
	}
	for _, path := range r.watches.child {
		switch n := v.tree.get(path); {
		case n == nil:
			notify(eventDeleted, path)
		case n.stat.Pzxid > r.Zxid:
			notify(eventChildren, path)
		default:
			v.watch(s.childWatches, path, c, watchOnce)
		}
	}
	for _, path := range r.watches.persistent {
		v.watch(s.childWatches, path, c, watchPersistent)
		v.watch(s.dataWatches, path, c, watchPersistent)
	}
	for _, path := range r.watches.recursive {
		v.watch(s.dataWatches, path, c, watchRecursive)
	}
}

// addWatch sets a persistent or a recursive watch.
func (v view) addWatch(s *Server, c *conn, r *Request, e *encoder) Error {
	switch r.mode {
	case 0:
		v.watch(s.childWatches, r.Path, c, watchPersistent)
		v.watch(s.dataWatches, r.Path, c, watchPersistent)
	case 1:
		v.watch(s.dataWatches, r.Path, c, watchRecursive)
	default:
		return ErrMarshalling
	}
	e.int32(0)
	return 0
}

// removeWatches answers removeWatches, and checkWatches, which removes nothing.
func (s *Server) removeWatches(c *conn, r *Request) Error {
	const all = watchOnce | watchPersistent | watchRecursive
	do := (*watchTable).remove
	if r.Op == OpCheckWatches {
		do = (*watchTable).has
	}
	var found bool
	switch r.mode {
	case 1: // children
		found = do(s.childWatches, r.Path, c, watchOnce)
	case 2: // data
		found = do(s.dataWatches, r.Path, c, watchOnce)
	case 3: // any
		child, data := do(s.childWatches, r.Path, c, all), do(s.dataWatches, r.Path, c, all)
		found = child || data
	case 4: // persistent
		child, data := do(s.childWatches, r.Path, c, watchPersistent), do(s.dataWatches, r.Path, c, watchPersistent)
		found = data || child
	case 5: // persistent and recursive
		found = do(s.dataWatches, r.Path, c, watchRecursive)
	default:
		return ErrMarshalling
	}
	if !found {
		return ErrNoWatcher
	}
	return 0
}
