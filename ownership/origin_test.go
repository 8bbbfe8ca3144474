package ownership_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/zktest"
)

// wantOrigin checks the last event of a kind about a partition: its reason, and the member before or after.
func (w *world) wantOrigin(name string, kind ownership.EventKind, item, reason, other string) {
	w.t.Helper()
	e, ok := w.journal.last(name, kind, part(item))
	got := e.Previous
	if kind == ownership.Revoking {
		got = e.Next
	}
	if !ok || e.Reason.String() != reason || got != other {
		w.t.Errorf("%s was told %v of %s: reason %q, member %q; want %q, %q", name, kind, item, e.Reason, got, reason, other)
	}
}

// wantRecord checks the data of a partition's claim and epoch.
func (w *world) wantRecord(item, owner, previous, reason string) {
	w.t.Helper()
	for _, path := range []string{owners, epochs} {
		var got struct {
			Owner, Previous string
			Reason          status.Reason
		}
		data, _, _ := w.srv.Get(path + "/" + item)
		if err := json.Unmarshal(data, &got); err != nil || got.Owner != owner || got.Previous != previous || got.Reason.String() != reason {
			w.t.Errorf("%s/%s has %s; want owner %s, previous %q, reason %q", path, item, data, owner, previous, reason)
		}
	}
}

var (
	started = statuswrite.Reason(status.Started)
	joinedB = statuswrite.Reason(status.MemberJoined, "b")
	goneA   = statuswrite.Reason(status.MemberGone, "a")
)

// A partition that is handed over has the reason of the plan in all events and in its znodes, and the members before and after.
func TestOriginOfHandOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.assignFor(started, map[string]string{"a": items(8)})
		a, b := w.join("a", memberOptions{drain: time.Second}), w.join("b", memberOptions{})
		a.owns(5*time.Second, items(8))
		w.wantOrigin("a", ownership.Claimed, "t:0", "started", "")
		w.wantRecord("t:0", "a", "", "started")

		w.assignFor(joinedB, map[string]string{"a": "t:0", "b": "t:1 t:2 t:3 t:4 t:5 t:6 t:7"})
		b.owns(5*time.Second, "t:1 t:2 t:3 t:4 t:5 t:6 t:7")
		w.wantOrigin("a", ownership.Revoking, "t:1", "member-joined b", "b")
		w.wantOrigin("a", ownership.Releasing, "t:1", "member-joined b", "")
		w.wantOrigin("b", ownership.Snapshot, "t:1", "member-joined b", "")
		w.wantOrigin("b", ownership.Claimed, "t:1", "member-joined b", "a")
		w.wantRecord("t:1", "b", "a", "member-joined b")
		w.wantRecord("t:0", "a", "", "started")
		if info := b.owner.Owned()[0]; info.Reason.String() != "member-joined b" || info.Previous != "a" {
			t.Errorf("owned %+v", info)
		}

		w.assignFor(statuswrite.Reason(status.TopicRemoved, "t"), map[string]string{"a": "t:0"})
		b.owns(5*time.Second, "")
		w.wantOrigin("b", ownership.Revoking, "t:1", "topic-removed t", "")

		a.quit()
		<-a.done
		w.wantOrigin("a", ownership.Revoking, "t:0", "stopped", "")
		w.wantOrigin("a", ownership.Releasing, "t:0", "stopped", "")
		w.wantOrigin("a", ownership.Left, "t:0", "stopped", "")
	})
}

// The claims of a member that is gone still stand when it has left and finishes its work. When it shows nothing more is known.
func TestOriginAfterAMemberIsGone(t *testing.T) {
	for name, test := range map[string]struct {
		drain  time.Duration
		reason string
	}{
		"its claim was waited for": {time.Second, "member-left a"},
		"its claim had gone":       {0, "member-gone a"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(_ *testing.T, w *world) {
				a := w.owning("a", "t:0", memberOptions{drain: test.drain})
				b := w.join("b", memberOptions{})
				time.Sleep(time.Second)
				w.assign(map[string]string{"a": "t:0", "b": ""})
				b.owns(time.Second, "")
				plan := map[string]string{"b": "t:0"}
				if test.drain == 0 {
					a.brain.assign(nil)
					w.within(time.Second, "released", func() bool { return w.holder("t:0") == 0 })
				}
				w.assignFor(goneA, plan)
				b.owns(5*time.Second, "t:0")
				w.wantOrigin("b", ownership.Claimed, "t:0", test.reason, "a")
				w.wantRecord("t:0", "b", "a", test.reason)
			})
		})
	}
}

