package ownership_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/zktest"
)

// inspect describes the group by a session of its own.
func (w *world) inspect(name string) (*status.Group, error) {
	w.t.Helper()
	return w.inspectGroup(name, "g")
}

func (w *world) inspectGroup(name, group string) (*status.Group, error) {
	w.t.Helper()
	client := w.nw.Client(name)
	client.Delay(time.Millisecond)
	s, err := session.New([]string{"zk:2181"}, session.Options{Dial: client.Dial})
	noerr.Must(w.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	defer func() { <-ran }()
	defer s.Close(context.Background())
	return ownership.Inspect(ctx, s, group)
}

// Inspect finds the claims of a group whose name a znode can't have.
func TestInspectAnEscapedName(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const path = "/kiel/groups/team%2Fapp"
		for _, znode := range []string{path, path + "/members", path + "/owners", path + "/epochs"} {
			noerr.Must(t, w.srv.Create(znode, nil))
		}
		for znode, data := range map[string]string{"/partitions": `["t:0"]`, "/epochs/t:0": `{"owner":"a"}`} {
			noerr.Must(t, w.srv.Create(path+znode, []byte(data)))
		}
		g, err := w.inspectGroup("operator", "team/app")
		if err != nil || g.Group != "team/app" || len(g.Partitions) != 1 || g.Partitions[0].Previous != "a" {
			t.Errorf("%+v, %v", g, err)
		}
	})
}

// Inspect tells who owns each partition, since when, after whom and why, and who claimed last what is free.
func TestInspect(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if _, err := w.inspect("before"); !errors.Is(err, allocator.ErrNoGroup) {
			t.Errorf("without a group: %v", err)
		}
		a := w.joinFull("a", []int32{0, 1, 2, 3}, ownership.Options{})
		a.drain = 100 * time.Millisecond
		a.owns(10*time.Second, items(4))
		time.Sleep(time.Second)
		b := w.joinFull("b", nil, ownership.Options{})
		w.within(10*time.Second, "two each", func() bool { return len(b.owner.Owned()) == 2 })
		since := time.Now()
		time.Sleep(10 * time.Second)
		g, err := w.inspect("operator")
		noerr.Must(t, err)
		for item := range strings.FieldsSeq(b.owned()) {
			p := partition(t, g, item)
			if p.State != status.Owned || p.Owner != "b" || p.Token != b.token(item) || p.Previous != "a" || p.Reason.String() != "member-joined b" ||
				p.Since.Sub(since).Abs() > 10*time.Millisecond || p.Planned != "b" {
				t.Errorf("%+v", p)
			}
		}
		if len(g.Members) != 2 || *g.Members[0].Owned != 2 || *g.Members[1].Owned != 2 || len(g.Disagreements) > 0 || len(g.Partitions) != 4 {
			t.Errorf("%+v", g)
		}

		a.quit()
		<-a.done
		b.quit()
		<-b.done
		if g, err = w.inspect("later"); err != nil {
			t.Fatal(err)
		}
		for _, p := range g.Partitions {
			if p.State != status.Free || p.Owner != "" || p.Since != nil || p.Token != 0 || p.Previous == "" || p.Reason.Code == "" {
				t.Errorf("free: %+v", p)
			}
		}
		if len(g.Members) > 0 || len(g.Disagreements) > 0 {
			t.Errorf("%+v", g)
		}
	})
}

