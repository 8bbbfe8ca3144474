package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
)

// The model of a MultiNonBlockingLease is one lease for each of its slots: neither ObtainAny nor ObtainAll does anything to two
// of them at once.

// inSlot is something that is done to a slot.
type inSlot struct {
	slot int
	what any
}

// passed is an ObtainAny that went by a slot, because it was another's.
type passed struct {
	who int
	now int64 // at its begin
}

// begins and ends are those of an ObtainAll that has failed because of a later slot: meanwhile it may have had this one.
type begins struct {
	who   int
	now   int64 // at its end
	frees bool  // what it had before may be gone, too
}

type gives struct{ who int }

// shown is what Slots said about a slot.
type shown struct {
	holder        int   // nobody is -1
	end           int64 // of the record
	began, ended  int64 // by the clock of who asked
	taken, record bool
	skew          time.Duration
}

func (s inSlot) String() string { return fmt.Sprintf("slot %d: %s", s.slot, s.what) }
func (p passed) String() string { return fmt.Sprintf("client %d at %s goes by", p.who, clock(p.now)) }
func (b begins) String() string { return fmt.Sprintf("client %d may have it for a moment", b.who) }
func (g gives) String() string  { return fmt.Sprintf("client %d has not got it", g.who) }

func (s shown) String() string {
	if !s.record {
		return "it has no record"
	}
	return fmt.Sprintf("client %d is shown to have it until %s: %v", s.holder, clock(s.end), s.taken)
}

// stepSlot is the rest of step.
func (s leased) stepSlot(in any) (bool, leased) {
	switch in := in.(type) {
	case passed:
		for who := range s.tried {
			if who != in.who && s.may(who, in.now+1) {
				return true, s
			}
		}
		return false, s
	case begins:
		s.trying[in.who] = true
		return true, s.tries(in.who, in.now, in.frees)
	case gives:
		s.trying[in.who] = false
		return true, s
	case shown:
		switch {
		case !in.record:
			return s.hold == 0 || s.freed || s.end <= in.ended+int64(in.skew), s
		case in.taken && in.began >= in.end, !in.taken && in.ended < in.end:
			return false, s
		}
		// A Release that came to nothing until it had ended leaves the record.
		over := !in.taken && s.who == in.holder && in.end <= s.latest
		return over || s.may(in.holder, in.end), s
	}
	return false, s
}

func slotsModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
			parts := make([][]porcupine.Operation, slots)
			for _, op := range ops {
				slot := op.Input.(inSlot).slot
				parts[slot] = append(parts[slot], op)
			}
			return parts
		},
		Init:              func() any { return leased{} },
		Step:              func(state, in, _ any) (bool, any) { return both(state.(leased).step(in.(inSlot).what)) },
		DescribeOperation: describe,
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// slots is how many there are.
const slots = 3

// multi is one MultiNonBlockingLease.
type multi struct {
	*lessees

	clients []*lease.MultiNonBlockingLease
}

func newMultiLeases(r *run) *subject {
	m := &multi{lessees: newLessees(r)}
	s := &subject{hist: m.hist, model: slotsModel(), settle: m.settle}
	for i, one := range r.sessions {
		m.clients = append(m.clients, must(lease.NewMulti(one, r.path+"/slots", slots, m.options(i))))
		s.steps = append(s.steps, func(ctx context.Context, rng *rand.Rand) { m.step(ctx, rng, i) })
	}
	return s
}

// lessee is what a client does with the slots that it has.
type lessee struct {
	*multi

	client int
	has    [slots]*slot
}

// slot is one that a client has, or had until it ended by itself.
type slot struct {
	number int
	held   *lease.Held
	hold   *hold
}

// step tries to obtain some slots, keeps them for a while, and gives them up in some way.
func (m *multi) step(ctx context.Context, rng *rand.Rand, client int) {
	l := &lessee{multi: m, client: client}
	l.obtain(ctx, rng)
	for rng.IntN(3) > 0 {
		l.keep(rng)
		for _, one := range l.all() {
			m.hist.probe(one.hold)
		}
		switch rng.IntN(4) {
		case 0:
			l.obtain(ctx, rng)
		case 1:
			l.look(ctx)
		default:
			for _, one := range l.all() {
				m.renewSlot(ctx, rng, one)
			}
		}
	}
	for _, one := range l.all() {
		m.giveUp(ctx, rng, one)
	}
	m.pause(m.upTo(rng, 1500))
}

