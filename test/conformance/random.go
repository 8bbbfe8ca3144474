package conformance

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/kielgo/kiel/zktest"
)

// step is what a client does in a random sequence. All that is random in it is drawn when it is made, so that other steps can be
// left out.
type step struct {
	client int
	piped  bool // the client sends its next request before it reads the reply
	alone  bool // not a single request
	do     func(r *run, name string)
	parts  []func(root string) part // of a multi, which has no do
}

// clients is how many clients a sequence has.
const clients = 3

// generator makes random steps.
type generator struct {
	*rand.Rand
	old bool // for ZooKeeper 3.8
}

// sequence makes the steps of a seed. With expiry, sessions expire in it; otherwise they don't.
func sequence(seed uint64, old, expiry bool) []step {
	g := generator{rand.New(rand.NewPCG(seed, map[bool]uint64{expiry: 1}[true])), old}
	var steps []step
	for i := range 5 + g.IntN(35) {
		if i < 4 { // something to begin with
			steps = append(steps, g.create(g.IntN(2)))
		} else {
			steps = append(steps, g.step())
		}
	}
	if expiry {
		for range 1 + g.IntN(2) {
			at := 2 + g.IntN(len(steps)-2)
			steps[at] = step{client: g.IntN(clients), alone: true, do: (*run).expire}
		}
	}
	return steps
}

// path is one of few, below the sequence's root, so that requests meet.
func (g generator) path() string {
	var names []string
	for range []int{0, 1, 1, 1, 1, 2, 2, 3}[g.IntN(8)] {
		names = append(names, pick(g, "/a", "/a", "/a", "/a", "/b", "/b", "/b", "/a0000000001", "/b0000000002"))
	}
	switch g.IntN(60) {
	case 0:
		names = append(names, pick(g, "/", "/.", "//a", "/\x00", "/a\x00", "/ä", "/\u202e"))
	case 1:
		names = append(names, "/k")
	}
	return strings.Join(names, "")
}

// container is a path where containers may be: they have no children, since one that had would go some time.
func (g generator) container() string { return strings.TrimRight(g.path(), "./\x00") + "/k" }

func acl(perms int32, scheme, id string) zktest.ACL {
	return zktest.ACL{Perms: perms, Scheme: scheme, ID: id}
}

// userDigest is the id of user u with password p: u:base64(sha1("u:p")).
const userDigest = "u:jdtkXq6ivcTozEJjg1o/2ikvXY4="

func pick[T any](g generator, of ...T) T { return of[g.IntN(len(of))] }

func (g generator) version() int32 { return pick[int32](g, -1, -1, -1, 0, 0, 1, 2, -2) }

func (g generator) data() []byte {
	return pick(g, nil, []byte{}, []byte("x"), []byte("x"), fmt.Append(nil, g.IntN(1000)))
}

func (g generator) acl() []zktest.ACL {
	if g.IntN(3) > 0 {
		return open
	}
	return pick(g, open,
		[]zktest.ACL{acl(31, "digest", userDigest), acl(1, "world", "anyone")},
		[]zktest.ACL{acl(31, "digest", userDigest)},
		[]zktest.ACL{acl(31, "auth", ""), acl(6, "world", "anyone")},
		[]zktest.ACL{acl(31, "ip", "127.0.0.1")},
		[]zktest.ACL{acl(15, "world", "anyone")},
		[]zktest.ACL{acl(31, "world", "nobody")},
		nil)
}

// create makes a create with one of the first kinds of flags: persistent, ephemeral, sequential, both, not allowed.
func (g generator) create(flags int) step {
	path, data, acls := g.path(), g.data(), g.acl()
	op, mode := pick(g, zktest.OpCreate, zktest.OpCreate2), int32(g.IntN(flags+1))
	switch {
	case flags < 4:
	case g.IntN(20) == 0:
		op, path, mode = zktest.OpCreateContainer, g.container(), 4
	case g.IntN(20) == 0:
		op, mode = zktest.OpCreateTTL, int32(g.IntN(7))
	}
	path = below(path)
	return g.request(func(r *run, name string) { r.createOp(name, op, r.root+path, data, mode, acls) })
}

// below is the path of a create: a sequential one at the root itself would be outside.
func below(path string) string { return cmp.Or(path, "/a") }

