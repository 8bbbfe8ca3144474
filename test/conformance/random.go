package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/zktest"
)

// Random runs a random script, the same for the same seed, and returns its text: two servers must answer the same.
func Random(t *testing.T, srv *Server, seed uint64, steps int) string {
	t.Helper()
	r := random{script: newScript(t, srv), rand: rand.New(rand.NewPCG(seed, 1)), root: fmt.Sprintf("/random-%d", seed)}
	for i := range 3 {
		r.clients = append(r.clients, fmt.Sprintf("c%d", i))
	}
	r.open(r.clients...)
	r.create("c0", r.root, "")
	for i := range steps {
		r.step(i)
		if r.rand.IntN(3) == 0 {
			r.poll(r.clients...)
		}
	}
	r.poll(r.clients...)
	r.dump(r.root)
	text := r.text.String()
	for _, name := range r.clients { // so that no expiry takes a zxid in the middle of the next script
		r.call(name, zktest.OpCloseSession, "", nil, nil)
		_ = r.script.clients[name].nc.Close()
	}
	return text
}

type random struct {
	*script
	rand    *rand.Rand
	root    string
	clients []string
	made    int // sessions
}

// path is one of few, so that requests meet.
func (r *random) path() string {
	parts := []string{r.root}
	for range r.rand.IntN(4) {
		parts = append(parts, []string{"a", "b", "e"}[r.rand.IntN(3)])
	}
	return strings.Join(parts, "/")
}

func (r *random) version() int32 { return []int32{-1, -1, -1, 0, 0, 1, 2}[r.rand.IntN(7)] }

func (r *random) acl() []zktest.ACL {
	return [][]zktest.ACL{
		open, open, open, open, open, open,
		{acl(31, "digest", userDigest), acl(1, "world", "anyone")},
		{acl(31, "digest", userDigest)},
		{acl(31, "auth", ""), acl(6, "world", "anyone")},
		{acl(31, "ip", "127.0.0.1")},
		{acl(15, "world", "anyone")},
	}[r.rand.IntN(11)]
}

func (r *random) part() part {
	path, text := r.path(), fmt.Sprint(r.rand.IntN(100))
	switch r.rand.IntN(6) {
	case 0:
		return partDelete(path, r.version())
	case 1:
		return partSet(path, text, r.version())
	case 2:
		return partCheck(path, r.version())
	case 3:
		return partCreate2(path, text, int32(r.rand.IntN(4))) // no containers: their removal takes zxids at any time
	default:
		return partCreate(path, text, int32(r.rand.IntN(4)))
	}
}

func (r *random) step(i int) {
	r.t.Helper()
	name, path, watch := r.clients[r.rand.IntN(len(r.clients))], r.path(), r.rand.IntN(2) == 0
	switch n := r.rand.IntN(100); {
	case n < 25:
		r.createOp(name, []zktest.Op{zktest.OpCreate, zktest.OpCreate2}[r.rand.IntN(2)], path, fmt.Append(nil, i), int32(r.rand.IntN(5)), r.acl())
	case n < 38:
		r.delete(name, path, r.version())
	case n < 47:
		r.set(name, path, fmt.Sprint(i), r.version())
	case n < 53:
		r.get(name, path, watch)
	case n < 60:
		r.exists(name, path, watch)
	case n < 66:
		r.children(name, path, watch)
	case n < 68:
		r.childrenOld(name, path, watch)
	case n < 70:
		r.getACL(name, path)
	case n < 74:
		r.setACL(name, path, r.version(), r.acl()...)
	case n < 76:
		r.auth(name, "digest", "u:p")
	case n < 86:
		parts := make([]part, r.rand.IntN(5))
		for i := range parts {
			parts[i] = r.part()
		}
		r.multi(name, zktest.OpMulti, parts...)
	case n < 88:
		r.multi(name, zktest.OpMultiRead, partRead(zktest.OpGetData, path), partRead(zktest.OpGetChildren, r.path()))
	case n < 90:
		r.call(name, zktest.OpGetEphemerals, path, new(encoder).string(path).b, showNames)
	case n < 92:
		r.sync(name, path)
	case n < 94: // the old connection is lost, the session stays
		w := r.script.clients[name]
		_ = w.nc.Close()
		r.attach(name, hello{timeout: w.timeout, session: w.session, password: w.password})
		all := []string{r.root, r.path(), r.path()}
		slices.Sort(all)
		all = slices.Compact(all)
		r.setWatches(name, r.base+int64(r.rand.IntN(i+1)), all, nil, all)
	case n < 96:
		r.poll(r.clients...)
		r.call(name, zktest.OpCloseSession, "", nil, nil)
		_ = r.script.clients[name].nc.Close()
		r.pollSorted(name) // the order in which ephemerals go is nobody's business
		r.made++
		r.replace(name)
	default:
		r.watchOp(name, zktest.OpRemoveWatches, path, int32(1+r.rand.IntN(3))) // (3.8's checkWatches sees others' watches too)
	}
}

// replace gives a client a new session.
func (r *random) replace(name string) {
	i := slices.Index(r.clients, name)
	base, _, _ := strings.Cut(name, ".")
	r.clients[i] = fmt.Sprintf("%s.%d", base, r.made)
	r.open(r.clients[i])
}

func (r *random) pollSorted(except string) {
	for _, name := range r.clients {
		if name == except {
			continue
		}
		before := r.text.Len()
		r.poll(name)
		lines := strings.SplitAfter(r.text.String()[before:], "\n")
		slices.Sort(lines)
		kept := r.text.String()[:before]
		r.text.Reset()
		r.text.WriteString(kept + strings.Join(lines, ""))
	}
}

// dump logs the tree below path.
func (r *random) dump(path string) {
	r.t.Helper()
	name := r.clients[0]
	r.auth(name, "digest", "u:p")
	r.get(name, path, false)
	rep, err := r.script.clients[name].call(zktest.OpGetChildren, new(encoder).string(path).bool(false).b)
	r.must(err)
	if rep.err != 0 {
		return
	}
	for _, child := range slices.Sorted(slices.Values(rep.body.strings())) {
		r.dump(path + "/" + child)
	}
}
