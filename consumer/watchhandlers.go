package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/pause"
)

const (
	// handlerPause is how often a member looks whether its handlers go on. That is no request.
	handlerPause = 10 * time.Second
	// standsLimit is for how long a handler may take no message before a warning is logged.
	standsLimit = time.Minute
	// maxStandsLimit bounds that limit where it grows.
	maxStandsLimit = time.Hour
	// unmarkedLimit is how long after the first message of a partition one must have been marked.
	unmarkedLimit = 2 * time.Minute
	// hastyLimit is how long after its partition was opened a handler may return without being called hasty.
	hastyLimit = time.Minute
)

var errUnmarked = errors.New(
	"no message was marked since the first: unless the program stores offsets itself, nothing is committed, and the next owner reads all again")

// maxStands is how many of the handlers that are found standing in one look a line names.
const maxStands = 5

// warned is what the log has said of a partition's handler.
type warned struct {
	stands, unmarked bool
	longest          time.Duration // for which the handler has stood
}

// watchHandlers warns of handlers that don't go on and of those that mark nothing, until ctx ends. It warns once each time, and
// of a handler that goes on by itself and stands again only when it stands twice as long. What it has warned of ends when the
// handler goes on, or with the claim.
func (m *membership) watchHandlers(ctx context.Context) {
	said := map[*Partition]warned{}
	for pause.Sleep(ctx, handlerPause) == nil {
		said = m.lookAtHandlers(said, time.Now())
		if m.isAtWork() {
			m.group.log.OK(reporting.KindMember, "")
		}
	}
}

// isAtWork reports whether this member has what it is to have: a partition that is open, or none, and Kafka refuses it nothing.
func (m *membership) isAtWork() bool {
	s := m.snapshot()
	return s != nil && s.Joined && !m.refusals.some() && (len(s.Mine()) == 0 || len(m.group.open()) > 0)
}

// lookAtHandlers looks at all open partitions. It returns what the log has said by then.
func (m *membership) lookAtHandlers(last map[*Partition]warned, at time.Time) map[*Partition]warned {
	said := map[*Partition]warned{}
	var stand []standing
	for _, p := range m.group.open() {
		was := last[p]
		stood := p.stood(at)
		now := was.after(stood)
		first := p.firstMessage()
		now.unmarked = stood < standsLimit && !first.IsZero() && at.Sub(first) >= unmarkedLimit && !p.keepsItself && !p.tracker.Progress().Used
		if now.stands && !was.stands {
			stand = append(stand, standing{p, at.Add(-stood)})
		}
		if now.unmarked && !was.unmarked {
			m.group.log.FailedWarn(reporting.KindUnmarked, p.id.String(), failure("", "", errUnmarked), "since", first)
		}
		said[p] = now
	}
	for p, was := range last {
		if now := said[p]; was.stands && !now.stands {
			m.group.log.OK(reporting.KindStands, p.id.String())
		}
		if now := said[p]; was.unmarked && !now.unmarked {
			m.group.log.OK(reporting.KindUnmarked, p.id.String())
		}
	}
	m.warnOfStanding(stand)
	return said
}

// after returns what the log has said when a handler is found to have stood for so long.
func (w warned) after(stood time.Duration) warned {
	limit := max(standsLimit, min(2*w.longest, maxStandsLimit))
	w.stands = stood >= limit || w.stands && stood >= standsLimit
	if w.stands {
		w.longest = max(stood, w.longest)
	}
	return w
}

// standing is a partition whose handler stands.
type standing struct {
	p     *Partition
	since time.Time
}

// warnOfStanding warns of handlers that one look has found standing: the line names the first of them.
func (m *membership) warnOfStanding(all []standing) {
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b standing) int { return a.since.Compare(b.since) })
	var names []string
	for _, s := range all[:min(len(all), maxStands)] {
		names = append(names, fmt.Sprintf("%s before offset %d", s.p.id, s.p.handlerPosition()))
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	err := failure("", "", fmt.Errorf("the handler has taken no further message and marked none: %s", strings.Join(names, ", ")))
	for _, s := range all {
		m.group.log.FailedWarn(reporting.KindStands, s.p.id.String(), err, "since", all[0].since)
		if s.p.ctx.Err() != nil { // released meanwhile
			m.group.log.OK(reporting.KindStands, s.p.id.String())
		}
	}
	m.group.log.Began(reporting.KindStands, all[0].since)
}

// stood returns for how long a handler that could take a message has taken none. It is 0 for a handler that waits for messages
// when none is there, though it has not marked the last one: it may mark only some, or many at a time.
func (p *Partition) stood(at time.Time) time.Duration {
	stalled := p.stalled(at)
	if p.pauses.has(p.id) {
		return 0
	}
	if c := p.cursor.Load(); c != nil && p.handler.waits.Load() {
		if _, queued := p.received(c); queued == 0 {
			return 0
		}
	}
	return stalled
}
