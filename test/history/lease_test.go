package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
)

// The model of a lease is the record: whose it is and until when, by clocks that differ by as much as they may. Times are those
// of the client's clock that acts.

// obtain is an Obtain that returned a hold.
type obtain struct {
	hold, who int
	token     int64
	now       int64 // at its end
	end       int64 // of the record
}

// relies is a hold that says that it is valid.
type relies struct {
	hold     int
	now, end int64
	skew     time.Duration
}

// renewed is a Renew that returned nil.
type renewed struct {
	hold int
	end  int64
}

// released is a Release. It need not come to its end.
type released struct{ hold int }

// refused is an Obtain to which the lease was another's.
type refused struct {
	who, holder int
	now         int64 // at its begin
	end         int64 // of the record that was in the way
}

// attempt is an Obtain that failed in another way, or a Renew of unknown outcome: a record may have been written, which stays to
// its end, or until its client gives it back.
type attempt struct {
	who   int
	until int64 // no such record lasts longer
	now   int64 // at its end
	frees bool  // what it had before may be gone, too
}

// extends is the moment from which a renewal of a hold, whatever comes of it, may have been written.
type extends struct {
	hold  int
	until int64 // no such record lasts longer
}

func (o obtain) String() string {
	return fmt.Sprintf("client %d obtains → hold %d, token %d, until %s", o.who, o.hold, o.token, clock(o.end))
}

func (r relies) String() string {
	return fmt.Sprintf("hold %d is valid at %s, until %s", r.hold, clock(r.now), clock(r.end))
}

func (r renewed) String() string {
	return fmt.Sprintf("hold %d is renewed until %s", r.hold, clock(r.end))
}
func (r released) String() string { return fmt.Sprintf("hold %d is released", r.hold) }
func (r refused) String() string {
	return fmt.Sprintf("client %d is refused at %s: client %d has it until %s", r.who, clock(r.now), r.holder, clock(r.end))
}

func (a attempt) String() string {
	return fmt.Sprintf("client %d may have written a record until %s", a.who, clock(a.until))
}

func (e extends) String() string {
	return fmt.Sprintf("hold %d may be extended until %s", e.hold, clock(e.until))
}

func clock(t int64) string { return time.Unix(0, t).UTC().Format("15:04:05.000") }

// leased is a state of a lease.
type leased struct {
	hold   int // 0 when it was released
	who    int
	end    int64 // no record that was written for the hold ends before
	latest int64 // nor later
	freed  bool  // its record may be gone
	token  int64
	trying [room]bool  // by client: a record may stand that it is about to give back
	tried  [room]int64 // by client: until then a record may stand of an attempt
}

func (s leased) step(in any) (bool, leased) {
	switch in := in.(type) {
	case obtain:
		ok := in.token > s.token && (s.hold == 0 || s.freed || s.who == in.who || s.end <= in.now)
		s.hold, s.who, s.end, s.latest, s.freed, s.token = in.hold, in.who, in.end, in.end, false, in.token
		return ok, s
	case relies:
		ok := s.hold == in.hold && in.now+int64(in.skew) < in.end
		s.end = max(s.end, in.end)
		return ok, s
	case extends:
		if s.hold == in.hold {
			s.latest = max(s.latest, in.until)
		}
		return true, s
	case renewed:
		ok := s.hold == in.hold
		s.end = max(s.end, in.end)
		return ok, s
	case released:
		if s.hold == in.hold {
			s.hold = 0
		}
		return true, s
	case refused:
		return s.may(in.holder, in.end) && in.holder != in.who && in.now < in.end, s
	case attempt:
		s.tried[in.who] = max(s.tried[in.who], in.until)
		return true, s.tries(in.who, in.now, in.frees)
	}
	return s.stepSlot(in)
}

// tries notes that a client may have taken what had ended by its clock, or was its own, and given it back.
func (s leased) tries(who int, now int64, frees bool) leased {
	s.freed = s.freed || s.end <= now || frees && s.who == who
	return s
}

// may reports whether a record of a client, with that end, may stand.
func (s leased) may(who int, end int64) bool {
	return s.hold != 0 && s.who == who && end <= s.latest || s.trying[who] || end <= s.tried[who]
}

