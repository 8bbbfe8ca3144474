package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
)

func TestHandOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", items(6), memberOptions{})
		b := w.join("b", memberOptions{})
		b.owns(time.Second, "")
		time.Sleep(time.Second)

		before := a.token("t:3")
		w.assign(map[string]string{"a": "t:0 t:1 t:2", "b": "t:3 t:4 t:5"})
		took := b.owns(time.Second, "t:3 t:4 t:5")
		a.owns(time.Second, "t:0 t:1 t:2")
		if took > 50*time.Millisecond {
			t.Errorf("hand-over took %v", took)
		}
		if after := b.token("t:3"); after <= before {
			t.Errorf("token %d after %d", after, before)
		}
		w.wantEvents("a", "t:3", "joined claimed revoking releasing")
		data, stat, _ := w.srv.Get(owners + "/t:3")
		epoch, epochStat, _ := w.srv.Get(epochs + "/t:3")
		if stat.Czxid != epochStat.Mzxid || stat.Czxid != b.token("t:3") || stat.EphemeralOwner != b.sessionID() {
			t.Errorf("owner %+v, epoch %+v, token %d", stat, epochStat, b.token("t:3"))
		}
		if !strings.HasPrefix(string(data), `{"owner":"b","version":`) || string(data) != string(epoch) {
			t.Errorf("data of owner %s, of epoch %s", data, epoch)
		}
	})
}

// A handler drains first, then it returns, then its claim goes.
func TestClaimIsHeldWhileTheHandlerDrains(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const drain = 7 * time.Second
		var returned shared[time.Time]
		w.owning("a", "t:0", memberOptions{handler: func(ctx context.Context, c *ownership.Claim) error {
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, ownership.ErrRevoked) || errors.Is(cause, ownership.ErrLost) {
				t.Errorf("cause %v", cause)
			}
			for range 70 {
				time.Sleep(drain / 70)
				if !c.Trusted() || c.Context().Err() != nil {
					t.Errorf("not trusted while it drains: %v", context.Cause(c.Context()))
				}
			}
			returned.set(time.Now())
			t.Cleanup(func() {
				if c.Trusted() || !errors.Is(context.Cause(c.Context()), ownership.ErrRevoked) {
					t.Errorf("trusted after its end, cause %v", context.Cause(c.Context()))
				}
			})
			return nil
		}})
		b := w.join("b", memberOptions{})
		time.Sleep(time.Second)
		w.assign(map[string]string{"b": "t:0"})
		took := b.owns(10*time.Second, "t:0")
		if took < drain || took > drain+100*time.Millisecond {
			t.Errorf("the claim changed hands after %v, the handler drained for %v", took, drain)
		}
		released, _ := w.journal.last("a", ownership.Releasing, part("t:0"))
		claimed, _ := w.journal.last("b", ownership.Claimed, part("t:0"))
		if released.at.Before(returned.get()) || claimed.at.Before(released.at) {
			t.Errorf("returned %v, released %v, claimed %v", returned.get(), released.at, claimed.at)
		}
	})
}

// Released is told before the release is sent: an observer that takes its time delays it.
func TestReleasedIsToldBeforeTheRelease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.owning("a", "t:0", memberOptions{Options: ownership.Options{Observer: func(e ownership.Event) {
			switch e.Kind {
			case ownership.Releasing:
				time.Sleep(time.Second)
				if w.holder("t:0") == 0 {
					t.Error("released before it was told")
				}
			case ownership.Claimed:
				if w.holder("t:0") != e.Session {
					t.Error("claimed was told of a claim that does not stand")
				}
			default:
			}
		}}})
		w.assign(map[string]string{})
		took := w.within(5*time.Second, "released", func() bool { return w.holder("t:0") == 0 })
		if took < time.Second {
			t.Errorf("released after %v", took)
		}
	})
}

// Only the znode in the way is waited for: members that wait for other claims are not woken.
func TestNoHerd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.owning("a", items(50), memberOptions{handler: func(ctx context.Context, c *ownership.Claim) error {
			<-ctx.Done()
			time.Sleep(time.Duration(c.Partition()) * 100 * time.Millisecond) // one after the other
			return nil
		}})
		b := w.join("b", memberOptions{})
		time.Sleep(time.Second)
		w.assign(map[string]string{"b": items(50)})
		time.Sleep(50 * time.Millisecond)
		before := requests(w)
		time.Sleep(time.Second) // 10 partitions change hands
		if n := requests(w) - before; n > 10*9+40 {
			t.Errorf("%d requests for 10 partitions", n)
		}
		w.within(10*time.Second, "b owns all", func() bool { return len(b.owner.Owned()) == 50 })
	})
}

func requests(w *world) int {
	n := 0
	for _, count := range w.srv.Stats().Requests {
		n += count
	}
	return n
}

