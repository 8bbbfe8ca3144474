package conformance

import "github.com/kielgo/kiel/zktest"

func scriptWatchData(s *script) {
	s.open("a", "b", "c")
	s.create("a", "/watch-data", "")
	s.create("a", "/watch-data/x", "1")
	s.get("b", "/watch-data/x", true)
	s.get("b", "/watch-data/x", true) // the same watch
	s.exists("b", "/watch-data/x", true)
	s.get("c", "/watch-data/x", true)
	s.set("a", "/watch-data/x", "2", -1)
	s.poll("b", "c")
	s.set("a", "/watch-data/x", "3", -1) // one-shot
	s.poll("b", "c")
	s.get("b", "/watch-data/x", true)
	s.create("a", "/watch-data/x/y", "") // not the data
	s.setACL("a", "/watch-data/x", -1, open...)
	s.set("a", "/watch-data/x", "4", 7) // refused
	s.poll("b")
	s.set("a", "/watch-data/x", "3", -1) // the same data counts
	s.poll("b")
	s.get("b", "/watch-data/x/y", true)
	s.children("b", "/watch-data/x/y", true)
	s.delete("a", "/watch-data/x/y", -1) // one event for both
	s.poll("b")
	s.get("b", "/watch-data/none", true) // sets nothing
	s.create("a", "/watch-data/none", "")
	s.poll("b")
}

func scriptWatchExists(s *script) {
	s.open("a", "b")
	s.create("a", "/watch-exists", "")
	s.exists("b", "/watch-exists/x", true)
	s.create("a", "/watch-exists/x", "")
	s.poll("b")
	s.set("a", "/watch-exists/x", "1", -1)
	s.poll("b")
	s.exists("b", "/watch-exists/x", true)
	s.set("a", "/watch-exists/x", "2", -1)
	s.poll("b")
	s.exists("b", "/watch-exists/x", true)
	s.delete("a", "/watch-exists/x", -1)
	s.poll("b")
	s.exists("b", "/watch-exists/x", true)
	s.exists("b", "/watch-exists/deep/down", true)
	s.createMode("a", "/watch-exists/x", 1)
	s.create("a", "/watch-exists/deep", "")
	s.create("a", "/watch-exists/deep/down", "")
	s.poll("b")
	s.exists("b", "/watch-exists/s0000000003", true)
	s.createMode("a", "/watch-exists/s", 2)
	s.poll("b")
}

func scriptWatchChildren(s *script) {
	s.open("a", "b")
	s.create("a", "/watch-children", "")
	s.children("b", "/watch-children", true)
	s.create("a", "/watch-children/x", "")
	s.poll("b")
	s.create("a", "/watch-children/y", "")
	s.poll("b")
	s.childrenOld("b", "/watch-children", true)
	s.set("a", "/watch-children/x", "1", -1) // not the children
	s.set("a", "/watch-children", "1", -1)
	s.create("a", "/watch-children/x/deep", "")
	s.poll("b")
	s.delete("a", "/watch-children/y", -1)
	s.poll("b")
	s.children("b", "/watch-children/x/deep", true)
	s.children("b", "/watch-children/x", true)
	s.exists("b", "/watch-children/x/deep", true)
	s.delete("a", "/watch-children/x/deep", -1)
	s.poll("b")
	s.children("b", "/watch-children/x", true)
	s.delete("a", "/watch-children/x", -1)
	s.poll("b")
	s.children("b", "/watch-children/none", true)
	s.create("a", "/watch-children/none", "")
	s.poll("b")
	s.createMode("a", "/watch-children/e", 1)
	s.children("b", "/watch-children", true)
	s.call("a", zktest.OpCloseSession, "", nil, nil)
	s.poll("b")
}

// scriptWatchOwn: a client sees its own events before the reply to what caused them.
func scriptWatchOwn(s *script) {
	s.open("a")
	s.create("a", "/watch-own", "")
	s.children("a", "/watch-own", true)
	s.exists("a", "/watch-own/x", true)
	s.create("a", "/watch-own/x", "")
	s.get("a", "/watch-own/x", true)
	s.children("a", "/watch-own", true)
	s.set("a", "/watch-own/x", "1", -1)
	s.delete("a", "/watch-own/x", -1)
}

