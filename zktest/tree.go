package zktest

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
)

// Stat is a znode's metadata, as in ZooKeeper.
type Stat struct {
	Czxid, Mzxid   int64 // zxids of the creation and of the last change of the data
	Ctime, Mtime   int64 // their times, in ms since 1970
	Version        int32 // changes of the data
	Cversion       int32 // changes of the children
	Aversion       int32 // changes of the ACL
	EphemeralOwner int64 // the owner's session id; 0 if the znode is not ephemeral
	DataLength     int32
	NumChildren    int32
	Pzxid          int64 // zxid of the last creation or deletion of a child
}

// node is a znode.
type node struct {
	path     string
	data     []byte
	acl      []ACL
	stat     Stat                // without the fields that statNow sets
	creates  int32               // how many children were created: the number of the next sequential child; Cversion is computed from it
	children map[string]struct{} // the children's names
	listing  []string            // the children in the order in which they are listed; nil until list makes it

	container bool // whether the znode is removed some time after its last child
}

// statNow returns the metadata that clients see.
func (n *node) statNow() Stat {
	s := n.stat
	s.DataLength = int32(len(n.data))
	s.NumChildren = int32(len(n.children))
	s.Cversion = n.creates*2 - s.NumChildren
	return s
}

// list returns the children in a fixed order that is not sorted, like that of a real server: a program that relies on sorted
// children fails with zktest too.
func (n *node) list() []string {
	if n.listing == nil {
		n.listing = slices.SortedFunc(maps.Keys(n.children), func(a, b string) int {
			ha, hb := hashName(a), hashName(b)
			switch {
			case ha < hb || ha == hb && a < b:
				return -1
			case a == b:
				return 0
			default:
				return 1
			}
		})
	}
	return n.listing
}

func hashName(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return h.Sum32()
}

// tree has the znodes by their paths.
type tree map[string]*node

// newTree returns the tree of a new server.
func newTree() tree {
	t := tree{}
	for _, path := range []string{"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"} {
		t[path] = &node{path: path, data: []byte{}, acl: openACL(), children: map[string]struct{}{}}
		if path != "/" {
			parent, _ := parentOf(path)
			t[parent].children[nameOf(path)] = struct{}{}
		}
	}
	config := t["/zookeeper/config"]
	config.acl = []ACL{{Perms: PermRead, Scheme: "world", ID: "anyone"}}
	config.stat.Aversion = -1
	return t
}

// clone returns a copy that later transactions do not change. The copy shares the values that transactions only replace.
func (t tree) clone() tree {
	out := make(tree, len(t))
	for path, n := range t {
		same := *n
		same.children = maps.Clone(n.children)
		out[path] = &same
	}
	return out
}

// get returns a znode or nil. The empty path is the root's second name, as in ZooKeeper.
func (t tree) get(path string) *node {
	if path == "" {
		path = "/"
	}
	return t[path]
}

// txn is a transaction in progress. It changes the tree at once, and can be rolled back.
type txn struct {
	tree    tree
	zxid    int64
	time    int64      // ms since 1970
	session int64      // the owner of ephemeral znodes that it creates
	who     []identity // the client's identities; nil for an operator, who may do everything
	undo    []func()   // undo the changes, the last first
	events  []event
}

// rollback undoes all changes.
func (t *txn) rollback() {
	for _, f := range slices.Backward(t.undo) {
		f()
	}
	t.undo, t.events = nil, nil
}

// may reports whether the transaction has a permission on a znode.
func (t *txn) may(n *node, perm int32) bool { return t.who == nil || permits(n.acl, perm, t.who) }

// result is the result of an operation in a transaction.
type result struct {
	path string
	stat Stat
}

// apply executes one operation. If it returns an error it has changed nothing. The order of the checks is the real server's.
func (t *txn) apply(r *Request) (result, Error) {
	switch r.Op {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL:
		return t.create(r)
	case OpDelete:
		return t.delete(r.Path, r.Version)
	case OpSetData:
		return t.set(r.Path, r.Data, r.Version)
	case OpSetACL:
		return t.setACL(r)
	case OpCheck:
		return t.check(r.Path, r.Version)
	default:
		return result{}, ErrUnimplemented
	}
}

func (t *txn) create(r *Request) (result, Error) {
	ephemeral, sequential := r.Flags == 1 || r.Flags == 3, r.Flags == 2 || r.Flags == 3
	switch {
	case r.Flags < 0 || r.Flags > 6:
		return result{}, ErrBadArguments
	case r.Flags == 5 || r.Flags == 6:
		return result{}, ErrUnimplemented // unless extendedTypesEnabled is set, which it is not by default
	case r.Op == OpCreateTTL && r.TTL >= 0:
		return result{}, ErrBadArguments
	}
	path := r.Path
	parentPath, ok := parentOf(path)
	if !ok {
		return result{}, ErrBadArguments
	}
	acl, code := expandACL(r.ACL, t.who)
	if code != 0 {
		return result{}, code
	}
	parent := t.tree.get(parentPath)
	if parent == nil {
		return result{}, ErrNoNode
	}
	if !t.may(parent, PermCreate) {
		return result{}, ErrNoAuth
	}
	if sequential {
		path = fmt.Sprintf("%s%010d", path, parent.creates)
	}
	if !validPath(path) {
		return result{}, ErrBadArguments
	}
	if t.tree.get(path) != nil {
		return result{}, ErrNodeExists
	}
	if parent.stat.EphemeralOwner != 0 {
		return result{}, ErrNoChildren
	}
	n := &node{
		path: path, data: r.Data, acl: acl, children: map[string]struct{}{},
		stat: Stat{Czxid: t.zxid, Mzxid: t.zxid, Pzxid: t.zxid, Ctime: t.time, Mtime: t.time},
	}
	if ephemeral {
		n.stat.EphemeralOwner = t.session
	}
	n.container = r.Op == OpCreateContainer
	t.link(n, parent)
	return result{path: path, stat: n.statNow()}, 0
}

