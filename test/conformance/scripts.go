package conformance

import (
	"fmt"
	"strings"
	"time"

	"github.com/kielgo/kiel/zktest"
)

type scriptCase struct {
	name string
	run  func(s *script)
}

// scripts are the cases whose text is in testdata. Each works below a znode of its own name.
func scripts() []scriptCase {
	return []scriptCase{
		{"system", scriptSystem},
		{"create", scriptCreate},
		{"create-errors", scriptCreateErrors},
		{"create-kinds", scriptCreateKinds},
		{"sequence", scriptSequence},
		{"delete", scriptDelete},
		{"set", scriptSet},
		{"read", scriptRead},
		{"paths", scriptPaths},
		{"multi", scriptMulti},
		{"multi-errors", scriptMultiErrors},
		{"multi-read", scriptMultiRead},
		{"zxids", scriptZxids},
		{"odd-requests", scriptOddRequests},
		{"watch-data", scriptWatchData},
		{"watch-exists", scriptWatchExists},
		{"watch-children", scriptWatchChildren},
		{"watch-own", scriptWatchOwn},
		{"watch-multi", scriptWatchMulti},
		{"watch-persistent", scriptWatchPersistent},
		{"watch-recursive", scriptWatchRecursive},
		{"watch-remove", scriptWatchRemove},
		{"watch-reset", scriptWatchReset},
		{"watch-reconnect", scriptWatchReconnect},
		{"acl-expand", scriptACLExpand},
		{"acl-enforce", scriptACLEnforce},
		{"acl-set", scriptACLSet},
		{"acl-watch", scriptACLWatch},
		{"acl-multi", scriptACLMulti},
		{"auth", scriptAuth},
		{"session-close", scriptSessionClose},
		{"session-attach", scriptSessionAttach},
		{"session-refused", scriptSessionRefused},
	}
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

func scriptCreate(s *script) {
	s.open("a", "b")
	s.create("a", "/create", "")
	s.createOp("a", zktest.OpCreate, "/create/null", nil, 0, open)
	s.get("a", "/create/null", false)
	s.createOp("a", zktest.OpCreate, "/create/empty", []byte{}, 0, open)
	s.get("a", "/create/empty", false)
	s.create("a", "/create/some", "data")
	s.get("a", "/create/some", false)
	s.exists("a", "/create", false)
	s.createMode("a", "/create/e", 1)
	s.createMode("b", "/create/f", 1)
	s.createMode("b", "/create/some/below", 0)
	s.create("a", "/create/e/below", "")
	s.create("b", "/create/e", "")
	s.exists("a", "/create/some", false)
	s.exists("a", "/create/e", false)
	s.children("a", "/create", false)
	s.childrenOld("a", "/create", false)
	s.delete("b", "/create/e", -1) // anybody may
	s.exists("a", "/create/e", false)
	s.exists("a", "/create", false)
	s.create("a", "/create/e", "persistent now")
	s.exists("a", "/create/e", false)
}

func scriptCreateErrors(s *script) {
	s.open("a")
	s.create("a", "/create-errors", "")
	s.create("a", "/create-errors", "")
	s.create("a", "/create-errors/no/parent", "")
	s.create("a", "nothing", "")
	s.create("a", "no/slash", "")
	s.create("a", "", "")
	for _, flags := range []int32{-1, 4, 5, 6, 7, 100} {
		s.createMode("a", fmt.Sprintf("/create-errors/f%d", flags), flags)
		s.createOp("a", zktest.OpCreate, fmt.Sprintf("/create-errors/g%d", flags), nil, flags, open)
	}
	s.children("a", "/create-errors", false)
	none := []zktest.ACL{}
	bad := []zktest.ACL{{Perms: 31, Scheme: "nonsense", ID: "x"}}
	// Which fault is seen first, when there are several?
	s.createOp("a", zktest.OpCreate, "/create-errors", nil, 0, none)
	s.createOp("a", zktest.OpCreate, "/create-errors/no/parent", nil, 0, bad)
	s.createOp("a", zktest.OpCreate, "nothing", nil, 0, bad)
	s.createOp("a", zktest.OpCreate, "nothing", nil, 9, bad)
	s.create("a", "/create-errors/no/../parent", "")
	s.create("a", "/create-errors/..", "")
	s.createMode("a", "/create-errors/e", 1)
	s.create("a", "/create-errors/e/..", "")
	s.create("a", "/create-errors/e/f", "")
	s.create("a", "/create-errors/e/f/g", "")
}

func scriptCreateKinds(s *script) {
	s.open("a")
	s.create("a", "/create-kinds", "")
	s.createOp("a", zktest.OpCreateContainer, "/create-kinds/c", []byte("x"), 4, open)
	s.get("a", "/create-kinds/c", false)
	s.createMode("a", "/create-kinds/c/child", 1)
	s.createOp("a", zktest.OpCreateContainer, "/create-kinds/c0", nil, 0, open)
	s.createOp("a", zktest.OpCreateTTL, "/create-kinds/t", nil, 5, open)
	s.createOp("a", zktest.OpCreateTTL, "/create-kinds/t", nil, 6, open)
	s.createOp("a", zktest.OpCreateTTL, "/create-kinds/t", nil, 0, open)
	s.createOp("a", zktest.OpCreate2, "/create-kinds/s", nil, 2, open)
	s.createOp("a", zktest.OpCreate2, "/create-kinds/s", nil, 3, open)
	s.children("a", "/create-kinds", false)
}

func scriptSequence(s *script) {
	s.open("a", "b")
	s.create("a", "/sequence", "")
	s.createMode("a", "/sequence/n-", 2)
	s.createMode("b", "/sequence/n-", 3)
	s.create("a", "/sequence/plain", "")
	s.createMode("a", "/sequence/n-", 2)
	s.delete("a", "/sequence/plain", -1)
	s.delete("a", "/sequence/n-0000000003", -1)
	s.createMode("a", "/sequence/", 2)
	s.create("a", "/sequence/plain/fails", "")
	s.create("a", "/sequence/n-0000000000", "")
	s.createMode("a", "/sequence/n-", 2)
	s.create("a", "/sequence/n-0000000006", "in the way")
	s.createMode("a", "/sequence/n-", 2)
	s.create("a", "/sequence/n-0000000008", "in the way")
	s.create("a", "/sequence/n-0000000010", "in the way")
	s.createMode("a", "/sequence/n-", 2)
	s.createMode("a", "/sequence/n-", 2)
	s.multi("a", zktest.OpMulti, partCreate("/sequence/m-", "", 2), partCreate("/sequence/m-", "", 2), partCheck("/sequence", 7))
	s.multi("a", zktest.OpMulti, partCreate("/sequence/m-", "", 2), partCreate("/sequence/m-", "", 3), partDelete("/sequence/n-0000000000", -1))
	s.createMode("a", "/sequence/n-", 2)
	s.children("a", "/sequence", false)
}

func scriptDelete(s *script) {
	s.open("a")
	s.create("a", "/delete", "")
	s.create("a", "/delete/x", "")
	s.create("a", "/delete/x/y", "")
	s.delete("a", "/delete/x", -1)
	s.delete("a", "/delete/x", 3)
	s.delete("a", "/delete/none", 3)
	s.delete("a", "/delete/no/parent", -1)
	s.delete("a", "/delete/x/y", 1)
	s.delete("a", "/delete/x/y", 0)
	s.exists("a", "/delete/x", false)
	s.delete("a", "/delete/x", -1)
	s.delete("a", "/delete/x", -1)
	s.delete("a", "nothing", -1)
	s.delete("a", "", -1)
	s.delete("a", "/delete/", -1)
	s.delete("a", "/delete", -2)
	s.exists("a", "/delete", false)
	s.delete("a", "/delete", 0)
}

func scriptSet(s *script) {
	s.open("a", "b")
	s.create("a", "/set", "one")
	s.set("a", "/set", "two", 0)
	s.set("a", "/set", "two", 0)
	s.set("b", "/set", "three", -1)
	s.set("a", "/set", "", 2)
	s.get("a", "/set", false)
	s.call("a", zktest.OpSetData, "null", new(encoder).string("/set").bytes(nil).int32(3).b, s.showStat)
	s.get("a", "/set", false)
	s.set("a", "/set", "x", -2)
	s.set("a", "/set/none", "x", -1)
	s.set("a", "/set/", "x", -1)
	s.set("a", "", "x", -1)
	s.createMode("a", "/set/e", 1)
	s.set("b", "/set/e", "by another", -1)
	s.exists("a", "/set", false)
	s.exists("a", "/set/e", false)
}

func scriptRead(s *script) {
	s.open("a", "b")
	s.create("a", "/read", "x")
	for _, path := range []string{"/read", "/read/none", "/read/", "read", "/read/.", "/read//x", "/read\x00"} {
		s.exists("a", path, false)
		s.get("a", path, false)
		s.children("a", path, false)
		s.childrenOld("a", path, false)
		s.getACL("a", path)
		s.sync("a", path)
	}
	s.createMode("a", "/read/e1", 1)
	s.createMode("a", "/read/e2", 1)
	s.createMode("b", "/read/e3", 1)
	for _, prefix := range []string{"/", "", " \x01", "\x00/\t", "/read/e1", "/read/e1 ", "/rea", "/none"} {
		s.call("a", zktest.OpGetEphemerals, prefix, new(encoder).string(prefix).b, showNames)
	}
	s.create("a", "/read/sub", "")
	s.create("a", "/read/sub/sub", "")
	for _, path := range []string{"/read", "/read/sub", "/read/sub/sub", "/read/none"} {
		s.call("a", zktest.OpCountChildren, path, new(encoder).string(path).b, showInt)
	}
	s.call("a", zktest.OpWhoAmI, "", nil, showWho)
}

func scriptPaths(s *script) {
	s.open("a")
	s.create("a", "/paths", "")
	for _, name := range []string{
		"a", "a b", "ä", "日本", "a.b", "..a", "a..", "...", ".", "..", "a/", "/a", "./a", "../a", "a/./b", "a/../b",
		"\x01", "\x1f", "\x20", "\x7e", "\x7f", "\u0080", "\u009f", "\u00a0", "\ud7ff", "\ue000", "\uf8ff", "\uf900",
		"\uffef", "\ufff0", "\ufffd", "\U0001f600", "\xff", "a\x00b", "\u202e", strings.Repeat("n", 300),
	} {
		s.create("a", "/paths/"+name, "")
		s.createMode("a", "/paths/"+name, 2)
		s.delete("a", "/paths/"+name, -1)
	}
	s.exists("a", "/paths", false)
}

func scriptZxids(s *script) {
	s.open("a")
	s.create("a", "/zxids", "")
	s.create("a", "/zxids", "") // a refused write takes a zxid too
	s.delete("a", "/zxids/none", -1)
	s.set("a", "/zxids", "x", 5)
	s.multi("a", zktest.OpMulti, partCheck("/zxids", -1))
	s.multi("a", zktest.OpMulti, partCheck("/zxids", 9))
	s.multi("a", zktest.OpMulti)
	s.get("a", "/zxids", false)
	s.get("a", "/zxids/none", false)
	s.sync("a", "/zxids")
	s.auth("a", "digest", "u:p")
	s.poll("a")
	s.open("b") // so does a session
	s.poll("a")
	s.call("b", zktest.OpCloseSession, "", nil, nil)
	s.poll("a")
	s.multi("a", zktest.OpMulti, partCreate2("/zxids/x", 0), partSet("/zxids/x", "y", 0), partSet("/zxids", "y", -1), partCreate2("/zxids/y", 0))
	s.exists("a", "/zxids", false)
	s.exists("a", "/zxids/x", false)
	s.setACL("a", "/zxids", -1, open...)
	s.exists("a", "/zxids", false)
	s.watchOp("a", zktest.OpAddWatch, "/zxids", 0)
	s.poll("a")
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
