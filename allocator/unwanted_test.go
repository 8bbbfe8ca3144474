package allocator

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/status"
)

// asking returns a member with a record that names these topics, or none.
func asking(name string, topics ...string) party.Member {
	data, err := json.Marshal(record{V: recordVersion, Functions: []string{"roundrobin/1"}, Topics: topics})
	if err != nil {
		panic(err)
	}
	return party.Member{Name: name, Czxid: 1, Data: data}
}

// membersAre shows these members, in order of their names. b is us.
func (r *rig) membersAre(ms ...party.Member) {
	joined := slices.ContainsFunc(ms, func(m party.Member) bool { return m.Name == "b" })
	r.show(&party.View{Incarnation: r.inc, Joined: joined, At: time.Now(), Members: ms})
	sleep(time.Minute)
}

// divided fails unless the mapping is of these partitions, and these topics are left out.
func (r *rig) divided(partitions string, unwanted ...string) {
	r.Helper()
	sleep(time.Minute)
	s := r.Snapshot()
	if got := list(s.Partitions); got != partitions || !slices.Equal(s.Unwanted, unwanted) || s.Err != nil {
		r.Fatalf("%q are divided, topics %q are left out, error %v; want %q and %q", got, s.Unwanted, s.Err, partitions, unwanted)
	}
	for _, p := range s.Partitions {
		if _, ok := s.Planned(p); !ok && len(s.Members) > 0 {
			r.Errorf("%s has no owner", p)
		}
	}
	all := s.Mapping()
	for _, topic := range unwanted {
		for _, p := range []kiel.Partition{{Topic: topic}, {Topic: topic, ID: 1}} {
			if owner, ok := s.Planned(p); ok {
				r.Errorf("%s is owned by %s", p, owner)
			}
		}
		for name, share := range all {
			if share[topic] != nil || s.Share(name)[topic] != nil || topics(s.Mine())[topic] != nil {
				r.Errorf("%s has partitions of %s", name, topic)
			}
		}
	}
}

// reported fails unless OnError was told of these topics, since it was asked last, and of nothing else.
func (r *rig) reported(topics ...string) {
	r.Helper()
	err := r.failed()
	if len(topics) == 0 {
		noerr.Want(r, err)
		return
	}
	if !errors.Is(err, ErrUnwantedTopic) || strings.Contains(err.Error(), "\n") {
		r.Fatalf("reported %v, want %q", err, topics)
	}
	for _, topic := range []string{"t", "u", "v"} {
		if named := strings.Contains(err.Error(), fmt.Sprintf("%q", topic)); named != slices.Contains(topics, topic) {
			r.Errorf("reported %v, want %q", err, topics)
		}
	}
}

// Partitions of topics that no member asks for are nobody's, which is reported once a topic.
func TestUnwantedTopics(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.partitions("t:0", "t:1", "u:0")
		us := asking("b", "t")
		r.membersAre(asking("a", "t"), us)
		r.divided("t:0 t:1", "u")
		r.want(status.Started, "t:1")
		r.reported("u")
		noerr.Want(r, r.Rebalance(r.Context()))
		r.divided("t:0 t:1", "u")
		r.partitions("t:0", "t:1", "t:2", "u:0", "u:1")
		r.divided("t:0 t:1 t:2", "u")
		r.reported()
		r.partitions("t:0", "t:1", "t:2", "u:0", "u:1", "v:0")
		r.divided("t:0 t:1 t:2", "u", "v")
		r.reported("v")
		r.membersAre(asking("a", "t", "u"), us)
		r.divided("t:0 t:1 t:2 u:0 u:1", "v")
		r.reported()
		r.membersAre(us)
		r.divided("t:0 t:1 t:2", "u", "v")
		r.reported("u")

		r.membersAre(us, asking("c")) // which asks for all
		r.divided("t:0 t:1 t:2 u:0 u:1 v:0")
		r.reported()
		r.membersAre(us)
		r.reported("u", "v")
		r.partitions("t:0", "t:1")
		r.divided("t:0 t:1")
		r.reported()
	})
}

// Nothing is reported by those who are no members, or not yet: of the topics that we ask for ourselves, for one.
func TestUnwantedTopicsAreReportedByMembers(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.partitions("t:0", "u:0")
		r.membersAre()
		r.divided("t:0 u:0")
		r.membersAre(asking("a", "t"))
		r.divided("t:0", "u")
		r.reported()
		r.membersAre(asking("a", "t"), asking("b", "u"))
		r.divided("t:0 u:0")
		r.reported()
		r.membersAre(asking("b", "u"))
		r.divided("u:0", "t")
		r.reported("t")
	})
}

// Names of topics are any text that somebody has written, and there may be any number.
func TestUnwantedTopicsInAnError(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		set := []string{"t:0", "\x1b[31m\n" + strings.Repeat("é", 100_000) + ":0"}
		for i := range 1000 {
			set = append(set, fmt.Sprintf("u%d:0", i))
		}
		r.partitions(set...)
		r.membersAre(asking("b", "t"))
		err := r.failed()
		if !errors.Is(err, ErrUnwantedTopic) || len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\x1b\n") || !strings.Contains(err.Error(), "996 more") {
			r.Errorf("%.2000v", err)
		}
		if s := r.Snapshot(); len(s.Unwanted) != 1001 || list(s.Partitions) != "t:0" {
			r.Errorf("%d topics are left out of %.100s", len(s.Unwanted), list(s.Partitions))
		}
	})
}

