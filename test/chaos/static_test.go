package chaos_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
)

// restartRounds is how often all processes are restarted, without -full and with it.
const restartRounds, manyRestartRounds = 2, 20

// Scenario 24: five processes are restarted under load, one after the other, two times, and twenty with -full: nothing is lost,
// repeated or out of order. When they are static, no partition of another process moves, and none of theirs goes elsewhere.
func TestRestartsOfFive(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"static": {"--static"}, "plain": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The longest timeout that the servers grant: a process has that time to be back.
			f := newFleet(t, 24, options{flags: append([]string{"--work", "2ms"}, flags...), timeout: 20 * tick})
			m := f.startAll(5)
			rounds := restartRounds
			if *full {
				rounds = manyRestartRounds
			}
			moves, most := 0, 0
			var took []time.Duration
			for range rounds {
				round := 0
				for i := range m {
					others := f.claimsBut(m[i])
					owned := f.measure(fmt.Sprintf("%s restarts", m[i].Name), func() {
						m[i].Stop()
						m[i] = f.start(m[i].Name)
					})
					f.unnoticed("it may be back, under its name, before the others take the next view")
					took = append(took, owned.owned)
					round += f.claimsBut(m[i]) - others
				}
				moves, most = moves+round, max(most, round)
			}
			if len(flags) > 0 && moves > 0 {
				t.Errorf("%d partitions moved to other processes", moves)
			}
			report := f.finish()
			t.Attr("rounds", fmt.Sprintf("%d of %d restarts, %d moves to other processes, at most %d in a round; owned again after %v in the median",
				rounds, len(m), moves, most, slices.Sorted(slices.Values(took))[len(took)/2]))
			f.repeatedOnlyAfter(report)
		})
	}
}

// Scenario 24: a static process is killed, and started again at once. Its partitions come back when its old session has ended, and no
// partition of another process moves.
func TestStaticKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 24, options{flags: []string{"--static"}})
	m := f.startAll(3)
	others := f.claimsBut(m[1])
	r := f.measure("killed and started again", func() {
		m[1].Kill()
		m[1] = f.start(m[1].Name)
	})
	f.unnoticed("it is a member all the while")
	if n := f.claimsBut(m[1]) - others; n > 0 {
		t.Errorf("%d partitions moved to other processes", n)
	}
	crashed(t, "owned-after", r)
	f.repeatedOnlyAfter(f.finish(), "killed")
}

// claimsBut counts the claims of all processes whose names differ from that of one.
func (f *fleet) claimsBut(one *member) (n int) {
	f.read()
	for _, m := range f.all {
		if m.Name != one.Name {
			n += m.count[eventlog.Claimed]
		}
	}
	return n
}
