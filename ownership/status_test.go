package ownership_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/promtest"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// partition returns what a status has of a partition.
func partition(t tb, g *status.Group, item string) status.Partition {
	t.Helper()
	p := part(item)
	for _, s := range g.Partitions {
		if s.Topic == p.Topic && s.Partition == p.ID {
			return s
		}
	}
	t.Fatalf("no %s in %+v", item, g.Partitions)
	return status.Partition{}
}

// wantStates checks where partitions stand with a member, as "t:0 state, waits for; t:1 …".
func (m *member) wantStates(want map[string]string) {
	m.w.t.Helper()
	g := m.owner.Status()
	for item, want := range want {
		p := partition(m.w.t, g, item)
		got := strings.TrimSuffix(string(p.State)+", "+p.WaitsFor, ", ")
		if !strings.HasPrefix(got, want) || want == string(p.State) && got != want {
			m.w.t.Errorf("%s is %q, want %q", item, got, want)
		}
	}
	if _, err := json.Marshal(g); err != nil {
		m.w.t.Errorf("%v", err)
	}
}

// The status says of each partition of the member who owned it before, why it came, how far it is, and what it waits for.
func TestStatus(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		b := w.owning("b", "t:1", memberOptions{drain: time.Minute})
		noerr.Must(t, w.srv.Create(owners+"/t:2", nil))
		w.assign(map[string]string{"b": "t:1", "a": "t:4"})
		a := w.join("a", memberOptions{
			Options: ownership.Options{
				RebalanceTimeout: 5 * time.Minute,
				Accept: func(p kiel.Partition) error {
					if p.ID == 3 {
						return errors.New("no\nthanks")
					}
					return nil
				},
			},
			drain: time.Minute,
			handler: func(ctx context.Context, c *ownership.Claim) error {
				if c.Partition() == 4 {
					return errors.New("ouch")
				}
				<-ctx.Done()
				time.Sleep(time.Minute)
				return nil
			},
		})
		a.owns(5*time.Second, "t:4")
		time.Sleep(time.Second)
		w.assignFor(joinedB, map[string]string{"a": "t:0 t:1 t:2 t:3 t:4", "b": "u:0"})
		time.Sleep(10 * time.Second)
		a.wantStates(map[string]string{
			"t:0": "owned", "t:1": "waiting, the claim of b", "t:2": "blocked, a znode that no session owns", "t:3": "blocked, t:3: partition not claimed: no thanks",
			"t:4": "resting, a pause", "u:0": "elsewhere",
		})
		g := a.owner.Status()
		p := partition(t, g, "t:0")
		if p.Owner != "a" || p.Planned != "a" || p.Token != a.token("t:0") || p.Previous != "" || p.Reason.String() != "member-joined b" ||
			time.Since(*p.Since) != 10*time.Second || p.Times == nil {
			t.Errorf("t:0 is %+v", p)
		}
		if i := slices.IndexFunc(g.Members, func(m status.Member) bool { return m.Name == "a" }); *g.Members[i].Owned != 2 {
			t.Errorf("members %+v", g.Members)
		}
		kinds := map[string]string{"handler": "t:4", "persistent-claim": "", "unclaimed": "t:3"}
		for _, trouble := range g.Troubles {
			if want, ok := kinds[trouble.Kind]; !ok || trouble.Until != nil || !slices.Contains(trouble.About, want) && want != "" {
				t.Errorf("trouble %+v", trouble)
			}
			delete(kinds, trouble.Kind)
		}
		if len(kinds) > 0 {
			t.Errorf("no troubles %v in %+v", kinds, g.Troubles)
		}
		if !g.Self.Ready { // its first claim was settled long ago
			t.Errorf("self %+v", g.Self)
		}

		w.assignFor(statuswrite.Reason(status.MemberJoined, "c"), map[string]string{"c": "t:0", "b": "u:0"})
		time.Sleep(time.Second)
		a.wantStates(map[string]string{"t:0": "revoking, its handler"})
		if p := partition(t, a.owner.Status(), "t:0"); p.Planned != "c" || p.Owner != "a" || p.Reason.String() != "member-joined c" {
			t.Errorf("t:0 is %+v", p)
		}
		time.Sleep(2 * time.Minute)
		a.wantStates(map[string]string{"t:0": "elsewhere"})
		b.owns(0, "u:0")
	})
}

// Partitions that can't be claimed now say why.
func TestStatusOfWhatCanNotBeClaimed(t *testing.T) {
	inWorld(t, func(_ *testing.T, w *world) {
		w.assign(map[string]string{"a": items(2)})
		a := w.join("a", memberOptions{session: session.Options{EphemeralBudget: len(owners) + len("/t:0") + 4}})
		time.Sleep(2 * time.Second)
		item := map[string]string{"t:0": "t:1", "t:1": "t:0"}[a.owned()]
		a.wantStates(map[string]string{item: "blocked, room"})
	})
	inWorld(t, func(_ *testing.T, w *world) {
		w.assign(map[string]string{"b": "t:0"})
		b := w.join("b", memberOptions{session: session.Options{ACL: session.WorldACL(session.PermRead)}})
		w.within(time.Minute, "told", func() bool { return b.told(session.ErrNoAuth) > 3 })
		b.wantStates(map[string]string{"t:0": "claiming, a pause after an error: create /kiel/groups/g/owners: "})
	})
}

