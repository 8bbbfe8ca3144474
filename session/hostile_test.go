package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A frame of a broken or hostile server drops the connection; it causes no panic and takes no memory.
func TestHostileServer(t *testing.T) {
	good := grant(6000, 16)
	always := func(b []byte) func(int32, int32) []byte { return func(int32, int32) []byte { return b } }
	reply := func(body ...byte) func(int32, int32) []byte {
		return func(xid, _ int32) []byte { return frame(be(xid, 0, 1, 0), body) }
	}
	text := append(be(3), "abc"...)
	stat := make([]byte, 68)
	element := func(op int32, body ...byte) []byte { return slices.Concat(be(op), []byte{0}, be(0), body) }
	done := append(append(be(-1), 1), be(-1)...)
	results := func(elements ...[]byte) func(int32, int32) []byte {
		return func(xid, _ int32) []byte { return frame(be(xid, 0, 1, 0), slices.Concat(elements...), done) }
	}
	type server struct {
		hello  []byte
		answer func(xid, op int32) []byte
		frames bool // bad frames are counted; else the connection is just of no use
	}
	table := map[string]server{
		"length 0":                         {good, always(be(0)), true},
		"length 8":                         {good, always(append(be(8), make([]byte, 8)...)), true}, // panics go-zookeeper
		"length 15":                        {good, always(append(be(15), make([]byte, 15)...)), true},
		"short ping":                       {good, always(frame(be(-2, 0))), true},
		"length -1":                        {good, always(be(-1)), true},
		"length -2^31":                     {good, always(be(-1 << 31)), true},
		"length 2^31-1":                    {good, always(be(1<<31 - 1)), true},
		"unknown xid":                      {good, always(frame(be(4711, 0, 1, 0))), true},
		"negative xid":                     {good, always(frame(be(-9, 0, 1, 0))), true},
		"least xid":                        {good, always(frame(be(-1<<31, 0, 1, 0))), true},
		"the same reply twice":             {good, func(xid, _ int32) []byte { r := frame(be(xid, 0, 1, 4711)); return append(r, r...) }, true},
		"event without a body":             {good, always(frame(be(-1, 0, 0, 0))), true},
		"event with a huge path":           {good, always(frame(be(-1, 0, 0, 0, 1, 3, 1<<30), []byte("/a"))), true},
		"event with a null path":           {good, always(frame(be(-1, 0, 0, 0, 1, 3, -1))), true},
		"event with a negative path":       {good, always(frame(be(-1, 0, 0, 0, 1, 3, -2))), true},
		"reply without a body":             {good, reply(), true},
		"multi without its end":            {good, reply(0, 0, 0, 13), true}, // panics go-zookeeper
		"half a multi":                     {good, reply(0, 0, 0, 13, 0, 0, 0, 0, 0), true},
		"multi of something else":          {good, reply(0, 0, 0, 99, 0, 0, 0, 0, 0), true},
		"multi of nothing":                 {good, results(), true},
		"multi with a huge path":           {good, results(element(1, be(1<<31-1)...)), true},
		"multi with half a stat":           {good, results(element(5, stat[:60]...)), true},
		"data for a multi":                 {good, reply(slices.Concat(text, stat)...), true},
		"children for a multi":             {good, reply(slices.Concat(be(1), text, stat)...), true},
		"a stat for a multi":               {good, reply(append([]byte{9}, stat...)...), true},
		"an error that is none":            {good, func(xid, _ int32) []byte { return frame(be(xid, 0, 1, 4711)) }, false},
		"announced, never sent":            {good, func(xid, _ int32) []byte { return be(16<<20, xid, 0, 1, 0) }, true},
		"nothing but replies to auth":      {good, always(frame(be(-4, 0, 0, -115))), false},
		"silence":                          {good, always(nil), false},
		"handshake: length 0":              {be(0), nil, true},
		"handshake: length 8":              {be(8, 0, 0), nil, true},
		"handshake: length -1":             {be(-1), nil, true},
		"handshake: length 2^31-1":         {be(1<<31 - 1), nil, true},
		"handshake: length 1000":           {be(1000), nil, true},
		"handshake: password huge":         {grant(6000, 1<<30), nil, true},
		"handshake: password negative":     {grant(6000, -2), nil, true},
		"handshake: no password":           {grant(6000, -1), nil, true},
		"handshake: timeout 1 ms":          {grant(1, 16), nil, true},
		"handshake: timeout 2^31-1 ms":     {grant(1<<31-1, 16), nil, true},
		"handshake: an event":              {frame(be(-1, 0, 0, 0, 1, 3, 8), []byte("/a/b/c/d")), nil, true},
		"handshake: then garbage":          {append(grant(6000, 16), be(-1)...), always(nil), true},
		"handshake: silence":               {nil, nil, false},
		"handshake: half a reply":          {good[:20], nil, false},
		"handshake: announced, never sent": {be(200), nil, false},
		"handshake: expired at once":       {frame(be(0, 0), be(0, 0), be(16), make([]byte, 16)), nil, false},
		"handshake: negative timeout":      {grant(-5, 16), nil, false}, // counts as expired
	}
	play := func(t *testing.T, e *evil, frames bool) {
		size := largest(t)
		var connections, total uint64
		bubble(t, func(t *testing.T, w *world) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			m := w.against(e)
			time.Sleep(10 * time.Second)
			runtime.ReadMemStats(&after)
			if m.Current() != nil {
				t.Error("trusted")
			}
			if got := m.Stats().BadFrames; (got > 0) != frames {
				t.Errorf("%d bad frames", got)
			}
			// Nowhere does it stay for long: not in a handshake, and not where proofs are not answered.
			connections, total = uint64(e.accepted.Load()), after.TotalAlloc-before.TotalAlloc
			if connections < 2 || connections > 100 {
				t.Errorf("%d connections in 10 s", connections)
			}
			// Expired at once is a new client each time; that must not become a busy loop either.
			if n := m.Stats().Expirations; n > 40 {
				t.Errorf("%d sessions in 10 s", n)
			}
		})
		if n := size(); n > 0 {
			t.Errorf("an allocation of %d bytes", n)
		}
		most := connections * (ownBuffers + 512<<10)
		if e.tail != nil {
			most += connections * underWay
		}
		if total > most {
			t.Errorf("%d KiB allocated for each of %d connections", total/connections>>10, connections)
		}
	}
	for name, c := range table {
		t.Run(name, func(t *testing.T) { play(t, &evil{hello: c.hello, answer: c.answer}, c.frames) })
		t.Run(name+", hangs up", func(t *testing.T) { play(t, &evil{hello: c.hello, answer: c.answer, hangUp: true}, c.frames) })
	}
	for _, cut := range []int{1, 4, 5, 12, 35, 39} {
		t.Run(fmt.Sprintf("handshake: the first %d bytes", cut), func(t *testing.T) {
			play(t, &evil{hello: good[:cut], hangUp: true}, false)
		})
	}
	for cut := range len(proven(1)) {
		t.Run(fmt.Sprintf("the first %d bytes of an answer", cut), func(t *testing.T) {
			play(t, &evil{hello: good, answer: func(xid, _ int32) []byte { return proven(xid)[:cut] }, hangUp: true}, false)
		})
	}
	// A reply that nobody asked for takes no memory, though it is really sent.
	tail := make([]byte, 16<<20-16)
	for name, head := range map[string]func(xid, op int32) []byte{
		"unknown xid":    always(be(16<<20, 4711, 0, 1, 0)),
		"unknown event":  always(be(16<<20, -1, 0, 0, 0)),
		"ping":           always(be(16<<20, -2, 0, 0, 0)),
		"answer to auth": always(be(16<<20, -4, 0, 0, 0)),
		"proof":          func(xid, _ int32) []byte { return be(16<<20, xid, 0, 1, 0) },
		"proof refused":  func(xid, _ int32) []byte { return be(16<<20, xid, 0, 1, -101) },
	} {
		t.Run("16 MiB: "+name, func(t *testing.T) { play(t, &evil{hello: good, answer: head, tail: tail}, true) })
	}
	for name, c := range map[string]struct {
		answer []byte
		frames bool
	}{
		"length 0":         {be(0), true},
		"length 8":         {append(be(8), make([]byte, 8)...), true},
		"length -1":        {be(-1), true},
		"length 2^31-1":    {be(1<<31 - 1), true},
		"length 16 MiB":    {be(16<<20, -4, 0, 0, 0), true},
		"another xid":      {frame(be(4711, 0, 1, 0)), true},
		"an event instead": {frame(be(-1, 0, 0, 0, 1, 3, 0)), true},
		"half an answer":   {frame(be(-4, 0, 0, 0))[:11], false},
		"silence":          {nil, false},
	} {
		t.Run("credentials: "+name, func(t *testing.T) { play(t, &evil{hello: good, answer: always(c.answer), auth: true}, c.frames) })
		t.Run("credentials: "+name+", hangs up", func(t *testing.T) {
			play(t, &evil{hello: good, answer: always(c.answer), auth: true, hangUp: true}, c.frames)
		})
	}
	t.Run("handshake: drip", func(t *testing.T) { play(t, &evil{hello: good, answer: always(nil), drip: true}, false) })
}

