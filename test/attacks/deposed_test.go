package attacks_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// isolation is a server that is cut off from the others and goes on answering, for a while.
type isolation struct {
	tick, timeout time.Duration
	until         time.Duration // it notices
}

func (i isolation) String() string {
	return fmt.Sprintf("tick %v, T %v, for %v", i.tick, i.timeout, i.until)
}

// run has a on the server that is cut off, and b on another. The moment of the cut falls between two proofs and two ticks in
// several ways.
func (i isolation) run(t *testing.T) *outcome {
	var o *outcome
	const steps = 4
	for step := range steps {
		o = o.worse(bubble(t, zktest.Options{TickTime: i.tick}, func(w *world) *outcome {
			const cut = "cut:2181"
			w.listen(cut)
			opts := options{session: session.Options{Timeout: i.timeout}}
			here := opts
			here.servers = []string{cut}
			a := w.member("a", here)
			a.owns(5*time.Second, "0")
			b := w.member("b", opts)
			time.Sleep(3*i.timeout + time.Duration(step)*(i.timeout/6+i.tick)/steps)
			w.srv.Isolate(cut)
			time.AfterFunc(i.until, func() { // from then on it answers nobody
				w.net.Client("a").Refuse()
				w.srv.Rejoin(cut)
			})
			b.owns(i.timeout+i.tick+time.Second, "0")
			time.Sleep(i.until + i.timeout)
			w.heal()
			a.owns(time.Minute, "0")
			return w.close()
		}))
	}
	return o
}

// Execution §1: a leader that was deposed and does not know answers Sync, until it notices after (syncLimit + 1) ticks that
// nobody acknowledges what it proposes. Also the negative control "Sync heartbeat (leader cut on one side)".
func TestDeposedLeaderAnswersSync(t *testing.T) {
	for _, c := range []struct {
		tick      time.Duration
		syncLimit int
		timeout   time.Duration
	}{{time.Second, 5, 6 * time.Second}, {2 * time.Second, 5, 6 * time.Second}, {2 * time.Second, 5, 10 * time.Second}, {2 * time.Second, 10, 10 * time.Second}} {
		t.Run(fmt.Sprintf("tick %v syncLimit %d T %v", c.tick, c.syncLimit, c.timeout), func(t *testing.T) {
			i := isolation{tick: c.tick, timeout: c.timeout, until: time.Duration(c.syncLimit+1) * c.tick}
			withstood(t, i.run(t))
		})
	}
}

// Negative control "Exists heartbeat (cut follower)": a follower that is cut off from its leader answers reads until it notices,
// after syncLimit ticks.
func TestCutFollowerAnswersReads(t *testing.T) {
	i := isolation{tick: time.Second, timeout: 4 * time.Second, until: 10 * time.Second}
	withstood(t, i.run(t))
}
