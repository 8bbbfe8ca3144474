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
	// unmarkedLimit is how long after the first message of a partition one must have been marked.
	unmarkedLimit = 2 * time.Minute
)

var errUnmarked = errors.New("no message was marked since the first: nothing is committed, and the next owner reads all of them again")

// warned is what the log has said of a partition's handler.
type warned struct{ stands, unmarked bool }

// watchHandlers warns, once each time, of handlers that don't go on and of those that mark nothing, until ctx ends. What it has warned
// of ends when the handler goes on, or with the claim.
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
		switch {
		case !is:
			m.group.log.OK(kind, about)
		case !was:
			m.group.log.FailedWarn(kind, about, failure("", "", err), "since", since)
		}
		return is
	}
	stalled, first := p.stalled(at), p.firstMessage()
	now.stands = tell(reporting.KindStands, stalled >= standsLimit, said.stands, at.Add(-stalled),
		fmt.Errorf("the handler has taken no further message and marked none: it is before offset %d", p.handlerPosition()))
	marksNone := !now.stands && !first.IsZero() && at.Sub(first) >= unmarkedLimit && m.group.settings.Fence == nil && !p.tracker.Progress().Used
	now.unmarked = tell(reporting.KindUnmarked, marksNone, said.unmarked, first, errUnmarked)
	return now
}
