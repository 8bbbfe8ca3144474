package ownership_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

// These are the promises of README.md for a group on a network that is well: how long partitions may be without an owner.
const (
	serverTick   = 2 * time.Second  // zktest's
	timeout      = 10 * time.Second // session's
	crashBound   = timeout + serverTick + time.Second
	changedBound = 300 * time.Millisecond // graceful leave, join
	apart        = 10 * time.Second       // changes this far apart are acted on at once
)

// After a join, a graceful leave and a crash all partitions are owned again, evenly and by living members, in the time promised;
// at whatever moment between the servers' ticks and the members' heartbeats it happens.
func TestLiveness(t *testing.T) {
	const n = 60
	seed := ids(n)
	crashes := map[string]func(*zktest.Client){
		"silent":           func(c *zktest.Client) { c.BlackHole(zktest.Both) },
		"connection reset": func(c *zktest.Client) { c.Refuse(); c.Cut() }, // as by kill -9
	}
	for crash, strike := range crashes {
		for phase := range 8 {
			t.Run(fmt.Sprintf("%s/%d", crash, phase), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					w.nw.Delay(time.Millisecond)
					rest := apart + time.Duration(phase)*serverTick*3/16
					a, b := w.joinFull("a", seed, ownership.Options{}), w.joinFull("b", seed, ownership.Options{})
					evenly(t, w, n, timeout, "start", a, b)
					time.Sleep(rest)

					c := w.joinFull("c", seed, ownership.Options{})
					join := evenly(t, w, n, changedBound, "join", a, b, c)
					time.Sleep(rest)

					began := time.Now()
					noerr.Want(t, b.owner.Stop(context.Background()))
					leave := time.Since(began)
					leave += evenly(t, w, n, changedBound-leave, "leave", a, c)
					time.Sleep(rest)

					strike(c.client)
					dead := evenly(t, w, n, crashBound, "crash", a)
					if dead < timeout*2/3 {
						t.Errorf("owned again after %v, before the session can have expired", dead)
					}
					t.Logf("join %v, leave %v, crash %v", join, leave, dead)
					c.client.Heal()
				})
			})
		}
	}
}

// evenly waits until the members own all n partitions, each its share.
func evenly(t *testing.T, w *world, n int, d time.Duration, what string, members ...*full) time.Duration {
	t.Helper()
	return w.within(d, what, func() bool {
		for _, m := range members {
			if len(m.owner.Owned()) != n/len(members) {
				return false
			}
		}
		return true
	})
}