// A function sees the topics that members ask for, but none while one member has no record: it runs in Python, where nobody has
// topics, and all partitions are divided.
func TestTopicsBesidePython(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen string
		r := newRig(t, func(o *Options) {
			o.Func = failing("roundrobin", func(in allocfn.Input) (allocfn.Assignment, error) {
				var b strings.Builder
				for _, m := range in.Members {
					fmt.Fprintf(&b, "%s%q ", m.Name, m.Topics)
				}
				seen = b.String()
				return allocfn.RoundRobin().Assign(in)
			})
		})
		saw := func(want string) {
			t.Helper()
			if synctest.Wait(); seen != want {
				t.Errorf("the function saw %s, want %s", seen, want)
			}
		}
		r.run()
		r.partitions("t:0", "u:0", "v:0")
		us := asking("b", "u", "t", "u")
		r.membersAre(asking("a", "t"), us)
		r.divided("t:0 u:0", "v")
		r.reported("v")
		saw(`a["t"] b["t" "u"] `)
		for what, python := range map[string]party.Member{
			"no record":            {Name: "c"},
			"a bad record":         {Name: "c", Data: []byte(`{"v":2}`)},
			"an unreadable record": {Name: "c", Err: errors.New("not allowed")},
		} {
			t.Log(what)
			r.membersAre(asking("a", "t"), us, python)
			r.divided("t:0 u:0 v:0")
			saw(`a[] b[] c[] `)
			if err := r.failed(); errors.Is(err, ErrUnwantedTopic) {
				t.Error(err)
			}
			r.membersAre(asking("a", "t"), us)
			r.divided("t:0 u:0", "v")
			r.reported("v")
		}
		none := party.Member{Name: "c", Data: []byte(`{"v":1,"functions":["roundrobin"],"topics":[]}`)}
		r.membersAre(asking("a", "t"), us, none)
		r.divided("t:0 u:0 v:0")
		saw(`a["t"] b["t" "u"] c[] `)
		r.stop()
	})
}

// Topics that no member asks for change nothing about the rest: functions see the set as if it did not hold them.
func TestUnwantedTopicsAreAsIfNotInTheSet(t *testing.T) {
	o, err := Options{AlsoFuncs: []allocfn.Func{allocfn.Range()}}.withDefaults()
	noerr.Must(t, err)
	ms := []party.Member{asking("a", "t", "x"), asking("b", "t", "x"), asking("c", "x", "t")}
	for _, wanted := range [][]string{
		nil, {"t:0"}, {"t:0", "t:1", "t:10", "x:0", "x:7"}, {"t:0", "t:01", "t:1", "t:2"}, {"t:+1", "t:-1", "t:0", "t:x", "x:0", "x:1"},
	} {
		for _, unwanted := range [][]string{nil, {"a:0"}, {"t-:0", "u:0", "u:1"}, {"s:0", "u:01", "u:2", "y:0"}} {
			both := slices.Sorted(slices.Values(slices.Concat(wanted, unwanted)))
			got := computeMapping(&inputs{}, ms, both, nil, o)
			want := computeMapping(&inputs{}, ms, wanted, nil, o)
			if got.err != nil || want.err != nil || text(got.items) != text(want.items) {
				t.Errorf("%q: errors %v, %v, items %v and %v", both, got.err, want.err, got.items, want.items)
			}
			g, w := (&Snapshot{mapping: got.mapping}).Mapping(), (&Snapshot{mapping: want.mapping}).Mapping()
			if fmt.Sprint(g) != fmt.Sprint(w) || !slices.Equal(got.mapping.in.Partitions, want.mapping.in.Partitions) {
				t.Errorf("%q is divided as %v, without what nobody wants %v", both, g, w)
			}
		}
	}
}

// While what is asked for and the set stay, the partitions that are divided are kept; if all are asked for they are those of the
// set.
func TestWantedPartitionsAreKept(t *testing.T) {
	ms := []party.Member{asking("a", "t"), asking("b", "t", "u"), asking("c", "u")}
	set := []string{"t:0", "t:1", "u:0", "v:0"}
	known := readInputs(ms, set, "roundrobin/1", &inputs{})
	for what, members := range map[string][]party.Member{"same": ms, "one left": ms[:2], "one joined": append(slices.Clone(ms), asking("d", "t"))} {
		in := readInputs(members, slices.Clone(set), "roundrobin/1", known)
		if list(in.wanted) != "t:0 t:1 u:0" || &in.wanted[0] != &known.wanted[0] {
			t.Errorf("%s: %v, not as known", what, in.wanted)
		}
	}
	if n := testing.AllocsPerRun(10, func() { readInputs(ms, set, "roundrobin/1", known) }); n > 2 {
		t.Errorf("%.0f allocations when nothing has changed", n)
	}
	all := readInputs(append(slices.Clone(ms), asking("d", "v")), set, "roundrobin/1", known)
	if list(all.wanted) != "t:0 t:1 u:0 v:0" || &all.wanted[0] != &known.partitions[0] || len(all.unwanted) > 0 {
		t.Errorf("all are asked for: %v, not those of the set; left out %q", all.wanted, all.unwanted)
	}
}