// link puts a new znode into the tree.
func (t *txn) link(n, parent *node) {
	creates, pzxid, name := parent.creates, parent.stat.Pzxid, nameOf(n.path)
	t.undo = append(t.undo, func() {
		delete(t.tree, n.path)
		delete(parent.children, name)
		parent.creates, parent.stat.Pzxid, parent.listing = creates, pzxid, nil
	})
	t.tree[n.path] = n
	parent.children[name] = struct{}{}
	parent.listing = nil
	if parent.creates < math.MaxInt32 { // at that number neither it nor the Pzxid changes any more
		parent.creates++
		parent.stat.Pzxid = t.zxid
	}
	t.events = append(t.events,
		event{kind: eventCreated, path: n.path, acl: n.acl, owner: n.stat.EphemeralOwner},
		event{kind: eventChildren, path: parent.path, acl: parent.acl})
}

func (t *txn) delete(path string, version int32) (result, Error) {
	parentPath, ok := parentOf(path)
	if !ok || reserved(path) {
		return result{}, ErrBadArguments
	}
	parent := t.tree.get(parentPath)
	if parent == nil {
		return result{}, ErrNoNode
	}
	if !t.may(parent, PermDelete) {
		return result{}, ErrNoAuth
	}
	n := t.tree.get(path)
	switch {
	case n == nil:
		return result{}, ErrNoNode
	case version != -1 && version != n.stat.Version:
		return result{}, ErrBadVersion
	case len(n.children) > 0:
		return result{}, ErrNotEmpty
	}
	t.unlink(n, parent)
	return result{path: path}, 0
}

// unlink removes a znode from the tree.
func (t *txn) unlink(n, parent *node) {
	pzxid, name := parent.stat.Pzxid, nameOf(n.path)
	t.undo = append(t.undo, func() {
		t.tree[n.path] = n
		parent.children[name] = struct{}{}
		parent.stat.Pzxid, parent.listing = pzxid, nil
	})
	delete(t.tree, n.path)
	delete(parent.children, name)
	parent.stat.Pzxid, parent.listing = t.zxid, nil
	t.events = append(t.events,
		event{kind: eventDeleted, path: n.path, acl: n.acl, owner: n.stat.EphemeralOwner},
		event{kind: eventChildren, path: parent.path, acl: parent.acl})
}

func (t *txn) set(path string, data []byte, version int32) (result, Error) {
	n, code := t.lookup(path, PermWrite)
	if code != 0 {
		return result{}, code
	}
	if version != -1 && version != n.stat.Version {
		return result{}, ErrBadVersion
	}
	oldData, oldStat := n.data, n.stat
	t.undo = append(t.undo, func() { n.data, n.stat = oldData, oldStat })
	n.data = data
	n.stat.Version++
	n.stat.Mzxid, n.stat.Mtime = t.zxid, t.time
	t.events = append(t.events, event{kind: eventData, path: path, acl: n.acl})
	return result{path: path, stat: n.statNow()}, 0
}

func (t *txn) setACL(r *Request) (result, Error) {
	if !validPath(r.Path) {
		return result{}, ErrBadArguments
	}
	acl, code := expandACL(r.ACL, t.who)
	if code != 0 {
		return result{}, code
	}
	n, code := t.lookup(r.Path, PermAdmin)
	if code != 0 {
		return result{}, code
	}
	if r.Version != -1 && r.Version != n.stat.Aversion {
		return result{}, ErrBadVersion
	}
	oldACL, oldStat := n.acl, n.stat
	t.undo = append(t.undo, func() { n.acl, n.stat = oldACL, oldStat })
	n.acl = acl
	n.stat.Aversion++
	return result{path: r.Path, stat: n.statNow()}, 0
}

func (t *txn) check(path string, version int32) (result, Error) {
	n, code := t.lookup(path, PermRead)
	if code != 0 {
		return result{}, code
	}
	if version != -1 && version != n.stat.Version {
		return result{}, ErrBadVersion
	}
	return result{path: path}, 0
}

// lookup returns a znode, or an error if it is missing or the transaction lacks the permission.
func (t *txn) lookup(path string, perm int32) (*node, Error) {
	if !validPath(path) {
		return nil, ErrBadArguments
	}
	n := t.tree.get(path)
	if n == nil {
		return nil, ErrNoNode
	}
	if !t.may(n, perm) {
		return nil, ErrNoAuth
	}
	return n, 0
}