// A stuck handler is named, and a partition that can't be taken for it says so.
func TestStatusOfStuckHandlers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		gate := make(chan struct{})
		reg := prometheus.NewPedanticRegistry()
		a := w.owning("a", "t:0", memberOptions{
			Options: ownership.Options{Registerer: reg, RebalanceTimeout: 5 * time.Second},
			handler: func(ctx context.Context, _ *ownership.Claim) error { <-ctx.Done(); <-gate; return nil },
		})
		b := w.join("b", memberOptions{})
		stuck := func(handlers, unclaimed float64) {
			t.Helper()
			promtest.Has(t, reg, map[string]float64{"kiel_stuck_handlers{}": handlers, "kiel_unclaimable_partitions{reason=stuck}": unclaimed})
		}
		w.assign(map[string]string{"b": "t:0"})
		time.Sleep(5*time.Second - time.Millisecond)
		stuck(0, 0)
		time.Sleep(2 * time.Millisecond)
		stuck(1, 0)
		b.owns(time.Second, "t:0")
		time.Sleep(5 * time.Second)
		a.wantStates(map[string]string{"t:0": "elsewhere"})
		if g := a.owner.Status(); !slices.Equal(g.Self.StuckHandlers, []string{"t:0"}) {
			t.Errorf("self %+v", g.Self)
		}
		w.assign(map[string]string{"a": "t:0"})
		time.Sleep(time.Millisecond)
		stuck(1, 1)
		time.Sleep(time.Second)
		a.wantStates(map[string]string{"t:0": "blocked, its handler for an earlier claim"})
		stuck(1, 1)
		close(gate)
		time.Sleep(time.Millisecond)
		stuck(0, 0)
		a.owns(5*time.Second, "t:0")
		if g := a.owner.Status(); len(g.Self.StuckHandlers) > 0 || g.Troubles[0].Kind != "stuck" || g.Troubles[0].Until == nil {
			t.Errorf("self %+v, troubles %+v", g.Self, g.Troubles)
		}
	})
}

// Status returns whatever the loop does: what it has when the loop hangs, and without partitions before Run and after it.
func TestStatusDoesNotHang(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0 t:1", memberOptions{})
		time.Sleep(time.Second)
		gate := make(chan struct{})
		ownership.Occupy(a.owner, gate)
		began := time.Now()
		g := a.owner.Status()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		if p := partition(t, g, "t:1"); p.State != status.Owned || p.Owner != "a" || g.Self.Ready || !strings.Contains(g.Self.Waiting, "does not answer") {
			t.Errorf("self %+v, t:1 %+v", g.Self, p)
		}
		for range 1000 { // nor when its inbox is full
			if began := time.Now(); a.owner.Status() == nil || time.Since(began) > 2*time.Second {
				t.Fatal("slow")
			}
		}
		close(gate)
		synctest.Wait()
		if g := a.owner.Status(); !g.Self.Ready || g.Self.Waiting != "" {
			t.Errorf("self %+v", g.Self)
		}
		a.quit()
		<-a.done
		if g := a.owner.Status(); g.Self.Ready || g.Self.Waiting != "leaving" {
			t.Errorf("after Run: self %+v", g.Self)
		}
		idle, err := ownership.NewFromSource(newBrain(a.ses, "g", "c"), a.work, ownership.Options{})
		noerr.Must(t, err)
		if g := idle.Status(); g.Self.Ready || !strings.Contains(g.Self.Waiting, "Run") {
			t.Errorf("before Run: self %+v", g.Self)
		}
	})
}

// With a real allocator the status has the members and the mapping too.
func TestStatusWithAllocator(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.joinFull("a", []int32{0, 1, 2, 3}, ownership.Options{})
		a.drain = 100 * time.Millisecond
		b := w.joinFull("b", nil, ownership.Options{})
		w.within(10*time.Second, "two each", func() bool { return len(a.owner.Owned()) == 2 && len(b.owner.Owned()) == 2 })
		time.Sleep(time.Second)
		g := b.owner.Status()
		if len(g.Members) != 2 || g.Members[1].Name != "b" || g.Members[0].Owned != nil || *g.Members[1].Owned != 2 || g.Members[1].Planned != 2 || g.Members[0].Planned != 2 {
			t.Errorf("members %+v", g.Members)
		}
		if !g.Self.Ready || g.Self.Session.State != "connected" || g.Mapping == nil || len(g.Partitions) != 4 || len(g.Changes) == 0 {
			t.Errorf("status %+v, self %+v", g, g.Self)
		}
		states := map[status.State]int{}
		for _, p := range g.Partitions {
			states[p.State]++
			if p.State == status.Owned && (p.Owner != "b" || p.Times == nil || p.Times.Settle < 0 || p.Reason.Code == "") {
				t.Errorf("%+v", p)
			}
		}
		if want := map[status.State]int{status.Owned: 2, status.Elsewhere: 2}; fmt.Sprint(states) != fmt.Sprint(want) {
			t.Errorf("states %v", states)
		}
	})
}