func (g generator) request(do func(r *run, name string)) step {
	return step{client: g.IntN(clients), piped: g.IntN(5) == 0, do: do}
}

func (g generator) part() func(root string) part {
	path, data, version, acls := g.path(), g.data(), g.version(), g.acl()
	flags := pick[int32](g, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 9)
	op := pick(g, zktest.OpCreate, zktest.OpCreate, zktest.OpCreate2, zktest.OpDelete, zktest.OpSetData, zktest.OpCheck)
	if flags > 4 && g.IntN(10) > 0 { // the whole multi would be refused too often
		flags = 0
	}
	if g.IntN(30) == 0 {
		op = pick(g, zktest.OpCreateContainer, zktest.OpCreateTTL, zktest.OpSetACL, zktest.OpGetData)
	}
	if op == zktest.OpCreateContainer || flags == 4 {
		path, flags = g.container(), 4 // with other flags the real server's own books disagree
	}
	switch op {
	case zktest.OpDelete, zktest.OpCheck, zktest.OpSetData:
	default:
		path = below(path)
	}
	return func(root string) part {
		switch op {
		case zktest.OpDelete, zktest.OpCheck:
			return partVersion(op, root+path, version)
		case zktest.OpSetData:
			return partSet(root+path, data, version)
		default:
			return partCreate(op, root+path, data, flags, acls)
		}
	}
}

func (g generator) step() step {
	path, other, watch, version := g.path(), g.path(), g.IntN(2) == 0, g.version()
	switch n := g.IntN(100); {
	case n < 22:
		return g.create(6)
	case n < 32:
		return g.request(func(r *run, name string) { r.delete(name, r.root+path, version) })
	case n < 40:
		data := g.data()
		return g.request(func(r *run, name string) { r.setData(name, r.root+path, data, version) })
	case n < 45:
		return g.request(func(r *run, name string) { r.get(name, r.root+path, watch) })
	case n < 50:
		return g.request(func(r *run, name string) { r.exists(name, r.root+path, watch) })
	case n < 56:
		return g.request(func(r *run, name string) { r.children(name, r.root+path, watch) })
	case n < 57:
		return g.request(func(r *run, name string) { r.childrenOld(name, r.root+path, watch) })
	case n < 58:
		return g.request(func(r *run, name string) { r.getACL(name, r.root+path) })
	case n < 62:
		acls := g.acl()
		s := g.request(func(r *run, name string) { r.setACL(name, r.root+path, version, acls...) })
		s.piped = false // a real server checks a write that follows at once against the old ACL, or the new one
		return s
	case n < 74:
		s := g.request(nil)
		s.parts = make([]func(string) part, g.IntN(5))
		for i := range s.parts {
			s.parts[i] = g.part()
		}
		return s
	case n < 76:
		ops := []zktest.Op{pick(g, zktest.OpGetData, zktest.OpGetChildren), pick(g, zktest.OpGetData, zktest.OpGetChildren)}
		return g.request(func(r *run, name string) {
			r.multi(name, zktest.OpMultiRead, partRead(ops[0], r.root+path), partRead(ops[1], r.root+other))
		})
	case n < 78:
		return g.look(path)
	case n < 86:
		return g.watch(path)
	default:
		return g.connection(path, other)
	}
}

// look makes one of the rarer reads.
func (g generator) look(path string) step {
	switch g.IntN(4) {
	case 0:
		return g.request(func(r *run, name string) {
			r.call(name, zktest.OpGetEphemerals, fmt.Sprintf("%q", r.root+path), new(encoder).string(r.root+path).b, showNames)
		})
	case 1:
		return g.request(func(r *run, name string) {
			r.call(name, zktest.OpCountChildren, fmt.Sprintf("%q", r.root+path), new(encoder).string(r.root+path).b, showInt)
		})
	case 2:
		return g.request(func(r *run, name string) { r.call(name, zktest.OpWhoAmI, "", nil, showWho) })
	default:
		return g.request(func(r *run, name string) { r.sync(name, r.root+path) })
	}
}

// watch makes a request that sets or removes a lasting watch.
func (g generator) watch(path string) step {
	op, mode := zktest.OpAddWatch, int32(g.IntN(2))
	switch g.IntN(4) {
	case 0:
		op, mode = zktest.OpRemoveWatches, pick[int32](g, 1, 2, 3, 4, 5)
	case 1:
		op, mode = zktest.OpCheckWatches, pick[int32](g, 1, 2, 3, 4, 5)
	}
	if g.old { // there watches of several kinds on one path disturb each other, and checkWatches sees others' too
		op, mode = zktest.OpRemoveWatches, 1+mode%3
	}
	return g.request(func(r *run, name string) { r.watchOp(name, op, r.root+path, mode) })
}