// A claim that stood in the way, though the plan knew nothing of it, names the owner before. The member of that name need not be
// one that the plan says is gone.
func TestPreviousIsTheHolderThatWasWaitedFor(t *testing.T) {
	inWorld(t, func(_ *testing.T, w *world) {
		a := w.owning("a", "t:0", memberOptions{drain: time.Second})
		w.owner = nil
		b := w.join("b", memberOptions{}) // knows of no plan before
		time.Sleep(time.Second)
		b.brain.assignFor(w.owner, started)
		w.assignFor(statuswrite.Reason(status.MemberGone, "c"), map[string]string{"b": "t:0"})
		_ = a
		b.owns(5*time.Second, "t:0")
		w.wantOrigin("b", ownership.Claimed, "t:0", "member-gone c", "a")
		w.wantRecord("t:0", "b", "a", "member-gone c")
	})
}

// A partition that is opened again after the end of trust says so: with this member before in the same session, where the claim
// stands as it was, and with nobody in the next one, where another may have owned it meanwhile.
func TestOriginAfterTheEndOfTrust(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.assignFor(started, map[string]string{"a": "t:0"})
		a := w.join("a", memberOptions{})
		a.owns(5*time.Second, "t:0")
		time.Sleep(time.Second)
		token := a.token("t:0")
		w.srv.SetHook(func(r *zktest.Request) zktest.Action { return zktest.Action{Ignore: proof(r)} })
		w.within(15*time.Second, "trust ends", func() bool { return a.owned() == "" })
		w.wantOrigin("a", ownership.Untrusted, "t:0", "session-lost", "")
		w.srv.SetHook(nil)
		a.owns(15*time.Second, "t:0")
		w.wantOrigin("a", ownership.Claimed, "t:0", "session-lost", "a")
		if again := a.token("t:0"); again == token {
			w.wantRecord("t:0", "a", "", "started")
		} else {
			t.Errorf("token %d after %d", again, token)
		}

		w.kill(a.sessionID())
		w.within(10*time.Second, "owned again", func() bool { return a.token("t:0") > token })
		w.wantOrigin("a", ownership.Claimed, "t:0", "session-lost", "")
		w.wantRecord("t:0", "a", "", "session-lost")

		time.Sleep(time.Second)
		w.journal.loosen(part("t:0"))
		token = a.token("t:0")
		noerr.Must(t, w.srv.Delete(owners+"/t:0"))
		w.within(10*time.Second, "owned again", func() bool { return a.token("t:0") > token })
		w.wantOrigin("a", ownership.Lost, "t:0", "claim-vanished", "")
		w.wantOrigin("a", ownership.Claimed, "t:0", "claim-vanished", "a")
		w.wantRecord("t:0", "a", "a", "claim-vanished")
	})
}

// A partition whose handler was stuck says so when this member takes it again.
func TestOriginAfterAStuckHandler(t *testing.T) {
	inWorld(t, func(_ *testing.T, w *world) {
		gate := make(chan struct{})
		w.assignFor(started, map[string]string{"a": "t:0"})
		a := w.join("a", memberOptions{
			Options: ownership.Options{RebalanceTimeout: 5 * time.Second},
			handler: func(ctx context.Context, _ *ownership.Claim) error {
				<-ctx.Done()
				<-gate
				return nil
			},
		})
		a.owns(5*time.Second, "t:0")
		w.assignFor(joinedB, map[string]string{"b": "t:0"})
		time.Sleep(time.Second)
		w.assignFor(statuswrite.Reason(status.MemberGone, "b"), map[string]string{"a": "t:0"})
		time.Sleep(10 * time.Second)
		w.wantOrigin("a", ownership.Lost, "t:0", "stuck", "")
		gate <- struct{}{}
		a.owns(5*time.Second, "t:0")
		w.wantOrigin("a", ownership.Claimed, "t:0", "stuck", "a")
		w.wantRecord("t:0", "a", "a", "stuck")

		// The plan gives it to b for a while after the claim was lost.
		w.assignFor(joinedB, map[string]string{"b": "t:0"})
		time.Sleep(10 * time.Second)
		w.assignFor(statuswrite.Reason(status.MemberGone, "b"), map[string]string{"a": "t:0"})
		time.Sleep(time.Second)
		close(gate)
		a.owns(5*time.Second, "t:0")
		w.wantOrigin("a", ownership.Claimed, "t:0", "stuck", "")
		w.wantRecord("t:0", "a", "", "stuck")
	})
}

// A member that was cut off for longer than its session does not name itself as the owner before: another has owned its
// partitions meanwhile, and has left again.
func TestPreviousAfterALongPause(t *testing.T) {
	inWorld(t, func(_ *testing.T, w *world) {
		a := w.joinFull("a", []int32{0, 1}, ownership.Options{})
		a.owns(10*time.Second, "t:0 t:1")
		a.client.BlackHole(zktest.Both)
		b := w.joinFull("b", nil, ownership.Options{})
		b.owns(30*time.Second, "t:0 t:1")
		b.quit()
		<-b.done
		a.client.Heal()
		a.owns(30*time.Second, "t:0 t:1")
		for _, item := range []string{"t:0", "t:1"} {
			w.wantOrigin("a", ownership.Claimed, item, "session-lost", "")
			w.wantRecord(item, "a", "", "session-lost")
		}
	})
}

