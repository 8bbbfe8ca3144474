package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/zktest"
)

type scriptCase struct {
	name string
	run  func(s *script)
}

// scripts are the cases whose text is in testdata. Each works below a znode of its own name. Those that are listed here say what
// no recording can. Session-refused stands last: it leaves sessions to the server, each of which uses a zxid when it expires, and
// a case that ran meanwhile would see its own zxids shifted.
func scripts(t tester) []scriptCase {
	t.Helper()
	inGo := []scriptCase{
		{"system", scriptSystem},
		{"odd-requests", scriptOddRequests},
		{"session-close", scriptSessionClose},
		{"session-attach", scriptSessionAttach},
		{"session-refused", scriptSessionRefused},
	}
	return slices.Insert(inGo, len(inGo)-1, recordings(t, inGo)...)
}

// scriptSystem looks at what a fresh server holds.
func scriptSystem(s *script) {
	s.open("a")
	for _, path := range []string{"/zookeeper", "/zookeeper/quota", "/zookeeper/config"} {
		s.children("a", path, false)
		s.getACL("a", path)
		s.delete("a", path, -1)
	}
	s.get("a", "/zookeeper/quota", false)
	s.get("a", "/zookeeper/config", false)
	s.set("a", "/zookeeper/config", "x", -1)
	s.getACL("a", "/zookeeper/config")
	s.delete("a", "/", -1)
	s.create("a", "/", "")
	s.create("a", "/zookeeper", "")
	s.create("a", "/zookeeper/mine", "x")
	s.delete("a", "/zookeeper/mine", -1)
	s.set("a", "/zookeeper", "x", -1)
	s.call("a", zktest.OpExists, "the empty path", new(encoder).string("").bool(false).b, func(d *decoder) string {
		st := d.stat()
		return fmt.Sprintf("owner %d, czxid %d", st.EphemeralOwner, st.Czxid)
	})
}

// scriptOddRequests sends what no proper client sends.
func scriptOddRequests(s *script) {
	s.hideZxids = true // before 3.9 a write that can't be decoded took a zxid
	s.open("w")
	s.create("w", "/odd-requests", "")
	for i, odd := range []struct {
		what string
		op   zktest.Op
		body []byte
	}{
		{"no body", zktest.OpCreate, nil},
		{"no body", zktest.OpSetData, nil},
		{"no body", zktest.OpDelete, nil},
		{"no body", zktest.OpGetData, nil},
		{"no body", zktest.OpExists, nil},
		{"no body", zktest.OpGetChildren2, nil},
		{"no body", zktest.OpSetACL, nil},
		{"no body", zktest.OpMulti, nil},
		{"no body", zktest.OpSync, nil},
		{"no body", zktest.OpSetWatches, nil},
		{"no body", zktest.OpAddWatch, nil},
		{"path too long", zktest.OpGetData, new(encoder).int32(1 << 30).b},
		{"negative length", zktest.OpGetData, new(encoder).int32(-5).b},
		{"vector too long", zktest.OpSetWatches, new(encoder).int64(0).int32(1 << 30).b},
		{"not UTF-8", zktest.OpSync, new(encoder).string("/odd\xff\xffrequests").b},
		{"a null list", zktest.OpSetWatches, new(encoder).int64(0).int32(-1).strings([]string{"/odd-requests"}).strings(nil).b},
		{"a null list later", zktest.OpSetWatches2, new(encoder).int64(0).strings([]string{"/odd-requests"}).int32(-1).strings(nil).strings(nil).strings(nil).b},
		{"a list of negative length", zktest.OpSetWatches, new(encoder).int64(0).int32(-2).strings([]string{"/odd-requests"}).strings(nil).b},
		{"more than a body", zktest.OpGetData, new(encoder).string("/odd-requests").bool(false).string("more").b},
		{"a read in a multi", zktest.OpMulti, secondOf(multiBody([]part{partRead(zktest.OpGetData, "/odd-requests")}))},
		{"mode 2", zktest.OpAddWatch, new(encoder).string("/odd-requests").int32(2).b},
		{"mode -1", zktest.OpAddWatch, new(encoder).string("/odd-requests").int32(-1).b},
		{"mode 0", zktest.OpRemoveWatches, new(encoder).string("/odd-requests").int32(0).b},
		{"mode 9", zktest.OpCheckWatches, new(encoder).string("/odd-requests").int32(9).b},
		{"reconfig", zktest.OpReconfig, new(encoder).bytes(nil).bytes(nil).bytes(nil).int64(-1).b},
	} {
		name := fmt.Sprintf("c%d", i)
		s.open(name)
		s.call(name, odd.op, odd.what, odd.body, func(d *decoder) string { return fmt.Sprintf("%d bytes", len(d.take(len(d.b)))) })
		s.poll(name)
	}
	for i, op := range []zktest.Op{zktest.OpCheck, 0, 10, 99, 108, 1000, -2, zktest.OpError} {
		name := fmt.Sprintf("u%d", i)
		s.open(name)
		s.call(name, op, "which a client may not send", nil, nil)
		s.gone(name)
	}
	// A packet without a header; one of a negative length; one above jute.maxbuffer.
	for i, raw := range [][]byte{{0, 0, 0, 4, 0, 0, 0, 1}, {0, 0, 0, 0}, {0xff, 0xff, 0xff, 0xff}, {0, 0x10, 0, 0}} {
		name := fmt.Sprintf("r%d", i)
		s.open(name)
		_, err := s.clients[name].nc.Write(raw)
		s.must(err)
		s.gone(name)
	}
	s.poll("w")
}

