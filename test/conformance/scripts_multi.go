package conformance

import "github.com/kielgo/kiel/zktest"

func scriptMulti(s *script) {
	s.open("a")
	s.create("a", "/multi", "")
	s.multi("a", zktest.OpMulti)
	s.multi("a", zktest.OpMulti,
		partCheck("/multi", 0), partCreate("/multi/x", "1", 0), partCreate2("/multi/e", 1),
		partSet("/multi/x", "2", 0), partDelete("/multi/e", -1), partCreate2("/multi/x/y", 0), partCreate2("/multi/e", 1))
	s.exists("a", "/multi", false)
	s.exists("a", "/multi/x", false)
	s.exists("a", "/multi/x/y", false)
	s.children("a", "/multi", false)
	s.multi("a", zktest.OpMulti, partDelete("/multi/x/y", 0), partDelete("/multi/x", 1))
	s.multi("a", zktest.OpMulti, partSet("/multi", "a", -1), partSet("/multi", "b", -1), partCheck("/multi", 2), partSet("/multi", "c", 2))
	s.multi("a", zktest.OpMulti, partDelete("/multi/e", -1), partCreate2("/multi/e", 0))
	s.exists("a", "/multi", false)
	s.multi("a", zktest.OpMulti, partCreateOp(zktest.OpCreateContainer, "/multi/c", 4), partCreateOp(zktest.OpCreateContainer, "/multi/c0", 0))
	s.multi("a", zktest.OpMulti, partCreate("/multi/flag4", "", 4), partCreate2("/multi/flag42", 4))
}

// partCreateOp makes a create of another kind.
func partCreateOp(op zktest.Op, path string, flags int32) part {
	p := partCreate(path, "", flags)
	p.op = op
	if op == zktest.OpCreateTTL {
		p.body = new(encoder).string(path).string("").acls(open).int32(flags).int64(60_000).b
	}
	return p
}

func scriptMultiErrors(s *script) {
	s.open("a")
	s.create("a", "/multi-errors", "")
	s.create("a", "/multi-errors/x", "")
	s.createMode("a", "/multi-errors/e", 1)
	for _, parts := range [][]part{
		{partCheck("/multi-errors", 3)},
		{partCheck("/multi-errors/none", -1), partCheck("/multi-errors", 3)},
		{partSet("/multi-errors/x", "1", -1), partCheck("/multi-errors", 3), partSet("/multi-errors/x", "2", -1), partDelete("/none", -1)},
		{partCreate("/multi-errors/y", "", 0), partCreate("/multi-errors/y", "", 0)},
		{partDelete("/multi-errors/x", -1), partDelete("/multi-errors/x", -1)},
		{partDelete("/multi-errors", -1)},
		{partCreate("/multi-errors/e/y", "", 0)},
		{partCreate("nothing", "", 0)},
		{partCreate("/multi-errors/y", "", 5)},
		{partCreate("/multi-errors/y", "", 6)},
		{partCreate("/multi-errors/y", "", 7)},
		{partCreate("/multi-errors/y", "", -1)},
		{partCreate2("/multi-errors/y", 5)},
		{partCreate("/multi-errors/z", "", 0), partCreate("/multi-errors/y", "", 9)},
		{partCreateOp(zktest.OpCreateContainer, "/multi-errors/y", 5)},
		{partCreateOp(zktest.OpCreateTTL, "/multi-errors/y", 5)},
		{partCreateOp(zktest.OpCreateTTL, "/multi-errors/y", 6)},
		{partCreateOp(zktest.OpCreateTTL, "/multi-errors/y", 0)},
		{partCreateOp(zktest.OpCreateTTL, "/multi-errors/y", 9)},
		{partCreate("/multi-errors/..", "", 0)},
		{partSet("", "", 0)},
		{partDelete("/zookeeper", -1)},
		{partDelete("/multi-errors/e", -1), partCreate("/multi-errors/e", "", 1), partCheck("/multi-errors/e", 1)},
		{partCreate("/multi-errors/y", "", 2), partDelete("/multi-errors/x", 4)},
	} {
		s.multi("a", zktest.OpMulti, parts...)
	}
	s.children("a", "/multi-errors", false)
	s.get("a", "/multi-errors/x", false)
	s.exists("a", "/multi-errors/e", false)
	s.createMode("a", "/multi-errors/n", 2)
}

func scriptMultiRead(s *script) {
	s.open("a")
	s.create("a", "/multi-read", "x")
	s.create("a", "/multi-read/y", "")
	s.multi("a", zktest.OpMultiRead)
	s.multi("a", zktest.OpMultiRead,
		partRead(zktest.OpGetData, "/multi-read"), partRead(zktest.OpGetChildren, "/multi-read"), partRead(zktest.OpGetData, "/multi-read/none"),
		partRead(zktest.OpGetChildren, "/multi-read/none"), partRead(zktest.OpGetData, "/multi-read/y"))
}
