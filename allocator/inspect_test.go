package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/zktest"
)

func TestInspectAGroupThatThereIsNot(t *testing.T) {
	inWorld(t, func(w *world) {
		s := recipetest.Session(w, w.net, "inspector")
		before := w.srv.Dump()
		if _, err := allocator.Inspect(w.Context(), s, "a\xff"); !errors.Is(err, kiel.ErrInvalidName) {
			w.Error(err)
		}
		if _, err := allocator.Inspect(w.Context(), s, "none"); !errors.Is(err, allocator.ErrNoGroup) || err.Error() != `allocator: inspect group "none": no member has ever joined: no znode /kiel/groups/none` {
			w.Error(err)
		}
		if _, err := allocator.Inspect(w.Context(), nil, "none"); err == nil {
			w.Error("without a session")
		}
		if after := w.srv.Dump(); after != before {
			w.Errorf("created something:\n%s\nwas\n%s", after, before)
		}
		// A group that nobody is in any more is one.
		a, b := w.pair(ids(1), nil)
		a.end()
		b.end()
		g, err := allocator.Inspect(w.Context(), s, group)
		if err != nil || len(g.Members) != 0 || len(g.Partitions) != 1 || len(g.Disagreements) != 0 {
			w.Errorf("%+v, %v", g, err)
		}
	})
}

func hostname() string {
	name, _ := os.Hostname()
	return name
}

func TestInspect(t *testing.T) {
	inWorld(t, func(w *world) {
		start := time.Now().UTC()
		a := w.start("a", allocator.Options{Seed: map[string][]int32{"t": {0, 10, 9}}, Func: allocfn.Range(), Topics: []string{"t", "^v.*"}, Zone: "z"})
		a.ready()
		noerr.Must(w, a.SetZones(w.Context(), map[kiel.Partition]string{{Topic: "t", ID: 9}: "z"}))
		s := recipetest.Session(w, w.net, "inspector")
		inspect := func() *status.Group {
			w.Helper()
			g, err := allocator.Inspect(w.Context(), s, group)
			noerr.Must(w, err)
			return g
		}
		g := inspect()
		equal(w, g.Members, []status.Member{{
			Name: "a", Since: &start, Session: fmt.Sprintf("0x%x", a.session.Stats().SessionID), Zone: "z",
			Host: hostname(), PID: os.Getpid(),
			Functions: []string{"range/1"}, Topics: []string{"^v.*", "t"}, Planned: 3,
		}})
		equal(w, g.Partitions, []status.Partition{
			{Topic: "t", State: status.Free, Planned: "a"},
			{Topic: "t", Partition: 9, State: status.Free, Planned: "a", Zone: "z"},
			{Topic: "t", Partition: 10, State: status.Free, Planned: "a"},
		})
		if g.Source != status.SourceZooKeeper || g.Self != nil || g.Mapping != nil || len(g.Disagreements)+len(g.Changes)+len(g.Troubles) != 0 {
			w.Errorf("%+v", g)
		}

		// Things that nobody should have made.
		long := strings.Repeat("ü", 200)
		for name, data := range map[string]string{"py": "", "a b": "{", long: strings.Repeat("x", 100_000)} {
			noerr.Must(w, w.srv.Create(members+"/"+name, []byte(data)))
		}
		noerr.Must(w, w.srv.Set(partitions, []byte(`["t:1","t:01","x:y:1","w:0"]`)))
		noerr.Must(w, w.srv.Set("/kiel/groups/g/zones", []byte(`{"v":7}`)))
		g = inspect()
		wantDisagreements(w, g,
			"no-common-function a b, py, "+statuswrite.Name(long), "topics-ignored a b, py, "+statuswrite.Name(long),
			"unreadable-record a b, "+statuswrite.Name(long), "persistent-member a b, py, "+statuswrite.Name(long), "odd-item t:1, x:y:1", "unreadable-zones ")
		if n := len(g.Partitions); n != 2 || len(g.Members) != 4 {
			w.Errorf("%d partitions, %d members", n, len(g.Members))
		}
		if p := g.Members[2]; p.Name != "py" || p.Session != "0x0" || p.Functions != nil {
			w.Errorf("%+v", p)
		}
		sleep(time.Minute)
		equal(w, a.Status().Disagreements, g.Disagreements) // a member judges as a stranger does

		for _, name := range w.srv.Children(members) {
			if name != "a" {
				noerr.Must(w, w.srv.Delete(members+"/"+name))
			}
		}
		noerr.Must(w, w.srv.Set(partitions, []byte(`["t:1","w:0","v2:0"]`)))
		wantDisagreements(w, inspect(), "unwanted-topic w", "unreadable-zones ")
		noerr.Must(w, w.srv.Set(partitions, []byte(`no set`)))
		wantDisagreements(w, inspect(), "unreadable-set ", "unreadable-zones ")

		// The right to read may be missing.
		refuse := func(path string) {
			w.srv.SetHook(func(r *zktest.Request) zktest.Action {
				if r.Path == path && (r.Op == zktest.OpGetData || r.Op == zktest.OpGetChildren || r.Op == zktest.OpGetChildren2) {
					return zktest.Action{Err: zktest.ErrNoAuth}
				}
				return zktest.Action{}
			})
		}
		refuse("/kiel/groups/g/zones")
		wantDisagreements(w, inspect(), "unreadable-set ", "unreadable-zones ")
		refuse(partitions)
		wantDisagreements(w, inspect(), "unreadable-set ", "unreadable-zones ")
		refuse(members)
		if _, err := allocator.Inspect(w.Context(), s, group); !errors.Is(err, session.ErrNoAuth) {
			w.Error(err)
		}
	})
}

