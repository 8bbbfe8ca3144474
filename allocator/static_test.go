package allocator_test

import (
	"testing"
	"testing/synctest"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/status"
)

// stopOrderly ends a static member as an orderly stop does.
func (n *node) stopOrderly() {
	n.w.Helper()
	n.Keep()
	delete(n.w.nodes, n.Member())
	n.cancel()
	if err := <-n.ran; err != nil || !n.Kept() {
		n.w.Fatalf("Run: %v, kept: %v", err, n.Kept())
	}
	n.session.LetExpire()
	n.cancelAfter()
	noerr.Must(n.w, <-n.after)
}

// A static member that is started again changes nothing for the others: they publish no snapshot, and are told nothing. With
// another record it does, and for the reason that the record gives.
func TestStaticRestartIsNoChange(t *testing.T) {
	inWorld(t, func(w *world) {
		opts := func(weight int) allocator.Options {
			return allocator.Options{Static: true, Weight: weight, Seed: map[string][]int32{"t": ids(6)}}
		}
		a, b := w.start("a", opts(0)), w.start("b", opts(0))
		a.ready()
		b.ready()
		sleep(settle)
		a.rebalanced()
		before := a.Snapshot()
		czxid := znode(t, w, "b")
		for range 3 {
			b.stopOrderly()
			sleep(timeout / 2)
			b = w.start("b", opts(0))
			b.ready()
			sleep(settle)
		}
		if znode(t, w, "b") == czxid {
			t.Fatal("the znode is the same")
		}
		if told := a.rebalanced(); len(told) > 0 || a.Snapshot().Version != before.Version {
			t.Errorf("%d snapshots, told %v", a.Snapshot().Version-before.Version, told)
		}
		if !a.MayBeMember(b.session.Current().SessionID()) {
			t.Error("the new session is said to be no member's")
		}
		b.stopOrderly()
		b = w.start("b", opts(2))
		b.ready()
		sleep(settle)
		if told := a.rebalanced(); len(told) != 1 || a.Snapshot().Reason.Code != status.MemberChanged && a.Snapshot().Reason.Code != status.WeightsChanged {
			t.Errorf("told %v, the reason is %v", told, a.Snapshot().Reason)
		}
	})
}

// znode returns the czxid of a member's znode.
func znode(t *testing.T, w *world, name string) int64 {
	t.Helper()
	synctest.Wait()
	_, stat, ok := w.srv.Get("/kiel/groups/" + group + "/members/" + name)
	if !ok {
		t.Fatalf("%s is no member", name)
	}
	return stat.Czxid
}