// Replies to reads and writes, with lengths that are only claimed, of other operations, and cut off.
func TestHostileReplies(t *testing.T) {
	stat := make([]byte, 68)
	text := append(be(3), "abc"...)
	element := func(op int32, body ...byte) []byte { return slices.Concat(be(op), []byte{0}, be(0), body) }
	done := append(append(be(-1), 1), be(-1)...)
	write := map[string]func(context.Context, *session.Incarnation) error{
		"create": func(ctx context.Context, inc *session.Incarnation) error {
			_, err := inc.Create(ctx, "/a", nil, session.Ephemeral)
			return err
		},
		"set": func(ctx context.Context, inc *session.Incarnation) error {
			_, err := inc.Set(ctx, "/a", nil, -1)
			return err
		},
		"multi": func(ctx context.Context, inc *session.Incarnation) error {
			_, err := inc.Multi(ctx, session.CreateOp("/a", nil, session.Ephemeral), session.SetOp("/b", nil, 0))
			return err
		},
	}
	read := map[string]func(context.Context, *session.Incarnation) error{
		"get": func(ctx context.Context, inc *session.Incarnation) error { _, _, err := inc.Get(ctx, "/"); return err },
		"exists": func(ctx context.Context, inc *session.Incarnation) error {
			_, _, err := inc.Exists(ctx, "/")
			return err
		},
		"children": func(ctx context.Context, inc *session.Incarnation) error {
			_, _, err := inc.Children(ctx, "/")
			return err
		},
		"acl": func(ctx context.Context, inc *session.Incarnation) error {
			_, _, err := inc.GetACL(ctx, "/")
			return err
		},
		"sync": func(ctx context.Context, inc *session.Incarnation) error { return inc.Sync(ctx, "/") },
	}
	for _, c := range []struct {
		call, what string
		body       []byte
		believed   bool // it can be decoded, and only what it says is wrong
	}{
		{"create", "huge path", be(1<<31 - 1), false},
		{"create", "negative path", be(-2), false},
		{"create", "null path", be(-1), false},
		{"create", "nothing", nil, false},
		{"set", "half a stat", stat[:67], false},
		{"set", "a path", text, false},
		{"multi", "one result of two", slices.Concat(element(1, text...), done), true},
		{"multi", "three results of two", slices.Concat(element(1, text...), element(5, stat...), element(13), done), true},
		{"multi", "results of something else", slices.Concat(element(13), element(13), done), true},
		{"multi", "results in another order", slices.Concat(element(5, stat...), element(1, text...), done), true},
		{"multi", "huge path", slices.Concat(element(1, be(1<<31-1)...), element(5, stat...), done), false},
		{"multi", "without its end", slices.Concat(element(1, text...), element(5, stat...)), false},
		{"get", "huge data", slices.Concat(be(1<<31-1), make([]byte, 96)), false},
		{"get", "negative data", slices.Concat(be(-2), stat), false},
		{"get", "children", slices.Concat(be(2), text, text), false},
		{"get", "no stat", text, false},
		{"exists", "half a stat", stat[:50], false},
		{"exists", "nothing", nil, false},
		{"children", "huge vector", slices.Concat(be(1<<31-1), make([]byte, 96)), false},
		{"children", "as many as there are bytes", slices.Concat(be(96), make([]byte, 96)), false},
		{"children", "huge element", slices.Concat(be(1, 1<<30), make([]byte, 96)), false},
		{"children", "negative vector", slices.Concat(be(-2), stat), false},
		{"children", "null vector", slices.Concat(be(-1), stat), false}, // exhausts go-zookeeper's memory
		{"children", "null name", slices.Concat(be(1, -1), stat), false},
		{"children", "a path", text, false},
		{"acl", "huge vector", slices.Concat(be(1<<30), stat), false},
		{"acl", "null vector", slices.Concat(be(-1), stat), false}, // exhausts go-zookeeper's memory
		{"acl", "negative vector", slices.Concat(be(-7), stat), false},
		{"acl", "huge scheme", slices.Concat(be(1, 31, 1<<30), stat), false},
		{"sync", "nothing", nil, false},
	} {
		t.Run(c.call+": "+c.what, func(t *testing.T) {
			size := largest(t)
			bubble(t, func(t *testing.T, w *world) {
				var proofs atomic.Int32
				e := &evil{hello: grant(6000, 16), answer: func(xid, op int32) []byte {
					if op == 14 && (c.call != "multi" || proofs.Add(1) == 1) {
						return proven(xid)
					}
					if op == 11 { // ping
						return frame(be(xid, 0, 0, 0))
					}
					return frame(be(xid, 0, 1, 0), c.body)
				}}
				m := w.against(e)
				inc := m.incarnation()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				f, writes := write[c.call], true
				if f == nil {
					f, writes = read[c.call], false
				}
				err := f(ctx, inc)
				switch {
				case writes && !errors.Is(err, session.ErrUncertain):
					t.Errorf("%v, want uncertain", err)
				case !writes && !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("%v, want none for as long as the caller waits", err)
				}
				time.Sleep(time.Second)
				dropped := e.accepted.Load() > 1
				if got := m.Stats().BadFrames; (got > 0) == c.believed || dropped == c.believed {
					t.Errorf("%d bad frames, dropped %t", got, dropped)
				}
			})
			if n := size(); n > 0 {
				t.Errorf("an allocation of %d bytes", n)
			}
		})
	}
}

