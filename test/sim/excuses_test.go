package sim_test

import "time"

// soon is how long a member may take to stop after a third party has ended its session or removed its claim, while nothing keeps
// it from noticing.
const soon = time.Second

// everybody stands for all processes where somebody is in trouble.
const everybody = ""

// excuses says who may still trust a claim that has gone. A third party must have taken it, by ending the session or by removing
// the claim, and then only its owner is excused: for soon, and for 5/6 T at most while something keeps the owner from noticing.
// The end of trust needs no notice, so nothing excuses more.
type excuses struct {
	bound    time.Duration       // 5/6 T
	sessions map[int64]taking    // sessions that a third party ended
	claims   map[claimID]taking  // claims that a third party removed
	troubles map[string]*ailment // by a process's id, by a server's address, or everybody's
}

// taking is what a third party did to a session or a claim.
type taking struct {
	at     time.Time
	unsaid bool // the servers tell its owner nothing: they turn the owner away
}

// ailment is the trouble of a process or a server.
type ailment struct {
	under int       // troubles under way
	until time.Time // when the last one ended
}

func newExcuses(bound time.Duration) excuses {
	return excuses{
		bound: bound, sessions: map[int64]taking{}, claims: map[claimID]taking{}, troubles: map[string]*ailment{},
	}
}

func (x *excuses) ailment(whose string) *ailment {
	a := x.troubles[whose]
	if a == nil {
		a = &ailment{}
		x.troubles[whose] = a
	}
	return a
}

// ails says whether a process has been in trouble since then: it, its server, or everybody. A process whose connection broke in
// trouble stays in trouble until it has another: nothing tells it anything. A server that never answered its handshake may hold
// it up for T/4 after the servers answer again; drills judge how long that takes.
func (x *excuses) ails(p *process, since time.Time) bool {
	if p.ses.Stats().State == "suspended" {
		x.ailment(p.id).until = time.Now()
	}
	for _, whose := range []string{everybody, p.id, p.connected()} {
		if a := x.troubles[whose]; a != nil && (a.under > 0 || a.until.After(since)) {
			return true
		}
	}
	return false
}

// covers says whether the owner of a claim may still trust it, though it has gone.
func (x *excuses) covers(t *term) bool {
	session, known := x.sessions[t.session]
	return known && x.holds(t.p, session) || x.coversClaim(t.p, claimID{t.part, t.token, t.session})
}

// taken is when a third party took a claim, or the session that it was made in.
func (x *excuses) taken(t *term) time.Time {
	at, claim := x.sessions[t.session].at, x.claims[claimID{t.part, t.token, t.session}].at
	if claim.After(at) {
		return claim
	}
	return at
}

// coversClaim says whether a process may not know yet that a third party has removed its claim.
func (x *excuses) coversClaim(p *process, id claimID) bool {
	claim, known := x.claims[id]
	return known && x.holds(p, claim)
}

func (x *excuses) holds(p *process, t taking) bool {
	now := time.Now()
	switch d := now.Sub(t.at); {
	case d <= soon:
		return true
	case d > x.bound:
		return false
	default:
		return t.unsaid || x.ails(p, now.Add(-soon))
	}
}

// Troubled notes that trouble begins for a process, a server, or everybody.
func (m *monitor) Troubled(whose string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.excuses.ailment(whose).under++
}

// Relieved notes that trouble ends, in some time.
func (m *monitor) Relieved(whose string, in time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.excuses.ailment(whose)
	a.under--
	if until := time.Now().Add(in); until.After(a.until) {
		a.until = until
	}
}

// Disturbed notes trouble that is over at once.
func (m *monitor) Disturbed(whose string) {
	m.Troubled(whose)
	m.Relieved(whose, 0)
}

// Moved notes that a process has left a server for another. What was wrong with that server was wrong for it until now.
func (m *monitor) Moved(p *process, from string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.excuses.troubles[from]; from != "" && a != nil && a.under > 0 {
		m.excuses.ailment(p.id).until = time.Now()
	}
}