func leaseModel() porcupine.Model {
	return porcupine.Model{
		Init:              func() any { return leased{} },
		Step:              func(state, in, _ any) (bool, any) { return both(state.(leased).step(in)) },
		DescribeOperation: describe,
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// lessees are clients of one lease, or of several.
type lessees struct {
	*run

	hist     *history
	skew     time.Duration
	duration time.Duration
	clocks   []func() time.Time
}

// newLessees gives the clients of every other run clocks that differ by as much as is tolerated.
func newLessees(r *run) *lessees {
	l := &lessees{run: r, hist: newHistory(), skew: 2 * time.Second, duration: 6 * time.Second}
	if r.follows {
		l.skew, l.duration = time.Second, 3*time.Second
	}
	for i := range r.sessions {
		now := time.Now
		if l.apart() {
			off := l.skew / 2 * time.Duration(i%3-1)
			now = func() time.Time { return time.Now().Add(off) }
		}
		l.clocks = append(l.clocks, now)
	}
	return l
}

// apart reports whether clocks differ.
func (l *lessees) apart() bool { return l.seed%2 == 0 && !l.follows }

// options returns a client's.
func (l *lessees) options(client int) lease.Options {
	opts := lease.Options{Identifier: fmt.Sprint(client), Duration: l.duration, Skew: l.skew}
	if l.apart() {
		opts.Now = l.clocks[client]
	}
	return opts
}

func (l *lessees) now(client int) int64 { return l.clocks[client]().UnixNano() }

// until returns until when a record lasts at most that a client has written up to now.
func (l *lessees) until(client int) int64 { return l.now(client) + int64(l.duration) }

// within is for how long a client tries to obtain: shorter than a record lasts, so that an Obtain is not refused after a record
// that it has written itself.
func (l *lessees) within(rng *rand.Rand) time.Duration {
	return min(l.upTo(rng, 6000), l.duration-l.skew-time.Second)
}

// holder returns the client that a record names.
func (l *lessees) holder(r lease.Record) int {
	var who int
	if _, err := fmt.Sscan(r.Holder, &who); err != nil {
		l.hist.fault("a record of %+v", r)
	}
	return who
}

// failed notes an error that need not be.
func (l *lessees) failed(client int, err error) {
	l.hist.count("attempt")
	for _, expected := range []error{context.DeadlineExceeded, session.ErrUncertain, lease.ErrClockSkew, lease.ErrExpired} {
		if errors.Is(err, expected) {
			return
		}
	}
	l.hist.fault("client %d: %v", client, err)
}

// ended notes why a hold has ended, if it has.
func (l *lessees) ended(held *lease.Held, h *hold) {
	switch cause := context.Cause(held.Context()); {
	case errors.Is(cause, lease.ErrLost):
		l.hist.fault("nobody takes it, but hold %d ended: %v", h.id, cause)
	case errors.Is(cause, lease.ErrExpired):
		l.hist.count("ended by itself")
	case cause != nil:
		l.hist.fault("nobody released it, but hold %d ended: %v", h.id, cause)
	}
}

// leases is one NonBlockingLease.
type leases struct {
	*lessees

	clients []*lease.NonBlockingLease
}

func newLeases(r *run) *subject {
	l := &leases{lessees: newLessees(r)}
	s := &subject{hist: l.hist, model: leaseModel(), settle: l.settle}
	for i, one := range r.sessions {
		l.clients = append(l.clients, must(lease.New(one, r.path+"/lease", l.options(i))))
		s.steps = append(s.steps, func(ctx context.Context, rng *rand.Rand) { l.step(ctx, rng, i) })
	}
	return s
}

// step tries to obtain the lease, keeps it for a while, and gives it up in some way.
func (l *leases) step(ctx context.Context, rng *rand.Rand, client int) {
	within, cancel := context.WithTimeout(ctx, l.within(rng))
	defer cancel()
	held, h := l.obtain(within, client)
	if h == nil {
		l.pause(l.upTo(rng, 1500))
		return
	}
	for rng.IntN(3) > 0 {
		if l.sabotaged {
			l.pause(l.duration) // it does not listen
		} else {
			l.pauseIn(held.Context(), l.upTo(rng, 4000))
		}
		l.hist.probe(h)
		l.renew(ctx, rng, held, h)
	}
	l.ended(held, h)
	if l.sabotaged {
		l.hist.quiet(h)
	}
	switch rng.IntN(4) {
	case 0:
		held.Detach()
		l.hist.left(h, nil)
		return
	case 1:
		short, cancel := context.WithTimeout(ctx, l.upTo(rng, 1000))
		defer cancel()
		l.release(short, held, h)
	default:
		l.release(ctx, held, h)
	}
}

// obtain returns a hold that was noted, or nil.
func (l *leases) obtain(ctx context.Context, client int) (*lease.Held, *hold) {
	call, began := l.hist.tick(), l.now(client)
	held, err := l.clients[client].Obtain(ctx)
	if taken, ok := errors.AsType[*lease.TakenError](err); ok {
		l.hist.done(client, call, refused{
			who: client, holder: l.holder(taken.Record), now: began, end: taken.Record.End.UnixNano(),
		})
		l.hist.count("refused")
		return nil, nil
	}
	if err != nil {
		l.hist.at(client, call, attempt{who: client, until: l.until(client), now: l.now(client)})
		l.failed(client, err)
		return nil, nil
	}
	now := l.now(client)
	return held, l.hist.acquired(client, call,
		func(id int) any {
			return obtain{hold: id, who: client, token: held.Token(), now: now, end: held.End().UnixNano()}
		},
		func(id int) any {
			now := l.now(client)
			if !held.Valid() && !l.sabotaged {
				return nil
			}
			return relies{hold: id, now: now, end: held.End().UnixNano(), skew: l.skew}
		})
}

func (l *lessees) renew(ctx context.Context, rng *rand.Rand, held *lease.Held, h *hold) {
	ctx, cancel := context.WithTimeout(ctx, l.upTo(rng, 3000))
	defer cancel()
	call := l.hist.tick()
	err := held.Renew(ctx)
	l.hist.at(h.client, call, extends{hold: h.id, until: l.until(h.client)})
	if errors.Is(err, session.ErrUncertain) {
		l.hist.at(h.client, call, attempt{who: h.client, until: l.until(h.client), now: l.now(h.client)})
		l.hist.count("uncertain")
	}
	if err == nil {
		l.hist.done(h.client, call, renewed{hold: h.id, end: held.End().UnixNano()})
		l.hist.count("renewed")
	}
}

func (l *lessees) release(ctx context.Context, held *lease.Held, h *hold) {
	if held.Release(ctx) == nil {
		l.hist.finished(h, released{h.id})
		return
	}
	l.hist.left(h, released{h.id})
}

// settle lets all obtain it once more.
func (l *leases) settle(ctx context.Context) {
	for i := range l.clients {
		for try := 0; ; try++ {
			held, h := l.obtain(ctx, i)
			if h != nil {
				l.release(ctx, held, h)
				break
			}
			if try > 60 || ctx.Err() != nil {
				l.hist.fault("client %d can't obtain it when all is well", i)
				break
			}
			<-time.After(time.Second)
		}
	}
}
