package consumer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
)

// closeGrace is how long Close waits for the program's code before a warning names what runs: Close may have been called from it.
const closeGrace = time.Second

// namedCalls is how many calls of the program's code a text of Close names at most.
const namedCalls = 5

// awaitCode waits for done, which is closed when the member has left, or its call has returned. It logs what of the program's
// code still runs after closeGrace. It returns an error if that has not returned when done is closed.
func (g *Group) awaitCode(done <-chan struct{}) error {
	m := g.member()
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
	}
	if calls := m.runs(); calls != "" {
		g.settings.log.Warn("Close waits for the program's code, and must not be called from it", "callback", calls, "after", closeGrace)
	}
	<-done
	if calls := m.runs(); calls != "" {
		return stuck("Close: %s has not returned; Close must not be called from it", calls)
	}
	return nil
}

// runs names the program's code that runs now; "" if none does. m may be nil.
func (m *membership) runs() string {
	if m == nil {
		return ""
	}
	calls := m.users.Kinds()
	for _, o := range m.openings.list() {
		if !o.inUser.Load() {
			continue
		}
		kind := callHandler
		if o.at() == atFence {
			kind = callFence
		}
		calls = append(calls, ofOne(kind, o.tp).Name)
	}
	slices.Sort(calls)
	if more := len(calls) - namedCalls; more > 0 {
		calls = append(calls[:namedCalls], fmt.Sprintf("%d more", more))
	}
	return strings.Join(calls, ", ")
}

// setAbandoned notes that m has left. If the program's code still runs that it has called, the next call waits for that.
func (g *Group) setAbandoned(m *membership) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.abandoned = m
}

// awaitAbandoned waits until the program's code has returned that an earlier membership has called and abandoned, or ctx ends: a
// second ConsumeClaim of a partition, or Setup beside a ConsumeClaim, would share the handler's state with the first.
func (g *Group) awaitAbandoned(ctx context.Context) {
	g.mu.Lock()
	m := g.abandoned
	g.mu.Unlock()
	if m == nil {
		return
	}
	timer := time.AfterFunc(closeGrace, func() {
		if calls := m.runs(); calls != "" {
			g.settings.log.WarnContext(ctx, "Consume waits for the program's code of the last membership", "callback", calls, "after", closeGrace)
		}
	})
	defer timer.Stop()
	if kafkaconn.Await(ctx, m.owns.Ended()) && kafkaconn.Await(ctx, m.users.End()) {
		g.setAbandoned(nil)
	}
}
