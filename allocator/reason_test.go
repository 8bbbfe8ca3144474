package allocator

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/status"
)

// with is a member whose znode has this czxid, with a record that change has changed.
func with(name string, czxid int64, change func(*record)) party.Member {
	r := record{V: recordVersion, Functions: []string{"roundrobin/1"}}
	if change != nil {
		change(&r)
	}
	data, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return party.Member{Name: name, Czxid: czxid, Data: data}
}

// plain is a member with a plain record.
func plain(names ...string) (ms []party.Member) {
	for _, name := range names {
		ms = append(ms, with(name, 1, nil))
	}
	return ms
}

// move returns how p came to its owner: from, the version and the reason.
func (r *rig) move(item string) string {
	r.Helper()
	p, err := kiel.ParsePartition(item)
	noerr.Must(r, err)
	m, ok := r.Snapshot().Move(p)
	if !ok {
		return "none"
	}
	return fmt.Sprintf("%q %d %s", m.From, m.Version, m.Reason)
}

func TestReasonOfEachKindOfChange(t *testing.T) {
	reg := prometheus.NewRegistry()
	inRig(t, func(o *Options) { o.AlsoFuncs, o.Registerer = []allocfn.Func{allocfn.Range()}, reg }, func(r *rig) {
		both := func(r *record) { r.Functions = []string{"range/1", "roundrobin/1"} }
		weighs := func(w int) func(*record) { return func(r *record) { r.Weight = w } }
		b := with("b", 1, func(r *record) { r.Functions = []string{"roundrobin/1", "range/1"} })
		for i, step := range []struct {
			want string
			act  func()
		}{
			{"started", func() { r.partitions("t:0", "t:1"); r.membersAre(b) }},
			{"member-joined c, d", func() { r.membersAre(append([]party.Member{b}, plain("c", "d")...)...) }},
			{"member-gone c", func() { r.membersAre(append([]party.Member{b}, plain("d")...)...) }},
			{"member-gone d", func() { r.membersAre(append([]party.Member{b}, plain("x")...)...) }}, // and x came
			{"member-changed x", func() { r.membersAre(b, with("x", 2, nil)) }},
			{"weights-changed x", func() { r.membersAre(b, with("x", 3, weighs(7))) }},
			{"weights-changed x", func() { r.membersAre(b, with("x", 4, nil)) }},
			{"member-changed x", func() { r.membersAre(b, with("x", 5, weighs(1))) }}, // 1 is none
			{"zones-changed x", func() { r.membersAre(b, with("x", 6, func(r *record) { r.Zone = "z" })) }},
			{"topics-changed x", func() { r.membersAre(b, with("x", 7, func(r *record) { r.Topics = []string{"t"} })) }},
			{"topics-changed x", func() { r.membersAre(b, with("x", 8, func(r *record) { r.Topics = []string{"^t.*"} })) }},
			{"topics-changed x", func() { r.membersAre(b, with("x", 9, func(r *record) { r.Topics = []string{"^t.*", "u"} })) }},
			{"function-changed roundrobin/1, range/1", func() { r.membersAre(with("a", 1, both), b) }},
			{"topic-added u, v", func() { r.partitions("t:0", "t:1", "u:0", "v:0", "v:1") }},
			{"topic-grew t", func() { r.partitions("t:0", "t:1", "t:2", "u:0", "v:0", "v:1") }},
			{"topic-removed t, v", func() { r.partitions("t:0", "t:1", "u:0") }},
			{"zones-changed", func() { r.showZones(zoned(1)) }},
			{"manual", func() {
				noerr.Must(r, r.Rebalance(r.Context()))
			}},
			{"unchanged", func() { r.restored(r.writes+1, "t:0", "t:1", "u:0", "bad") }},
			{"member-changed a", func() { r.membersAre(with("a", 2, both), b) }},
			{"session-lost", func() {
				r.lose(errors.New("lost"))
				r.incarnate()
				r.partitions("t:0", "t:1", "u:0")
				b.Czxid = 2
				r.membersAre(with("a", 2, both), b)
			}},
			{"stopped", func() { r.membersAre(with("a", 2, both)) }},
		} {
			step.act()
			sleep(time.Minute)
			s := r.Snapshot()
			if got := s.Reason.String(); got != step.want {
				r.Errorf("step %d: got %q, want %q", i, got, step.want)
			}
			noerr.Want(r, statuswrite.Check(s.Reason))
		}
		// Each mapping counts by the cause of its reason. The loss of the session made a snapshot and no mapping.
		want := map[status.Cause]float64{"initial": 1, "manual": 1, "session": 1, "members": 13, "partitions": 4, "zones": 2}
		for _, cause := range status.Causes() {
			if n := testutil.ToFloat64(r.loop.metrics.rebalances.WithLabelValues(string(cause))); n != want[cause] {
				r.Errorf("%v rebalances of %s, want %v", n, cause, want[cause])
			}
		}
		if err := r.stop(); err != nil || r.Snapshot().Reason.Code != status.Stopped {
			r.Error("the last snapshot has another reason than its mapping:", r.Snapshot().Reason, err)
		}
	})
}

