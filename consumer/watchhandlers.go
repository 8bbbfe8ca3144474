package consumer

import (
	"context"
	"errors"
	"fmt"
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

// warned is what the log has said of a partition's handler.
type warned struct {
	stands, unmarked bool
	longest          time.Duration // for which the handler has stood
}

// watchHandlers warns of handlers that don't go on and of those that mark nothing, until ctx ends. It warns once each time, and of a
// handler that goes on by itself and stands again only when it stands twice as long. What it has warned of ends when the handler goes on,
// or with the claim.
func (m *membership) watchHandlers(ctx context.Context) {
	said := map[*Partition]warned{}
	for pause.Sleep(ctx, handlerPause) == nil {
		last := said
		said = map[*Partition]warned{}
		for _, p := range m.group.open() {
			said[p] = m.watchHandler(p, last[p])
		}
	}
}

// watchHandler looks at one partition. It returns what the log has said by then.
func (m *membership) watchHandler(p *Partition, said warned) (now warned) {
	at, about := time.Now(), p.id.String()
	tell := func(kind string, is, was bool, since time.Time, err error) bool {
		if is && !was {
			m.group.log.FailedWarn(kind, about, failure("", "", err), "since", since)
		}
		if !is || p.ctx.Err() != nil { // released meanwhile
			m.group.log.OK(kind, about)
		}
		return is
	}
	stood := p.stood(at)
	limit := max(standsLimit, min(2*said.longest, maxStandsLimit))
	now.stands = tell(reporting.KindStands, stood >= limit || said.stands && stood >= standsLimit, said.stands, at.Add(-stood),
		fmt.Errorf("the handler has taken no further message and marked none: it is before offset %d", p.handlerPosition()))
	now.longest = said.longest
	if now.stands {
		now.longest = max(stood, said.longest)
	}
	first := p.firstMessage()
	marksNone := stood < standsLimit && !first.IsZero() && at.Sub(first) >= unmarkedLimit && !p.keepsItself && !p.tracker.Progress().Used
	now.unmarked = tell(reporting.KindUnmarked, marksNone, said.unmarked, first, errUnmarked)
	return now
}

// stood returns for how long a handler that could take a message has taken none. It is 0 for a handler that waits for messages when
// none is there, though it has not marked the last one: it may mark only some, or many at a time.
func (p *Partition) stood(at time.Time) time.Duration {
	stalled := p.stalled(at)
	if p.pauses.has(p.id) {
		return 0
	}
	if c := p.cursor.Load(); c != nil && p.waits.Load() {
		if _, queued := p.received(c); queued == 0 {
			return 0
		}
	}
	return stalled
}
