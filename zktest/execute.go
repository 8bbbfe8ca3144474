package zktest

import (
	"maps"
	"slices"
	"strings"
)

// handle executes one request. It returns false when the connection is to be closed, after what is queued.
func (s *Server) handle(c *conn, r *Request) bool {
	s.mu.Lock()
	if !s.awaitGate(c) || c.mute {
		s.mu.Unlock()
		return c.mute
	}
	r.Client = c.client
	if c.session != nil {
		r.Session = c.session.id
	}
	s.stats.Requests[r.Op]++
	hook, loss := s.faults.hook, s.faults.loss
	s.mu.Unlock()

	var act Action
	if hook != nil {
		act = hook(r)
	}
	lose := loss != nil && r.Op != OpPing && (loss.match == nil || loss.match(*r))

	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.awaitGate(c) {
		return false
	}
	switch {
	case act.Cut:
		c.drop(true)
		return false
	case act.Ignore:
		return true
	}
	lose = act.LoseReply || lose && loss.take()
	queued := len(c.out)
	keep := s.execute(c, r, act.Err)
	if lose {
		c.out = c.out[:queued]
		return false
	}
	return keep
}

// execute does a request and queues the reply. Called with the lock held.
func (s *Server) execute(c *conn, r *Request, refuse Error) bool {
	if s.clock.armed != 0 && s.clock.armed <= s.clock.now() {
		s.due() // the timer may be late by a moment; the session is over all the same
		s.arm()
	}
	if r.hello {
		if s.faults.silent || refuse != 0 {
			c.mute = true
			return true
		}
		return s.connect(c, r)
	}
	ses := c.session
	if c.closing || ses == nil || s.sessions[ses.id] != ses {
		return false
	}
	if r.Op == OpAuth {
		return s.auth(c, r, refuse)
	}
	s.touch(ses, c.timeout)
	if refuse != 0 {
		s.reply(c, r.Xid, refuse, nil)
		return true
	}
	switch r.Op {
	case OpPing:
		s.reply(c, -2, 0, nil)
		return true
	case OpCloseSession:
		s.endSession(ses, c)
		s.arm()
		s.reply(c, r.Xid, 0, nil)
		return false
	case OpReconfig:
		s.zxid++
		s.reply(c, r.Xid, ErrReconfigDisabled, nil)
		return true
	default:
	}
	if !r.Op.served() { // answered without a zxid, and the connection is closed
		e := newReply(r.Xid)
		e.finish(-1, ErrUnimplemented)
		c.send(e.frame())
		return false
	}
	e := newReply(r.Xid)
	code := Error(0)
	switch {
	case r.bad:
		if r.Op == OpMulti {
			s.zxid++
		}
		code = ErrMarshalling
	case r.Op == OpMulti:
		s.multi(c, ses, r, e)
	case r.Op == OpMultiRead:
		s.multiRead(c, r, e)
	case r.Op.Writes():
		code = s.write(c, ses, r, e)
	default:
		code = s.read(c, ses, r, e)
	}
	e.finish(s.zxid, code)
	c.send(e.frame())
	return true
}

// newReply starts a reply whose header is filled in by finish.
func newReply(xid int32) *encoder {
	e := newEncoder()
	e.int32(xid)
	e.int64(0)
	e.int32(0)
	return e
}

const replyHeader = 4 + 16

// finish fills in a reply's header; an error has no body.
func (e *encoder) finish(zxid int64, code Error) {
	if code != 0 {
		e.b = e.b[:replyHeader]
	}
	head := encoder{b: e.b[:8]}
	head.int64(zxid)
	head.int32(int32(code))
}

// reply queues a reply without a body, or with the one that body writes. Called with the lock held.
func (s *Server) reply(c *conn, xid int32, code Error, body func(e *encoder)) {
	e := newReply(xid)
	if body != nil {
		body(e)
	}
	e.finish(s.zxid, code)
	c.send(e.frame())
}

// write does one operation as a transaction of its own. A refused one has taken a zxid all the same, as in ZooKeeper.
func (s *Server) write(c *conn, ses *session, r *Request, e *encoder) Error {
	t := s.begin(ses.id, c.who)
	res, code := t.apply(r)
	if code != 0 {
		return code
	}
	s.commit(t)
	switch r.Op {
	case OpCreate:
		e.string(res.path)
	case OpCreate2, OpCreateContainer, OpCreateTTL:
		e.string(res.path)
		e.stat(res.stat)
	case OpSetData, OpSetACL:
		e.stat(res.stat)
	default: // delete answers nothing
	}
	return 0
}

// multi does all operations as one transaction, or none.
func (s *Server) multi(c *conn, ses *session, r *Request, e *encoder) {
	t := s.begin(ses.id, c.who)
	results := make([]result, len(r.Ops))
	failed, code := -1, Error(0)
	for i := range r.Ops {
		if results[i], code = t.apply(&r.Ops[i]); code != 0 {
			failed = i
			break
		}
	}
	if failed >= 0 {
		t.rollback()
	} else {
		s.commit(t)
	}
	for i := range r.Ops {
		switch {
		case failed < 0:
			e.multiResult(r.Ops[i].Op, results[i])
		case i < failed:
			e.multiError(0)
		case i == failed:
			e.multiError(code)
		default:
			e.multiError(ErrRuntimeInconsistency)
		}
	}
	e.multiDone()
}

func (e *encoder) multiHeader(op Op, done bool, code Error) {
	e.int32(int32(op))
	e.bool(done)
	e.int32(int32(code))
}

