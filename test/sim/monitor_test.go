package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/ownership"
)

// monitor hears of everything that happens in a run, in one order, and checks the invariants as it hears of it. Their
// names are those of the package's page.
type monitor struct {
	mu       sync.Mutex
	began    time.Time
	parts    []*partState
	members  map[*process]*memberState
	mappings map[string]string     // by what they were computed of
	exempt   map[int64]time.Time   // sessions that a third party ended, since when
	removed  map[claimID]time.Time // claims that a third party removed
	lostData map[int64]bool        // sessions that were there when the servers lost their data
	bound    time.Duration         // how long a third party may be the reason for an overlap
	tail     [400]string           // what happened last
	tails    int
	faults   []violation
	failed   chan struct{} // closed at the first violation
	cov      coverage
	ignores  string            // an invariant
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
	Partition() int32
	Token() int64
	Trusted() bool
}

func (t *term) String() string { return fmt.Sprintf("token %#x, session %#x", t.token, t.session) }

// claimID names a claim. Those that were made in one request have the same token.
type claimID struct {
	part  int
	token int64
}

// memberState is what is known of a member.
type memberState struct {
	version   uint64
	snapshots int
	left      bool
	running   map[int]int       // handlers, by partition
	ended     map[claimID]*term // the newest of each claim, for Groups
	setup     bool              // a Group's Setup was called, and Cleanup was not
}