func TestThousandPartitions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const n = 1000
		plan := map[kiel.Partition]string{}
		for i := range n {
			plan[kiel.Partition{Topic: "t", ID: int32(i)}] = "a"
		}
		w.owner = plan
		began := time.Now()
		a := w.join("a", memberOptions{})
		w.within(5*time.Second, "all claimed", func() bool { return len(a.owner.Owned()) == n })
		took := time.Since(began)
		multis := w.srv.Stats().Requests[opMulti]
		if multis > 30 { // 10 for the epochs, 10 for the claims, and proofs of life
			t.Errorf("%d multis for %d claims", multis, n)
		}
		if total := requests(w); total > 2*n+100 {
			t.Errorf("%d requests for %d claims", total, n)
		}
		t.Logf("%d claims in %v of virtual time, %d multis, %d requests", n, took, multis, requests(w))

		w.nw.Delay(time.Millisecond) // without any, requests are over before the next handler returns
		before := w.srv.Stats().Requests[opMulti]
		w.assign(map[string]string{})
		w.within(5*time.Second, "all released", func() bool { return len(w.srv.Children(owners)) == 0 })
		multis = w.srv.Stats().Requests[opMulti] - before
		if multis > 20 {
			t.Errorf("%d multis for %d releases", multis, n)
		}
		t.Logf("%d releases in %d multis", n, multis)
	})
}

// Partitions that are given up together are claimed one round trip after the next owner has heard that their claims are gone: it
// reads none of them again, does not list them, and no partition waits for another's answer.
func TestHandOverOfManyTakesFewRoundTrips(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const drain, way = 200 * time.Millisecond, 10 * time.Millisecond
		w.owning("a", items(40), memberOptions{drain: drain})
		b := w.join("b", memberOptions{})
		time.Sleep(time.Second)
		w.nw.Delay(way)
		began, lists := time.Now(), w.srv.Stats().Requests[opList]
		w.assign(map[string]string{"b": items(40)})
		b.owns(5*time.Second, items(40))
		if n := w.srv.Stats().Requests[opList] - lists; n != 2 {
			t.Errorf("%d lists, want those of claims and epochs when the plan has come", n)
		}
		var last time.Time
		for i := range 40 {
			claimed, _ := w.journal.last("b", ownership.Claimed, kiel.Partition{Topic: "t", ID: int32(i)})
			if claimed.at.After(last) {
				last = claimed.at
			}
		}
		if took := last.Sub(began); took > drain+8*way { // half of these if no release and no claim goes alone
			t.Errorf("claimed after %v: %v for the handlers, and %v", took, drain, took-drain)
		}
	})
}

// Operations, by ZooKeeper's numbers.
const (
	opGet   = 4
	opList  = 12
	opMulti = 14
)

// Some of a batch are held by another: the others are claimed at once.
func TestForeignInTheBatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join("a", memberOptions{drain: 10 * time.Second})
		b := w.join("b", memberOptions{})
		var odd, even []string
		for i := range 40 {
			if i%2 == 1 {
				odd = append(odd, fmt.Sprintf("t:%d", i))
			} else {
				even = append(even, fmt.Sprintf("t:%d", i))
			}
		}
		w.assign(map[string]string{"a": strings.Join(odd, " ")})
		a.owns(5*time.Second, strings.Join(odd, " "))
		time.Sleep(time.Second)
		before := w.srv.Stats().Requests[opMulti]
		w.assign(map[string]string{"b": items(40)})
		b.owns(time.Second, strings.Join(even, " "))
		if n := w.srv.Stats().Requests[opMulti] - before; n > 6 { // epochs, claims, proofs of life
			t.Errorf("%d multis for 20 claims beside 20 that are held", n)
		}
		b.owns(11*time.Second, items(40))
	})
}

// A partition that the newest plan gives to another or to nobody is not claimed, even when the loop has not seen that plan
// yet.
func TestNewestPlanIsAsked(t *testing.T) {
	for name, newest := range map[string]map[string]string{
		"to nobody":  {"a": "t:1"},
		"to another": {"a": "t:1", "b": "t:0"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				noerr.Must(t, w.srv.Create(owners+"/t:0", []byte("another")))
				w.assign(map[string]string{"a": "t:0"})
				a := w.join("a", memberOptions{Options: ownership.Options{Accept: func(p kiel.Partition) error {
					if p.ID == 1 {
						time.Sleep(2 * time.Second) // keeps the new plan from the loop
					}
					return nil
				}}})
				time.Sleep(time.Second)
				w.assign(newest)
				time.Sleep(time.Second)
				noerr.Must(t, w.srv.Delete(owners+"/t:0"))
				a.owns(5*time.Second, "t:1")
				if _, stat, _ := w.srv.Get(epochs + "/t:0"); stat.Version != 0 {
					t.Errorf("t:0 was claimed %d times", stat.Version)
				}
			})
		})
	}
}

// Two members of one session hold their claims apart.
func TestTwoMembersInOneSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0", memberOptions{drain: 3 * time.Second})
		b := w.join("b", memberOptions{share: a})
		time.Sleep(time.Second)
		w.assign(map[string]string{"b": "t:0"})
		if took := b.owns(5*time.Second, "t:0"); took < 3*time.Second {
			t.Errorf("taken after %v from a handler that drains", took)
		}
	})
}

// Plans that contradict each other cost time, never two owners.
func TestContradictingPlans(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join("a", memberOptions{}), w.join("b", memberOptions{})
		all := func(name string) map[kiel.Partition]string {
			plan := map[kiel.Partition]string{}
			for i := range 20 {
				plan[kiel.Partition{Topic: "t", ID: int32(i)}] = name
			}
			return plan
		}
		a.brain.assign(all("a"))
		b.brain.assign(all("b"))
		w.within(5*time.Second, "each partition has an owner", func() bool {
			return len(a.owner.Owned())+len(b.owner.Owned()) == 20
		})
		time.Sleep(2 * time.Minute)
		if n := len(a.owner.Owned()) + len(b.owner.Owned()); n != 20 {
			t.Errorf("%d owned", n)
		}
	})
}