func TestMovesSaySinceWhenAndWhy(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.partitions("t:0", "t:1", "t:2", "t:3")
		r.membersAre(plain("a", "b", "c", "d")...)
		wants := func(want ...string) {
			r.Helper()
			for i, item := range []string{"t:0", "t:1", "t:2", "t:3", "u:0"} {
				if got := r.move(item); got != want[i] {
					r.Errorf("%s: got %s, want %s", item, got, want[i])
				}
			}
		}
		wants(`"" 1 started`, `"" 1 started`, `"" 1 started`, `"" 1 started`, "none")
		r.membersAre(plain("a", "b", "c", "e")...) // e takes what d had
		wants(`"" 1 started`, `"" 1 started`, `"" 1 started`, `"d" 2 member-gone d`, "none")
		r.membersAre(plain("a", "b", "c")...) // for an instant nobody reads this
		wants(`"" 1 started`, `"" 1 started`, `"" 1 started`, `"e" 3 member-gone e`, "none")
		r.membersAre(plain("a", "a2", "b", "c")...)
		wants(`"" 1 started`, `"b" 4 member-joined a2`, `"c" 4 member-joined a2`, `"a" 4 member-joined a2`, "none")
		r.partitions("t:0", "t:1", "t:2", "t:3", "t:4", "u:0")
		wants(`"" 1 started`, `"b" 4 member-joined a2`, `"c" 4 member-joined a2`, `"a" 4 member-joined a2`, `"" 5 topic-added u`)
		if got := r.move("t:4"); got != `"" 5 topic-grew t` {
			r.Error(got)
		}
		r.membersAre(plain("a", "a2", "c", "x")...)                                                                     // b, that is us, has left, and x has come
		wants(`"" 1 started`, `"b" 4 member-joined a2`, `"b" 7 stopped`, `"c" 7 member-joined x`, `"" 5 topic-added u`) // 6 was not joined
	})
}

func TestMoveSaysWhenTheChangeWasNoticed(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.begin("t:0", "t:1")
		r.join("a", "b") // at once, or rather with what follows
		time.Sleep(100 * time.Millisecond)
		r.join("a", "b", "c")
		sleep(100 * time.Millisecond)
		if _, ok := r.Snapshot().Move(kiel.Partition{Topic: "t", ID: 7}); ok {
			r.Error("a partition that there is not has moved")
		}
		sleep(time.Minute)
		m, ok := r.Snapshot().Move(kiel.Partition{Topic: "t"})
		if !ok || m.Took != 300*time.Millisecond || !m.At.Equal(r.Snapshot().At) {
			r.Error(m, ok)
		}
	})
}

