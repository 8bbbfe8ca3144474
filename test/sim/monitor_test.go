package sim_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
)

// monitor hears of everything that happens in a run, in one order, and checks the invariants as it hears of it. Their names are
// those of the package's page.
type monitor struct {
	mu       sync.Mutex
	plan     *plan
	began    time.Time
	parts    []*partState
	members  map[*process]*memberState
	mappings map[string]string // by what they were computed of
	computed map[string]bool   // what was computed, where topic lists differ; see compute
	lists    map[string]bool   // which member has asked for which topics, ever
	excuses  excuses
	history  int              // how often the servers lost data
	bygone   map[int64]bool   // sessions that the servers lost with their data
	forgot   map[claimID]bool // claims that they lost so
	tail     [400]string      // what happened last
	tails    int
	faults   []violation
	failed   chan struct{} // closed at the first violation
	cov      coverage
	pairs    map[[2]int64]bool // claims that overlapped after a third party's deed
	clashes  map[[2]int64]bool // claims that overlapped otherwise
	dups     int
	strays   int             // commits that moved an offset back
	gone     map[string]bool // claims without an answer, by member and partition
}

// violation is an invariant that did not hold.
type violation struct {
	at        time.Duration
	invariant string
	text      string
}

func (v violation) String() string { return fmt.Sprintf("%v: %s: %s", v.at, v.invariant, v.text) }

// partState is what is known of a partition.
type partState struct {
	terms     map[*process]*term // open ones
	token     int64              // the greatest
	holder    *process           // who was given it
	session   int64              // in which
	processed int64              // all messages below were processed at least once
	seen      []uint64           // which messages were processed, a bit each
	acked     int64              // the greatest offset of which a commit was answered
	strayed   bool               // a late commit has moved the committed offset back
}

// term is one ownership, from Claimed on.
type term struct {
	p        *process
	part     int
	token    int64
	session  int64
	history  int // of the servers, in which the claim was made
	began    time.Time
	claim    claim // once the handler has it
	revoking bool
	opened   bool
	position int64
	over     bool
	groupTerm
}

// claim is what a handler is given: ownership.Claim, or consumer.Claim.
type claim interface {
	Topic() string
	Partition() int32
	Token() int64
	Trusted() bool
}

func (t *term) String() string { return fmt.Sprintf("token %#x, session %#x", t.token, t.session) }

// claimID names a claim. Those that were made in one request have the same token, and servers that lost their data give tokens
// again, but to other sessions.
type claimID struct {
	part    int
	token   int64
	session int64
}

// memberState is what is known of a member.
type memberState struct {
	version   uint64
	snapshots int
	left      bool
	running   map[int]int       // handlers, by partition
	ended     map[claimID]*term // the newest of each claim, for Groups, whose events don't name the session
	setup     bool              // a Group's Setup was called, and Cleanup was not
}

func newMonitor(p *plan, bound time.Duration, cov coverage) *monitor {
	m := &monitor{
		plan: p, began: time.Now(), computed: map[string]bool{}, lists: map[string]bool{}, members: map[*process]*memberState{}, mappings: map[string]string{},
		excuses: newExcuses(bound), bygone: map[int64]bool{}, forgot: map[claimID]bool{},
		failed: make(chan struct{}), cov: cov, pairs: map[[2]int64]bool{}, clashes: map[[2]int64]bool{},
		gone: map[string]bool{},
	}
	for range p.Partitions {
		m.parts = append(m.parts, &partState{terms: map[*process]*term{}})
	}
	return m
}

// note keeps a line for the case that something goes wrong.
func (m *monitor) note(format string, args ...any) {
	at := time.Since(m.began).Truncate(time.Microsecond)
	m.tail[m.tails%len(m.tail)] = fmt.Sprintf("%14v  ", at) + fmt.Sprintf(format, args...)
	m.tails++
}

// Note is note for others.
func (m *monitor) Note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(format, args...)
}

// violate notes a violation. The run ends soon after the first.
func (m *monitor) violate(invariant, format string, args ...any) {
	v := violation{at: time.Since(m.began), invariant: invariant, text: fmt.Sprintf(format, args...)}
	if len(m.faults) == 20 { // the rest follows from these
		return
	}
	m.note("VIOLATION %v", v)
	m.faults = append(m.faults, v)
	if len(m.faults) == 1 {
		close(m.failed)
	}
}

// Violate is violate for others.
func (m *monitor) Violate(invariant, format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.violate(invariant, format, args...)
}

func (m *monitor) violations() []violation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.faults)
}

// last returns what happened last.
func (m *monitor) last() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	for i := max(0, m.tails-len(m.tail)); i < m.tails; i++ {
		b.WriteString(m.tail[i%len(m.tail)])
		b.WriteByte('\n')
	}
	return b.String()
}

func (m *monitor) member(p *process) *memberState {
	s := m.members[p]
	if s == nil {
		s = &memberState{running: map[int]int{}, ended: map[claimID]*term{}}
		m.members[p] = s
	}
	return s
}