// connection makes a step that is about the client's connection or session.
func (g generator) connection(path, other string) step {
	s := step{client: g.IntN(clients), alone: true}
	switch n := g.IntN(14); {
	case n < 2:
		s.do = func(r *run, name string) { r.auth(name, "digest", "u:p") }
	case n < 6: // the old connection is lost, or still there, and the session goes on
		cut, set, at, five := g.IntN(2) == 0, g.IntN(4) > 0, g.IntN(100), !g.old && g.IntN(2) == 0
		s.do = func(r *run, name string) { r.reconnect(name, cut, set, at, five, r.root+path, r.root+other) }
	case n < 8:
		s.do = (*run).close
	case n < 11 && !g.old: // which took a zxid for some of these
		op, mangle := g.odd(path)
		s.do = func(r *run, name string) { r.odd(name, op, mangle(r.root+path)) }
	default:
		s.do = func(r *run, _ string) { r.poll(r.clients...) }
	}
	return s
}

// odd makes a request that no proper client sends: an operation that is none, or a body that was damaged.
func (g generator) odd(path string) (zktest.Op, func(path string) []byte) {
	if g.IntN(6) == 0 {
		op := pick[zktest.Op](g, 0, 10, 13, 23, 99, 108, -1, -2, 1<<30)
		return op, func(string) []byte { return nil }
	}
	op := pick(g, zktest.OpCreate, zktest.OpCreate2, zktest.OpDelete, zktest.OpExists, zktest.OpGetData, zktest.OpSetData,
		zktest.OpGetACL, zktest.OpSetACL, zktest.OpGetChildren, zktest.OpGetChildren2, zktest.OpSync, zktest.OpMulti,
		zktest.OpMultiRead, zktest.OpSetWatches, zktest.OpSetWatches2, zktest.OpAddWatch, zktest.OpRemoveWatches,
		zktest.OpGetEphemerals, zktest.OpCountChildren)
	a, b, kind, at, value := g.part(), g.part(), g.IntN(4), g.IntN(1000), pick[int32](g, -2, 3, 1<<30)
	return op, func(full string) []byte {
		root := full[:len(full)-len(path)]
		body := goodBody(op, full, a(root), b(root))
		at, value := at%len(body), value
		if kind == 0 { // what comes after the path, or the first list, is null; what a null path does is not defined
			at, value = 4+len(full), -1
			if op == zktest.OpSetWatches || op == zktest.OpSetWatches2 {
				at = 8
			}
		}
		switch {
		case kind == 1: // cut short
			return body[:at]
		case kind < 3 && op != zktest.OpMulti && op != zktest.OpMultiRead && at+4 <= len(body): // a length, or what is there
			copy(body[at:], new(encoder).int32(value).b)
			body[3] |= 2 // the empty path is the root, which has others' children
			return body
		default:
			return append(body, 0, 0, 0, 1)
		}
	}
}

// goodBody is a request as it should be.
func goodBody(op zktest.Op, path string, parts ...part) []byte {
	e := new(encoder)
	switch op {
	case zktest.OpCreate, zktest.OpCreate2:
		e.string(path).string("x").acls(open).int32(0)
	case zktest.OpDelete, zktest.OpAddWatch, zktest.OpRemoveWatches:
		e.string(path).int32(1)
	case zktest.OpSetData:
		e.string(path).string("x").int32(-1)
	case zktest.OpSetACL:
		e.string(path).acls(open).int32(-1)
	case zktest.OpMulti:
		_, e.b = multiBody(parts)
	case zktest.OpMultiRead:
		_, e.b = multiBody([]part{partRead(zktest.OpGetData, path), partRead(zktest.OpGetChildren, path)})
	case zktest.OpSetWatches, zktest.OpSetWatches2:
		e.int64(1 << 40)
		for range map[zktest.Op]int{zktest.OpSetWatches: 3, zktest.OpSetWatches2: 5}[op] {
			e.strings([]string{path})
		}
	default:
		e.string(path).bool(true)
	}
	return e.b
}