// Odd claims are among the disagreements, whatever stands in the znodes.
func TestInspectOddClaims(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.joinFull("a", []int32{0, 1, 2, 3, 4, 5, 6}, ownership.Options{})
		a.owns(10*time.Second, items(7))
		data, _, _ := w.srv.Get(owners + "/t:0")
		a.quit()
		<-a.done
		other := w.join("other", memberOptions{})
		w.within(5*time.Second, "a session", func() bool { return other.ses.Current() != nil })
		inc := other.ses.Current()
		claim := func(item, data string) {
			noerr.Last(t)(inc.Create(t.Context(), owners+"/"+item, []byte(data), session.Ephemeral))
		}
		claim("t:0", string(data)) // a is no member
		claim("t:1", "nonsense")
		claim("t:2", `{"owner":"`+strings.Repeat("x", 20_000)+`"}`)
		claim("t:3", "")
		claim("u:9", string(data))
		claim("t", "")
		for _, item := range []string{"t:4", "v:1"} {
			noerr.Must(t, w.srv.Create(owners+"/"+item, data))
		}
		for item, epoch := range map[string]string{"t:5": "nonsense", "t:6": ""} {
			noerr.Must(t, w.srv.Set(epochs+"/"+item, []byte(epoch)))
		}
		g, err := w.inspect("operator")
		noerr.Must(t, err)
		want := map[status.DisagreementKind]string{
			status.OrphanClaim: "t:0", status.UnreadableClaim: "t:1 t:2 t:3", status.StrayClaim: "t u:9 v:1", status.PersistentClaim: "t:4",
		}
		for _, d := range g.Disagreements {
			if names := strings.Join(d.Names, " "); names != want[d.Kind] || d.Text == "" {
				t.Errorf("%s: %s", d.Kind, names)
			}
			delete(want, d.Kind)
		}
		if len(want) > 0 {
			t.Errorf("not told: %v", want)
		}
		for item, want := range map[string]string{
			"t:0": "owned a", "t:1": "owned ", "t:2": "owned ", "t:3": "owned ", "t:4": "blocked a", "t:5": "free ", "t:6": "free ",
		} {
			p := partition(t, g, item)
			if got := fmt.Sprintf("%s %s", p.State, p.Owner); got != want {
				t.Errorf("%s is %q, want %q", item, got, want)
			}
		}
		if p := partition(t, g, "t:5"); p.Previous != "" || p.Reason != nil {
			t.Errorf("t:5 %+v", p)
		}
		if _, err := json.Marshal(g); err != nil {
			t.Error(err)
		}
	})
}

// A member that joined again in another session while claims of the one before still stand is not their owner.
func TestInspectNamesake(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.joinFull("a", []int32{0, 1}, ownership.Options{})
		a.owns(10*time.Second, items(2))
		other := w.join("other", memberOptions{})
		w.within(5*time.Second, "a session", func() bool { return other.ses.Current() != nil })
		data, _, _ := w.srv.Get(owners + "/t:0")
		w.journal.loosen(part("t:0"))
		w.srv.SetHook(func(r *zktest.Request) zktest.Action { return zktest.Action{Ignore: claims(*r)} })
		noerr.Must(t, w.srv.Delete(owners+"/t:0"))
		noerr.Last(t)(other.ses.Current().Create(t.Context(), owners+"/t:0", data, session.Ephemeral))
		g, err := w.inspect("operator")
		w.srv.SetHook(nil)
		if err != nil || len(g.Disagreements) != 1 || g.Disagreements[0].Kind != status.OrphanClaim || !slices.Equal(g.Disagreements[0].Names, []string{"t:0"}) {
			t.Errorf("%+v, error %v", g, err)
		}
	})
}

// 1,000 partitions are read 16 at a time: with 2 ms for an answer that takes half a second, and one read each.
func TestInspectThousand(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		seed := ids(1000)
		a := w.joinFull("a", seed, ownership.Options{})
		w.within(30*time.Second, "owned", func() bool { return len(a.owner.Owned()) == 1000 })
		before := w.srv.Stats().Requests[opGet]
		began := time.Now()
		g, err := w.inspect("operator")
		took, reads := time.Since(began), w.srv.Stats().Requests[opGet]-before
		if err != nil || len(g.Partitions) != 1000 || *g.Members[0].Owned != 1000 {
			t.Fatalf("%d partitions, error %v", len(g.Partitions), err)
		}
		if took > time.Second || reads > 1010 {
			t.Errorf("took %v and %d reads", took, reads)
		}
		t.Attr("inspect_1000", took.String())
	})
}

// A server that does not answer ends Inspect with its context.
func TestInspectWithoutZooKeeper(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.joinFull("a", []int32{0}, ownership.Options{})
		a.owns(10*time.Second, "t:0")
		time.Sleep(time.Second)
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			return zktest.Action{Ignore: r.Op == zktest.OpGetChildren2 && r.Path == owners}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := ownership.Inspect(ctx, a.ses, "g"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), owners) {
			t.Errorf("error %v", err)
		}
		w.srv.SetHook(nil)
	})
}
