package ownership

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/ownership/internal/machine"
	"github.com/kielgo/kiel/session"
)

// newStill returns the loop of an owner that does nothing.
func newStill(t *testing.T) *loop {
	t.Helper()
	ses, err := session.New([]string{"zk:2181"}, session.Options{})
	noerr.Must(t, err)
	o, err := newOwner(scripted{still{ses: ses}}, func(context.Context, *Claim) error { return nil }, Options{})
	noerr.Must(t, err)
	return newLoop(t.Context(), o)
}

// An input to one partition costs the same among 20,000 as among 20: handlers that return one by one must not cost their square.
func TestCountingCostsTheSameAmongMany(t *testing.T) {
	least := func(n int32) time.Duration {
		l := newStill(t)
		for id := range n {
			p := l.part(kiel.Partition{Topic: "t", ID: id})
			p.Part = machine.Part{Claim: machine.Waiting, Mine: true}
			l.take(p, machine.Unpaused, nil)
		}
		l.show()
		if l.counts[toClaim] != int(n) {
			t.Fatalf("%d of %d are to be claimed", l.counts[toClaim], n)
		}
		best := time.Hour
		for range 50 {
			began := time.Now()
			l.freed = true
			l.take(l.part(kiel.Partition{Topic: "t"}), machine.Unpaused, nil)
			l.roomAgain()
			l.reportRoom()
			l.show()
			best = min(best, time.Since(began))
		}
		return best
	}
	if few, many := least(20), least(20000); many > 20*few {
		t.Errorf("%v among 20, %v among 20,000", few, many)
	}
}

// The answer of a session that is over is no reason to wait for anything in the next one.
func TestAnswerOfASessionThatIsOver(t *testing.T) {
	l := newStill(t)
	for _, outcome := range []claims.Outcome{claims.Forbidden, claims.NoRoom, claims.Taken, claims.Unsure, claims.Ours, claims.Gone, claims.Unsent} {
		p := l.part(kiel.Partition{Topic: "t"})
		p.Part = machine.Part{Claim: machine.Claiming, Mine: true, Stale: true}
		l.found(p, nil, claims.Finding{ID: p.id, Outcome: outcome, Err: errors.New("an answer")})
		if want := (machine.Part{Mine: true}); p.Part != want {
			t.Errorf("outcome %d: %+v, want %+v", outcome, p.Part, want)
		}
	}
}
