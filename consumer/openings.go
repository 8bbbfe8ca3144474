package consumer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/internal/usercall"
)

// openings has, for each partition that this member owns, the opening that consumes it.
type openings struct {
	mu    sync.Mutex
	all   map[kiel.Partition]*opening
	again map[kiel.Partition]ownedClaim // the claims whose end giveUpWithClaim waits for
}

// list returns the openings; the slice is the caller's.
func (o *openings) list() []*opening {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.all))
}

// addOpening adds an opening to the member's openings, until ended is called.
func (m *membership) addOpening(o *opening) (ended func()) {
	set := &m.openings
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.all == nil {
		set.all = map[kiel.Partition]*opening{}
	}
	set.all[o.tp] = o
	m.shut.claimed(o)
	return func() {
		set.mu.Lock()
		delete(set.all, o.tp)
		set.mu.Unlock()
		if !o.again {
			m.gaveUp(o)
			return
		}
		m.giveUpWithClaim(o)
	}
}

// giveUpWithClaim calls gaveUp when the claim of an opening ends, which ownership may do before it calls own again.
func (m *membership) giveUpWithClaim(o *opening) {
	set := &m.openings
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.again == nil {
		set.again = map[kiel.Partition]ownedClaim{}
	}
	if set.again[o.tp] == o.claim {
		return // as after the call of own before
	}
	set.again[o.tp] = o.claim
	context.AfterFunc(o.claim.Context(), func() {
		set.mu.Lock()
		ours := set.again[o.tp] == o.claim
		if ours {
			delete(set.again, o.tp)
		}
		set.mu.Unlock()
		if ours {
			m.gaveUp(o)
		}
	})
}

// gaveUp ends the errors of a partition in the log: the partition is not this member's any more.
func (m *membership) gaveUp(o *opening) {
	p := o.tp
	m.stumbled.forget(p)
	m.shut.gaveUp(p, o.claim)
	m.openLog.Forget(p)
	if m.group.log.Failing() {
		m.group.log.Gone(p.String())
	}
}

// logOpened logs that the partition is open, and where it starts. Reason and previous owner are those of the line "claimed".
func (o *opening) logOpened(start int64) {
	args := []any{"offset", start, "origin", string(o.origin), "reason", o.claim.Reason()}
	if previous := o.claim.Previous(); previous != "" {
		args = append(args, "previous", previous)
	}
	o.member.openLog.Opened(o.tp, o.claim, o.member.unopened, args...)
}

// unopened returns how many partitions of the newest plan are not open yet.
func (m *membership) unopened() int {
	planned := 0
	if s := m.snapshot(); s != nil {
		planned = len(slices.DeleteFunc(s.Mine(), func(p kiel.Partition) bool { return m.accept(p) != nil }))
	}
	open := 0
	for _, o := range m.openings.list() {
		if o.at() == atHandler {
			open++
		}
	}
	return planned - open + 1 // the caller's partition is open already, and counts
}

// recoveryInterval is how often watchStumbled looks for handlers that have recovered.
const recoveryInterval = 5 * time.Second

// watchStumbled reports to the log which handlers have recovered, until ctx ends.
func (m *membership) watchStumbled(ctx context.Context) {
	for pause.Sleep(ctx, recoveryInterval) == nil {
		for _, p := range m.stumbled.passed(m.group.open) {
			m.report.Works(p, reporting.KindHandler, usercall.Trouble(callHandler))
		}
	}
}

// stumbled has the partitions whose handlers have returned by themselves. A handler that gets further than before has recovered.
type stumbled struct {
	mu    sync.Mutex
	where map[kiel.Partition]reached // how far the handler had come when it returned
}

// reached is how far a handler has come. Messages that wait in a channel count as handed out, so marks, if there are any, say
// more.
type reached struct{ handed, marked int64 }

func (r reached) beyond(at reached) bool { return r.handed > at.handed || r.marked > at.marked }

func (p *Partition) reached() reached {
	return reached{handed: p.position(), marked: p.tracker.Progress().Marked}
}

// at stores how far a handler had come that has returned by itself.
func (s *stumbled) at(p *Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.where == nil {
		s.where = map[kiel.Partition]reached{}
	}
	s.where[p.id] = p.reached()
}

// again reports whether the handler has returned by itself before and has got no further since.
func (s *stumbled) again(p *Partition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, stumbled := s.where[p.id]
	return stumbled && !p.reached().beyond(at)
}

func (s *stumbled) forget(p kiel.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.where, p)
}

// passed removes and returns the partitions whose handlers have got further than where they stumbled. It calls opens, which
// returns the open partitions, only if a handler has stumbled.
func (s *stumbled) passed(opens func() map[kiel.Partition]*Partition) (ps []kiel.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.where) == 0 {
		return nil
	}
	open := opens()
	for p, at := range s.where {
		if o := open[p]; o == nil {
			continue
		} else if o.reached().beyond(at) {
			ps = append(ps, p)
			delete(s.where, p)
		}
	}
	return ps
}
