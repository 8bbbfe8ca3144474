package conformance

import (
	"fmt"

	"github.com/kielgo/kiel/zktest"
)

func acl(perms int32, scheme, id string) zktest.ACL {
	return zktest.ACL{Perms: perms, Scheme: scheme, ID: id}
}

// userDigest is the id of user u with password p: u:base64(sha1("u:p")).
const userDigest = "u:jdtkXq6ivcTozEJjg1o/2ikvXY4="

func scriptACLExpand(s *script) {
	s.open("a", "u")
	s.create("a", "/acl-expand", "")
	s.auth("u", "digest", "u:p")
	for i, list := range [][]zktest.ACL{
		{acl(31, "world", "anyone")},
		{acl(1, "world", "anyone"), acl(1, "world", "anyone"), acl(2, "world", "anyone")},
		{acl(31, "world", "nobody")},
		{acl(31, "world", "")},
		{acl(31, "auth", "")},
		{acl(7, "auth", "ignored")},
		{acl(31, "auth", ""), acl(31, "digest", userDigest)},
		{acl(31, "digest", userDigest)},
		{acl(31, "digest", "no colon")},
		{acl(31, "digest", "a:b:c")},
		{acl(31, "digest", ":b")},
		{acl(31, "digest", "a:")},
		{acl(31, "digest", "")},
		{acl(31, "ip", "127.0.0.1")},
		{acl(31, "ip", "10.0.0.0/8")},
		{acl(31, "ip", "10.0.0.0/33")},
		{acl(31, "ip", "nonsense")},
		{acl(31, "ip", "")},
		{acl(31, "super", "")},
		{acl(31, "nonsense", "x")},
		{acl(0, "world", "anyone")},
		{acl(255, "world", "anyone")},
		{acl(31, "world", "anyone"), acl(31, "nonsense", "x")},
		{},
	} {
		path := fmt.Sprintf("/acl-expand/%d", i)
		s.createOp("a", zktest.OpCreate, path, nil, 0, list)
		s.createOp("u", zktest.OpCreate, path+"u", nil, 0, list)
		s.getACL("u", path+"u")
	}
}

func scriptACLEnforce(s *script) {
	s.open("a", "u")
	s.create("a", "/acl-enforce", "")
	s.auth("u", "digest", "u:p")
	for _, perms := range []int32{0, zktest.PermRead, zktest.PermWrite, zktest.PermCreate, zktest.PermDelete, zktest.PermAdmin} {
		path := fmt.Sprintf("/acl-enforce/%d", perms)
		s.createOp("u", zktest.OpCreate, path, []byte("x"), 0, []zktest.ACL{acl(31, "digest", userDigest), acl(perms, "world", "anyone")})
		s.create("u", path+"/below", "")
		s.get("a", path, false)
		s.exists("a", path, false)
		s.children("a", path, false)
		s.childrenOld("a", path, false)
		s.set("a", path, "y", -1)
		s.set("a", path, "y", 7)
		s.create("a", path+"/new", "")
		s.create("a", path+"/below", "")
		s.delete("a", path+"/below", -1)
		s.delete("a", path+"/none", -1)
		s.multi("a", zktest.OpMulti, partCheck(path, 9))
		s.sync("a", path)
		s.getACL("a", path)
		s.setACL("a", path, -1, acl(31, "digest", userDigest), acl(perms, "world", "anyone"))
		s.exists("u", path, false)
		s.call("a", zktest.OpCountChildren, path, new(encoder).string(path).b, func(d *decoder) string { return fmt.Sprint(d.int32()) })
	}
	// To delete a znode takes the parent's permission, not its own.
	s.createOp("u", zktest.OpCreate, "/acl-enforce/mine", nil, 0, []zktest.ACL{acl(31, "auth", "")})
	s.get("a", "/acl-enforce/mine", false)
	s.delete("a", "/acl-enforce/mine", -1)
	// By address.
	s.createOp("u", zktest.OpCreate, "/acl-enforce/here", nil, 0, []zktest.ACL{acl(1, "ip", "127.0.0.1")})
	s.createOp("u", zktest.OpCreate, "/acl-enforce/near", nil, 0, []zktest.ACL{acl(1, "ip", "127.1.2.3/8")})
	s.createOp("u", zktest.OpCreate, "/acl-enforce/far", nil, 0, []zktest.ACL{acl(1, "ip", "10.0.0.1")})
	s.get("a", "/acl-enforce/here", false)
	s.get("a", "/acl-enforce/near", false)
	s.get("a", "/acl-enforce/far", false)
	// An ephemeral goes whatever its parent's ACL.
	s.createOp("u", zktest.OpCreate, "/acl-enforce/closed", nil, 0, []zktest.ACL{acl(31, "auth", ""), acl(zktest.PermCreate, "world", "anyone")})
	s.createMode("a", "/acl-enforce/closed/e", 1)
	s.delete("a", "/acl-enforce/closed/e", -1)
	s.call("a", zktest.OpCloseSession, "", nil, nil)
	s.exists("u", "/acl-enforce/closed/e", false)
}

