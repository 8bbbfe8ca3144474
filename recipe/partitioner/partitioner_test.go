package partitioner_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
)

func TestNewRefuses(t *testing.T) {
	s, err := session.New([]string{"zk:2181"}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		path  string
		items []string
		opts  partitioner.Options
		want  string
	}{
		"path":             {"app", nil, partitioner.Options{}, "app"},
		"identifier":       {path, nil, partitioner.Options{Identifier: "a/b"}, `"a/b"`},
		"identifier UTF-8": {path, nil, partitioner.Options{Identifier: "\xff"}, "UTF-8"},
		"boundary":         {path, nil, partitioner.Options{TimeBoundary: -1}, "TimeBoundary"},
		"reaction":         {path, nil, partitioner.Options{MaxReactionTime: -1}, "MaxReactionTime"},
		"partition time":   {path, nil, partitioner.Options{MaxPartitionTime: -1}, "MaxPartitionTime"},
		"order":            {path, nil, partitioner.Options{Order: 7}, "partitioner: option Order: 7"},
		"no number":        {path, []string{"1", "x"}, partitioner.Options{Order: partitioner.OrderNumeric}, `partitioner: option Order: OrderNumeric, but item "x"`},
		"unsaid order":     {path, []string{"9", "10"}, partitioner.Options{}, "partitioner: option Order: OrderUnset, but"},
		"order of minuses": {path, []string{"-1", "-2"}, partitioner.Options{}, "partitioner: option Order: OrderUnset, but"},
		"twice":            {path, []string{"a", "b", "a"}, partitioner.Options{}, `partitioner: item "a": `},
		"one path":         {path, []string{"a//b", "a/b/"}, partitioner.Options{}, `"a//b"`},
		"empty":            {path, []string{""}, partitioner.Options{}, "empty"},
		"slashes":          {path, []string{"//"}, partitioner.Options{}, "empty"},
		"climbs":           {path, []string{"a/../b"}, partitioner.Options{}, `"a/../b"`},
		"contender":        {path, []string{"a__lock__0000000001"}, partitioner.Options{}, "contender"},
		"contender below":  {path, []string{"a", "a/b__lock__0000000001"}, partitioner.Options{}, "contender"},
		"escaped, empty":   {path, []string{""}, partitioner.Options{Escape: true}, "empty"},
	}
	for what, tt := range tests {
		if _, err := partitioner.New(s, tt.path, tt.items, tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", what, err, tt.want)
		}
	}
	if _, err := partitioner.New(nil, path, nil, partitioner.Options{}); err == nil || err.Error() != "partitioner: session is nil" {
		t.Errorf("no session: %v", err)
	}
	if _, err := partitioner.New(s, path, []string{"1", "10"}, partitioner.Options{}); err != nil {
		t.Errorf("integers that sort alike as numbers and as text: %v", err)
	}
	p, err := partitioner.New(s, path, []string{"a", "a/b", "é"}, partitioner.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^.+-\d+$`).MatchString(p.Identifier()) {
		t.Errorf("default identifier %q", p.Identifier())
	}
	for _, err := range []error{p.ReleaseSet(t.Context()), p.Finish(t.Context())} {
		if !errors.Is(err, partitioner.ErrNotStarted) {
			t.Errorf("got %v", err)
		}
	}
}

// The vectors of kazoo's tests, and the orders.
func TestEveryNth(t *testing.T) {
	tests := []struct {
		id             string
		members, items []string
		want           []string
	}{
		{"0", []string{"0", "1"}, []string{"0", "1", "2"}, []string{"0", "2"}},
		{"1", []string{"0", "1"}, []string{"0", "1", "2"}, []string{"1"}},
		{"2", []string{"0", "1", "2"}, []string{"0", "1", "2"}, []string{"2"}},
		{"0", []string{"0", "1"}, []string{"0"}, []string{"0"}},
		{"1", []string{"0", "1"}, []string{"0"}, nil},
		{"b", []string{"a", "b", "b"}, []string{"0", "1", "2", "3", "4"}, []string{"1", "4"}},
	}
	for _, tt := range tests {
		if got, err := partitioner.EveryNth(tt.id, tt.members, tt.items); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s of %q: %q, %v, want %q", tt.id, tt.members, got, err, tt.want)
		}
	}
	if _, err := partitioner.EveryNth("x", []string{"a"}, nil); err == nil {
		t.Error("no error for who is no member")
	}
}

// kazoo's test_party_of_one.
func TestPartyOfOne(t *testing.T) {
	inWorld(t, func(w *world) {
		start := time.Now()
		m := w.join("one", "0", "1", "2")
		if !m.Allocating() || m.Items() != nil || m.Allocation() != nil {
			w.Errorf("state %v, items %q", m.State(), m.Items())
		}
		if acquired, err := m.WaitForAcquire(w.Context()); err != nil || !acquired {
			w.Fatal(acquired, err)
		}
		if d := time.Since(start); d < boundary {
			w.Errorf("acquired after %v", d)
		}
		m.wantItems("0", "1", "2")
		id := m.Snapshot().ID
		a := m.Allocation()
		m.finish()
		if cause := context.Cause(a.Context()); !errors.Is(cause, partitioner.ErrFinished) {
			w.Errorf("the allocation ended with %v", cause)
		}
		if !m.Failed() || m.Items() != nil || m.Snapshot().ID <= id {
			w.Errorf("state %v, items %q", m.State(), m.Items())
		}
		w.clean()
	})
}

// kazoo's test_party_of_two.
func TestPartyOfTwo(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.join("p0", "0", "1"), w.join("p1", "0", "1")
		one.wantItems("0")
		two.wantItems("1")
		one.finish()
		two.wait(partitioner.Release)
		if two.Items() != nil || !two.MustRelease() {
			w.Errorf("items %q", two.Items())
		}
		start := time.Now()
		if acquired, err := two.WaitForAcquire(w.Context()); acquired || err != nil || time.Since(start) != 0 {
			w.Errorf("in RELEASE: %v, %v after %v", acquired, err, time.Since(start))
		}
		two.releaseSet()
		two.wantItems("0", "1")
	})
}

// kazoo's test_party_expansion.
func TestPartyExpansion(t *testing.T) {
	inWorld(t, func(w *world) {
		set := []string{"0", "1", "2"}
		one, two := w.join("p0", set...), w.join("p1", set...)
		one.wantItems("0", "2")
		two.wantItems("1")
		a := one.Allocation()
		three := w.join("p2", set...)
		one.wait(partitioner.Release)
		two.wait(partitioner.Release)
		if cause := context.Cause(a.Context()); !errors.Is(cause, partitioner.ErrMembersChanged) {
			w.Errorf("the allocation ended with %v", cause)
		}
		// Nobody gets the items while the first member is still at work.
		two.releaseSet()
		time.Sleep(time.Minute)
		if three.Acquired() {
			w.Fatalf("three has %q while one has not released", three.Items())
		}
		two.wantItems("1")
		one.releaseSet()
		one.wantItems("0")
		three.wantItems("2")
		if token := three.Allocation().Token("2"); token <= a.Token("2") || a.Token("1") != 0 {
			w.Errorf("token %d after %d", token, a.Token("2"))
		}
	})
}

// kazoo's test_more_members_than_set_items.
func TestMoreMembersThanSetItems(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.join("p0", "0"), w.join("p1", "0")
		one.wantItems("0")
		two.wantItems()
	})
}

// kazoo's test_party_session_failure.
func TestPartySessionFailure(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.join("p0", "0", "1")
		m.wantItems("0", "1")
		a := m.Allocation()
		w.Kill(m.session)
		m.failed(session.ErrSessionExpired)
		if cause := context.Cause(a.Context()); !errors.Is(cause, session.ErrSessionExpired) || m.Items() != nil {
			w.Errorf("the allocation ended with %v", cause)
		}
		failed := &partitioner.FailedError{}
		if err := m.ReleaseSet(w.Context()); !errors.As(err, &failed) || !m.Failed() {
			w.Errorf("got %v, state %v", err, m.State())
		}
		if acquired, err := m.WaitForAcquire(w.Context()); acquired || !errors.As(err, &failed) || failed.Path != path {
			w.Errorf("got %v, %v", acquired, err)
		}
		time.Sleep(5 * time.Second)
		w.clean()
		m.start() // again
		m.wantItems("0", "1")
	})
}

// kazoo's test_connection_loss. A connection that comes back in time changes nothing here. Kazoo's RELEASE at a lost connection
// comes at the end of trust here.
func TestConnectionLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		set := []string{"0", "1", "2"}
		one, two := w.join("p0", set...), w.join("p1", set...)
		one.wantItems("0", "2")
		two.wantItems("1")
		w.Net.Cut()
		time.Sleep(5 * time.Second)
		if !one.Acquired() || !two.Acquired() {
			w.Errorf("states %v and %v after a short break", one.State(), two.State())
		}
		for name, m := range map[string]*member{"p0": one, "p1": two} {
			a := m.Allocation()
			w.loseTrust(name, w.Incarnation(m.session))
			m.wait(partitioner.Release)
			if cause := context.Cause(a.Context()); !errors.Is(cause, session.ErrTrustLost) {
				w.Errorf("the allocation ended with %v", cause)
			}
			if len(w.contenders()) != 3 {
				w.Errorf("locks were given away: %q", w.contenders())
			}
		}
		one.releaseSet()
		two.releaseSet()
		one.wantItems("0", "2")
		two.wantItems("1")
		three := w.join("p2", set...)
		one.wait(partitioner.Release)
		two.wait(partitioner.Release)
		one.releaseSet()
		two.releaseSet()
		one.wantItems("0")
		two.wantItems("1")
		three.wantItems("2")
	})
}

// kazoo's test_race_condition_new_partitioner_during_the_lock: a member joins while another is acquiring slowly.
func TestRaceConditionNewPartitionerDuringTheLock(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Net.Client("p0").Delay(300 * time.Millisecond)
		one := w.join("p0", "0", "1")
		for len(w.contenders()) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		two := w.join("p1", "0", "1")
		one.wantItems("0")
		two.wantItems("1")
	})
}

// kazoo's test_race_condition_new_partitioner_steals_the_lock: another holds the lock that the first has not acquired yet.
func TestRaceConditionNewPartitionerStealsTheLock(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Must(w.Srv.Create(blocker, nil))
		one := w.join("p0", "0", "1")
		time.Sleep(5 * time.Second)
		if list := w.contenders(); !one.Allocating() || len(list) != 3 {
			w.Fatalf("%v, %q", one.State(), list)
		}
		two := w.join("p1", "0", "1")
		one.wantItems("0")
		w.Must(w.Srv.Delete(blocker))
		two.wantItems("1")
	})
}

// The znodes are kazoo's.
func TestZnodes(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.join("host-1", "a", "q//2", "é")
		m.wantItems("a", "q//2", "é")
		guid := regexp.MustCompile(`[0-9a-f]{32}`)
		owner := regexp.MustCompile(` owner=0x[0-9a-f]+`)
		got := owner.ReplaceAllString(guid.ReplaceAllString(w.Srv.Dump(), "G"), " ephemeral")
		want := `/app ""
/app/set ""
/app/set/locks ""
/app/set/locks/a ""
/app/set/locks/a/G__lock__0000000000 "" ephemeral
/app/set/locks/q ""
/app/set/locks/q/2 ""
/app/set/locks/q/2/G__lock__0000000000 "" ephemeral
/app/set/locks/é ""
/app/set/locks/é/G__lock__0000000000 "" ephemeral
/app/set/party ""
/app/set/party/G-host-1 "host-1" ephemeral
`
		if got != want {
			w.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if node := m.Allocation().Node("q//2"); !strings.HasPrefix(node, "/app/set/locks/q/2/") || m.Allocation().Node("b") != "" {
			w.Errorf("node %q", node)
		}
	})
}

func TestEscape(t *testing.T) {
	inWorld(t, func(w *world) {
		items := []string{"..", "a/b", "a%2Fb", "a\n\xff"}
		m := w.member("p0", items, partitioner.Options{Escape: true})
		m.start()
		m.wait(partitioner.Acquired)
		if got := w.Srv.Children(path + "/locks"); !slices.Equal(got, []string{"%2E%2E", "a%0A%FF", "a%252Fb", "a%2Fb"}) {
			w.Errorf("locks %q", got)
		}
		got := m.Items()
		slices.Sort(items)
		if !slices.Equal(got, items) {
			w.Errorf("items %q", got)
		}
	})
}

// Eleven items that are integers, for two members, as Python divides int and str.
func TestOrder(t *testing.T) {
	var items []string
	for i := range 11 {
		items = append(items, fmt.Sprint(i))
	}
	for order, want := range map[partitioner.Order][]string{
		partitioner.OrderNumeric: {"0", "2", "4", "6", "8", "10"},
		partitioner.OrderText:    {"0", "10", "3", "5", "7", "9"},
	} {
		inWorld(t, func(w *world) {
			one, two := w.member("p0", items, partitioner.Options{Order: order}), w.member("p1", items, partitioner.Options{Order: order})
			one.start()
			two.start()
			one.wantItems(want...)
			two.wait(partitioner.Acquired)
			if all := append(one.Items(), two.Items()...); len(all) != 11 {
				w.Errorf("divided %q", all)
			}
		})
	}
}

// An error of the partition function is FAILURE, not an allocation that never comes.
func TestPartitionFunctionFails(t *testing.T) {
	fault := errors.New("a fault")
	for what, f := range map[string]partitioner.PartitionFunc{
		"error":   func(string, []string, []string) ([]string, error) { return nil, fault },
		"panic":   func(string, []string, []string) ([]string, error) { panic(fault) },
		"no item": func(string, []string, []string) ([]string, error) { return []string{"0", "x"}, nil },
		"twice":   func(string, []string, []string) ([]string, error) { return []string{"0", "0"}, nil },
	} {
		inWorld(t, func(w *world) {
			m := w.member("p0", []string{"0"}, partitioner.Options{Func: f})
			m.start()
			m.failed(partitioner.ErrFunction)
			if what == "error" && !errors.Is(m.Snapshot().Err, fault) {
				w.Error(m.Snapshot().Err)
			}
			m.finish()
			w.clean()
			err := m.Run(w.Context(), func(context.Context, []string) error { return nil })
			if !errors.Is(err, partitioner.ErrFunction) {
				w.Errorf("%s: Run returned %v", what, err)
			}
		})
	}
}

// The partition function is the program's own.
func TestPartitionFunction(t *testing.T) {
	inWorld(t, func(w *world) {
		var gotID string
		var gotMembers, gotItems []string
		f := func(identifier string, members, items []string) ([]string, error) {
			gotID, gotMembers, gotItems = identifier, slices.Clone(members), slices.Clone(items)
			items[0] = "spoilt"
			return []string{"c", "a"}, nil
		}
		w.Must(w.Srv.Create(path+"/party/514e5a831836450cb1a56c741e990fd8-a-b", nil))
		m := w.member("p0", []string{"c", "b", "a"}, partitioner.Options{Func: f})
		m.start()
		m.wantItems("c", "a")
		if gotID != "p0" || !slices.Equal(gotMembers, []string{"a-b", "p0"}) || !slices.Equal(gotItems, []string{"a", "b", "c"}) {
			w.Errorf("called with %q, %q, %q", gotID, gotMembers, gotItems)
		}
	})
}

// Past MaxPartitionTime the state is FAILURE.
func TestMaxPartitionTime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Must(w.Srv.Create(blocker, nil))
		m := w.member("p0", []string{"0", "1"}, partitioner.Options{MaxPartitionTime: 20 * time.Second})
		start := time.Now()
		m.start()
		m.failed(partitioner.ErrPartitionTime)
		if d := time.Since(start); d != 20*time.Second {
			w.Errorf("after %v", d)
		}
		m.finish()
		if list := w.contenders(); len(list) != 1 {
			w.Errorf("left: %q", list)
		}
	})
}
