package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/zktest"
)

// operator makes an allocator that does not run, on a session that does.
func (w *world) operator() *node {
	n := w.make("operator", allocator.Options{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	go func() { n.after <- n.session.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		<-n.after
	})
	return n
}

// write makes a znode, or writes to the one that there is.
func (w *world) write(path, data string) {
	w.Helper()
	do := w.srv.Create
	if _, _, exists := w.srv.Get(path); exists {
		do = w.srv.Set
	}
	if err := do(path, []byte(data)); err != nil {
		w.Fatalf("%s: %v", path, err)
	}
}

// record is a member's record that names topics, as JSON.
func record(topics string) string {
	return `{"v":1,"functions":["roundrobin/1"],"topics":[` + topics + `]}`
}

// TestRemoveTopicAsks: a topic is removed only if all members have a record that names topics, and not this one.
func TestRemoveTopicAsks(t *testing.T) {
	tests := map[string]struct {
		name, data string // of a member
		set        string // "" is one with the topic
		want       error
		says       string
	}{
		"nobody is there":          {},
		"asked for by nobody":      {name: "m", data: record(`"s"`)},
		"a topic of a like name":   {name: "m", data: record(`"t2","T","tt"`)},
		"asked for":                {name: "m", data: record(`"s","t"`), want: allocator.ErrTopicInUse, says: `"m" asks for it`},
		"found by a pattern":       {name: "m", data: record(`"s","^t.*"`)},
		"found, and asked for":     {name: "m", data: record(`"t","^t.*"`), want: allocator.ErrTopicInUse, says: `"m" asks for it`},
		"asked for and excluded":   {name: "m", data: record(`"t","^s.*","!^t"`), want: allocator.ErrTopicInUse, says: `"m" asks for it`},
		"a bad pattern":            {name: "m", data: record(`"s","^t("`), want: allocator.ErrTopicInUse, says: "can't be understood"},
		"all topics are":           {name: "m", data: record(``), want: allocator.ErrTopicInUse, says: `allocator: remove topic t: in use: member "m" asks for all topics`},
		"Python":                   {name: "m", want: allocator.ErrTopicInUse, says: `"m" has no record, so it may ask for any topic; RemovePartitions`},
		"a bad record":             {name: "m", data: "\xff{", want: allocator.ErrTopicInUse, says: "can't be understood"},
		"a newer record":           {name: "m", data: `{"v":2}`, want: allocator.ErrTopicInUse, says: "RemovePartitions"},
		"too large a record":       {name: "m", data: record(`"s"`) + strings.Repeat(" ", 64<<10), want: allocator.ErrTopicInUse, says: "can't be understood"},
		"a hostile name":           {name: "caf\u00e9\" \u202e" + strings.Repeat("x", 500), data: "x", want: allocator.ErrTopicInUse, says: `"café\" \u202exxx`},
		"not in the set":           {set: `["s:0", "tt:0"]`, want: allocator.ErrTopicNotInSet, says: "allocator: remove topic t: not in the set"},
		"no set":                   {set: "none", want: allocator.ErrTopicNotInSet},
		"asked for and not there":  {name: "m", data: record(`"t"`), set: `["s:0"]`, want: allocator.ErrTopicInUse},
		"a set that can't be read": {set: `["t:0"`, want: sharedset.ErrUnreadable},
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				set := test.set
				if set == "" {
					set = `["s:0", "t", "t:0", "t:00:1", "t:1", "t:x", "tt:0"]`
				}
				if set != "none" {
					w.write(partitions, set)
				}
				if test.name != "" {
					w.write(members+"/"+test.name, test.data)
				}
				err := w.operator().RemoveTopic(w.Context(), "t")
				if !errors.Is(err, test.want) || test.want != nil && !strings.Contains(err.Error(), test.says) {
					w.Errorf("got %v, want %v that says %q", err, test.want, test.says)
				}
				if err != nil && (len(err.Error()) > 600 || strings.ContainsAny(err.Error(), "\u202e")) {
					w.Errorf("%q", err)
				}
				want := `["s:0", "t", "t:00:1", "t:x", "tt:0"]`
				if test.want != nil {
					want = strings.ReplaceAll(set, "none", "")
				}
				if got := w.set(); got != want {
					w.Errorf("the set is %s, want %s", got, want)
				}
			})
		})
	}
}

func TestRemoveTopicOfABadName(t *testing.T) {
	inWorld(t, func(w *world) {
		w.write(partitions, `["../x:0", ":0", "a/b:0"]`)
		n := w.operator()
		for _, topic := range []string{"", ".", "..", "../x", "a/b", "t:0", "t\n", "\xff", strings.Repeat("x", 250)} {
			if err := n.RemoveTopic(w.Context(), topic); !errors.Is(err, kiel.ErrInvalidName) {
				w.Errorf("%q: %v", topic, err)
			}
		}
		if got := w.set(); got != `["../x:0", ":0", "a/b:0"]` {
			w.Error(got)
		}
	})
}

