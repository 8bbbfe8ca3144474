package allocator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/zktest"
)

// Every member describes itself, the others, and who is to own what since when and why.
func TestStatusOfAMember(t *testing.T) {
	inWorld(t, func(w *world) {
		start := time.Now().UTC()
		a := w.start("a", allocator.Options{Zone: "z1", Weight: 3})
		a.ready()
		noerr.Must(w, a.AddPartitions(w.Context(), map[string][]int32{"t": ids(2), "u": {0}}))
		sleep(time.Minute)
		b := w.start("b", allocator.Options{AlsoFuncs: []allocfn.Func{allocfn.Range()}, Topics: []string{"t", "^v.*"}})
		b.ready()
		sleep(time.Minute)
		noerr.Must(w, a.SetZones(w.Context(), map[kiel.Partition]string{{Topic: "t", ID: 1}: "z2"}))
		sleep(time.Minute)
		g := a.Status()
		wantMembers := []status.Member{
			{Name: "a", Since: &start, Weight: 3, Zone: "z1", Functions: []string{"roundrobin/1"}, Planned: 2},
			{Name: "b", Functions: []string{"roundrobin/1", "range/1"}, Topics: []string{"^v.*", "t"}, Planned: 1},
		}
		wantMembers[0].Session = fmt.Sprintf("0x%x", a.session.Stats().SessionID) // that of another member is in ZooKeeper alone
		equal(w, g.Members, wantMembers)
		byB := &status.Reason{Code: status.MemberJoined, Names: []string{"b"}}
		first := &status.Reason{Code: status.TopicAdded, Names: []string{"t"}}
		equal(w, g.Partitions, []status.Partition{
			{Topic: "t", State: status.Claiming, Planned: "a", Reason: first, Times: &status.Times{Settle: 0.2}},
			{Topic: "t", Partition: 1, State: status.Elsewhere, Planned: "b", Previous: "a", Reason: byB, Zone: "z2"},
			{Topic: "u", State: status.Claiming, Planned: "a", Reason: &status.Reason{Code: status.TopicAdded, Names: []string{"u"}}, Times: &status.Times{Settle: 0.2}},
		})
		if g.Version != 1 || g.Group != group || g.Source != status.SourceMember || !g.At.Equal(time.Now()) || g.Self.Name != "a" || !g.Self.Ready {
			w.Errorf("%+v, self %+v", g, g.Self)
		}
		if s := g.Self.Session; s.ID != wantMembers[0].Session || s.State != "connected" || s.Incarnation != 1 || s.Timeout != 6 || s.TrustLeft < 1 || s.TrustLeft > 6 ||
			!slices.Equal(s.Servers, []string{zktest.VirtualAddress}) || s.Chroot != "/" {
			w.Errorf("%+v", s)
		}
		if m := g.Mapping; m.Reason.Code != status.ZonesChanged || m.Function != "roundrobin/1" || !m.At.Equal(start.Add(2*time.Minute)) {
			w.Errorf("%+v", m)
		}
		var why []string
		for _, c := range g.Changes {
			why = append(why, c.Reason.String())
		}
		if got := strings.Join(why, "; "); got != "zones-changed; member-joined b; topic-added t, u; started" {
			w.Error(got)
		}
		if c := g.Changes[1]; !slices.Equal(c.Joined, []string{"b"}) || c.JoinedCount != 1 || c.Members != 2 || c.Partitions != 3 || c.Moved != 1 || c.TakenAway != 1 {
			w.Errorf("%+v", c)
		}
		if len(g.Disagreements)+len(g.Troubles) > 0 {
			w.Error(g.Disagreements, g.Troubles)
		}
	})
}

// equal compares as JSON.
func equal(t recipetest.TB, got, want any) {
	t.Helper()
	g, err := json.Marshal(got)
	w, wantErr := json.Marshal(want)
	if err != nil || wantErr != nil || string(g) != string(w) {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

// A caller may change the description that Status returns: the next one is not changed. Its lists are never null.
func TestStatusBelongsToTheCaller(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.make("a", allocator.Options{})
		data, err := json.Marshal(n.Status())
		if err != nil || strings.Contains(string(data), "null") {
			w.Errorf("before Run: %s, %v", data, err)
		}
		a, _ := w.pair(ids(2), nil)
		sleep(time.Minute)
		before, err := json.Marshal(a.Status())
		if err != nil || strings.Contains(string(before), "null") {
			w.Errorf("%s, %v", before, err)
		}
		g := a.Status()
		for i := range g.Members {
			clear(g.Members[i].Functions)
		}
		for i := range g.Partitions {
			clear(g.Partitions[i].Reason.Names)
		}
		for i := range g.Changes {
			clear(g.Changes[i].Joined)
			clear(g.Changes[i].Reason.Names)
		}
		clear(g.Mapping.Reason.Names)
		if after, err := json.Marshal(a.Status()); err != nil || string(after) != string(before) {
			w.Errorf("was\n%s\nis\n%s, %v", before, after, err)
		}
	})
}

func TestStatusListsTheLastChanges(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("a", allocator.Options{Seed: map[string][]int32{"t": {0}}})
		a.ready()
		for range 20 {
			sleep(time.Minute)
			noerr.Must(w, a.Rebalance(w.Context()))
		}
		changes := a.Status().Changes
		if len(changes) != 16 || changes[0].Version != a.Snapshot().Version || !slices.IsSortedFunc(changes, func(x, y status.Change) int { return y.At.Compare(x.At) }) {
			w.Errorf("%d changes: %+v", len(changes), changes)
		}
	})
}