// TestMovesOfRandomMappings compares with what a reader finds that asks each snapshot for all owners.
func TestMovesOfRandomMappings(t *testing.T) {
	o, err := Options{AlsoFuncs: []allocfn.Func{allocfn.Balanced()}}.withDefaults()
	noerr.Must(t, err)
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		known, last := &inputs{}, newMapping(allocfn.Input{}, "", nil)
		wantFrom := map[kiel.Partition]string{}
		for step := range 8 {
			ms, items := randomGroup(rnd)
			r := computeMapping(known, ms, items, nil, o)
			if r.err != nil {
				t.Fatal(r.err)
			}
			known = r.inputs
			r.mapping.follow(last, occasion{self: "b", joined: rnd.IntN(3) > 0})
			r.mapping.change.version = uint64(step)
			s, before := &Snapshot{mapping: r.mapping}, &Snapshot{mapping: last}
			moved, kept := 0, 0
			for _, p := range r.mapping.in.Partitions {
				was, had := before.Planned(p)
				is, has := s.Planned(p)
				m, ok := s.Move(p)
				if ok != has {
					t.Fatalf("seed %d, step %d: %s has an owner: %t, a move: %t", seed, step, p, has, ok)
				}
				if has && (!had || was != is) {
					moved++
					wantFrom[p] = was
					checkReason(t, m.Reason, p, was, is, r.mapping, last)
				}
				if had {
					kept++
				}
				if has && (m.From != wantFrom[p] || m.Version == uint64(step) != (!had || was != is)) {
					t.Fatalf("seed %d, step %d: %s: %v, want from %q", seed, step, p, m, wantFrom[p])
				}
				if had && !has {
					moved++
				}
			}
			moved += len(last.owner) - kept
			gained, lost := differences(last.ours(), r.mapping.ours())
			if c := r.mapping.change; c.moved != moved || c.given != gained || c.takenAway != lost {
				t.Fatalf("seed %d, step %d: %+v, want %d moved, %d gained, %d lost", seed, step, c, moved, gained, lost)
			}
			last = r.mapping
		}
	}
}

// randomGroup returns members and a set with odd items, too.
func randomGroup(rnd *rand.Rand) (ms []party.Member, items []string) {
	for name := range strings.SplitSeq("abcde", "") {
		if rnd.IntN(3) > 0 {
			ms = append(ms, with(name, rnd.Int64N(3), func(r *record) {
				r.Functions = append(r.Functions, "balanced/1")
				if rnd.IntN(4) == 0 {
					r.Topics = []string{"t"}
				}
			}))
		}
	}
	for _, item := range []string{"bad", "t:0", "t:01", "t:1", "t:2", "t:10", "u:0", "u:00", "u:1", "v:3"} {
		if rnd.IntN(4) > 0 {
			items = append(items, item)
		}
	}
	slices.Sort(items)
	return ms, items
}

// checkReason fails unless a partition that has moved has the most precise reason.
func checkReason(t *testing.T, got status.Reason, p kiel.Partition, was, is string, now, before *mapping) {
	t.Helper()
	_, stays := slices.BinarySearch(now.members, was)
	_, old := slices.BinarySearch(before.members, is)
	var want string
	switch {
	case before.change == nil:
		want = "started"
	case was == "" && (got.Code == status.TopicAdded || got.Code == status.TopicGrew):
		want = string(got.Code) + " " + p.Topic
	case was == "b" && !stays:
		want = "stopped"
	case was != "" && !stays:
		want = "member-gone " + was
	case !old:
		want = "member-joined " + is
	default:
		want = now.change.reason.String()
	}
	if got.String() != want {
		t.Fatalf("%s went from %q to %q: got %q, want %q", p, was, is, got, want)
	}
}

// ours is what this member has.
func (m *mapping) ours() []kiel.Partition {
	if !m.occasion.joined {
		return nil
	}
	return m.share(m.occasion.self)
}

func differences(before, now []kiel.Partition) (gained, lost int) {
	return len(without(now, before)), len(without(before, now))
}
