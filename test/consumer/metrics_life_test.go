package consumer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/zktest"
)

// The metrics of a group are there from New to Close. Its counters go on from one membership to the next; its gauges are zero
// between two, and while its session is not trusted.
func TestMetricsOfSeveralConsumes(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(5, 0, 1)
		a, reg := r.watchedMember("a", nil)
		before := scrapeOf(t, reg, "kiel_")
		before.is(t, "before the first", series{"members{}": 0, "claims_total{result=ok}": 0, "zk_session_expirations_total{}": 0, "stuck_handlers{}": 0})
		there := func(when string) series {
			t.Helper()
			now := scrapeOf(t, reg, "kiel_")
			for name := range before {
				if _, ok := now[name]; !ok && !strings.HasPrefix(name, "consumer_lag_") && !strings.HasPrefix(name, "consumer_uncommitted_") { // which partitions have that are open
					t.Errorf("%s: %s has gone", when, name)
				}
			}
			before = now
			return now
		}
		none := series{"members{}": 0, "planned_partitions{topic=t}": 0, "owned_partitions{topic=t}": 0, "unowned_partitions{}": 0}
		all := series{"members{}": 1, "planned_partitions{topic=t}": 2, "owned_partitions{topic=t}": 2, "unowned_partitions{}": 0}

		a.failSetup()
		time.Sleep(time.Second)
		there("after a call").is(t, "after a call", all) // the member waits for the next
		time.Sleep(2 * sessionTimeout)
		left := there("when the member has left")
		left.is(t, "when the member has left", none)
		left.is(t, "when the member has left", series{"rebalances_total{cause=initial}": 1, "claims_total{result=ok}": 2})

		a.start()
		until(t, "all is read", func() bool { return total(a) == 10 })
		again := there("in the next membership")
		again.is(t, "in the next membership", all)
		again.is(t, "in the next membership", series{
			"rebalances_total{cause=initial}": 2, "claims_total{result=ok}": 4, "consumer_messages_total{topic=t}": 10,
		})

		a.net.BlackHole(zktest.Both)
		time.Sleep(sessionTimeout)
		cut := there("without trust")
		cut.is(t, "without trust", series{
			"planned_partitions{topic=t}": 0, "owned_partitions{topic=t}": 0, "zk_trust_remaining_seconds{}": 0, "zk_session_state{state=lost}": 1,
		})
		a.net.Heal()
		until(t, "all is owned again", func() bool { return len(a.owns()) == 2 })
		there("trusted again").is(t, "trusted again", all)
		a.leave()
		there("when Consume has ended").is(t, "when Consume has ended", none)
		if err := a.group.Close(); err != nil {
			t.Error(err)
		}
		if n := len(scrapeOf(t, reg, "")); n != 0 {
			t.Errorf("%d series after Close", n)
		}
	})
}

// The metrics of a group have those of its own session, which does not register them again. Without a registerer for the group
// the session has one of its own.
func TestMetricsOfTheOwnSession(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		for name, test := range map[string]struct {
			group bool
			want  int // sessions that are shown
		}{
			"the group and the session": {true, 1},
			"the session":               {false, 1},
		} {
			reg := prometheus.NewPedanticRegistry()
			a := r.owning("a", func(o *consumer.Options) {
				o.Session.Registerer = reg
				if test.group {
					o.Registerer = reg
				}
			})
			time.Sleep(time.Second)
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			sessions := 0
			for _, f := range families {
				if f.GetName() == "kiel_zk_trust_remaining_seconds" {
					sessions = len(f.GetMetric())
				}
			}
			if sessions != test.want {
				t.Errorf("%s: %d sessions are shown", name, sessions)
			}
			a.close()
			if n := len(scrapeOf(t, reg, "")); n != 0 {
				t.Errorf("%s: %d series after Close", name, n)
			}
		}
	})
}