func scriptWatchMulti(s *script) {
	s.open("a", "b")
	s.create("a", "/watch-multi", "")
	s.create("a", "/watch-multi/x", "")
	watch := func() {
		s.children("b", "/watch-multi", true)
		s.get("b", "/watch-multi/x", true)
		s.exists("b", "/watch-multi/y", true)
	}
	watch()
	s.multi("a", zktest.OpMulti, partSet("/watch-multi/x", "1", -1), partCreate("/watch-multi/y", "", 0), partCheck("/watch-multi", 9))
	s.poll("b") // nothing happened
	s.multi("a", zktest.OpMulti, partCreate("/watch-multi/y", "", 0), partSet("/watch-multi/x", "1", -1), partSet("/watch-multi/y", "1", -1))
	s.poll("b")
	s.delete("a", "/watch-multi/y", -1)
	watch()
	s.multi("a", zktest.OpMulti, partCreate("/watch-multi/y", "", 0), partDelete("/watch-multi/y", -1), partDelete("/watch-multi/x", -1), partCreate("/watch-multi/x", "", 0))
	s.poll("b")
	watch()
	s.multi("a", zktest.OpMulti, partDelete("/watch-multi/x", -1), partCreate("/watch-multi/x", "", 0))
	s.poll("b")
}

func scriptWatchPersistent(s *script) {
	s.open("a", "b")
	s.create("a", "/watch-persistent", "")
	s.watchOp("b", zktest.OpAddWatch, "/watch-persistent", 0)
	s.watchOp("b", zktest.OpAddWatch, "/watch-persistent/later", 0)
	s.create("a", "/watch-persistent/x", "")
	s.poll("b")
	s.create("a", "/watch-persistent/y", "")
	s.set("a", "/watch-persistent", "1", -1)
	s.set("a", "/watch-persistent", "2", -1)
	s.set("a", "/watch-persistent/x", "2", -1)
	s.delete("a", "/watch-persistent/x", -1)
	s.poll("b")
	s.create("a", "/watch-persistent/later", "")
	s.create("a", "/watch-persistent/later/x", "")
	s.delete("a", "/watch-persistent/later/x", -1)
	s.delete("a", "/watch-persistent/later", -1)
	s.create("a", "/watch-persistent/later", "")
	s.poll("b")
}

func scriptWatchRecursive(s *script) {
	s.open("a", "b")
	s.create("a", "/watch-recursive", "")
	s.watchOp("b", zktest.OpAddWatch, "/watch-recursive", 1)
	s.create("a", "/watch-recursive/x", "")
	s.create("a", "/watch-recursive/x/y", "")
	s.set("a", "/watch-recursive/x/y", "1", -1)
	s.set("a", "/watch-recursive", "1", -1)
	s.poll("b")
	s.delete("a", "/watch-recursive/x/y", -1)
	s.delete("a", "/watch-recursive/x", -1)
	s.multi("a", zktest.OpMulti, partCreate("/watch-recursive/m", "", 0), partCreate("/watch-recursive/m/n", "", 0))
	s.poll("b")
	s.get("b", "/watch-recursive/m", true) // one event for both watches
	s.children("b", "/watch-recursive/m", true)
	s.set("a", "/watch-recursive/m", "1", -1)
	s.delete("a", "/watch-recursive/m/n", -1)
	s.delete("a", "/watch-recursive/m", -1)
	s.poll("b")
	s.delete("a", "/watch-recursive", -1)
	s.create("a", "/watch-recursive", "")
	s.poll("b")
	s.create("a", "/watch-recursive-not", "")
	s.poll("b")
}