// observe is ownership's Observer.
func (m *monitor) observe(p *process, e ownership.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.isDead() {
		return
	}
	state := m.member(p)
	if state.left {
		m.violate("S7", "%s told %v after left", p.id, e.Kind)
	}
	if e.Version < state.version {
		m.violate("S7", "%s told version %d after %d", p.id, e.Version, state.version)
	}
	state.version = e.Version
	m.cov.hit("event " + string(e.Kind))
	if e.Partition < 0 {
		m.observeMember(p, state, e)
		return
	}
	i := m.plan.index(e.Topic, e.Partition)
	m.note("%s %v p%d token %#x: %v", p.id, e.Kind, i, e.Token, e.Err)
	t := m.parts[i].terms[p]
	if e.Kind == ownership.Claimed {
		if t != nil {
			m.violate("S7", "%s claimed p%d, which it owns", p.id, i)
		}
		m.claimed(p, i, e)
		m.sweep()
		return
	}
	switch {
	case t == nil:
		m.violate("S7", "%s told %v of p%d, which it does not own", p.id, e.Kind, i)
		return
	case t.token != e.Token:
		m.violate("S7", "%s told %v of p%d with token %#x instead of %#x", p.id, e.Kind, i, e.Token, t.token)
	case e.Kind == ownership.Revoking && t.revoking:
		m.violate("S7", "%s revokes p%d twice", p.id, i)
	case e.Kind == ownership.Revoking:
		t.revoking, t.told = true, time.Now()
	case e.Kind == ownership.Releasing && state.running[t.part] > 0:
		m.violate("S7", "%s released p%d while its handler runs", p.id, i)
		m.end(t, e.Kind, time.Now())
	case e.Kind == ownership.Releasing:
		m.end(t, e.Kind, time.Now())
	case e.Kind == ownership.Lost:
		m.lost(t, e)
		m.end(t, e.Kind, time.Now())
	}
	m.sweep()
}

func (m *monitor) observeMember(p *process, state *memberState, e ownership.Event) {
	switch e.Kind {
	case ownership.Snapshot:
		state.snapshots++
		if p.alloc != nil {
			m.mapping(p.alloc.Snapshot())
		}
	case ownership.Joined:
		m.note("%s joined in session %#x", p.id, e.Session)
	case ownership.Untrusted:
		m.note("%s untrusted since %v: %v", p.id, e.Since.Sub(m.began), e.Err)
		for _, part := range m.parts {
			if t := part.terms[p]; t != nil {
				at := p.clock.when(e.Since)
				t.clock = errors.Is(e.Err, session.ErrTrustLost) && at.After(p.clock.setAt())
				m.end(t, e.Kind, at)
			}
		}
	case ownership.Left:
		m.note("%s left: %v", p.id, e.Err)
		state.left = true
		for i, part := range m.parts {
			if part.terms[p] != nil {
				m.violate("S7", "%s left while it owns p%d", p.id, i)
				m.end(part.terms[p], e.Kind, time.Now())
			}
		}
	default:
	}
	m.sweep()
}

// mapping checks that members who computed of the same came to the same, and that it is complete and fair (S8).
func (m *monitor) mapping(s *allocator.Snapshot) {
	if s == nil || len(s.Members) == 0 || s.Func == "" || len(s.Partitions) == 0 {
		return
	}
	key := fmt.Sprint(s.Func, s.Members, s.Partitions)
	counts := map[string]int{}
	var b strings.Builder
	for _, part := range s.Partitions {
		owner, ok := s.Planned(part)
		if !ok || !slices.Contains(s.Members, owner) {
			m.violate("S8", "%v goes to %q, of %v", part, owner, s.Members)
		}
		counts[owner]++
		fmt.Fprintf(&b, "%v=%s ", part, owner)
	}
	if m.plan.differ() {
		if !m.computed[key+b.String()] {
			m.violate("S8", "no member has computed of %s\n%s", key, b.String())
		}
		return
	}
	if got, known := m.mappings[key]; known && got != b.String() {
		m.violate("S8", "of %s came both\n%s\n%s", key, got, b.String())
	}
	m.mappings[key] = b.String()
	least, most := len(s.Partitions), 0
	for _, name := range s.Members {
		least, most = min(least, counts[name]), max(most, counts[name])
	}
	if most-least > 1 {
		m.violate("S8", "one member has %d, another %d partitions: %s", most, least, b.String())
	}
}

// sessionEnds notes that a third party ends a session.
func (m *monitor) sessionEnds(id int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.excuses.sessions[id] = taking{at: time.Now()}
}

// claimGoes notes that a third party removes a claim.
func (m *monitor) claimGoes(part int, token, session int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.excuses.claims[claimID{part, token, session}] = taking{at: time.Now()}
}

// dataGoes has the servers lose data, sessions and claims: tokens start again. The servers turn away clients that have seen
// higher numbers.
func (m *monitor) dataGoes(lose func() (before, after serverData)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, after := lose()
	m.history++
	for _, part := range m.parts {
		part.token, part.holder = 0, nil
	}
	gone := taking{at: time.Now(), unsaid: after.zxid < before.zxid}
	for id := range after.sessions {
		delete(m.bygone, id)
	}
	for id := range before.sessions {
		if !after.sessions[id] {
			m.excuses.sessions[id], m.bygone[id] = gone, true
		}
	}
	for id := range after.claims {
		delete(m.forgot, id)
	}
	for id := range before.claims {
		if !after.claims[id] {
			m.excuses.claims[id], m.forgot[id] = gone, true
		}
	}
}

// dies notes that a process is no more.
func (m *monitor) dies(p *process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note("%s dies", p.id)
	for _, part := range m.parts {
		if t := part.terms[p]; t != nil {
			m.end(t, ownership.Left, time.Now())
		}
	}
}

// snapshots returns how many snapshots a member has acted on.
func (m *monitor) snapshots(p *process) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.member(p).snapshots
}
