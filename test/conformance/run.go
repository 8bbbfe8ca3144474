package conformance

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kielgo/kiel/zktest"
)

// sessionTimeout is that of the sessions of random sequences: none expires unless it is meant to.
const sessionTimeout = 30 * time.Second

// run is a random sequence at work on one server, in a subtree of its own.
type run struct {
	*script
	root     string
	clients  []string // the names of the present ones; a client that gets a new session gets a new name
	sessions []*wire  // all there have been
}

// play runs steps and returns what came back.
func play(srv *Server, root string, steps []step, shape func(s *script)) (text string) {
	rec := &recorder{}
	r := &run{script: newScript(rec, srv), root: root}
	rec.log = r.log
	shape(r.script)
	defer func() {
		if fault := recover(); fault != nil { // a packet that can't be decoded, or what should have worked
			r.log("ended by: %v", fault)
		}
		r.closeAll()
		rec.end()
		text = ranked(strings.ReplaceAll(r.text.String(), root, ""))
	}()
	for i := range clients {
		r.clients = append(r.clients, "")
		r.replace(i)
	}
	r.create(r.clients[0], root, "")
	for _, s := range steps {
		r.step(s)
	}
	r.flush()
	r.poll(r.clients...)
	r.dump(root)
	return ""
}

func (r *run) step(s step) {
	name := r.clients[s.client]
	if s.alone || len(r.held) > 0 && r.piping != name {
		r.flush()
	}
	r.piping, r.hold = name, s.piped
	if s.do != nil {
		s.do(r, name)
	} else {
		var parts []part
		for _, p := range s.parts {
			parts = append(parts, p(r.root))
		}
		r.multi(name, zktest.OpMulti, parts...)
	}
	r.hold = false
}

func (r *run) attach(name string, h hello) {
	r.script.attach(name, h)
	w := r.script.clients[name]
	_ = w.nc.SetDeadline(time.Now().Add(patience))
	r.sessions = append(r.sessions, w)
}

// replace gives a client a new session.
func (r *run) replace(client int) {
	name := fmt.Sprintf("c%d", client+1)
	if old := r.clients[client]; old != "" {
		name = old + "'"
	}
	r.clients[client] = name
	r.attach(name, hello{timeout: sessionTimeout})
}

func (r *run) again(name string) hello {
	w := r.script.clients[name]
	return hello{timeout: sessionTimeout, session: w.session, password: w.password}
}

// reconnect moves a session to another connection, with watches set again from some zxid seen.
func (r *run) reconnect(name string, cut, set bool, at int, five bool, path, other string) {
	if cut {
		_ = r.script.clients[name].nc.Close()
	}
	r.attach(name, r.again(name))
	if !set {
		return
	}
	lists := [][]string{{path}, {other}, {other, path}}
	if five {
		lists = append(lists, []string{path}, []string{other})
	}
	r.setWatches(name, r.made[at%len(r.made)], lists...)
}

// close ends a session.
func (r *run) close(name string) {
	r.poll(r.clients...)
	before := r.text.Len()
	r.call(name, zktest.OpCloseSession, "", nil, nil)
	_ = r.script.clients[name].nc.Close()
	r.ended(name, before)
}

// expire lets a session expire, by silence: again if need be, since a real server may close a silent connection first.
func (r *run) expire(name string) {
	r.poll(r.clients...)
	before, h := r.text.Len(), r.again(name)
	h.timeout = time.Millisecond // the shortest that is granted
	for tries, alive := 0, true; alive; tries++ {
		w, err := r.srv.connect(h)
		if tries <= 10 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
			continue // on a busy machine it ends while it is attached, and a real server closes the connection with it
		}
		r.must(err)
		_ = w.nc.SetDeadline(time.Now().Add(patience))
		r.sessions = append(r.sessions, w)
		if !w.closed() || tries > 10 {
			r.t.Fatalf("a silent session does not end")
		}
		alive = w.session != 0
	}
	r.log("%s: expired", name)
	r.ended(name, before)
}

// ended goes on after a session has ended: others see its ephemerals go, and nobody gets it back.
func (r *run) ended(name string, before int) {
	h := r.again(name)
	for _, other := range r.clients {
		if other != name {
			r.poll(other)
		}
	}
	r.sortEvents(before)
	r.attach(name, h)
	r.replace(slices.Index(r.clients, name))
}

// sortEvents sorts the events that came to a client in a row: the order in which a session's ephemerals go is nobody's business.
func (r *run) sortEvents(from int) {
	text := r.text.String()
	lines := strings.SplitAfter(text[from:], "\n")
	for at := 0; at < len(lines); at++ {
		row := at
		for row < len(lines) && strings.Contains(lines[row], ": event ") {
			row++
		}
		slices.Sort(lines[at:row])
		at = max(at, row-1)
	}
	r.text.Reset()
	r.text.WriteString(text[:from] + strings.Join(lines, ""))
}

// odd sends what no proper client sends. The connection may not outlive that.
func (r *run) odd(name string, op zktest.Op, body []byte) {
	r.call(name, op, fmt.Sprintf("odd %q", strings.ReplaceAll(string(body), r.root, "")), body, func(d *decoder) string {
		return fmt.Sprintf("%d bytes", len(d.take(len(d.b))))
	})
	if w := r.script.clients[name]; body == nil { // not an operation at all
		r.gone(name)
	} else if _, err := w.call(zktest.OpPing, nil); err == nil {
		return
	}
	r.log("%s: connection lost", name)
	r.attach(name, r.again(name))
}

// dump logs the tree below path.
func (r *run) dump(path string) {
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

// closeAll ends the sessions that are left, and the connections of those that are not.
func (r *run) closeAll() {
	for _, w := range r.sessions {
		_ = w.nc.Close()
	}
	r.endSessions()
}

var zxidText = regexp.MustCompile(`zxid[0-9a-f]{16}`)

// ranked puts each zxid's rank in its place.
func ranked(text string) string {
	all := zxidText.FindAllString(text, -1)
	slices.Sort(all)
	all = slices.Compact(all)
	return zxidText.ReplaceAllStringFunc(text, func(z string) string { return fmt.Sprintf("z%d", slices.Index(all, z)) })
}

// recorder is the tester of a random sequence: what goes wrong is written down, like all else.
type recorder struct {
	log      func(format string, args ...any)
	cleanups []func()
}

func (*recorder) Helper()              {}
func (rec *recorder) Cleanup(f func()) { rec.cleanups = append(rec.cleanups, f) }

func (rec *recorder) Errorf(format string, args ...any) { rec.log("wrong: "+format, args...) }

func (*recorder) Fatalf(format string, args ...any) {
	text, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n")
	panic(text)
}

func (rec *recorder) end() {
	for _, f := range slices.Backward(rec.cleanups) {
		f()
	}
}
