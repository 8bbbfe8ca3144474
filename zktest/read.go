package zktest

import (
	"slices"
	"strings"
)

// view is what a connection reads: the tree, or what an isolated listener last saw of it.
type view struct {
	tree  tree
	zxid  int64
	stale bool   // cut off: no watch set here will ever fire
	mode  string // of a stale view: what the listener was before
}

// watch sets a watch.
func (v view) watch(t *watchTable, path string, c *conn, mode watchMode) {
	if !v.stale {
		t.add(path, c, mode)
	}
}

// multiRead answers each read by itself.
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
			prefix = "/" // as Java trims
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

// setWatches sets again what a client watched before it reconnected; what has changed since fires at once.
func (v view) setWatches(s *Server, c *conn, r *Request) {
	tell := func(kind eventKind, path string) { c.sendEvent(-1, event{kind: kind, path: path}) }
	for _, path := range r.watches.data {
		switch n := v.tree.get(path); {
		case n == nil:
			tell(eventDeleted, path)
		case n.stat.Mzxid > r.Zxid:
			tell(eventData, path)
		default:
			v.watch(s.dataWatches, path, c, watchOnce)
		}
	}
	for _, path := range r.watches.exist {
		if v.tree.get(path) != nil {
			tell(eventCreated, path)
		} else {
			v.watch(s.dataWatches, path, c, watchOnce)
		}
	}
	for _, path := range r.watches.child {
		switch n := v.tree.get(path); {
		case n == nil:
			tell(eventDeleted, path)
		case n.stat.Pzxid > r.Zxid:
			tell(eventChildren, path)
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

// removeWatches serves removeWatches, and checkWatches, which only looks.
func (s *Server) removeWatches(c *conn, r *Request) Error {
	const all = watchOnce | watchPersistent | watchRecursive
	do := (*watchTable).remove
	if r.Op == OpCheckWatches {
		do = (*watchTable).has
	}
	var done bool
	switch r.mode {
	case 1: // children
		done = do(s.childWatches, r.Path, c, watchOnce)
	case 2: // data
		done = do(s.dataWatches, r.Path, c, watchOnce)
	case 3: // any
		child, data := do(s.childWatches, r.Path, c, all), do(s.dataWatches, r.Path, c, all)
		done = child || data
	case 4: // persistent
		child, data := do(s.childWatches, r.Path, c, watchPersistent), do(s.dataWatches, r.Path, c, watchPersistent)
		done = data || child
	case 5: // persistent and recursive
		done = do(s.dataWatches, r.Path, c, watchRecursive)
	default:
		return ErrMarshalling
	}
	if !done {
		return ErrNoWatcher
	}
	return 0
}
