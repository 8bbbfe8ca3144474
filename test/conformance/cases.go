package conformance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/wait"
	"github.com/kielgo/kiel/zktest"
)

type testCase struct {
	name string
	run  func(t *testing.T, target Target, srv *Server)
}

// cases are what a script can't tell: times, restarts, sizes, and a user's client.
func cases() []testCase {
	return []testCase{
		{"timeout-clamped", caseTimeoutClamped},
		{"expiry", caseExpiry},
		{"expiry-put-off", caseExpiryPutOff},
		{"restart", caseRestart},
		{"packet-limit", casePacketLimit},
		{"pipelining", casePipelining},
		{"event-zxid", caseEventZxid},
		{"client", caseClient},
		{"client-reconnect", caseClientReconnect},
		{"client-expired", caseClientExpired},
		{"client-lock", caseClientLock},
	}
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, srv *Server, h hello) *wire {
	t.Helper()
	w, err := srv.connect(h)
	must(t, err)
	t.Cleanup(func() { _ = w.nc.Close() })
	return w
}

// do sends a request that must be answered, and returns the error code in the answer.
func do(t *testing.T, w *wire, op zktest.Op, e *encoder) zktest.Error {
	t.Helper()
	r, err := w.call(op, e.b)
	must(t, err)
	return r.err
}

func bodyCreate(path string, flags int32) *encoder {
	return new(encoder).string(path).bytes(nil).acls(open).int32(flags)
}

func bodyPath(path string) *encoder { return new(encoder).string(path).bool(false) }

func caseTimeoutClamped(t *testing.T, _ Target, srv *Server) {
	for asked, want := range map[time.Duration]time.Duration{
		0: 2 * TickTime, time.Millisecond: 2 * TickTime, -time.Second: 2 * TickTime, 2 * TickTime: 2 * TickTime,
		777 * time.Millisecond: 777 * time.Millisecond, 20 * TickTime: 20 * TickTime, time.Hour: 20 * TickTime,
	} {
		w := connect(t, srv, hello{timeout: asked})
		if w.timeout != want {
			t.Errorf("asked for %v: granted %v, want %v", asked, w.timeout, want)
		}
		// Another timeout can be had with each connect request.
		again := connect(t, srv, hello{timeout: 1234 * time.Millisecond, session: w.session, password: w.password})
		if again.session != w.session || again.timeout != 1234*time.Millisecond {
			t.Errorf("attached again: %#x of %#x, timeout %v", again.session, w.session, again.timeout)
		}
		must(t, asError(do(t, again, zktest.OpCloseSession, new(encoder))))
	}
}

// slack is how late a real server may be.
func (target Target) slack() time.Duration {
	if target.Bubble {
		return 0
	}
	return 2 * time.Second
}

// caseExpiry: a session of timeout T that falls silent ends between T and T plus one tick after its last packet, and so do its
// ephemerals, for others to see.
func caseExpiry(t *testing.T, target Target, srv *Server) {
	const timeout = 6 * TickTime
	watcher := connect(t, srv, hello{timeout: 20 * TickTime})
	silent := connect(t, srv, hello{timeout: timeout})
	must(t, asError(do(t, silent, zktest.OpCreate, bodyCreate("/expiry", 1))))
	wait.Pass(t, TickTime/3) // so that the ping counts, and not the create
	last := time.Now()
	must(t, asError(do(t, silent, zktest.OpPing, new(encoder))))
	heard := time.Now()
	must(t, asError(do(t, watcher, zktest.OpExists, new(encoder).string("/expiry").bool(true))))
	if _, err := watcher.readFrame(); err != nil { // the event
		t.Fatal(err)
	}
	after := time.Since(heard)
	if after+heard.Sub(last) < timeout || after > timeout+TickTime+target.slack() {
		t.Errorf("expired %v after its last packet, want %v to %v", after, timeout, timeout+TickTime)
	}
	if !silent.closed() {
		t.Error("the connection of the expired session is open")
	}
	late := connect(t, srv, hello{timeout: timeout, session: silent.session, password: silent.password})
	if late.session != 0 || late.timeout != 0 || slices.Max(late.password) != 0 {
		t.Errorf("an expired session came back: %#x, timeout %v, password %x", late.session, late.timeout, late.password)
	}
}

func asError(code zktest.Error) error {
	if code == 0 {
		return nil
	}
	return code
}

// caseExpiryPutOff: any request keeps a session alive, not only pings.
func caseExpiryPutOff(t *testing.T, _ Target, srv *Server) {
	w := connect(t, srv, hello{timeout: 10 * TickTime})
	ops := []struct {
		op   zktest.Op
		body *encoder
	}{
		{zktest.OpExists, bodyPath("/none")},
		{zktest.OpSync, new(encoder).string("/")},
		{zktest.OpDelete, new(encoder).string("/none").int32(-1)},
		{zktest.OpPing, new(encoder)},
		{zktest.OpSetWatches, new(encoder).int64(0).strings(nil).strings(nil).strings(nil)},
	}
	for i := range len(ops) {
		wait.Pass(t, 6*TickTime) // the session must grow old
		if code := do(t, w, ops[i%len(ops)].op, ops[i%len(ops)].body); code != 0 && code != zktest.ErrNoNode {
			t.Errorf("%v: %v", ops[i%len(ops)].op, code)
		}
	}
}