// Events that are garbage wake nobody for whom they are not, whatever type, state and path they have, and however many there are.
func TestGarbageEvents(t *testing.T) {
	event := func(kind, state int32, path string) []byte {
		return frame(be(-1, -1, -1, 0), be(kind, state, int32(len(path))), []byte(path))
	}
	long := strings.Repeat("/x", 100_000)
	for name, garbage := range map[string][]byte{
		"unknown type":      event(99, 3, "/watched"),
		"negative type":     event(-77, 3, "/watched"),
		"unknown state":     event(3, 4711, "/other"),
		"another path":      event(3, 3, "/other"),
		"no path":           event(3, 3, ""),
		"path not utf-8":    event(3, 3, "\xff\x00\n"),
		"relative path":     event(3, 3, "../watched"),
		"long path":         event(4, 3, long),
		"with more behind":  frame(be(-1, 0, 0, 0, 3, 3, 0), make([]byte, 5000)),
		"with an error":     frame(be(-1, 0, 0, -4, 3, 3, 0)),
		"a thousand":        bytes.Repeat(event(3, 3, "/other"), 1000),
		"session connected": event(-1, 3, ""),
		"session: synced":   event(-1, 101, ""),
	} {
		t.Run(name, func(t *testing.T) {
			size := largest(t)
			bubble(t, func(t *testing.T, w *world) {
				m := w.against(&evil{hello: grant(6000, 16), answer: func(xid, op int32) []byte {
					switch op {
					case 14:
						return append(slices.Clone(garbage), proven(xid)...)
					case 4:
						return frame(be(xid, 0, 1, 0), be(0), make([]byte, 68))
					default:
						return frame(be(xid, 0, 1, 0))
					}
				}})
				inc := m.incarnation()
				_, _, watch, err := inc.GetW(t.Context(), "/watched")
				noerr.Must(t, err)
				defer watch.Stop()
				time.Sleep(4 * time.Second) // a watch wakes by itself after 4/5 T
				if !open(watch.C()) {
					t.Error("a watch woke")
				}
				time.Sleep(20 * time.Second)
				if got := m.Stats(); !inc.Trusted() || got.BadFrames != 0 || got.Reconnects != 0 || got.Expirations != 0 {
					t.Errorf("trusted %t, %+v", inc.Trusted(), got)
				}
			})
			if n := size(); n > 0 {
				t.Errorf("an allocation of %d bytes", n)
			}
		})
	}
	// The session believes what a server says of it: the server has the last word on that anyway.
	t.Run("session expired", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			m := w.against(&evil{hello: grant(6000, 16), answer: func(xid, op int32) []byte {
				if op == 14 {
					return append(event(-1, -112, ""), proven(xid)...)
				}
				return frame(be(xid, 0, 1, 0))
			}})
			time.Sleep(10 * time.Second)
			if n := m.Stats().Expirations; n < 1 || n > 40 {
				t.Errorf("%d sessions in 10 s", n)
			}
		})
	})
}

