package sim_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/kielgo/kiel/ownership"
)

// claimed begins a term.
func (m *monitor) claimed(p *process, i int, e ownership.Event) {
	part := m.parts[i]
	again := e.Token == part.token && part.holder == p && part.session == e.Session
	id := claimID{i, e.Token, e.Session}
	old := m.bygone[e.Session] || m.forgot[id] // made before the servers lost their data, and told after
	switch {
	case again:
		m.cov.hit("kept: claimed again with the same token")
	case old:
	case e.Token <= part.token && m.excuses.coversClaim(p, id):
		m.cov.hit("told of a claim after a third party had removed it and another had claimed")
	case e.Token <= part.token:
		m.violate("S2", "%s claimed p%d with token %#x after %#x of %s",
			p.id, i, e.Token, part.token, part.holder.id)
	}
	for key := range m.gone {
		if who, what, _ := strings.Cut(key, " "); what == fmt.Sprint(i) {
			if who == p.id {
				m.cov.hit("uncertain claim: it was ours")
			} else {
				m.cov.hit("uncertain claim: it was not, or was given up")
			}
			delete(m.gone, key)
		}
	}
	if !wants(p.topics, e.Topic) {
		m.violate("S8", "%s claimed p%d, and does not ask for %s", p.id, i, e.Topic)
	}
	t := &term{
		p: p, part: i, token: e.Token, session: e.Session, history: m.history, began: time.Now(),
	}
	// The token of an old claim is of the old count. A claim that a third party removed before it was told is older than the
	// newest.
	if old {
		t.history--
	} else if again || e.Token > part.token {
		part.token, part.holder, part.session = e.Token, p, e.Session
	}
	t.least = part.acked
	part.terms[p] = t
	m.rivals(t, "claimed")
}

// lost looks at why a claim was lost.
func (m *monitor) lost(t *term, e ownership.Event) {
	_, operator := m.excuses.claims[claimID{t.part, t.token, t.session}]
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

// olderThan says whether a claim was made before another of the same partition.
func (t *term) olderThan(other *term) bool {
	if t.history != other.history {
		return t.history < other.history
	}
	return t.token < other.token
}

// rivals checks that nobody else has a trusted claim of the partition (S1).
func (m *monitor) rivals(t *term, doing string) {
	for _, other := range m.parts[t.part].terms {
		pair := [2]int64{min(t.token, other.token), max(t.token, other.token)}
		gone := other // the older claim, in whose place the other was made
		if t.olderThan(other) {
			gone = t
		}
		switch {
		case other == t || !other.trusted():
		case m.excuses.covers(gone):
			if time.Since(m.excuses.taken(gone)) > soon {
				m.cov.hit("overlap for longer, in trouble")
			}
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
	i := m.plan.index(c.Topic(), c.Partition())
	state := m.member(p)
	if state.left {
		m.violate("S7", "%s: a handler of p%d starts after left", p.id, i)
	}
	if p.group != nil && p.api() == saramaAPI && !state.setup && !p.isDead() {
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
	m.member(p).running[m.plan.index(c.Topic(), c.Partition())]--
}

// knows says whether the owner of a claim that exists was told of it, and has it still.
func (m *monitor) knows(part int, c standing) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.parts[part].terms {
		if t.token == c.token && t.session == c.session {
			return true
		}
	}
	return false
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