// caseRestart: sessions outlive a restart, however long it takes, and their time begins anew. A real server that took longer than
// the session's timeout to start says nothing about that: it is restarted again.
func caseRestart(t *testing.T, target Target, srv *Server) {
	const timeout = 15 * TickTime
	w := connect(t, srv, hello{timeout: timeout})
	must(t, asError(do(t, w, zktest.OpCreate, bodyCreate("/restart", 0))))
	var watcher *wire
	var up time.Time
	for attempt := 1; ; attempt++ {
		must(t, asError(do(t, w, zktest.OpCreate, bodyCreate("/restart/e", 1))))
		before, err := w.call(zktest.OpExists, bodyPath("/restart/e").b)
		must(t, err)
		const down = timeout + 2*TickTime
		asked := time.Now()
		srv.Restart(down)
		if !w.closed() {
			t.Error("the connection outlived the restart")
		}
		if up = time.Now(); !target.Bubble {
			up = asked.Add(down) // a real server begins to count when it has read its data, some time before it answers
		}
		watcher = connect(t, srv, hello{timeout: 20 * TickTime, lastZxid: before.zxid})
		after, err := watcher.call(zktest.OpExists, new(encoder).string("/restart/e").bool(true).b)
		must(t, err)
		if after.err == 0 && before.body.stat() == after.body.stat() {
			break
		}
		if took := time.Since(asked) - down; target.Bubble || took < timeout || attempt == 5 {
			t.Fatalf("the ephemeral changed over the restart, %v after the start (error %v)", took, after.err)
		}
		w = connect(t, srv, hello{timeout: timeout})
	}
	if _, err := watcher.readFrame(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(up); d < timeout {
		t.Errorf("expired %v after the restart, before its time %v", d, timeout)
	}
	must(t, asError(do(t, watcher, zktest.OpCreate, bodyCreate("/restart/e", 1))))
	srv.Restart(0)
	back := connect(t, srv, hello{timeout: timeout, session: watcher.session, password: watcher.password})
	if back.session != watcher.session {
		t.Fatalf("attached to %#x, want %#x", back.session, watcher.session)
	}
	must(t, asError(do(t, back, zktest.OpDelete, new(encoder).string("/restart/e").int32(0))))
}

// casePacketLimit: a packet of jute.maxbuffer passes, one byte more drops the connection.
func casePacketLimit(t *testing.T, _ Target, srv *Server) {
	const limit = 0xfffff
	w := connect(t, srv, hello{timeout: 20 * TickTime})
	must(t, asError(do(t, w, zktest.OpCreate, bodyCreate("/packet-limit", 0))))
	around := 8 + len(new(encoder).string("/packet-limit").bytes([]byte{}).int32(-1).b)
	body := func(more int) *encoder {
		return new(encoder).string("/packet-limit").bytes(make([]byte, limit-around+more)).int32(-1)
	}
	must(t, asError(do(t, w, zktest.OpSetData, body(0))))
	r, err := w.call(zktest.OpGetData, bodyPath("/packet-limit").b)
	must(t, err)
	if n := len(r.body.bytes()); n != limit-around {
		t.Errorf("read %d bytes back, wrote %d", n, limit-around)
	}
	if _, err := w.call(zktest.OpSetData, body(1).b); err == nil {
		t.Error("a packet above the limit was answered")
	}
	w = connect(t, srv, hello{timeout: 20 * TickTime, session: w.session, password: w.password})
	must(t, asError(do(t, w, zktest.OpDelete, new(encoder).string("/packet-limit").int32(1))))
}

// casePipelining: requests sent at once are executed and answered in order.
func casePipelining(t *testing.T, _ Target, srv *Server) {
	w := connect(t, srv, hello{timeout: 20 * TickTime})
	must(t, asError(do(t, w, zktest.OpCreate, bodyCreate("/pipelining", 0))))
	for i := range 200 {
		if _, err := w.send(zktest.OpCreate, bodyCreate("/pipelining/n", 2).b); err != nil {
			t.Fatal(err)
		}
		if _, err := w.send(zktest.OpExists, bodyPath(fmt.Sprintf("/pipelining/n%010d", i)).b); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 400 {
		r, err := w.receive()
		must(t, err)
		if r.err != 0 || r.xid != int32(i+2) {
			t.Fatalf("reply %d: xid %d, error %v", i, r.xid, r.err)
		}
	}
}

// caseEventZxid: since 3.9 a notification says which transaction it comes from.
func caseEventZxid(t *testing.T, target Target, srv *Server) {
	w := connect(t, srv, hello{timeout: 20 * TickTime})
	if code := do(t, w, zktest.OpExists, new(encoder).string("/event-zxid").bool(true)); code != zktest.ErrNoNode {
		t.Fatal(code)
	}
	r, err := w.call(zktest.OpCreate, bodyCreate("/event-zxid", 0).b)
	must(t, err)
	want := int64(-1)
	if target.EventsHaveZxid {
		want = r.zxid
	}
	if len(w.events) != 1 || w.events[0].zxid != want {
		t.Errorf("events %+v, want one of zxid %d", w.events, want)
	}
}
