package zktest

// write executes one operation as a transaction of its own. A refused operation takes a zxid too, as in ZooKeeper.
func (s *Server) write(c *conn, r *Request, e *encoder) Error {
	t := s.begin(c.session.id, c.who)
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
	default: // the reply to a delete has no body
	}
	return 0
}

// multi executes all operations as one transaction, or none.
func (s *Server) multi(c *conn, r *Request, e *encoder) {
	t := s.begin(c.session.id, c.who)
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
	default: // the results of delete and check have no body
	}
}