func TestWaitingAndAlive(t *testing.T) {
	inWorld(t, func(w *world) {
		alive := func(n *node) {
			w.Helper()
			ctx, cancel := context.WithTimeout(w.Context(), time.Second)
			defer cancel()
			noerr.Want(w, n.Alive(ctx))
		}
		n := w.make("x", allocator.Options{})
		alive(n)
		waits := func(n *node, want string) {
			w.Helper()
			if got := n.NotReady(); got != want {
				w.Errorf("got %q, want %q", got, want)
			}
			if self := n.Status().Self; self.Waiting != want || self.Ready != (want == "") {
				w.Errorf("%+v", self)
			}
		}
		waits(n, "the first mapping: Run was not called")

		client := w.net.Client("a")
		client.Refuse()
		a := w.start("a", allocator.Options{Seed: map[string][]int32{"t": {0}}})
		sleep(time.Second)
		alive(a)
		waits(a, "the first mapping: the ZooKeeper session is connecting")
		client.Heal()
		a.ready()
		waits(a, "")

		a.client.BlackHole(zktest.Both)
		sleep(timeout)
		alive(a)
		waits(a, "the ZooKeeper session: it is lost")
		if p := a.Status().Partitions; len(p) != 1 || p[0].State != status.Blocked || p[0].WaitsFor != "the ZooKeeper session: it is lost" {
			w.Errorf("%+v", p)
		}
		if troubles := a.Status().Troubles; len(troubles) != 1 || troubles[0].Kind != "session" || troubles[0].Until != nil {
			w.Errorf("%+v", troubles)
		}
		a.client.Heal()
		sleep(time.Minute)
		waits(a, "")
		if troubles := a.Status().Troubles; len(troubles) != 1 || troubles[0].Until == nil {
			w.Errorf("%+v", troubles)
		}

		b := w.start("b", allocator.Options{Func: allocfn.Range()})
		sleep(time.Second)
		if got := b.NotReady(); !strings.HasPrefix(got, "the first mapping: ") || !strings.Contains(got, "no common allocation function") {
			w.Errorf("got %q", got)
		}
		waits(a, "") // it has a mapping, and the newcomer has none
		if d := a.Status().Disagreements; len(d) != 1 || d[0].Kind != status.NoCommonFunction {
			w.Errorf("%+v", d)
		}
		b.end()
		sleep(time.Second)
		waits(a, "")
		noerr.Must(w, a.Leave(w.Context()))
		waits(a, "membership: the member has left")
		a.end()
		alive(a)
		waits(a, "nothing: the member has stopped")
	})
}

// A member can be asked while its allocation function hangs, and the answer is bounded by ctx.
func TestAliveWhileTheFunctionHangs(t *testing.T) {
	inWorld(t, func(w *world) {
		hang := make(chan struct{})
		fn := allocfn.Func{Name: "hang", Assign: func(in allocfn.Input) (allocfn.Assignment, error) {
			<-hang
			return make(allocfn.Assignment, len(in.Partitions)), nil
		}}
		a := w.start("a", allocator.Options{Func: fn, PythonFunc: "hang", Seed: map[string][]int32{"t": {0}}})
		sleep(time.Minute)
		noerr.Want(w, a.Alive(w.Context()))
		if got := a.NotReady(); !strings.Contains(got, "has not returned after 5s") {
			w.Errorf("got %q", got)
		}
		close(hang)
		a.ready()
	})
}

// Descriptions are made on any goroutine while everything changes; the race detector looks on.
func TestStatusWhileMembersComeAndGo(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("a", allocator.Options{Seed: map[string][]int32{"t": ids(50)}, Topics: []string{"^t.*"}})
		a.ready()
		ctx, cancel := context.WithCancel(w.Context())
		var asking sync.WaitGroup
		for range 3 {
			asking.Go(func() {
				for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
					g := a.Status()
					for i := range g.Partitions {
						if p := &g.Partitions[i]; p.Planned == "" || p.Reason == nil || statuswrite.Check(*p.Reason) != nil {
							w.Errorf("%+v", p)
							return
						}
					}
				}
			})
		}
		for i := range 20 {
			b := w.start("b", allocator.Options{Topics: []string{"t", fmt.Sprintf("^t%d.*", i)}})
			b.ready()
			sleep(300 * time.Millisecond)
			b.end()
			sleep(300 * time.Millisecond)
		}
		cancel()
		asking.Wait()
	})
}

// A session is taken for a member's when it is, and when that can't be excluded.
func TestMayBeMember(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.make("a", allocator.Options{})
		if !a.MayBeMember(1) {
			w.Error("excluded before anything was read")
		}
		b := w.start("b", allocator.Options{})
		b.ready()
		own := b.session.Stats().SessionID
		if !b.MayBeMember(own) || b.MayBeMember(own+1) || b.MayBeMember(0) {
			w.Error("b's session is the only one that is a member's")
		}
		noerr.Must(w, w.srv.Create(b.MembersPath()+"/manual", nil))
		sleep(10 * time.Second)
		if !b.MayBeMember(0) || b.MayBeMember(own+1) {
			w.Error("a persistent znode is of no session")
		}
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Path == b.MembersPath()+"/secret" {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		noerr.Must(w, w.srv.Create(b.MembersPath()+"/secret", nil))
		sleep(10 * time.Second)
		if !b.MayBeMember(own + 1) {
			w.Error("excluded, though nobody knows whose znode this is")
		}
	})
}
