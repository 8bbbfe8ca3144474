package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/kielgo/kiel/zktest"
)

// recorded is how many recordings there are: one whose file is missing would not be missed otherwise.
const recorded = 28

// recordings returns the cases that are in testdata alone: the requests of the text are sent again. A new one begins as a file
// with requests only, which -update completes; recorded counts it, too. What follows the name of a request is as the methods of
// script write it. A line that begins with # is a comment. A line "b: session of a" says that client b goes on with the session
// of client a: the connection of a is closed, and b attaches to the session on a new one.
func recordings(t tester, inGo []scriptCase) (all []scriptCase) {
	t.Helper()
	known := map[string]bool{}
	for _, c := range inGo {
		known[c.name] = true
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".txt"); !known[name] {
			all = append(all, scriptCase{name, func(s *script) {
				text, err := os.ReadFile(file)
				s.must(err)
				s.replay(string(text))
			}})
		}
	}
	if len(all) != recorded {
		t.Fatalf("%d recordings in testdata, want %d", len(all), recorded)
	}
	return all
}

// replay does what the lines of a recording say.
func (s *script) replay(recording string) {
	s.t.Helper()
	for line := range strings.SplitSeq(strings.TrimSuffix(recording, "\n"), "\n") {
		if strings.HasPrefix(line, "#") {
			s.log("%s", line)
			continue
		}
		name, rest, _ := strings.Cut(line, ": ")
		rest, _, _ = strings.Cut(rest, " -> ")
		p := &words{s: s, rest: strings.TrimRight(rest, " ")}
		switch op := p.word(); op {
		case "event": // it comes, or it does not
		case "connection":
			s.gone(name)
		case "session":
			s.reopen(name, strings.TrimPrefix(p.rest, "of "))
		default:
			s.request(name, operation(op), p)
		}
	}
}

// reopen opens a session, or moves that of another client to a new connection.
func (s *script) reopen(name, of string) {
	s.t.Helper()
	before := s.clients[of]
	if before == nil {
		s.open(name)
		return
	}
	_ = before.nc.Close()
	s.attach(name, hello{timeout: before.timeout, session: before.session, password: before.password})
}

// operation returns the operation of a name; 0 when there is none.
func operation(name string) zktest.Op {
	for op := zktest.OpCreate; op <= zktest.OpWhoAmI; op++ {
		if op.String() == name {
			return op
		}
	}
	return map[string]zktest.Op{"closeSession": zktest.OpCloseSession}[name]
}

// request sends a request of a recording.
func (s *script) request(name string, op zktest.Op, p *words) {
	s.t.Helper()
	switch op {
	case zktest.OpCreate, zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpCreateTTL:
		s.createOp(name, op, p.text(), p.data(), p.number("flags"), p.acl())
	case zktest.OpDelete:
		s.delete(name, p.text(), p.number("version"))
	case zktest.OpSetData:
		s.setData(name, p.text(), p.data(), p.number("version"))
	case zktest.OpGetData:
		s.get(name, p.text(), p.watch())
	case zktest.OpExists:
		s.exists(name, p.text(), p.watch())
	case zktest.OpGetChildren2:
		s.children(name, p.text(), p.watch())
	case zktest.OpGetChildren:
		s.childrenOld(name, p.text(), p.watch())
	case zktest.OpGetACL:
		s.getACL(name, p.text())
	case zktest.OpSetACL:
		path, list := p.text(), p.acl()
		s.setACL(name, path, p.number("version"), list...)
	case zktest.OpAuth:
		s.auth(name, p.word(), p.text())
	case zktest.OpSync:
		s.sync(name, p.text())
	case zktest.OpPing:
		s.poll(name)
	case zktest.OpAddWatch, zktest.OpRemoveWatches, zktest.OpCheckWatches:
		s.watchOp(name, op, p.text(), p.number("mode"))
	case zktest.OpSetWatches, zktest.OpSetWatches2:
		s.setWatches(name, s.base+int64(p.number("from z")), p.lists()...)
	case zktest.OpMulti, zktest.OpMultiRead:
		s.multi(name, op, p.parts()...)
	case zktest.OpGetEphemerals, zktest.OpCountChildren:
		path := p.text()
		show := showInt
		if op == zktest.OpGetEphemerals {
			show = showNames
		}
		s.call(name, op, fmt.Sprintf("%q", path), new(encoder).string(path).b, show)
	case zktest.OpWhoAmI:
		s.call(name, op, "", nil, showWho)
	case zktest.OpCloseSession:
		s.call(name, op, "", nil, nil)
	default:
		s.t.Fatalf("%s: no recording can have a request like this one: %v %s", name, op, p.rest)
	}
}

