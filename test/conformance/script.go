package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kielgo/kiel/zktest"
)

// tester is what a script needs of the test that runs it.
type tester interface {
	Helper()
	Cleanup(f func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// script runs requests and writes down what happens.
type script struct {
	t       tester
	srv     *Server
	base    int64 // the zxid at the start
	clients map[string]*wire
	names   map[int64]string // sessions
	text    strings.Builder

	hold   bool     // requests are sent, and their replies not yet read
	held   []func() // reads the replies
	piping string   // whose they are
	made   []int64  // the zxids of the writes so far

	hideZxids  bool
	rankZxids  bool // somebody else writes too: zxids are numbered by their order
	eventZxids bool // write down which transaction an event comes from

	answers *sync.Map // what kinds of answers there were; nil when nobody asks
}

func newScript(t tester, srv *Server) *script {
	t.Helper()
	return &script{t: t, srv: srv, clients: map[string]*wire{}, names: map[int64]string{0: "0"}}
}

func (s *script) log(format string, args ...any) { fmt.Fprintf(&s.text, format+"\n", args...) }

// must ends the test on an error.
func (s *script) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v\nso far:\n%s", err, s.text.String())
	}
}

// open connects clients with a new session each.
func (s *script) open(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.attach(name, hello{timeout: 10 * time.Second})
	}
}

// attach connects a client.
func (s *script) attach(name string, h hello) {
	s.t.Helper()
	w, err := s.srv.connect(h)
	s.must(err)
	s.t.Cleanup(func() { _ = w.nc.Close() })
	s.clients[name] = w
	if _, known := s.names[w.session]; !known {
		s.names[w.session] = name
	}
	if s.base == 0 {
		r, err := w.call(zktest.OpPing, nil)
		s.must(err)
		s.base = r.zxid
	}
	s.log("%s: session of %s", name, s.names[w.session])
}

// endSessions ends the sessions that are left: on a slow machine one would expire in the middle of a later script and take a
// zxid.
func (s *script) endSessions() {
	for _, old := range s.clients {
		_ = old.nc.Close()
		if old.session == 0 {
			continue
		}
		if w, err := s.srv.connect(hello{timeout: old.timeout, session: old.session, password: old.password}); err == nil {
			_, _ = w.call(zktest.OpCloseSession, nil)
			_ = w.nc.Close()
		}
	}
}

// call sends a request, and logs the events, the reply, and with show its body; later, while replies are held back.
func (s *script) call(name string, op zktest.Op, what string, body []byte, show func(d *decoder) string) {
	s.t.Helper()
	w := s.clients[name]
	xid, err := w.send(op, body)
	s.held = append(s.held, func() {
		var r reply
		if err == nil {
			r, err = w.receiveTo(xid)
			s.logEvents(name, w)
		}
		if err != nil {
			s.log("%s: %v %s -> connection lost", name, op, what)
			return
		}
		s.note(op.String(), r.err)
		if op.Writes() && r.err != zktest.ErrMarshalling {
			s.made = append(s.made, r.zxid)
		}
		text := fmt.Sprintf("%s: %v %s -> %s %s", name, op, what, s.headZxid(op, r), s.result(r, show))
		s.log("%s", strings.TrimRight(text, " "))
	})
	if !s.hold {
		s.flush()
	}
}

// note notes a kind of answer.
func (s *script) note(what string, code zktest.Error) {
	if s.answers != nil {
		s.answers.Store(fmt.Sprintf("%s: %d", what, code), true)
	}
}

// flush reads the replies held back.
func (s *script) flush() {
	for _, read := range s.held {
		read()
	}
	s.held = nil
}

func (s *script) result(r reply, show func(d *decoder) string) string {
	switch {
	case r.err != 0:
		text := errText(r.err)
		if len(r.body.b) > 0 {
			text += fmt.Sprintf(" and %d bytes", len(r.body.b))
		}
		return text
	case show != nil:
		text := show(&r.body)
		if len(r.body.b) > 0 {
			text += fmt.Sprintf(" and %d more bytes", len(r.body.b))
		}
		return text
	default:
		return fmt.Sprintf("ok, %d bytes", len(r.body.b))
	}
}

// headZxid is the zxid in a reply's header: the request's own, or the last one that the server has done, whoever wrote.
func (s *script) headZxid(op zktest.Op, r reply) string {
	if s.rankZxids && (!op.Writes() || r.err == zktest.ErrMarshalling) {
		return "z"
	}
	return s.zxid(r.zxid)
}

func errText(e zktest.Error) string {
	return fmt.Sprintf("error %d (%s)", int32(e), strings.TrimPrefix(e.Error(), "zktest: "))
}

func (s *script) logEvents(name string, w *wire) {
	for _, ev := range w.events {
		s.note("event "+eventName(ev.kind), 0)
		text := fmt.Sprintf("%s: event %s %s", name, eventName(ev.kind), ev.path)
		if s.eventZxids {
			text += " of " + s.zxid(ev.zxid)
		}
		s.log("%s", text)
	}
}

