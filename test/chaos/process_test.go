package chaos_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
)

// member is one process, or lives in this one.
type member struct {
	*members.Process // of one that lives in this process no more than the name and the log of events

	f      *fleet
	hand   *hand                // of one that lives in this process
	asked  int64                // when it was asked to leave, or 0
	down   bool                 // killed, or asked to leave: it is not expected to own anything
	paused bool                 // the same, for as long as it is
	over   bool                 // it has ended, and how was looked at
	held   map[int32]*ownTerm   // what it owns, as its log tells
	terms  map[int32][]*ownTerm // what it has ever owned
	events []eventlog.Event     // all read so far
	next   map[int32]int64      // the offset after the last message that it has done with
	count  map[string]int       // events by kind
	seen   map[string]struct{}  // sessions
}

// ownTerm is what a log tells of something owned.
type ownTerm struct {
	claimed int64 // when
	token   int64
	first   int64 // when the first message was handed out, or 0
	ended   int64 // or 0
}

// how changes how one process is started.
type how func(s *start)

type start struct {
	bin       string
	zookeeper string
	flags     []string
	inside    inside
}

// via gives a process another way to ZooKeeper than the others have: a proxy, say.
func via(zookeeper string) how { return func(s *start) { s.zookeeper = zookeeper } }

// built has a process run another program than [demo].
func built(bin string) how { return func(s *start) { s.bin = bin } }

// with gives a process more flags.
func with(flags ...string) how { return func(s *start) { s.flags = append(s.flags, flags...) } }

// start starts a process; names may repeat.
func (f *fleet) start(name string, hows ...how) *member {
	f.t.Helper()
	s := f.how(hows)
	args := append([]string{
		"--zookeeper", s.zookeeper, "--kafka", strings.Join(f.kafka.Brokers(), ","), "--group", f.topic, "--topic", f.topic,
		"--session-timeout", f.opts.timeout.String(), "--max-session-timeout", f.opts.granted.String(),
	}, f.opts.flags...)
	return f.enlist(members.Start(f.t, s.bin, name, f.log(name), append(args, s.flags...)...), nil)
}

// how gathers how a member is started.
func (f *fleet) how(hows []how) start {
	s := start{bin: demo, zookeeper: f.opts.zookeeper}
	for _, h := range hows {
		h(&s)
	}
	return s
}

// log is the file for the events of a member that is about to start.
func (f *fleet) log(name string) string {
	if f.settledAt != 0 { // who starts a group is no incident
		f.happens("start of a member", members.Monotonic())
	}
	return filepath.Join(f.dir, fmt.Sprintf("%02d-%s.jsonl", len(f.all), name))
}

func (f *fleet) enlist(p *members.Process, h *hand) *member {
	m := &member{
		Process: p, hand: h, f: f, held: map[int32]*ownTerm{}, terms: map[int32][]*ownTerm{}, next: map[int32]int64{},
		count: map[string]int{}, seen: map[string]struct{}{},
	}
	f.all = append(f.all, m)
	return m
}

// Kill ends a process as a crash does.
func (m *member) Kill() {
	m.f.fault("kill -9 of a member")
	m.Process.Kill()
	m.down = true
}

// Terminate asks a process to leave.
func (m *member) Terminate() {
	m.f.happens("a member is asked to leave", members.Monotonic())
	m.leaves()
}

// leaves asks a member to leave.
func (m *member) leaves() {
	m.asked, m.down = members.Monotonic(), true
	if m.hand != nil {
		m.hand.leave()
	} else {
		m.Process.Terminate()
	}
}

// Stop asks a process to leave and waits until it has.
func (m *member) Stop() {
	m.f.t.Helper()
	m.Terminate()
	m.WaitLeft(m.f.t)
}

// Pause stops a process in its tracks and returns the time.
func (m *member) Pause() int64 {
	m.f.fault("SIGSTOP of a member")
	m.paused = true
	return m.Process.Pause()
}

// Resume lets it go on and returns the time just before.
func (m *member) Resume() int64 {
	m.paused = false
	return m.Process.Resume()
}

// works says whether a process is expected to own something.
func (m *member) works() bool { return !m.down && !m.paused }

// alive says that it has not ended.
func (m *member) alive() {
	m.f.t.Helper()
	select {
	case <-m.Done():
		m.f.t.Fatalf("%s has ended: %v\n%s", m.Name, m.Wait(), m.Log())
	default:
	}
}

// sessions is how many ZooKeeper sessions it has had.
func (m *member) sessions() int { return len(m.seen) }

// after returns the first event of one of the kinds that was logged after a time.
func (m *member) after(since int64, kinds ...string) (eventlog.Event, bool) {
	for _, e := range m.events {
		if e.T > since && slices.Contains(kinds, e.Event) {
			return e, true
		}
	}
	return eventlog.Event{}, false
}

// countAfter counts events of a kind that were logged after a time.
func (m *member) countAfter(since int64, kind string) int {
	n := 0
	for _, e := range m.events {
		if e.T > since && e.Event == kind {
			n++
		}
	}
	return n
}

// rebalances counts the views after a time for which it took or gave up something.
func (m *member) rebalances(since int64) int { return m.rebalancesIn(since, math.MaxInt64) }

// rebalancesIn counts those between two times.
func (m *member) rebalancesIn(from, to int64) (n int) {
	acted := true
	for _, e := range m.events {
		switch e.Event {
		case eventlog.Snapshot:
			acted = false
		case eventlog.Revoking, eventlog.Claimed:
			if !acted && e.T > from && e.T <= to {
				n++
			}
			acted = true
		}
	}
	return n
}

func (m *member) take(e eventlog.Event) {
	m.events = append(m.events, e)
	m.count[e.Event]++
	if e.Session != "" {
		m.seen[e.Session] = struct{}{}
	}
	switch e.Event {
	case eventlog.Claimed:
		own := &ownTerm{claimed: e.T, token: e.Token}
		m.held[*e.Partition] = own
		m.terms[*e.Partition] = append(m.terms[*e.Partition], own)
	case eventlog.Done:
		m.next[*e.Partition] = max(m.next[*e.Partition], *e.Offset+1)
	case eventlog.Message:
		if own := m.held[*e.Partition]; own != nil && own.first == 0 {
			own.first = e.T
		}
	case eventlog.Releasing, eventlog.Lost, eventlog.Untrusted, eventlog.Left:
		at := e.T
		if e.Event == eventlog.Untrusted && e.Since != 0 {
			at = min(at, e.Since)
		}
		for id, own := range m.held {
			if e.Partition == nil || *e.Partition == id {
				own.ended = at
				delete(m.held, id)
			}
		}
	}
}
