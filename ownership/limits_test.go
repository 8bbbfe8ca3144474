package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/promtest"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// unclaimed is how many partitions are not claimed, by reason.
type unclaimed struct{ budget, foreign, name, persistent, refused, stuck int }

// wantUnclaimed checks the metric that counts them.
func wantUnclaimed(t *testing.T, reg *prometheus.Registry, n unclaimed) {
	t.Helper()
	promtest.Families(t, reg, fmt.Sprintf("kiel_unclaimable_partitions "+
		"reason=budget:%d reason=foreign:%d reason=name:%d reason=persistent:%d reason=refused:%d reason=stuck:%d",
		n.budget, n.foreign, n.name, n.persistent, n.refused, n.stuck))
}

// A partition that does not fit the session's budget stays unclaimed, loudly, and is claimed when something else was released.
func TestBudget(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		w.assign(map[string]string{"a": items(10)})
		a := w.join("a", memberOptions{
			Options: ownership.Options{Registerer: reg},
			session: session.Options{EphemeralBudget: 6 * (len(owners) + len("/t:0") + 4)},
		})
		w.within(5*time.Second, "six claims", func() bool { return len(a.owner.Owned()) == 6 })
		time.Sleep(30 * time.Second)
		if n := a.told(session.ErrEphemeralBudget); n != 1 || a.told(ownership.ErrUnclaimed) != 1 {
			t.Errorf("told %d times: %v", n, a.errors())
		}
		wantUnclaimed(t, reg, unclaimed{budget: 4})
		owned := strings.Fields(a.owned())
		rest := owned[:2:2] // and what had no room
		for item := range strings.FieldsSeq(items(10)) {
			if !slices.Contains(owned, item) {
				rest = append(rest, item)
			}
		}
		slices.Sort(rest)
		w.assign(map[string]string{"a": strings.Join(rest, " ")})
		a.owns(5*time.Second, strings.Join(rest, " "))
	})
}

// In a new ZooKeeper session there is room again: what had none in the one before, and is this member's still, is claimed.
func TestBudgetOfANewSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.assign(map[string]string{"a": items(10)})
		reg := prometheus.NewPedanticRegistry()
		a := w.join("a", memberOptions{
			Options: ownership.Options{Registerer: reg},
			session: session.Options{EphemeralBudget: 6 * (len(owners) + len("/t:0") + 4)},
		})
		w.within(5*time.Second, "six claims", func() bool { return len(a.owner.Owned()) == 6 })
		owned := strings.Fields(a.owned())
		rest := slices.DeleteFunc(strings.Fields(items(10)), func(item string) bool { return slices.Contains(owned, item) })
		ses := a.sessionID()
		a.client.BlackHole(zktest.Both)
		w.within(time.Minute, "a's session is over", func() bool {
			return !slices.ContainsFunc(w.srv.Sessions(), func(s zktest.SessionInfo) bool { return s.ID == ses })
		})
		time.Sleep(timeout)
		w.assign(map[string]string{"a": strings.Join(rest, " ")}) // nothing is released that would make room
		a.client.Heal()
		a.owns(time.Minute, strings.Join(rest, " "))
		wantUnclaimed(t, reg, unclaimed{})
	})
}

// A partition that the user does not want, or whose name can't be a znode's, is not claimed and reported once.
func TestUnclaimed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		strange := errors.New("not my topic")
		w.owner = map[kiel.Partition]string{
			{Topic: "t", ID: 0}: "a", {Topic: "u", ID: 0}: "a", {Topic: "u", ID: 1}: "a",
			{Topic: "x/y", ID: 0}: "a", {Topic: "x\x00", ID: 0}: "a", {Topic: "größe", ID: 0}: "a", {Topic: "..", ID: 0}: "a",
		}
		a := w.join("a", memberOptions{Options: ownership.Options{
			Registerer: reg,
			Accept: func(p kiel.Partition) error {
				if p.Topic == "u" {
					return strange
				}
				return nil
			},
		}})
		a.owns(5*time.Second, "..:0 größe:0 t:0")
		a.brain.assign(w.owner) // the same again
		time.Sleep(time.Second)
		if n := a.told(ownership.ErrUnclaimed); n != 4 || a.told(strange) != 2 {
			t.Errorf("told %d times: %v", n, a.errors())
		}
		wantUnclaimed(t, reg, unclaimed{name: 2, refused: 2})
	})
}

// Claims that are refused are reported and tried again; releases that are refused make the member give up its session, so that
// nobody waits for ever.
func TestReleaseForbidden(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0", memberOptions{session: session.Options{
			ACL: session.WorldACL(session.PermRead | session.PermWrite | session.PermCreate),
		}})
		b := w.join("b", memberOptions{})
		ses := a.sessionID()
		w.assign(map[string]string{"b": "t:0"})
		took := b.owns(30*time.Second, "t:0")
		if took < 9*time.Second {
			t.Errorf("given up after %v", took)
		}
		if a.told(session.ErrNoAuth) < 3 {
			t.Errorf("errors %v", a.errors())
		}
		if a.sessionID() == ses {
			t.Error("the session was not given up")
		}
	})
}

func TestClaimForbidden(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join("a", memberOptions{session: session.Options{ACL: session.WorldACL(session.PermRead)}})
		b := w.join("b", memberOptions{})
		_ = a
		w.assign(map[string]string{"a": "t:0"})
		w.within(time.Minute, "told", func() bool { return a.told(session.ErrNoAuth) > 5 })
		before := requests(w)
		time.Sleep(10 * time.Second)
		if n := requests(w) - before; n > 60 {
			t.Errorf("%d requests in 10 s", n)
		}
		_ = b
	})
}

// A claim that another holds for longer than it may drain is counted.
func TestDivergence(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		a := w.join("a", memberOptions{})
		b := w.join("b", memberOptions{Options: ownership.Options{Registerer: reg, RebalanceTimeout: 5 * time.Second}})
		plan := map[kiel.Partition]string{part("t:0"): "a"}
		a.brain.assign(plan)
		a.owns(5*time.Second, "t:0")
		b.brain.assign(map[kiel.Partition]string{part("t:0"): "b"})
		time.Sleep(4 * time.Second)
		for _, want := range []int{0, 1, 1} {
			promtest.Families(t, reg, fmt.Sprint("kiel_claim_waits_overdue_total ", want))
			time.Sleep(4 * time.Second)
		}
		b.brain.assign(plan)
	})
}

func TestNewRefuses(t *testing.T) {
	work := func(context.Context, *ownership.Claim) error { return nil }
	if _, err := ownership.New(nil, work, ownership.Options{}); err == nil {
		t.Error("no error for a nil allocator")
	}
	ses, err := session.New([]string{"zk"}, session.Options{})
	noerr.Must(t, err)
	if _, err := ownership.NewFromSource(newBrain(ses, "g", "a"), nil, ownership.Options{}); err == nil {
		t.Error("no error for a nil handler")
	}
	_, err = ownership.NewFromSource(newBrain(ses, "g", "a"), work, ownership.Options{RebalanceTimeout: -1, StopTimeout: -1})
	if err == nil || !strings.Contains(err.Error(), "RebalanceTimeout") || !strings.Contains(err.Error(), "StopTimeout") {
		t.Errorf("error %v", err)
	}
}