// Answers that come in another order than the requests are still answers to what they name.
func TestAnswersOutOfOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var held []byte
		m := w.against(&evil{hello: grant(6000, 16), answer: func(xid, op int32) []byte {
			switch op {
			case 14:
				return proven(xid)
			case 4:
				r := frame(be(xid, 0, 1, 0), be(4), []byte("data"), make([]byte, 68))
				if held == nil {
					held = r
					return nil
				}
				r = append(r, held...)
				held = nil
				return r
			case 12:
				r := frame(be(xid, 0, 1, 0), be(1, 5), []byte("child"), make([]byte, 68))
				r = append(r, held...)
				held = nil
				return r
			default:
				return frame(be(xid, 0, 1, 0))
			}
		}})
		inc := m.incarnation()
		var wg sync.WaitGroup
		wg.Go(func() {
			if data, _, err := inc.Get(t.Context(), "/a"); err != nil || string(data) != "data" {
				t.Errorf("%q, %v", data, err)
			}
		})
		synctest.Wait()
		if names, _, err := inc.Children(t.Context(), "/b"); err != nil || len(names) != 1 || names[0] != "child" {
			t.Errorf("%v, %v", names, err)
		}
		wg.Wait()
		if got := m.Stats(); got.BadFrames != 0 || !inc.Trusted() {
			t.Errorf("%+v", got)
		}
	})
}

// A client that hangs where nothing can reach it is replaced, and counted while it lives on.
func TestWedgedClient(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		link, dials := w.net.Client("a"), atomic.Int32{}
		s, err := session.New([]string{zktest.VirtualAddress}, session.Options{
			Timeout: timeout,
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if dials.Add(1) == 2 {
					<-release // a dialer that does not know of contexts
				}
				return link.Dial(ctx, network, address)
			},
		})
		noerr.Must(t, err)
		m := run(t, s, link)
		inc := m.incarnation()
		link.Cut()
		start := time.Now()
		<-inc.Context().Done()
		again := m.incarnation()
		if took := time.Since(start); took > 17*time.Second {
			t.Errorf("replaced after %v", took)
		}
		time.Sleep(timeout)
		synctest.Wait()
		if got := m.Stats(); got.Replaced != 1 || got.Abandoned != 1 || !again.Trusted() {
			t.Errorf("%+v", got)
		}
		start = time.Now()
		noerr.Want(t, m.stop())
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("Run ended after %v", took)
		}
		close(release)
	})
}
