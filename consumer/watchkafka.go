package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/operr"
)

// errAway says that Kafka is out of reach.
var errAway = errors.New("no broker of Kafka answers")

// watchKafka logs when Kafka gets out of reach, and when it is back, until ctx ends. It makes the member leave when it is cut off
// for long enough. While Kafka answers watchKafka sleeps.
func (m *membership) watchKafka(ctx context.Context) {
	changed := m.group.reach.Changed()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-timer.C:
		}
		wait := m.group.logReach()
		if leave := m.leaveCutOff(); leave > 0 && (wait == 0 || leave < wait) {
			wait = leave
		}
		if wait > 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

// logReach logs whether Kafka is in reach, and returns after how long to call it again; 0 to call it after a change alone.
func (g *Group) logReach() (again time.Duration) {
	since, wait, why := g.reach.Failure()
	switch {
	case why == nil:
		g.log.OK(reporting.KindKafka, "")
		return 0
	case wait > 0: // Kafka does not count as out of reach yet
		return wait
	}
	g.log.Failed(reporting.KindKafka, "", failure("", "", operr.Because(errAway, why)), "since", since)
	g.log.Began(reporting.KindKafka, since)
	return errlog.Interval
}

// isReachable reports whether Kafka is in reach.
func (g *Group) isReachable() bool {
	reachable, _ := g.reach.State()
	return reachable
}
