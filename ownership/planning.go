package ownership

import (
	"context"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/ownership/internal/machine"
	"github.com/kielgo/kiel/session"
)

// followPlans gives the loop each plan, with what can't be claimed of it.
func (l *loop) followPlans(ctx context.Context) {
	for p := range l.o.source.follow(ctx) {
		refused := make(map[kiel.Partition]error)
		named := make([]kiel.Partition, 0, len(p.mine))
		for _, id := range p.mine {
			if err := l.checkName(id); err != nil {
				refused[id] = err
			} else {
				named = append(named, id)
			}
		}
		for id, err := range l.o.users.accept(ctx, named) {
			refused[id] = operr.New("", "", id.String(), operr.Because(ErrUnclaimed, err))
		}
		l.post(func() {
			l.plan, l.refusals = p, refused
			l.usePlan()
		})
	}
}

// plans are the plans of the allocator, as the loop knows them.
type plans struct {
	plan     *plan                    // the newest
	refusals map[kiel.Partition]error // of plan: what can't be claimed
	used     *plan                    // that was acted on last
	told     map[kiel.Partition]bool  // partitions that can't be claimed, as reported to OnError
	joinedIn int64                    // the session for which the Observer was called with Joined
}

// usable reports whether the newest plan was made under the incarnation that is trusted now. When an incarnation ends, its last
// plan is empty for that reason alone; it must not be acted on, and the loop may not yet have noticed the end.
func (l *loop) usable() bool {
	return l.plan != nil && l.inc != nil && l.plan.inc == l.inc && l.inc.Context().Err() == nil
}

// usePlan acts on the newest plan, if that can be acted on and was not.
func (l *loop) usePlan() {
	if !l.usable() || l.used == l.plan {
		return
	}
	l.used = l.plan
	session := l.inc.SessionID()
	if l.plan.joined && l.joinedIn != session {
		l.joinedIn = session
		l.say(Event{Kind: Joined, Session: session, Version: l.plan.version})
	}
	l.say(Event{Kind: Snapshot, Session: session, Version: l.plan.version, Reason: l.plan.reason})

	var gained, lost []*part
	mine, topics := make(map[kiel.Partition]bool, len(l.plan.mine)), make(map[string]bool)
	for _, id := range l.plan.mine {
		if l.refusals[id] == nil {
			mine[id], topics[id.Topic] = true, true
			if p := l.part(id); !p.Mine {
				gained = append(gained, p)
			}
		}
	}
	if l.plan.joined {
		l.o.metrics.owned.plan(topics)
	}
	for id, p := range l.parts {
		if p.Mine && !mine[id] {
			lost = append(lost, p)
		}
	}
	l.setLevel(gained)
	l.setLevel(lost)
	for id, p := range l.parts {
		in := machine.PlanOther
		if mine[id] {
			in = machine.PlanMine
		}
		l.take(p, in, nil)
	}
	l.reportRefused()
}

// reportRefused reports each partition that can't be claimed, once.
func (l *loop) reportRefused() {
	names, others := 0, 0
	for _, id := range l.plan.mine {
		err := l.refusals[id]
		if err == nil {
			continue
		}
		if l.checkName(id) != nil {
			names++
		} else {
			others++
		}
		if !l.told[id] {
			l.told[id] = true
			l.failedPart(troubleUnclaimed, id, err)
		}
	}
	for id := range l.told {
		if l.refusals[id] == nil {
			delete(l.told, id)
			l.recovered(troubleUnclaimed, id.String())
		}
	}
	l.o.metrics.unclaimed.WithLabelValues(reasonName).Set(float64(names))
	l.o.metrics.unclaimed.WithLabelValues(reasonRefused).Set(float64(others))
}

// checkName returns why a partition can't be claimed because of its name.
func (l *loop) checkName(id kiel.Partition) error {
	if err := l.o.paths.Check(id); err != nil {
		return operr.Because(ErrUnclaimed, err)
	}
	return nil
}

// records returns the data of the claims of partitions that the newest plan gives to this member, if it was made under the same
// incarnation.
func (o *Owner) records(inc *session.Incarnation, origins map[kiel.Partition]origin) claims.Data {
	return func(ids []kiel.Partition) (wanted []kiel.Partition, records []claims.Record) {
		p := o.source.current()
		if p == nil || p.inc != inc {
			return nil, nil
		}
		for _, id := range ids {
			if name, ok := p.owner(id); ok && name == o.source.Member() {
				from := origins[id]
				wanted = append(wanted, id)
				records = append(records, claims.Record{
					Owner: name, Version: p.version, ID: o.id, Previous: statuswrite.ShortName(from.previous), Reason: from.reason,
				})
			}
		}
		return wanted, records
	}
}