func scriptWatchRemove(s *script) {
	s.open("a", "b")
	s.create("a", "/watch-remove", "")
	const children, data, anyKind = 1, 2, 3
	check := func() {
		for _, mode := range []int32{children, data, anyKind} {
			s.watchOp("b", zktest.OpCheckWatches, "/watch-remove", mode)
		}
	}
	check()
	s.get("b", "/watch-remove", true)
	s.children("b", "/watch-remove", true)
	check()
	s.watchOp("b", zktest.OpRemoveWatches, "/watch-remove", children)
	s.watchOp("b", zktest.OpRemoveWatches, "/watch-remove", children)
	check()
	s.create("a", "/watch-remove/x", "")
	s.set("a", "/watch-remove", "1", -1)
	s.poll("b")
	s.get("b", "/watch-remove", true)
	s.watchOp("b", zktest.OpRemoveWatches, "/watch-remove", data)
	s.set("a", "/watch-remove", "2", -1)
	s.poll("b")
	s.watchOp("b", zktest.OpAddWatch, "/watch-remove", 0)
	s.watchOp("b", zktest.OpRemoveWatches, "/watch-remove", anyKind)
	s.watchOp("b", zktest.OpRemoveWatches, "/watch-remove", anyKind)
	s.set("a", "/watch-remove", "3", -1)
	s.create("a", "/watch-remove/y", "")
	s.poll("b")
	s.watchOp("b", zktest.OpAddWatch, "/watch-remove", 1)
	s.watchOp("b", zktest.OpRemoveWatches, "/watch-remove", anyKind)
	s.create("a", "/watch-remove/z", "")
	s.poll("b")
	s.exists("b", "/watch-remove/none", true)
	s.watchOp("b", zktest.OpCheckWatches, "/watch-remove/none", data)
	s.watchOp("b", zktest.OpRemoveWatches, "/watch-remove/none", data)
	s.create("a", "/watch-remove/none", "")
	s.poll("b")
	s.watchOp("a", zktest.OpRemoveWatches, "/watch-remove", anyKind) // another's watches are not one's own
}

// scriptWatchReset sets watches again as a client does after it reconnected: what has changed since fires at once.
func scriptWatchReset(s *script) {
	s.open("a", "b")
	s.create("a", "/watch-reset", "")
	for _, name := range []string{"same", "changed", "deleted", "child-added", "child-deleted", "acl", "made"} {
		if name != "made" {
			s.create("a", "/watch-reset/"+name, "")
		}
	}
	s.create("a", "/watch-reset/child-deleted/x", "")
	r, err := s.clients["b"].call(zktest.OpPing, nil)
	s.must(err)
	s.set("a", "/watch-reset/changed", "1", -1)
	s.delete("a", "/watch-reset/deleted", -1)
	s.create("a", "/watch-reset/child-added/x", "")
	s.delete("a", "/watch-reset/child-deleted/x", -1)
	s.setACL("a", "/watch-reset/acl", -1, open...)
	s.create("a", "/watch-reset/made", "")
	all := []string{
		"/watch-reset/same", "/watch-reset/changed", "/watch-reset/deleted", "/watch-reset/child-added",
		"/watch-reset/child-deleted", "/watch-reset/acl", "/watch-reset/made", "/watch-reset/never",
	}
	s.setWatches("b", r.zxid, all, nil, nil)
	s.setWatches("b", r.zxid, nil, all, nil)
	s.setWatches("b", r.zxid, nil, nil, all)
	s.set("a", "/watch-reset/same", "2", -1) // what did not fire is set
	s.create("a", "/watch-reset/acl/x", "")
	s.set("a", "/watch-reset/changed", "2", -1) // what fired is not
	s.create("a", "/watch-reset/never", "")
	s.poll("b")
	s.setWatches("b", r.zxid, nil, nil, nil, []string{"/watch-reset/p"}, []string{"/watch-reset/r"})
	s.create("a", "/watch-reset/p", "")
	s.create("a", "/watch-reset/p/x", "")
	s.create("a", "/watch-reset/r", "")
	s.create("a", "/watch-reset/r/x", "")
	s.set("a", "/watch-reset/r/x", "1", -1)
	s.poll("b")
}

// scriptWatchReconnect: watches end with their connection.
func scriptWatchReconnect(s *script) {
	s.open("a", "b")
	s.create("a", "/watch-reconnect", "")
	s.get("b", "/watch-reconnect", true)
	s.watchOp("b", zktest.OpAddWatch, "/watch-reconnect", 1)
	b := s.clients["b"]
	_ = b.nc.Close()
	s.attach("b2", hello{timeout: b.timeout, session: b.session, password: b.password})
	s.set("a", "/watch-reconnect", "1", -1)
	s.create("a", "/watch-reconnect/x", "")
	s.poll("b2")
	s.get("b2", "/watch-reconnect", true)
	s.set("a", "/watch-reconnect", "2", -1)
	s.poll("b2")
}