// all returns the slots that the client has.
func (l *lessee) all() []*slot {
	return slices.DeleteFunc(slices.Clone(l.has[:]), func(one *slot) bool { return one == nil })
}

// keep lets some time pass, or less if a hold ends.
func (l *lessee) keep(rng *rand.Rand) {
	all := l.all()
	switch {
	case len(all) == 0:
		l.pause(l.upTo(rng, 1500))
	case l.sabotaged:
		l.pause(l.duration) // it does not listen
	default:
		l.pauseIn(all[rng.IntN(len(all))].held.Context(), l.upTo(rng, 4000))
	}
}

// obtain tries to obtain any slot, or all.
func (l *lessee) obtain(ctx context.Context, rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, l.within(rng))
	defer cancel()
	if rng.IntN(2) == 0 {
		l.obtainAny(ctx)
	} else {
		l.obtainAll(ctx)
	}
}

func (l *lessee) obtainAny(ctx context.Context) {
	call, began := l.hist.tick(), l.now(l.client)
	held, err := l.clients[l.client].ObtainAny(ctx)
	l.extended(call)
	if err != nil {
		l.notAny(call, began, err)
		return
	}
	number := l.note(call, held)
	for before := range number {
		l.hist.done(l.client, call, inSlot{before, passed{who: l.client, now: began}})
	}
	if number > 0 {
		l.hist.count("obtained another")
	}
}

// notAny notes an ObtainAny that failed.
func (l *lessee) notAny(call, began int64, err error) {
	taken, all := takenBy(err)
	if !all {
		l.attempted(call)
		l.failed(l.client, err)
		return
	}
	if len(taken) != slots {
		l.hist.fault("client %d has none of %d slots, and is refused %d", l.client, slots, len(taken))
	}
	for _, one := range taken {
		l.refused(call, began, one)
	}
	l.hist.count("refused any")
}

func (l *lessee) obtainAll(ctx context.Context) {
	call, began := l.hist.tick(), l.now(l.client)
	all, err := l.clients[l.client].ObtainAll(ctx)
	l.extended(call)
	if err == nil {
		if len(all) != slots {
			l.hist.fault("client %d has all of %d slots: %d", l.client, slots, len(all))
		}
		for _, held := range all {
			l.note(call, held)
		}
		l.hist.count("obtained all")
		return
	}
	taken, clean := takenBy(err)
	if !clean || len(taken) != 1 {
		l.attempted(call)
		l.failed(l.client, err)
		return
	}
	// What it had got for this it has given back.
	now := l.now(l.client)
	last := l.refused(call, began, taken[0])
	for before := range last {
		l.hist.at(l.client, call, inSlot{before, begins{who: l.client, now: now, frees: !l.keeps(before)}})
		l.hist.done(l.client, l.hist.tick(), inSlot{before, gives{l.client}})
	}
	l.hist.count("refused all")
	if last > 0 {
		l.hist.count("given back")
	}
}

// takenBy returns the refusals that an error is made of, and whether it is of nothing else.
func takenBy(err error) (list []*lease.TakenError, all bool) {
	switch err := err.(type) { //nolint:errorlint // it looks at each error of the tree
	case *lease.TakenError:
		return []*lease.TakenError{err}, true
	case interface{ Unwrap() error }:
		return takenBy(err.Unwrap())
	case interface{ Unwrap() []error }:
		all = true
		for _, one := range err.Unwrap() {
			more, only := takenBy(one)
			list, all = append(list, more...), all && only
		}
	}
	return list, all
}

// refused notes that a slot was another's, and returns which.
func (l *lessee) refused(call, began int64, taken *lease.TakenError) int {
	number := slotOf(taken.Path)
	l.hist.done(l.client, call, inSlot{number, refused{
		who: l.client, holder: l.holder(taken.Record), now: began, end: taken.Record.End.UnixNano(),
	}})
	return number
}

// slotOf returns the number of a slot.
func slotOf(path string) int { return must(strconv.Atoi(path[strings.LastIndexByte(path, '/')+1:])) }

// extended notes that whatever the client has may have been renewed.
func (l *lessee) extended(call int64) {
	for _, one := range l.all() {
		l.hist.at(l.client, call, inSlot{one.number, extends{hold: one.hold.id, until: l.until(l.client)}})
	}
}

