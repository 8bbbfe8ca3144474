package consumer

import (
	"fmt"
	"slices"
	"strings"
	"time"
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