func wantDisagreements(t recipetest.TB, g *status.Group, want ...string) {
	t.Helper()
	var got []string
	for _, d := range g.Disagreements {
		got = append(got, string(d.Kind)+" "+strings.Join(d.Names, ", "))
		if d.Text == "" || len(d.Text) > 1000 || strings.Contains(d.Text, "\n") {
			t.Errorf("%s: %q", d.Kind, d.Text)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// An inspection goes on in the next session when it loses its own, and ends with its context.
func TestInspectThroughFaults(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pair(ids(2), nil)
		s := recipetest.Session(w, w.net, "inspector")
		var killed atomic.Bool
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if id := s.Stats().SessionID; r.Op == zktest.OpGetData && r.Path == members+"/b" && killed.CompareAndSwap(false, true) {
				go w.srv.KillSession(id)
				return zktest.Action{LoseReply: true}
			}
			return zktest.Action{}
		})
		g, err := allocator.Inspect(w.Context(), s, group)
		if err != nil || len(g.Members) != 2 || !killed.Load() {
			w.Errorf("%+v, %v", g, err)
		}
		w.net.Client("inspector").BlackHole(zktest.Both)
		ctx, cancel := context.WithTimeout(w.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := allocator.Inspect(ctx, s, group); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 2*time.Second {
			w.Error(err, time.Since(start))
		}
	})
}

// A large group is read by some requests at a time.
func TestInspectALargeGroup(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("a", allocator.Options{Seed: map[string][]int32{"t": ids(1000)}})
		a.ready()
		for i := range 1000 {
			noerr.Must(w, w.srv.Create(fmt.Sprintf("%s/m%03d", members, i), nil))
		}
		s := recipetest.Session(w, w.net, "inspector")
		w.net.Client("inspector").Delay(5 * time.Millisecond)
		noerr.Last(w)(s.Incarnation(w.Context()))
		start := time.Now()
		g, err := allocator.Inspect(w.Context(), s, group)
		if err != nil || len(g.Members) != 1001 || len(g.Partitions) != 1000 || time.Since(start) > time.Second {
			w.Errorf("%d members, %d partitions in %v, %v", len(g.Members), len(g.Partitions), time.Since(start), err)
		}
		if d := g.Disagreements[0]; d.Kind != status.PersistentMember || len(d.Names) != statuswrite.MaxListed || d.More != 980 {
			w.Errorf("%+v", d)
		}
	})
}

// A tree that was copied has persistent znodes of members and of their entries. Members know such a member by its entry and do
// not read its znode; Inspect reads it, and names it.
func TestCopiedMemberIsInspected(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("a", allocator.Options{Seed: map[string][]int32{"t": ids(2)}})
		a.ready()
		data, stat, ok := w.srv.Get(members + "/a")
		if !ok {
			w.Fatal("a is no member")
		}
		entries := strings.TrimSuffix(members, "members") + "records"
		for _, entry := range w.srv.Children(entries) {
			copied := strings.TrimSuffix(entry, ".a") + ".copied"
			noerr.Must(w, errors.Join(w.srv.Create(entries+"/"+copied, nil), w.srv.Create(members+"/copied", data)))
		}
		sleep(settle)
		s := a.Status()
		if m := s.Members; len(m) != 2 || m[1].Name != "copied" || len(s.Disagreements) != 0 {
			w.Errorf("%x: members %+v, disagreements %+v", stat.EphemeralOwner, m, s.Disagreements)
		}
		g, err := allocator.Inspect(w.Context(), a.session, group)
		if err != nil || len(g.Disagreements) != 1 || g.Disagreements[0].Kind != status.PersistentMember || !slices.Equal(g.Disagreements[0].Names, []string{"copied"}) {
			w.Errorf("Inspect: %v, %+v", err, g.Disagreements)
		}
	})
}