// attempted notes that any slot may have been obtained, and given back some time later.
func (l *lessee) attempted(call int64) {
	what := attempt{who: l.client, until: l.until(l.client), now: l.now(l.client)}
	for number := range slots {
		what.frees = !l.keeps(number)
		l.hist.at(l.client, call, inSlot{number, what})
	}
}

// keeps reports whether the client has had a slot all the time.
func (l *lessee) keeps(number int) bool { return l.has[number] != nil && l.has[number].held.Valid() }

// note notes a hold that was obtained, or was renewed because the client has it already, and returns the number of its slot.
func (l *lessee) note(call int64, held *lease.Held) int {
	number := slotOf(held.Path())
	if old := l.has[number]; old != nil && old.held == held {
		l.hist.done(l.client, call, inSlot{number, renewed{hold: old.hold.id, end: held.End().UnixNano()}})
		l.hist.count("renewed by obtaining")
		return number
	} else if old != nil {
		l.hist.quiet(old.hold)
	}
	now := l.now(l.client)
	h := l.hist.acquired(l.client, call,
		func(id int) any {
			return inSlot{number, obtain{hold: id, who: l.client, token: held.Token(), now: now, end: held.End().UnixNano()}}
		},
		func(id int) any {
			now := l.now(l.client)
			if !held.Valid() && !l.sabotaged {
				return nil
			}
			return inSlot{number, relies{hold: id, now: now, end: held.End().UnixNano(), skew: l.skew}}
		})
	l.has[number] = &slot{number: number, held: held, hold: h}
	return number
}

// look notes what Slots says.
func (l *lessee) look(ctx context.Context) {
	if l.follows { // it may be behind
		return
	}
	call, began := l.hist.tick(), l.now(l.client)
	list, err := l.clients[l.client].Slots(ctx)
	if err != nil {
		l.hist.fault("client %d: %v", l.client, err)
		return
	}
	ended := l.now(l.client)
	for number, s := range list {
		what := shown{holder: -1, began: began, ended: ended, skew: l.skew}
		if s.Record != (lease.Record{}) {
			what.record, what.taken, what.holder, what.end = true, s.Taken, l.holder(s.Record), s.Record.End.UnixNano()
		}
		l.hist.done(l.client, call, inSlot{number, what})
	}
	l.hist.count("looked")
}

func (m *multi) renewSlot(ctx context.Context, rng *rand.Rand, one *slot) {
	ctx, cancel := context.WithTimeout(ctx, m.upTo(rng, 3000))
	defer cancel()
	client, call := one.hold.client, m.hist.tick()
	err := one.held.Renew(ctx)
	m.hist.at(client, call, inSlot{one.number, extends{hold: one.hold.id, until: m.until(client)}})
	if errors.Is(err, session.ErrUncertain) {
		m.hist.at(client, call, inSlot{one.number, attempt{who: client, until: m.until(client), now: m.now(client)}})
		m.hist.count("uncertain")
	}
	if err == nil {
		m.hist.done(client, call, inSlot{one.number, renewed{hold: one.hold.id, end: one.held.End().UnixNano()}})
		m.hist.count("renewed")
	}
}

// giveUp releases a slot, or leaves it to run out.
func (m *multi) giveUp(ctx context.Context, rng *rand.Rand, one *slot) {
	m.ended(one.held, one.hold)
	if m.sabotaged {
		m.hist.quiet(one.hold)
	}
	switch rng.IntN(4) {
	case 0:
		one.held.Detach()
		m.hist.left(one.hold, nil)
	case 1:
		short, cancel := context.WithTimeout(ctx, m.upTo(rng, 1000))
		defer cancel()
		m.release(short, one)
	default:
		m.release(ctx, one)
	}
}

func (m *multi) release(ctx context.Context, one *slot) {
	what := inSlot{one.number, released{one.hold.id}}
	if one.held.Release(ctx) == nil {
		m.hist.finished(one.hold, what)
		return
	}
	m.hist.left(one.hold, what)
}

// settle lets all clients obtain all slots once more.
func (m *multi) settle(ctx context.Context) {
	for i := range m.clients {
		l := &lessee{multi: m, client: i}
		for try := 0; ; try++ {
			l.obtainAll(ctx)
			if all := l.all(); len(all) > 0 {
				l.look(ctx)
				for _, one := range all {
					m.release(ctx, one)
				}
				break
			}
			if try > 60 || ctx.Err() != nil {
				m.hist.fault("client %d can't obtain all slots when all is well", i)
				break
			}
			<-time.After(time.Second)
		}
	}
}