func eventName(kind int32) string {
	names := map[int32]string{1: "created", 2: "deleted", 3: "changed", 4: "children"}
	if name := names[kind]; name != "" {
		return name
	}
	return fmt.Sprint(kind)
}

func (s *script) zxid(z int64) string {
	if z <= 0 {
		return fmt.Sprint(z)
	}
	switch {
	case s.hideZxids:
		return "z"
	case s.rankZxids:
		return fmt.Sprintf("zxid%016x", z)
	default:
		return fmt.Sprintf("z%+d", z-s.base)
	}
}

func (s *script) session(id int64) string {
	if name, ok := s.names[id]; ok {
		return name
	}
	return fmt.Sprintf("%#x", id)
}

func (s *script) stat(st zktest.Stat) string {
	if st.Ctime > st.Mtime || st.Czxid == st.Mzxid && st.Ctime != st.Mtime || st.Czxid > st.Mzxid || st.Czxid > st.Pzxid {
		s.t.Errorf("impossible stat %+v", st)
	}
	return fmt.Sprintf("{c %s m %s p %s v %d cv %d av %d owner %s len %d kids %d}", s.zxid(st.Czxid), s.zxid(st.Mzxid), s.zxid(st.Pzxid),
		st.Version, st.Cversion, st.Aversion, s.session(st.EphemeralOwner), st.DataLength, st.NumChildren)
}

func showACL(list []zktest.ACL) string {
	var parts []string
	for _, a := range list {
		parts = append(parts, fmt.Sprintf("%s:%s:%d", a.Scheme, a.ID, a.Perms))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func showData(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b)
}

func (s *script) showStat(d *decoder) string { return s.stat(d.stat()) }

var open = []zktest.ACL{{Perms: zktest.PermAll, Scheme: "world", ID: "anyone"}}

func isOpen(list []zktest.ACL) bool { return slices.Equal(list, open) }

// create sends a create or one of its variants.
func (s *script) createOp(name string, op zktest.Op, path string, data []byte, flags int32, acl []zktest.ACL) {
	s.t.Helper()
	p := partCreate(op, path, data, flags, acl)
	s.call(name, op, p.what, p.body, func(d *decoder) string {
		text := d.string()
		if op != zktest.OpCreate {
			text += " " + s.showStat(d)
		}
		return text
	})
}

func (s *script) create(name, path, data string) {
	s.t.Helper()
	s.createOp(name, zktest.OpCreate, path, []byte(data), 0, open)
}

func (s *script) createMode(name, path string, flags int32) {
	s.t.Helper()
	s.createOp(name, zktest.OpCreate2, path, nil, flags, open)
}

func (s *script) delete(name, path string, version int32) {
	s.t.Helper()
	p := partVersion(zktest.OpDelete, path, version)
	s.call(name, p.op, p.what, p.body, nil)
}

func (s *script) set(name, path, data string, version int32) {
	s.t.Helper()
	s.setData(name, path, []byte(data), version)
}

func (s *script) setData(name, path string, data []byte, version int32) {
	s.t.Helper()
	p := partSet(path, data, version)
	s.call(name, p.op, p.what, p.body, s.showStat)
}

func watchText(path string, watch bool) string {
	if watch {
		return fmt.Sprintf("%q and watch", path)
	}
	return fmt.Sprintf("%q", path)
}

func (s *script) get(name, path string, watch bool) {
	s.t.Helper()
	s.call(name, zktest.OpGetData, watchText(path, watch), new(encoder).string(path).bool(watch).b, func(d *decoder) string {
		return showData(d.bytes()) + " " + s.showStat(d)
	})
}

func (s *script) exists(name, path string, watch bool) {
	s.t.Helper()
	s.call(name, zktest.OpExists, watchText(path, watch), new(encoder).string(path).bool(watch).b, s.showStat)
}

func (s *script) children(name, path string, watch bool) {
	s.t.Helper()
	s.call(name, zktest.OpGetChildren2, watchText(path, watch), new(encoder).string(path).bool(watch).b, func(d *decoder) string {
		return showNames(d) + " " + s.showStat(d)
	})
}

func (s *script) childrenOld(name, path string, watch bool) {
	s.t.Helper()
	s.call(name, zktest.OpGetChildren, watchText(path, watch), new(encoder).string(path).bool(watch).b, showNames)
}

func showInt(d *decoder) string { return fmt.Sprint(d.int32()) }

func showWho(d *decoder) string {
	who := make([]string, d.int32())
	for i := range who {
		who[i] = d.string() + ":" + d.string()
	}
	return fmt.Sprint(who)
}

func showNames(d *decoder) string { return fmt.Sprint(slices.Sorted(slices.Values(d.strings()))) }

func (s *script) getACL(name, path string) {
	s.t.Helper()
	s.call(name, zktest.OpGetACL, fmt.Sprintf("%q", path), new(encoder).string(path).b, func(d *decoder) string {
		return showACL(d.acls()) + " " + s.showStat(d)
	})
}

func (s *script) setACL(name, path string, version int32, acl ...zktest.ACL) {
	s.t.Helper()
	s.call(name, zktest.OpSetACL, fmt.Sprintf("%q %s version %d", path, showACL(acl), version),
		new(encoder).string(path).acls(acl).int32(version).b, s.showStat)
}

func (s *script) auth(name, scheme, credential string) {
	s.t.Helper()
	s.call(name, zktest.OpAuth, fmt.Sprintf("%s %q", scheme, credential), new(encoder).int32(0).string(scheme).string(credential).b, nil)
}

func (s *script) sync(name, path string) {
	s.t.Helper()
	s.call(name, zktest.OpSync, fmt.Sprintf("%q", path), new(encoder).string(path).b, func(d *decoder) string { return fmt.Sprintf("%q", d.string()) })
}

// poll logs the events that have come to clients.
func (s *script) poll(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.call(name, zktest.OpPing, "", nil, nil)
	}
}

