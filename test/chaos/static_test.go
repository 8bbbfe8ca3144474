package chaos_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
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

// Scenario 24: a static process is killed, and started again at once. Its partitions come back when its old session has ended,
// and no partition of another process moves.
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

// Scenario 24: static processes share a group with processes of an earlier version. Restarted in order, and killed and started
// again, they move no partition of another process, whichever its version is, and all processes divide the partitions alike.
func TestStaticBesideEarlier(t *testing.T) {
	t.Parallel()
	old := buildEarlier(t)
	f := newFleet(t, 24, options{flags: []string{"--work", "2ms"}, timeout: 20 * tick})
	observing := openSession(t, sharedZooKeeper(t).Addrs(), session.Options{})
	static := []*member{f.start("m0", with("--static")), f.start("m2", with("--static"))}
	f.start("m1", built(old.demo))
	f.start("m3", built(old.demo))
	f.settle()
	for _, restart := range []struct {
		what string
		end  func(m *member)
	}{
		{"restarts", (*member).Stop},
		{"is killed and started again", (*member).Kill},
	} {
		for i, m := range static {
			others := f.claimsBut(m)
			f.measure(fmt.Sprintf("%s %s", m.Name, restart.what), func() {
				restart.end(m)
				static[i] = f.start(m.Name, with("--static"))
			})
			f.unnoticed("it is a member all the while")
			if n := f.claimsBut(m) - others; n > 0 {
				t.Errorf("%s %s: %d partitions moved to other processes", m.Name, restart.what, n)
			}
			f.alike(old, observing)
		}
	}
	f.repeatedOnlyAfter(f.finish(), "killed")
}

// alike says that both versions read the same of the group: its members, an owner for each partition, and no disagreement.
func (f *fleet) alike(old earlierBuild, observing *session.Session) {
	f.t.Helper()
	today, err := ownership.Inspect(f.t.Context(), observing, f.topic)
	if err != nil {
		f.t.Fatal(err)
	}
	owners := map[int32]string{}
	for _, m := range f.working() {
		for id := range m.held {
			owners[id] = m.Name
		}
	}
	for version, g := range map[string]*status.Group{todayVersion: today, oldVersion: old.inspect(f.t, f.opts.zookeeper, f.topic)} {
		got := map[int32]string{}
		for _, p := range g.Partitions {
			if p.State == status.Owned {
				got[p.Partition] = p.Owner
			}
		}
		if len(g.Members) != len(f.working()) || len(g.Disagreements) > 0 || !maps.Equal(got, owners) {
			f.t.Errorf("as %s reads it: %d members, owners %v, want %v, disagreements %+v", version, len(g.Members), got, owners, g.Disagreements)
		}
	}
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