// words takes what a request says from a line, bit by bit.
type words struct {
	s    *script
	rest string
}

// cut takes n bytes, and the space behind them.
func (p *words) cut(n int) string {
	taken := p.rest[:n]
	p.rest = strings.TrimPrefix(p.rest[n:], " ")
	return taken
}

func (p *words) word() string {
	word, _, _ := strings.Cut(p.rest, " ")
	return p.cut(len(word))
}

// text takes a quoted text.
func (p *words) text() string {
	p.s.t.Helper()
	quoted, err := strconv.QuotedPrefix(p.rest)
	p.s.must(err)
	text, err := strconv.Unquote(p.cut(len(quoted)))
	p.s.must(err)
	return text
}

// data takes a quoted text, or null.
func (p *words) data() []byte {
	p.s.t.Helper()
	if strings.HasPrefix(p.rest, "null") {
		p.cut(len("null"))
		return nil
	}
	return []byte(p.text())
}

// number takes a number after its name.
func (p *words) number(name string) int32 {
	p.s.t.Helper()
	if !strings.HasPrefix(p.rest, name) {
		p.s.t.Fatalf("%s is missing: %s", name, p.rest)
	}
	p.rest = strings.TrimPrefix(p.rest[len(name):], " ")
	n, err := strconv.ParseInt(p.word(), 10, 32)
	p.s.must(err)
	return int32(n)
}

func (p *words) watch() bool { return p.rest == "and watch" }

// acl takes an ACL, which is the open one when there is none.
func (p *words) acl() []zktest.ACL {
	p.s.t.Helper()
	p.rest = strings.TrimPrefix(p.rest, "acl ")
	if !strings.HasPrefix(p.rest, "[") {
		return open
	}
	inside := strings.Trim(p.cut(strings.Index(p.rest, "]")+1), "[]")
	list := []zktest.ACL{}
	for one := range strings.SplitSeq(inside, ", ") {
		if one == "" {
			continue
		}
		scheme, id, _ := strings.Cut(one, ":")
		last := strings.LastIndexByte(id, ':')
		perms, err := strconv.ParseInt(id[last+1:], 10, 32)
		p.s.must(err)
		list = append(list, zktest.ACL{Perms: int32(perms), Scheme: scheme, ID: id[:last]})
	}
	return list
}

var innerList = regexp.MustCompile(`\[[^\[\]]*\]`)

// lists takes lists of texts, in a list.
func (p *words) lists() (all [][]string) {
	p.s.t.Helper()
	for _, inner := range innerList.FindAllString(p.rest, -1) {
		var list []string
		for q := (&words{s: p.s, rest: strings.Trim(inner, "[]")}); q.rest != ""; {
			list = append(list, q.text())
		}
		all = append(all, list)
	}
	return all
}

// parts takes the operations of a multi.
func (p *words) parts() (all []part) {
	p.s.t.Helper()
	inside := strings.TrimSuffix(strings.TrimPrefix(p.rest, "["), "]")
	if inside == "" {
		return nil // an empty multi
	}
	for one := range strings.SplitSeq(inside, "; ") {
		q := &words{s: p.s, rest: one}
		switch op := operation(q.word()); op {
		case zktest.OpCreate, zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpCreateTTL:
			all = append(all, partCreate(op, q.text(), q.data(), q.number("flags"), q.acl()))
		case zktest.OpDelete, zktest.OpCheck:
			all = append(all, partVersion(op, q.text(), q.number("version")))
		case zktest.OpSetData:
			all = append(all, partSet(q.text(), q.data(), q.number("version")))
		case zktest.OpGetData, zktest.OpGetChildren:
			all = append(all, partRead(op, q.text()))
		default:
			p.s.t.Fatalf("no multi of a recording can have a part like this one: %s", one)
		}
	}
	return all
}
