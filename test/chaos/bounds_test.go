package chaos_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/servers"
)

// bound is what is promised of a time that is measured a few times.
//
// A machine with many more processes than processors is late now and then, by no fault of who is measured. So it is the best of
// the tries, or the median, that must keep limit. But no try may take longer than most, however busy the machine: a longer one
// did not happen late, it happened in another way, after something else had been waited for in vain.
type bound struct{ limit, most time.Duration }

// These are the times of other causes that a member could have waited for, as the library documents them. No try may take as
// long. The only exception is the end of a session: other members must wait for it, and on a busy machine they learn of it late.
const (
	// sessionEnds is when whoever is dead, or has lost its session, has been replaced: T, a tick of the servers, and a second.
	sessionEnds = timeout + tick + time.Second
	// busy is how much later that may be.
	busy = 2 * time.Second
	// unasked is when members begin to look again at what nobody told them to have changed: 4/5 T, see [session].
	unasked = timeout * 4 / 5
	// uselessServer is how long one server can keep a client: the pause before it is tried is a second at most, it has a second
	// to accept the connection, and one to answer the handshake, see [session].
	uselessServer = 3 * time.Second
	// electionT is T where a leader is killed, and outlived is how long trust lasts then: whoever waits longer for a leader, and
	// for its answer, has lost it.
	electionT = 9 * time.Second
	outlived  = electionT * 2 / 3
)

// The promises.
var (
	// crashBound is how long partitions of a crashed member may have no owner.
	crashBound = bound{sessionEnds, sessionEnds + busy}
	// nameBound is how long a name is asked for that another member has: the znode of a dead session stands for T and a tick,
	// which may be a third of T at most, and a second is for the process.
	nameBound = bound{timeout*4/3 + time.Second, timeout*4/3 + time.Second + busy}

	// closedBound is until all is owned when somebody else has closed a member's session. At most it is as if the member had
	// crashed: nobody knew that the session had ended.
	closedBound = bound{700 * time.Millisecond, sessionEnds}
	// resumeBound is until all is owned when servers are back. Members that have been refused for long try again after a second
	// at most. At most it is as if their sessions had ended.
	resumeBound = bound{2 * time.Second, sessionEnds}

	// moveBound is until all is owned when a member joins or leaves in order.
	moveBound = bound{300 * time.Millisecond, unasked}
	// upgradeBound is the same when members of two versions share the group: most times nobody has had to find out by itself. At
	// most it is as if a member had crashed.
	upgradeBound = bound{unasked, sessionEnds + busy}
	// silenceBound is how long a partition may have no message while members are restarted, or while one flaps.
	silenceBound = bound{time.Second, unasked}
	// repairBound is how long it may take until what an operator has broken is whole again.
	repairBound = bound{time.Second, unasked}

	// uselessBound is for how long a useless server may keep writes from being answered.
	uselessBound = bound{1200 * time.Millisecond, uselessServer}
	// electedBound is for how long no write may be answered after there is a leader again. How long the election takes, and what
	// comes before it when the leader is asked to end, is ZooKeeper's affair.
	electedBound = bound{100 * time.Millisecond, uselessServer}
	// pauseBound is how long a session may pause between two tries to connect while the servers elect a leader. After a second in
	// vain it pauses for longer, by and by.
	pauseBound = bound{150 * time.Millisecond, uselessServer}
	// stoppedBound is for how long no write may be answered when a follower is asked to end, which takes its time: what it takes
	// a stock client.
	stoppedBound = bound{1350 * time.Millisecond, outlived}
)

// tries is how often something is measured at most if it takes longer than it should. Five tries have all fallen into one busy
// minute of a machine.
const tries = 10

// best reports measurements of one thing. The shortest is what the code can do, and must keep what is promised.
func best(t *testing.T, name string, b bound, ds []time.Duration) {
	t.Helper()
	b.keep(t, name, "best", slices.Min(ds), ds)
}

// median reports measurements of one thing, most of which must keep what is promised.
func median(t *testing.T, name string, b bound, ds []time.Duration) {
	t.Helper()
	b.keep(t, name, "median", slices.Sorted(slices.Values(ds))[len(ds)/2], ds)
}

// bestOf measures something until it keeps what is promised, a few times at most.
func bestOf(t *testing.T, name string, b bound, measure func() time.Duration) {
	t.Helper()
	var ds []time.Duration
	for len(ds) == 0 || len(ds) < tries && slices.Min(ds) > b.limit {
		ds = append(ds, measure())
	}
	best(t, name, b, ds)
}

// crashed says that all was owned again in time after some crashes.
func crashed(t *testing.T, name string, rs ...measured) {
	t.Helper()
	var took []time.Duration
	for _, r := range rs {
		took = append(took, r.owned)
	}
	best(t, name, crashBound, took)
}

// keep reports measurements, of which one stands for all.
func (b bound) keep(t *testing.T, name, which string, one time.Duration, ds []time.Duration) {
	t.Helper()
	t.Attr(name, list(ds))
	for _, wrong := range b.broken(which, one, ds) {
		t.Errorf("%s: %s%s", name, wrong, servers.Load()) // which says whether it is the machine's fault
	}
}

// broken says which promise measurements break.
func (b bound) broken(which string, one time.Duration, ds []time.Duration) (wrong []string) {
	if one > b.limit {
		wrong = append(wrong, fmt.Sprintf("%s %v, want %v at most", which, ms(one), b.limit))
	}
	if worst := slices.Max(ds); worst > b.most {
		wrong = append(wrong, fmt.Sprintf("worst %v, want %v at most", ms(worst), b.most))
	}
	return wrong
}

func TestBounds(t *testing.T) {
	t.Parallel()
	b := bound{limit: time.Second, most: 3 * time.Second}
	for _, c := range []struct {
		one  time.Duration
		ds   []time.Duration
		want []string
	}{
		{time.Second, []time.Duration{3 * time.Second, time.Second}, nil},
		{1001 * time.Millisecond, []time.Duration{1001 * time.Millisecond}, []string{"best 1.001s, want 1s at most"}},
		{time.Second, []time.Duration{time.Second, 3001 * time.Millisecond, 0}, []string{"worst 3.001s, want 3s at most"}},
		{2 * time.Second, []time.Duration{2 * time.Second, 4 * time.Second}, []string{
			"best 2s, want 1s at most", "worst 4s, want 3s at most",
		}},
	} {
		if got := b.broken("best", c.one, c.ds); !slices.Equal(got, c.want) {
			t.Errorf("%v of %v: %q, want %q", c.one, c.ds, got, c.want)
		}
	}
	for _, b := range []bound{
		crashBound, nameBound, closedBound, resumeBound, moveBound, upgradeBound, silenceBound, repairBound, uselessBound,
		electedBound, pauseBound, stoppedBound,
	} {
		if b.limit >= b.most || b.most > sessionEnds+busy && b != nameBound {
			t.Errorf("a bound of %v, and %v at most", b.limit, b.most)
		}
	}
}