func newMonitor(parts int, bound time.Duration, cov coverage) *monitor {
	m := &monitor{
		began: time.Now(), members: map[*process]*memberState{}, mappings: map[string]string{},
		exempt: map[int64]time.Time{}, removed: map[claimID]time.Time{}, lostData: map[int64]bool{}, bound: bound,
		failed: make(chan struct{}), cov: cov, pairs: map[[2]int64]bool{}, clashes: map[[2]int64]bool{},
		gone: map[string]bool{},
	}
	for range parts {
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
	if invariant == m.ignores {
		return
	}
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
	m.cov.hit("event " + e.Kind.String())
	if e.Partition < 0 {
		m.observeMember(p, state, e)
		return
	}
	m.note("%s %v p%d token %#x: %v", p.id, e.Kind, e.Partition, e.Token, e.Err)
	part := m.parts[e.Partition]
	t := part.terms[p]
	if e.Kind == ownership.Claimed {
		if t != nil {
			m.violate("S7", "%s claimed p%d, which it owns", p.id, e.Partition)
		}
		m.claimed(p, part, e)
		m.sweep()
		return
	}
	switch {
	case t == nil:
		m.violate("S7", "%s told %v of p%d, which it does not own", p.id, e.Kind, e.Partition)
		return
	case t.token != e.Token:
		m.violate("S7", "%s told %v of p%d with token %#x instead of %#x", p.id, e.Kind, e.Partition, e.Token, t.token)
	case e.Kind == ownership.Revoking && t.revoking:
		m.violate("S7", "%s revokes p%d twice", p.id, e.Partition)
	case e.Kind == ownership.Revoking:
		t.revoking, t.told = true, time.Now()
	case e.Kind == ownership.Released && state.running[t.part] > 0:
		m.violate("S7", "%s released p%d while its handler runs", p.id, e.Partition)
		m.end(t, e.Kind, time.Now())
	case e.Kind == ownership.Released:
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
				m.end(t, e.Kind, p.clock.when(e.Since))
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
		owner, ok := s.Owner(part)
		if !ok || !slices.Contains(s.Members, owner) {
			m.violate("S8", "%v goes to %q, of %v", part, owner, s.Members)
		}
		counts[owner]++
		fmt.Fprintf(&b, "%v=%s ", part, owner)
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

// claimed begins a term.
func (m *monitor) claimed(p *process, part *partState, e ownership.Event) {
	again := e.Token == part.token && part.holder == p && part.session == e.Session
	switch {
	case again:
		m.cov.hit("kept: claimed again with the same token")
	case m.lostData[e.Session]:
	case e.Token <= part.token && m.tookAway(claimID{int(e.Partition), e.Token}):
		m.cov.hit("told of a claim after a third party had removed it and another had claimed")
	case e.Token <= part.token:
		m.violate("S2", "%s claimed p%d with token %#x after %#x of %s",
			p.id, e.Partition, e.Token, part.token, part.holder.id)
	}
	for key := range m.gone {
		if who, what, _ := strings.Cut(key, " "); what == fmt.Sprint(e.Partition) {
			if who == p.id {
				m.cov.hit("uncertain claim: it was ours")
			} else {
				m.cov.hit("uncertain claim: it was not, or was given up")
			}
			delete(m.gone, key)
		}
	}
	t := &term{p: p, part: int(e.Partition), token: e.Token, session: e.Session, began: time.Now()}
	// A claim made before the data was lost, and told after, has a token of the old count. One that a third party removed
	// before it was told is older than the newest.
	if !m.lostData[e.Session] && (again || e.Token > part.token) {
		part.token, part.holder, part.session = e.Token, p, e.Session
	}
	t.least = part.acked
	part.terms[p] = t
	m.rivals(t, "claimed")
}

// lost looks at why a claim was lost.
func (m *monitor) lost(t *term, e ownership.Event) {
	_, operator := m.removed[claimID{t.part, t.token}]
	switch {
	case operator:
		m.cov.hit("lost: a third party removed the claim")
	case strings.Contains(fmt.Sprint(e.Err), "stuck"):
		m.cov.hit("lost: the handler was stuck")
	default:
		m.cov.hit("lost: otherwise")
	}
}

// end ends a term, of which may be told only later.
func (m *monitor) end(t *term, how ownership.EventKind, at time.Time) {
	t.over = true
	delete(m.parts[t.part].terms, t.p)
	if t.p.group != nil {
		m.groupEnd(t, how, at)
	}
}

// trusted says whether the owner of a term may think that it owns the partition.
func (t *term) trusted() bool {
	inc := t.p.ses.Current()
	return !t.p.isDead() && inc != nil && inc.SessionID() == t.session && (t.claim == nil || t.claim.Trusted())
}

// excused says whether a third party is to blame when a term is trusted and somebody else's is too (S1).
func (m *monitor) excused(t *term) bool {
	since, ok := m.exempt[t.session]
	if removed, gone := m.removed[claimID{t.part, t.token}]; gone && removed.After(since) {
		since, ok = removed, true
	}
	return ok && time.Since(since) <= m.bound
}

// tookAway says whether a third party removed just that claim, not too long ago to be the reason for what is told of it
// now (S2).
func (m *monitor) tookAway(c claimID) bool {
	removed, gone := m.removed[c]
	return gone && time.Since(removed) <= m.bound
}

// rivals checks that nobody else has a trusted claim of the partition (S1).
func (m *monitor) rivals(t *term, doing string) {
	for _, other := range m.parts[t.part].terms {
		pair := [2]int64{min(t.token, other.token), max(t.token, other.token)}
		switch {
		case other == t || !other.trusted():
		case m.excused(other) || m.excused(t):
			if !m.pairs[pair] {
				m.pairs[pair] = true
				m.cov.hit("overlap after a third party's deed")
			}
		default:
			m.clashes[pair] = true
			m.violate("S1", "%s %s p%d (%v) while the claim of %s (%v, since %v) is trusted",
				t.p.id, doing, t.part, t, other.p.id, other, other.began.Sub(m.began))
		}
	}
}

// sweep checks S1 for all partitions.
func (m *monitor) sweep() {
	for _, part := range m.parts {
		if len(part.terms) < 2 {
			continue
		}
		for _, t := range part.terms {
			if t.trusted() {
				m.rivals(t, "owns")
			}
		}
	}
}

// Sweep is sweep for others.
func (m *monitor) Sweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep()
}

// enter notes that a handler starts, and returns its term; nil when that is over already.
func (m *monitor) enter(p *process, c claim) *term {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := int(c.Partition())
	state := m.member(p)
	if state.left {
		m.violate("S7", "%s: a handler of p%d starts after left", p.id, i)
	}
	if p.group != nil && !state.setup && !p.isDead() {
		m.violate("S7", "%s: a handler of p%d starts before Setup or after Cleanup", p.id, i)
	}
	state.running[i]++
	if n := state.running[i]; n > 1 {
		m.violate("S7", "%s: %d handlers of p%d", p.id, n, i)
	}
	t := m.parts[i].terms[p]
	if t == nil || t.token != c.Token() {
		if c.Trusted() && !p.isDead() {
			m.violate("S7", "%s: a handler of p%d starts without a claim that was told", p.id, i)
		}
		return nil
	}
	t.claim = c
	return t
}

// exit notes that a handler ends.
func (m *monitor) exit(p *process, c claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.member(p).running[int(c.Partition())]--
}

// opened notes the offset at which a handler begins.
func (m *monitor) opened(t *term, off int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	part := m.parts[t.part]
	m.note("%s opens p%d at %d (processed %d, acknowledged %d)", t.p.id, t.part, off, part.processed, part.acked)
	t.opened, t.position = true, off
	if off > part.processed {
		m.violate("S5", "%s opens p%d at %d, but only what is before %d was processed", t.p.id, t.part, off, part.processed)
	}
	if off < part.acked && !part.strayed {
		m.violate("S6", "%s opens p%d at %d, but %d was committed", t.p.id, t.part, off, part.acked)
	}
	if n := int(part.processed - off); n > 0 {
		m.dups += n
		m.cov.hit("messages processed again")
	}
	m.rivals(t, "opens")
}

// asking says how a handler asks for trust before an effect.
type asking int

const (
	asks    asking = iota // right before it
	inHand                // and then its process stood still: nobody can prevent that one effect
	asksNot               // it has no manners
)

// processed is the effect of a message, if the handler still is trusted; it says whether it is.
func (m *monitor) processed(t *term, off int64, how asking) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	trusted := t.claim.Trusted()
	switch {
	case trusted:
		m.rivals(t, "processes a message of")
	case how == asks:
		m.cov.hit("no trust when a message was to be processed")
		return false
	case how == inHand:
		m.cov.hit("a message was in hand when the process stood still")
	default:
		m.violate("S1", "%s processes %d of p%d without trust", t.p.id, off, t.part)
	}
	if off != t.position {
		m.violate("S5", "%s processes %d of p%d, expected %d", t.p.id, off, t.part, t.position)
	}
	t.position = off + 1
	part := m.parts[t.part]
	part.processed = max(part.processed, off+1)
	part.saw(off)
	return true
}

// saw notes that a message was processed. What is lost is counted of this alone, whatever else is believed.
func (part *partState) saw(off int64) {
	for int(off/64) >= len(part.seen) {
		part.seen = append(part.seen, 0)
	}
	part.seen[off/64] |= 1 << (off % 64)
}

// lostOf counts the messages before ends that nobody has processed.
func (m *monitor) lostOf(ends []int64) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	lost := 0
	for i, end := range ends {
		for off := range end {
			if seen := m.parts[i].seen; int(off/64) >= len(seen) || seen[off/64]&(1<<(off%64)) == 0 {
				lost++
			}
		}
	}
	return lost
}