// TestRemoveTopicAmongMembers: a running group loses a topic that nobody asks for, and nobody adds it again, not even when the
// set is deleted. What others write meanwhile stays.
func TestRemoveTopicAmongMembers(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("a", allocator.Options{Seed: map[string][]int32{"s": {0}, "t": {0, 1}}, Topics: []string{"s"}})
		b := w.start("b", allocator.Options{Topics: []string{"s", "u"}})
		a.ready()
		b.ready()
		n := w.operator()
		added := make(chan error, 1)
		go func() { added <- b.AddPartitions(w.Context(), map[string][]int32{"s": {1}, "t": {2}}) }()
		err := n.RemoveTopic(w.Context(), "t")
		noerr.Must(w, errors.Join(err, <-added))
		if err := n.RemoveTopic(w.Context(), "t"); err != nil && !errors.Is(err, allocator.ErrTopicNotInSet) {
			w.Error(err)
		}
		sleep(time.Minute)
		if got := w.set(); got != `["s:0", "s:1"]` {
			w.Error(got)
		}
		if err := a.RemoveTopic(w.Context(), "s"); !errors.Is(err, allocator.ErrTopicInUse) {
			w.Error(err)
		}
		noerr.Must(w, w.srv.Delete(partitions))
		sleep(time.Minute)
		if got := w.set(); got != `["s:0", "s:1"]` {
			w.Errorf("after a deletion: %s", got)
		}
	})
}

// TestRemoveTopicBeforeRun: a member that removes a topic does not add it as its seed later.
func TestRemoveTopicBeforeRun(t *testing.T) {
	inWorld(t, func(w *world) {
		w.write(partitions, `["s:0", "t:0"]`)
		n := w.make("a", allocator.Options{Seed: map[string][]int32{"s": {0, 1}, "t": {0, 1}}, Topics: []string{"s"}})
		var ctx, after context.Context
		ctx, n.cancel = context.WithCancel(w.Context())
		after, n.cancelAfter = context.WithCancel(context.WithoutCancel(w.Context()))
		go func() { n.after <- n.session.Run(after) }()
		noerr.Want(w, n.RemoveTopic(w.Context(), "t"))
		w.nodes["a"] = n
		go func() { n.ran <- n.Run(ctx) }()
		n.ready()
		if got := w.set(); got != `["s:0", "s:1"]` {
			w.Error(got)
		}
	})
}

// TestRemoveTopicGivesUp: without a session RemoveTopic waits until its context ends.
func TestRemoveTopicGivesUp(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.operator()
		n.client.BlackHole(zktest.Both)
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		if err := n.RemoveTopic(ctx, "t"); !errors.Is(err, context.DeadlineExceeded) {
			w.Error(err)
		}
		n.client.Heal()
	})
}

// TestLackingPartitions: what the set lacks is told from what was read last, without a request.
func TestLackingPartitions(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("a", allocator.Options{Seed: map[string][]int32{"t": {0, 1}}})
		a.ready()
		all := map[string][]int32{"t": {0, 1, 2}, "u": {0}}
		lacks := func(want string) {
			w.Helper()
			var requests atomic.Int32
			w.srv.SetHook(func(r *zktest.Request) zktest.Action {
				if strings.HasPrefix(r.Path, "/kiel") {
					requests.Add(1)
				}
				return zktest.Action{}
			})
			got := fmt.Sprint(a.LackingPartitions(all))
			synctest.Wait()
			if n := requests.Load(); got != want || n != 0 {
				w.Errorf("lacks %s, want %s; %d requests", got, want, n)
			}
			w.srv.SetHook(nil)
		}
		sleep(settle)
		lacks("map[t:[2] u:[0]]")
		noerr.Must(w, a.AddPartitions(w.Context(), all))
		sleep(settle)
		lacks("map[]")
		noerr.Must(w, w.operator().RemovePartitions(w.Context(), map[string][]int32{"t": {1}}))
		sleep(settle)
		lacks("map[t:[1]]")
		w.write(partitions, "garbage")
		sleep(settle)
		lacks("map[]")
		w.write(partitions, "[]")
		sleep(settle)
		lacks("map[t:[0 1 2] u:[0]]")                  // who empties the set means it
		w.write(partitions, `["t:+1", "t:02", "u:x"]`) // two are partitions, for members in Python as well
		sleep(settle)
		lacks("map[t:[0] u:[0]]")
		a.client.BlackHole(zktest.Both)
		sleep(time.Minute)
		lacks("map[]")
		a.client.Heal()
		sleep(time.Minute)
		if n := w.make("b", allocator.Options{}); len(n.LackingPartitions(all)) != 0 {
			w.Error("a set that was not read lacks something")
		}
	})
}
