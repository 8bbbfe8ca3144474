package ownership_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/ownership"
)

// journal is what all members' observers and handlers tell, in one order, with the checks that can be made as it is told.
type journal struct {
	mu      sync.Mutex
	entries []entry
	claims  map[kiel.Partition][]holder // every claim that was ever handed to a handler
	running map[string]int              // handlers, by member and partition
	exempt  map[int64]time.Time         // sessions that an operator ended, and when
	faults  []string
	loose   map[kiel.Partition]bool // partitions at which an operator works: overlaps are his
}

type entry struct {
	at     time.Time
	member string
	ownership.Event
}

type holder struct {
	member string
	claim  *ownership.Claim
}

func newJournal() *journal {
	return &journal{
		claims: map[kiel.Partition][]holder{}, running: map[string]int{},
		exempt: map[int64]time.Time{}, loose: map[kiel.Partition]bool{},
	}
}

func id(e ownership.Event) kiel.Partition {
	return kiel.Partition{Topic: e.Topic, ID: e.Partition}
}

func (j *journal) fault(format string, args ...any) {
	j.faults = append(j.faults, fmt.Sprintf(format, args...))
}

func (j *journal) event(member string, e ownership.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{time.Now(), member, e})
	if e.Kind == ownership.Claimed {
		j.alone(member, e.Session, id(e))
	}
}

// loosen lets a partition have two owners: an operator has removed its claim.
func (j *journal) loosen(p kiel.Partition) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.loose[p] = true
}

// forget forgets what a member was told: it was cut off in the middle.
func (j *journal) forget(member string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = slices.DeleteFunc(j.entries, func(e entry) bool { return e.member == member })
}

// alone checks that nobody but member, which owns p in a session, has a trusted claim. A member whose session an operator has
// ended may, until it hears of that, open again what it held.
func (j *journal) alone(member string, session int64, p kiel.Partition) {
	if j.loose[p] || j.excused(session, time.Now()) {
		return
	}
	for _, h := range j.claims[p] {
		if h.member != member && !j.excused(h.claim.Incarnation().SessionID(), time.Now()) && h.claim.Trusted() {
			j.fault("%s: %s owns it while the claim of %s is trusted", p, member, h.member)
		}
	}
}

// excused reports whether an operator had ended a session by then. j.mu is held.
func (j *journal) excused(session int64, then time.Time) bool {
	ended, ok := j.exempt[session]
	return ok && !then.Before(ended)
}

// enter notes that a handler starts.
func (j *journal) enter(member string, c *ownership.Claim) (leave func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := kiel.Partition{Topic: c.Topic(), ID: c.Partition()}
	key := member + " " + p.String()
	j.running[key]++
	if n := j.running[key]; n > 1 {
		j.fault("%s: %d handlers at once", key, n)
	}
	j.claims[p] = append(j.claims[p], holder{member, c})
	if c.Trusted() {
		j.alone(member, c.Incarnation().SessionID(), p)
	}
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.running[key]--
	}
}

// term is an ownership.
type term struct {
	member     string
	token      int64
	session    int64
	start, end time.Time
	seq        int // of its beginning
	done       int // of its end
	how        ownership.EventKind
}

// check turns the journal into terms and says what is wrong with them.
func (j *journal) check() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	faults := slices.Clone(j.faults)
	terms := map[kiel.Partition][]*term{}
	open := map[string]map[kiel.Partition]*term{}
	left := map[string]bool{}
	for i, e := range j.entries {
		if open[e.member] == nil {
			open[e.member] = map[kiel.Partition]*term{}
		}
		mine := open[e.member]
		if left[e.member] {
			faults = append(faults, fmt.Sprintf("%s told %v after left", e.member, e.Kind))
		}
		switch e.Kind {
		case ownership.Claimed:
			p := id(e.Event)
			if mine[p] != nil {
				faults = append(faults, fmt.Sprintf("%s: %s claimed what it owns", p, e.member))
			}
			mine[p] = &term{member: e.member, token: e.Token, session: e.Session, start: e.at, seq: i}
			terms[p] = append(terms[p], mine[p])
		case ownership.Revoking:
			if mine[id(e.Event)] == nil {
				faults = append(faults, fmt.Sprintf("%s: %s revokes what it does not own", id(e.Event), e.member))
			}
		case ownership.Releasing, ownership.Lost:
			p := id(e.Event)
			tm := mine[p]
			if tm == nil {
				faults = append(faults, fmt.Sprintf("%s: %s told %v of what it does not own", p, e.member, e.Kind))
				continue
			}
			if tm.token != e.Token {
				faults = append(faults, fmt.Sprintf("%s: %s told %v of token %d, claimed %d", p, e.member, e.Kind, e.Token, tm.token))
			}
			tm.end, tm.done, tm.how = e.at, i, e.Kind
			delete(mine, p)
		case ownership.Untrusted, ownership.Left:
			for p, tm := range mine {
				tm.end, tm.done, tm.how = e.at, i, e.Kind
				if e.Kind == ownership.Untrusted && e.Since.Before(tm.end) {
					tm.end = e.Since
				}
				delete(mine, p)
			}
			left[e.member] = e.Kind == ownership.Left
		case ownership.Joined, ownership.Snapshot:
		}
	}
	for member, mine := range open {
		for p := range mine {
			faults = append(faults, fmt.Sprintf("%s: the journal of %s ends while it is owned", p, member))
		}
	}
	for p, all := range terms {
		if j.loose[p] {
			continue
		}
		for i, b := range all {
			for _, a := range all[:i] {
				excused := a.member == b.member || j.excused(a.session, b.start) || j.excused(b.session, b.start)
				if !excused && b.start.Before(a.end) {
					faults = append(faults, fmt.Sprintf("%s: %s claimed it %v before the term of %s ended (%v)", p, b.member, a.end.Sub(b.start), a.member, a.how))
				}
				if !excused && a.how != ownership.Untrusted && b.seq < a.done {
					faults = append(faults, fmt.Sprintf("%s: %s claimed it before %s told %v", p, b.member, a.member, a.how))
				}
				again := a.member == b.member && a.session == b.session && a.token == b.token
				// An answer of servers that have ended the session since may come late.
				if b.token <= a.token && !again && !j.excused(b.session, b.start) {
					faults = append(faults, fmt.Sprintf("%s: token %d of %s after %d of %s", p, b.token, b.member, a.token, a.member))
				}
			}
		}
	}
	return faults
}

// kinds returns the kinds that a member told of a partition, in order.
func (j *journal) kinds(member string, p kiel.Partition) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var kinds []string
	for _, e := range j.entries {
		if e.member == member && (id(e.Event) == p || e.Partition == -1 && e.Kind != ownership.Snapshot) {
			kinds = append(kinds, string(e.Kind))
		}
	}
	return strings.Join(kinds, " ")
}

// last returns the last event of a kind about a partition.
func (j *journal) last(member string, kind ownership.EventKind, p kiel.Partition) (entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range slices.Backward(j.entries) {
		if e.member == member && e.Kind == kind && (id(e.Event) == p || e.Partition == -1) {
			return e, true
		}
	}
	return entry{}, false
}