func (s *script) watchOp(name string, op zktest.Op, path string, mode int32) {
	s.t.Helper()
	s.call(name, op, fmt.Sprintf("%q mode %d", path, mode), new(encoder).string(path).int32(mode).b, func(d *decoder) string {
		return fmt.Sprintf("%x", d.take(len(d.b)))
	})
}

// setWatches sends setWatches, or setWatches2 when there are five lists.
func (s *script) setWatches(name string, zxid int64, lists ...[]string) {
	s.t.Helper()
	op := zktest.OpSetWatches
	if len(lists) == 5 {
		op = zktest.OpSetWatches2
	}
	e := new(encoder).int64(zxid)
	for _, list := range lists {
		e.strings(list)
	}
	s.call(name, op, fmt.Sprintf("from %s %q", s.zxid(zxid), lists), e.b, nil)
}

// part is an operation of a multi.
type part struct {
	op   zktest.Op
	what string
	body []byte
}

// partCreate is a create of any kind; no ACL is the open one.
func partCreate(op zktest.Op, path string, data []byte, flags int32, acls []zktest.ACL) part {
	what := fmt.Sprintf("%q %s flags %d", path, showData(data), flags)
	if !isOpen(acls) {
		what += " acl " + showACL(acls)
	}
	e := new(encoder).string(path).bytes(data).acls(acls).int32(flags)
	if op == zktest.OpCreateTTL {
		e.int64(60_000)
	}
	return part{op, what, e.b}
}

// partVersion is a delete or a check.
func partVersion(op zktest.Op, path string, version int32) part {
	return part{op, fmt.Sprintf("%q version %d", path, version), new(encoder).string(path).int32(version).b}
}

func partSet(path string, data []byte, version int32) part {
	return part{zktest.OpSetData, fmt.Sprintf("%q %s version %d", path, showData(data), version), new(encoder).string(path).bytes(data).int32(version).b}
}

func partRead(op zktest.Op, path string) part {
	return part{op, fmt.Sprintf("%q", path), new(encoder).string(path).bool(false).b}
}

func multiBody(parts []part) (string, []byte) {
	var e encoder
	var what []string
	for _, p := range parts {
		e.int32(int32(p.op)).bool(false).int32(-1)
		e.b = append(e.b, p.body...)
		what = append(what, fmt.Sprintf("%v %s", p.op, p.what))
	}
	e.int32(-1).bool(true).int32(-1)
	return "[" + strings.Join(what, "; ") + "]", e.b
}

// multi sends a multi (or multiRead) and logs each result.
func (s *script) multi(name string, op zktest.Op, parts ...part) {
	s.t.Helper()
	what, body := multiBody(parts)
	s.call(name, op, what, body, func(d *decoder) string {
		var results []string
		for {
			op, done, code := zktest.Op(d.int32()), d.bool(), zktest.Error(d.int32())
			if done {
				return "[" + strings.Join(results, "; ") + "]"
			}
			text := op.String()
			s.note("part "+text, code)
			switch op {
			case zktest.OpCreate:
				text += " " + d.string()
			case zktest.OpCreate2:
				text += " " + d.string() + " " + s.showStat(d)
			case zktest.OpSetData:
				text += " " + s.showStat(d)
			case zktest.OpGetData:
				text += " " + showData(d.bytes()) + " " + s.showStat(d)
			case zktest.OpGetChildren:
				text += " " + showNames(d)
			case zktest.OpError:
				text = errText(code)
				if again := zktest.Error(d.int32()); again != code {
					text += " or " + errText(again)
				}
			default: // delete and check
			}
			results = append(results, text)
		}
	})
}

// gone logs whether a client's connection has been closed by the server.
func (s *script) gone(name string) {
	s.t.Helper()
	w := s.clients[name]
	s.must(w.nc.SetDeadline(time.Now().Add(patience)))
	if w.closed() {
		s.log("%s: connection closed by the server", name)
	} else {
		s.log("%s: connection still open", name)
	}
}