// Members with real allocators name who joined and who is gone.
func TestOriginWithAllocator(t *testing.T) {
	inWorld(t, func(_ *testing.T, w *world) {
		a := w.joinFull("a", []int32{0, 1}, ownership.Options{})
		a.drain = 100 * time.Millisecond // b finds a's claim
		a.owns(10*time.Second, "t:0 t:1")
		time.Sleep(time.Second)
		b := w.joinFull("b", nil, ownership.Options{})
		w.within(10*time.Second, "one each", func() bool { return len(a.owner.Owned()) == 1 && len(b.owner.Owned()) == 1 })
		item := b.owned()
		w.wantOrigin("a", ownership.Revoking, item, "member-joined b", "b")
		w.wantOrigin("b", ownership.Claimed, item, "member-joined b", "a")
		w.wantRecord(item, "b", "a", "member-joined b")
		time.Sleep(time.Second)
		b.client.BlackHole(zktest.Both)
		a.owns(30*time.Second, "t:0 t:1")
		w.wantOrigin("a", ownership.Claimed, item, "member-gone b", "b")
		w.wantRecord(item, "a", "b", "member-gone b")
		b.client.Heal()
		w.within(30*time.Second, "one each", func() bool { return len(a.owner.Owned()) == 1 && len(b.owner.Owned()) == 1 })
		w.wantOrigin("b", ownership.Claimed, b.owned(), "session-lost", "a")
	})
}

// Claims that travel in one multi have each the reason and the owner before that are their own.
func TestOriginsOfABatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		long := strings.Repeat("n", statuswrite.MaxShortName)
		w.assign(map[string]string{"x": items(4)})
		m := w.join("m", memberOptions{})
		time.Sleep(time.Second)
		moves := map[string]allocator.Move{
			"t:0": {Version: 2, Reason: started},
			"t:1": {Version: 2, Reason: goneA, From: "a"},
			"t:2": {Version: 2, Reason: statuswrite.Reason(status.TopicGrew, "t")},
			"t:3": {Version: 2, Reason: joinedB, From: long + "more"},
		}
		var batches []int
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpMulti && strings.HasPrefix(r.Ops[len(r.Ops)-1].Path, owners) {
				batches = append(batches, len(r.Ops)/2)
			}
			return zktest.Action{}
		})
		m.brain.mu.Lock()
		m.brain.owner, m.brain.moves = map[kiel.Partition]string{}, map[kiel.Partition]allocator.Move{}
		for item, move := range moves {
			m.brain.owner[part(item)], m.brain.moves[part(item)] = "m", move
		}
		m.brain.mu.Unlock()
		m.brain.change()
		m.owns(5*time.Second, items(4))
		if !slices.Equal(batches, []int{4}) {
			t.Errorf("the claims travelled in batches of %v", batches)
		}
		for item, move := range moves {
			w.wantOrigin("m", ownership.Claimed, item, move.Reason.String(), move.From)
			w.wantRecord(item, "m", statuswrite.ShortName(move.From), move.Reason.String())
		}
	})
}

// A partition that comes back before its handler has returned says what the plan says of that, also when its claim was made after
// the end of trust and still stands.
func TestOriginOfWhatComesBack(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("after the end of trust %v", lost), func(t *testing.T) {
			inWorld(t, func(_ *testing.T, w *world) {
				w.assignFor(started, map[string]string{"a": "t:0"})
				a := w.join("a", memberOptions{drain: 2 * time.Second})
				a.owns(5*time.Second, "t:0")
				if lost {
					token := a.token("t:0")
					w.kill(a.sessionID())
					w.within(10*time.Second, "owned again", func() bool { return a.token("t:0") > token })
					w.wantOrigin("a", ownership.Claimed, "t:0", "session-lost", "")
				}
				time.Sleep(time.Second)
				w.assignFor(joinedB, map[string]string{"b": "t:0"})
				time.Sleep(time.Second)
				w.wantOrigin("a", ownership.Revoking, "t:0", "member-joined b", "b")
				w.assignFor(statuswrite.Reason(status.MemberGone, "b"), map[string]string{"a": "t:0"})
				time.Sleep(5 * time.Second)
				w.wantOrigin("a", ownership.Releasing, "t:0", "member-joined b", "")
				w.wantOrigin("a", ownership.Claimed, "t:0", "member-gone b", "b")
			})
		})
	}
}