func (e *encoder) multiDone() { e.multiHeader(OpError, true, -1) }

func (e *encoder) multiError(code Error) {
	e.multiHeader(OpError, false, code)
	e.int32(int32(code))
}

func (e *encoder) multiResult(op Op, res result) {
	if op == OpCreateContainer {
		op = OpCreate2
	}
	e.multiHeader(op, false, 0)
	switch op {
	case OpCreate:
		e.string(res.path)
	case OpCreate2:
		e.string(res.path)
		e.stat(res.stat)
	case OpSetData:
		e.stat(res.stat)
	default: // delete and check answer nothing
	}
}

func (s *Server) multiRead(c *conn, r *Request, e *encoder) {
	for _, op := range r.Ops {
		n := s.tree.get(op.Path)
		switch {
		case n == nil:
			e.multiError(ErrNoNode)
		case !permits(n.acl, PermRead, c.who):
			e.multiError(ErrNoAuth)
		default:
			e.multiHeader(op.Op, false, 0)
			s.readNode(c, &op, n, e)
		}
	}
	e.multiDone()
}

// read answers an operation that changes nothing.
func (s *Server) read(c *conn, ses *session, r *Request, e *encoder) Error {
	switch r.Op {
	case OpExists, OpGetData, OpGetChildren, OpGetChildren2, OpGetACL, OpCountChildren:
		return s.readPath(c, r, e)
	case OpSync:
		e.string(r.Path)
	case OpSetWatches, OpSetWatches2:
		s.setWatches(c, r)
	case OpAddWatch:
		return s.addWatch(c, r, e)
	case OpRemoveWatches, OpCheckWatches:
		return s.removeWatches(c, r)
	case OpGetEphemerals:
		var list []string
		for _, path := range slices.Sorted(maps.Keys(ses.ephemerals)) {
			if strings.TrimSpace(r.Path) == "/" || strings.HasPrefix(path, strings.TrimSpace(r.Path)) {
				list = append(list, path)
			}
		}
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

func (s *Server) readPath(c *conn, r *Request, e *encoder) Error {
	n := s.tree.get(r.Path)
	if r.Op == OpExists {
		if strings.IndexByte(r.Path, 0) >= 0 {
			return ErrBadArguments
		}
		if r.Watch && (n == nil || permits(n.acl, PermRead, c.who)) {
			s.dataWatches.add(r.Path, c, watchOnce)
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
	s.readNode(c, r, n, e)
	return 0
}

func (s *Server) readNode(c *conn, r *Request, n *node, e *encoder) {
	switch r.Op {
	case OpExists:
		e.stat(n.statNow())
	case OpGetData:
		if r.Watch {
			s.dataWatches.add(r.Path, c, watchOnce)
		}
		e.bytes(n.data)
		e.stat(n.statNow())
	case OpGetChildren, OpGetChildren2:
		if r.Watch {
			s.childWatches.add(r.Path, c, watchOnce)
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
		for path := range s.tree {
			if path != "/" && strings.HasPrefix(path, prefix) {
				count++
			}
		}
		e.int32(count)
	default: // the other operations read no znode
	}
}

// setWatches sets again what a client watched before it reconnected; what has changed since fires at once.
func (s *Server) setWatches(c *conn, r *Request) {
	tell := func(kind eventKind, path string) { c.sendEvent(-1, event{kind: kind, path: path}) }
	for _, path := range r.watches.data {
		switch n := s.tree.get(path); {
		case n == nil:
			tell(eventDeleted, path)
		case n.stat.Mzxid > r.zxid:
			tell(eventData, path)
		default:
			s.dataWatches.add(path, c, watchOnce)
		}
	}
	for _, path := range r.watches.exist {
		if s.tree.get(path) != nil {
			tell(eventCreated, path)
		} else {
			s.dataWatches.add(path, c, watchOnce)
		}
	}
	for _, path := range r.watches.child {
		switch n := s.tree.get(path); {
		case n == nil:
			tell(eventDeleted, path)
		case n.stat.Pzxid > r.zxid:
			tell(eventChildren, path)
		default:
			s.childWatches.add(path, c, watchOnce)
		}
	}
	for _, path := range r.watches.persistent {
		s.childWatches.add(path, c, watchPersistent)
		s.dataWatches.add(path, c, watchPersistent)
	}
	for _, path := range r.watches.recursive {
		s.dataWatches.add(path, c, watchRecursive)
	}
}

func (s *Server) addWatch(c *conn, r *Request, e *encoder) Error {
	switch r.mode {
	case 0:
		s.childWatches.add(r.Path, c, watchPersistent)
		s.dataWatches.add(r.Path, c, watchPersistent)
	case 1:
		s.dataWatches.add(r.Path, c, watchRecursive)
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

// auth adds an identity to the connection. ZooKeeper believes every password, and closes on a scheme it doesn't know.
func (s *Server) auth(c *conn, r *Request, refuse Error) bool {
	code := refuse
	switch {
	case code != 0:
	case r.bad:
		return false
	case r.scheme == "digest":
		id := digestID(string(r.Data))
		if s.set.superDigest != "" && id == s.set.superDigest {
			c.identify(identity{scheme: "super"})
		}
		c.identify(identity{scheme: "digest", id: id})
	case r.scheme == "ip":
	default:
		code = ErrAuthFailed
	}
	e := newReply(r.Xid)
	e.finish(0, code)
	c.send(e.frame())
	return code == 0
}

func (c *conn) identify(i identity) {
	if !slices.Contains(c.who, i) {
		c.who = append(c.who[:len(c.who):len(c.who)], i)
	}
}