func scriptACLSet(s *script) {
	s.open("a", "u")
	s.create("a", "/acl-set", "")
	s.setACL("a", "/acl-set", -1, acl(31, "world", "anyone"), acl(1, "ip", "127.0.0.1"))
	s.setACL("a", "/acl-set", 0, open...)
	s.setACL("a", "/acl-set", 1, open...)
	s.setACL("a", "/acl-set", -1)
	s.setACL("a", "/acl-set/none", -1, open...)
	s.setACL("a", "/acl-set/none", -1)
	s.setACL("a", "/acl-set/", -1, open...)
	s.setACL("a", "/acl-set", -1, acl(31, "auth", ""))
	s.auth("u", "digest", "u:p")
	s.setACL("u", "/acl-set", 2, acl(31, "auth", ""))
	s.getACL("u", "/acl-set")
	s.getACL("a", "/acl-set")
	s.setACL("a", "/acl-set", -1, open...)
	s.setACL("u", "/acl-set", -1, acl(31, "auth", ""), acl(1, "world", "anyone"))
	s.getACL("a", "/acl-set") // the hash is hidden from who may not administer
	s.exists("u", "/acl-set", false)
}

// scriptACLWatch: who may not read a znode does not hear of it.
func scriptACLWatch(s *script) {
	s.open("a", "b", "u")
	s.auth("u", "digest", "u:p")
	private := []zktest.ACL{acl(31, "digest", userDigest)}
	s.create("a", "/acl-watch", "")
	s.exists("b", "/acl-watch/x", true)
	s.exists("u", "/acl-watch/x", true)
	s.children("b", "/acl-watch", true)
	s.createOp("u", zktest.OpCreate, "/acl-watch/x", nil, 0, private)
	s.poll("b", "u")
	s.create("a", "/acl-watch/y", "")
	s.get("b", "/acl-watch/y", true)
	s.children("b", "/acl-watch/y", true)
	s.get("u", "/acl-watch/y", true)
	s.setACL("a", "/acl-watch/y", -1, private...)
	s.set("u", "/acl-watch/y", "1", -1)
	s.create("u", "/acl-watch/y/z", "")
	s.poll("b", "u")
	s.exists("b", "/acl-watch/x", true) // refused: no watch
	s.watchOp("b", zktest.OpCheckWatches, "/acl-watch/x", 2)
	s.watchOp("b", zktest.OpAddWatch, "/acl-watch", 1)
	s.set("u", "/acl-watch/x", "2", -1)
	s.set("u", "/acl-watch", "2", -1)
	s.poll("b")
}

func scriptACLMulti(s *script) {
	s.open("a", "u")
	s.auth("u", "digest", "u:p")
	s.create("a", "/acl-multi", "")
	s.createOp("u", zktest.OpCreate, "/acl-multi/x", nil, 0, []zktest.ACL{acl(31, "auth", "")})
	s.multi("a", zktest.OpMulti, partCheck("/acl-multi", -1), partCheck("/acl-multi/x", -1))
	s.multi("a", zktest.OpMulti, partCreate("/acl-multi/y", "", 0), partSet("/acl-multi/x", "", -1), partDelete("/acl-multi/y", -1))
	s.multi("u", zktest.OpMulti, partCreate("/acl-multi/y", "", 0), partSet("/acl-multi/x", "", -1), partDelete("/acl-multi/y", -1))
	closed := part{zktest.OpCreate, "/acl-multi/z closed", new(encoder).string("/acl-multi/z").bytes(nil).acls([]zktest.ACL{acl(31, "digest", userDigest)}).int32(0).b}
	s.multi("a", zktest.OpMulti, closed, partCreate("/acl-multi/z/below", "", 0))
	s.multi("u", zktest.OpMulti, closed, partCreate("/acl-multi/z/below", "", 0))
	s.multi("a", zktest.OpMultiRead, partRead(zktest.OpGetData, "/acl-multi/x"), partRead(zktest.OpGetData, "/acl-multi"))
}

func scriptAuth(s *script) {
	s.open("a", "b", "c", "d")
	s.create("a", "/auth", "")
	s.auth("a", "digest", "u:p")
	s.auth("a", "digest", "u:p")
	s.auth("a", "digest", "no colon")
	s.auth("a", "digest", "")
	s.auth("a", "ip", "")
	s.auth("b", "digest", "u:wrong") // any password is believed
	s.createOp("b", zktest.OpCreate, "/auth/b", nil, 0, []zktest.ACL{acl(31, "auth", "")})
	s.get("a", "/auth/b", false)
	s.getACL("b", "/auth/b")
	s.auth("c", "nonsense", "x")
	s.gone("c")
	s.auth("d", "world", "anyone")
	s.gone("d")
}