func secondOf(_ string, b []byte) []byte { return b }

func scriptSessionClose(s *script) {
	s.open("a", "b")
	s.create("a", "/session-close", "")
	s.createMode("a", "/session-close/e", 1)
	s.children("b", "/session-close", true)
	s.get("b", "/session-close/e", true)
	s.get("a", "/session-close/e", true)
	s.call("a", zktest.OpCloseSession, "", nil, nil)
	s.gone("a")
	s.poll("b")
	s.exists("b", "/session-close", false)
	s.attach("a again", hello{timeout: 10 * time.Second, session: s.clients["a"].session, password: s.clients["a"].password})
	s.gone("a again")
	s.poll("b")
}

func scriptSessionAttach(s *script) {
	s.open("a", "b")
	s.create("a", "/session-attach", "")
	s.createMode("a", "/session-attach/e", 1)
	s.get("a", "/session-attach", true)
	s.auth("a", "digest", "u:p")
	again := hello{timeout: 10 * time.Second, session: s.clients["a"].session, password: s.clients["a"].password}
	s.attach("a2", again)
	s.gone("a") // one connection to a session
	s.set("b", "/session-attach", "x", -1)
	s.poll("a2") // watches and identities were the connection's
	s.createOp("a2", zktest.OpCreate, "/session-attach/auth", nil, 0, []zktest.ACL{{Perms: 31, Scheme: "auth"}})
	s.exists("a2", "/session-attach/e", false)
	_ = s.clients["a2"].nc.Close()
	again.old = true
	s.attach("a3", again)
	s.exists("a3", "/session-attach/e", false)
	s.createMode("a3", "/session-attach/e2", 1)
	// A wrong password ends the connection that is there, and changes nothing else.
	wrong := again
	wrong.password = make([]byte, 16)
	s.attach("thief", wrong)
	s.gone("thief")
	s.gone("a3")
	s.exists("b", "/session-attach/e2", false)
	s.attach("a4", again)
	s.delete("a4", "/session-attach/e2", -1)
	s.attach("unknown", hello{timeout: 10 * time.Second, session: 0x1234, password: again.password})
	s.gone("unknown")
	wrong.password = []byte{}
	s.attach("thief2", wrong)
	s.gone("thief2")
	s.poll("b")
}

func scriptSessionRefused(s *script) {
	s.open("a")
	s.create("a", "/session-refused", "")
	r, err := s.clients["a"].call(zktest.OpPing, nil)
	s.must(err)
	for _, ahead := range []int64{0, 1, 1 << 40} {
		w, err := s.srv.connect(hello{timeout: 10 * time.Second, lastZxid: r.zxid + ahead})
		s.log("%d ahead: refused %t", ahead, err != nil)
		if err == nil {
			_ = w.nc.Close()
		}
	}
	for _, raw := range []string{"", "x", strings.Repeat("x", 20)} {
		w, err := s.srv.dial()
		s.must(err)
		s.must(w.writeFrame([]byte(raw)))
		s.log("connect request of %d bytes: closed %t", len(raw), w.closed())
		_ = w.nc.Close()
	}
	w, err := s.srv.dial()
	s.must(err)
	var e encoder
	e.int32(0).int64(0).int32(10_000).int64(0).bytes(nil).bool(false)
	s.must(w.writeFrame(e.b))
	frame, err := w.readFrame()
	s.must(err)
	s.log("connect request without a password: reply of %d bytes", len(frame))
	_ = w.nc.Close()
}
