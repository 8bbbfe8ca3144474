package zktest

import "slices"

// handle executes one request. It returns false if the connection is to be closed after the queued packets are written.
func (s *Server) handle(c *conn, r *Request) bool {
	s.mu.Lock()
	if c.mute {
		s.mu.Unlock()
		return true
	}
	r.Client = c.client
	if c.session != nil {
		r.Session = c.session.id
	}
	s.stats.Requests[r.Op]++
	c.countReceived()
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
	keep := s.execute(c, r, act)
	if lose && !c.closing {
		c.out = c.out[:queued]
		return false
	}
	return keep
}

// execute executes a request and queues the reply. It returns false if the connection is to be closed. Called with the lock held.
func (s *Server) execute(c *conn, r *Request, act Action) bool {
	s.catchUp()
	if r.hello {
		if c.mute = s.faults.silent || act.Err != 0 || c.isolated() != nil; c.mute {
			return true
		}
		return s.connect(c, r)
	}
	here, ses := c.view(), c.session
	if here.stale {
		if r.Op.Writes() {
			return true // without a quorum there is no reply
		}
	} else if c.closing || s.sessions[ses.id] != ses {
		return false
	} else if r.Op != OpAuth && !act.NoTouch {
		s.touch(ses, c.timeout)
	}
	switch {
	case r.Op == OpAuth:
		return s.auth(c, r, act.Err)
	case act.Err != 0:
		s.reply(c, r.Xid, here.zxid, act.Err)
		return true
	case r.Op == OpPing:
		s.reply(c, -2, here.zxid, 0)
		return true
	case r.Op == OpCloseSession:
		s.endSession(ses, c)
		s.arm()
		s.follow(c.listener)
		s.reply(c, r.Xid, s.zxid, 0)
		return false
	case r.Op == OpReconfig:
		s.zxid++
		s.reply(c, r.Xid, s.zxid, ErrReconfigDisabled)
		return true
	case !r.Op.served(): // ZooKeeper replies without a zxid and closes the connection
		s.reply(c, r.Xid, -1, ErrUnimplemented)
		return false
	}
	s.serve(c, r, here)
	return true
}

// serve executes an operation on the tree or on watches, and queues the reply. here is the connection's view. Called with the
// lock held.
func (s *Server) serve(c *conn, r *Request, here view) {
	e := newReply(r.Xid)
	code := Error(0)
	switch {
	case r.bad:
		if r.Op == OpMulti {
			s.zxid++
		}
		code = ErrMarshalling
	case r.Op == OpMulti:
		s.multi(c, r, e)
	case r.Op == OpMultiRead:
		here.multiRead(s, c, r, e)
	case r.Op.Writes():
		code = s.write(c, r, e)
	default:
		code = here.read(s, c, r, e)
	}
	if (r.Op.Writes() || r.Op == OpSync) && !here.stale {
		s.follow(c.listener)
		here.zxid = s.zxid
	}
	e.finish(here.zxid, code)
	c.send(e.frame())
}

// newReply returns a reply whose header finish fills in.
func newReply(xid int32) *encoder {
	e := newEncoder()
	e.int32(xid)
	e.int64(0)
	e.int32(0)
	return e
}

// replyHeader is the number of bytes before a reply's body: its length, xid, zxid and error code.
const replyHeader = 4 + 16

// finish fills in a reply's header. With an error code the reply loses its body.
func (e *encoder) finish(zxid int64, code Error) {
	if code != 0 {
		e.b = e.b[:replyHeader]
	}
	head := encoder{b: e.b[:8]}
	head.int64(zxid)
	head.int32(int32(code))
}

// reply queues a reply without a body. Called with the lock held.
func (s *Server) reply(c *conn, xid int32, zxid int64, code Error) {
	e := newReply(xid)
	e.finish(zxid, code)
	c.send(e.frame())
}

// auth adds an identity to the connection, and replies with refuse if that is an error. As in ZooKeeper every password is right,
// and an unknown scheme closes the connection.
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
	s.reply(c, r.Xid, 0, code)
	return code == 0
}

// identify adds an identity to the connection, once.
func (c *conn) identify(i identity) {
	if !slices.Contains(c.who, i) {
		c.who = append(slices.Clip(c.who), i)
	}
}