// sending is the moment at which a commit leaves its sender, if that still is trusted; it says whether it is.
func (m *monitor) sending(c *commit, how asking) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := c.term
	switch {
	case t.claim.Trusted():
		m.rivals(t, "commits")
	case how == asks:
		m.cov.hit("no trust when a commit was to be sent")
		return false
	default:
		m.violate("S4", "%s commits %d of p%d without trust", t.p.id, c.off, t.part)
	}
	if c.off > t.position {
		m.violate("S4", "%s commits %d of p%d, has processed what is before %d", t.p.id, c.off, t.part, t.position)
	}
	return true
}

// stored notes that a commit arrives at Kafka, where another stands.
func (m *monitor) stored(c, last *commit, was int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	part := m.parts[c.part]
	if c.off > part.processed {
		m.violate("S5", "%s commits %d of p%d, processed is only what is before %d", c.p.id, c.off, c.part, part.processed)
	}
	_, killed := m.exempt[c.term.session]
	_, removed := m.removed[claimID{c.part, c.term.token}]
	c.stray = c.late || c.term.over || killed || removed // what a third party did to the claim, its owner may not know yet
	if c.late || c.term.over {
		m.cov.hit("commit arrived late")
	}
	if c.off < was {
		if !c.stray && (last == nil || !last.stray) && !part.strayed {
			m.violate("S4", "%s moves the committed offset of p%d back from %d to %d", c.p.id, c.part, was, c.off)
		}
		m.cov.hit("late commit moved the offset back")
		m.strays++
		m.note("%s moves the committed offset of p%d back from %d to %d", c.p.id, c.part, was, c.off)
		part.strayed = true
	} else if c.off >= part.acked {
		if part.strayed {
			m.cov.hit("offset that was moved back was repaired")
		}
		part.strayed = false
	}
}

// acked notes that the sender of a commit knows that it is stored.
func (m *monitor) acked(c *commit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	part := m.parts[c.part]
	part.acked = max(part.acked, c.off)
}

// sessionEnds notes that a third party ends a session.
func (m *monitor) sessionEnds(id int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.exempt[id]; !known {
		m.exempt[id] = time.Now()
	}
}

// claimGoes notes that a third party removes a claim.
func (m *monitor) claimGoes(part int, token int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removed[claimID{part, token}] = time.Now()
}

// dataGoes notes that the servers lose their data: tokens start again.
func (m *monitor) dataGoes(sessions []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, part := range m.parts {
		part.token, part.holder = 0, nil
	}
	for _, id := range sessions {
		m.exempt[id], m.lostData[id] = time.Now(), true
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

// processedAll says whether all messages before ends were processed.
func (m *monitor) processedAll(ends []int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, end := range ends {
		if m.parts[i].processed < end {
			return false
		}
	}
	return true
}

// holdings tells what a member owns, and whether all of it is open and stays.
func (m *monitor) holdings(p *process) (list string, parts []int, settled bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	settled = true
	for i, part := range m.parts {
		if t := part.terms[p]; t != nil {
			list += fmt.Sprintf("%d=%#x ", i, t.token)
			parts = append(parts, i)
			settled = settled && !t.revoking && t.opened
		}
	}
	return list, parts, settled
}
