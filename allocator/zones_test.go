package allocator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/zktest"
)

const zonesPath = "/kiel/groups/g/zones"

// zonesOf makes zones of the names given for partitions 0, 1, … of topic t; "" is none.
func zonesOf(names ...string) map[kiel.Partition]string {
	all := make(map[kiel.Partition]string)
	for id, zone := range names {
		if zone != "" {
			all[kiel.Partition{Topic: "t", ID: int32(id)}] = zone
		}
	}
	return all
}

// in is a member in a zone that looks at zones, if all do.
func in(zone string, seed ...int32) allocator.Options {
	opts := allocator.Options{Zone: zone, Func: allocfn.Balanced(), AlsoFuncs: []allocfn.Func{allocfn.RoundRobin()}}
	if len(seed) > 0 {
		opts.Seed = map[string][]int32{"t": seed}
	}
	return opts
}

// put writes a znode as an operator would.
func (w *world) put(path, data string) {
	w.Helper()
	err := w.srv.Set(path, []byte(data))
	if _, _, ok := w.srv.Get(path); !ok {
		err = w.srv.Create(path, []byte(data))
	}
	noerr.Must(w, err)
}

// agreeOn waits, and fails unless all members that run hold the mapping that Balanced makes of these zones.
func (w *world) agreeOn(zones map[kiel.Partition]string, where map[string]string) allocfn.Input {
	w.Helper()
	sleep(settle)
	input := allocfn.Input{Zones: zones}
	for _, name := range slices.Sorted(maps.Keys(where)) {
		input.Members = append(input.Members, allocfn.Member{Name: name, Zone: where[name]})
	}
	set, err := decodeSet(w.set())
	noerr.Must(w, err)
	input.Partitions, input.Places, _ = kiel.ParsePartitions(set)
	owner, err := allocfn.Call(allocfn.Balanced(), input)
	noerr.Must(w, err)
	want := fmt.Sprint(allocfn.Mapping(input, owner))
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		s := w.nodes[name].Snapshot()
		if got := fmt.Sprint(s.Mapping()); got != want || s.Func != allocfn.Balanced().ID() || !maps.Equal(s.Zones, zones) {
			w.Fatalf("%s: %s of zones %v by %s, want %s of %v\nmembers %v", name, got, s.Zones, s.Func, want, zones, w.srv.Children(members))
		}
	}
	return input
}

// Who is in a zone gets what is in it; zones are set by one and seen by all, whatever becomes of the znode.
func TestZones(t *testing.T) {
	inWorld(t, func(w *world) {
		where := map[string]string{"a": "x", "b": "y"}
		a, b := w.start("a", in("x", ids(6)...)), w.start("b", in("y"))
		a.ready()
		b.ready()
		w.agreeOn(nil, where)
		if got := a.ZonesPath(); got != zonesPath {
			w.Error(got)
		}
		alternating := zonesOf("x", "y", "x", "y", "x", "y")
		noerr.Must(w, a.SetZones(w.Context(), alternating))
		w.agreeOn(alternating, where)
		if got := list(a.Snapshot().Mine()) + ", " + list(b.Snapshot().Mine()); got != "t:0 t:2 t:4, t:1 t:3 t:5" {
			w.Error(got)
		}
		if s := b.Snapshot(); s.Reason.Code != status.ZonesChanged || s.Err != nil || !maps.Equal(b.Zones(), alternating) {
			w.Errorf("by %s, %v, zones %v", s.Reason, s.Err, b.Zones())
		}
		// The znode deleted, and made again by another.
		noerr.Must(w, w.srv.Delete(zonesPath))
		w.agreeOn(nil, where)
		other := zonesOf("y", "x", "y", "x")
		noerr.Must(w, b.UpdateZones(w.Context(), other))
		w.agreeOn(other, where)
		// A new session reads anew, what was written meanwhile too.
		old := a.Snapshot().Incarnation
		a.client.Refuse()
		a.kill()
		sleep(time.Second)
		w.put(zonesPath, `{"v":1,"zones":["x"],"topics":{"t":[0]}}`)
		a.client.Heal()
		w.agreeOn(zonesOf("x"), where)
		if a.Snapshot().Incarnation == old {
			w.Error("no new incarnation")
		}
		// One that comes later sees them, too.
		w.start("c", in("")).ready()
		where["c"] = ""
		w.agreeOn(zonesOf("x"), where)
		// A Python member knows no zones, so nobody looks at them.
		noerr.Must(w, w.srv.Create(members+"/p", nil))
		sleep(settle)
		w.agree(allocfn.RoundRobin(), []string{"a", "b", "c", "p"}, items("t", 6))
		noerr.Must(w, w.srv.Delete(members+"/p"))
		w.agreeOn(zonesOf("x"), where)
		noerr.Must(w, a.SetZones(w.Context(), nil))
		w.agreeOn(nil, where)
		for name, n := range w.nodes {
			if err := n.failed(); err != nil && !errors.Is(err, session.ErrSessionExpired) {
				w.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Data that can't be read are an error and no zones, for all, and are left alone until somebody repairs them.
func TestUnreadableZones(t *testing.T) {
	for name, data := range map[string]string{"garbage": "{", "newer": `{"v":2,"zones":["x"]}`, "large": strings.Repeat(" ", 1<<20+1)} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				where := map[string]string{"a": "x", "b": "y"}
				a, b := w.start("a", in("x", ids(4)...)), w.start("b", in("y"))
				a.ready()
				noerr.Must(w, b.SetZones(w.Context(), zonesOf("y", "y", "x", "x")))
				w.agreeOn(zonesOf("y", "y", "x", "x"), where)
				w.put(zonesPath, data)
				w.agreeOn(nil, where)
				w.start("c", in("x")).ready()
				where["c"] = "x"
				w.agreeOn(nil, where)
				for name, n := range w.nodes {
					if s := n.Snapshot(); !errors.Is(s.Err, allocator.ErrZonesUnreadable) || !s.Joined || len(n.Zones()) > 0 {
						w.Errorf("%s: joined %t, %v", name, s.Joined, s.Err)
					}
					if err := n.failed(); !errors.Is(err, allocator.ErrZonesUnreadable) {
						w.Errorf("%s was told %v", name, err)
					}
				}
				if name != "large" { // of that not even the znode's version can be had
					if err := a.SetZones(w.Context(), zonesOf("x")); !errors.Is(err, allocator.ErrZonesUnreadable) {
						w.Errorf("SetZones: %v", err)
					}
					for _, zones := range []map[kiel.Partition]string{zonesOf("x"), nil} {
						if err := a.UpdateZones(w.Context(), zones); !errors.Is(err, allocator.ErrZonesUnreadable) {
							w.Errorf("UpdateZones %v: %v", zones, err)
						}
					}
				}
				sleep(time.Minute)
				if now, _, _ := w.srv.Get(zonesPath); string(now) != data {
					w.Errorf("written over: %.100s", now)
				}
				w.put(zonesPath, `{"v":1,"zones":["x"],"topics":{"t":[0,-1,0]}}`)
				w.agreeOn(zonesOf("x", "", "x"), where)
				for name, n := range w.nodes {
					if s := n.Snapshot(); s.Err != nil {
						w.Errorf("%s: %v", name, s.Err)
					}
				}
			})
		})
	}
}

// Members that write at once undo nothing of each other's.
func TestUpdateZonesAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		where, all := map[string]string{}, map[kiel.Partition]string{}
		for i := range 5 {
			name := string(rune('a' + i))
			where[name] = name
			w.start(name, in(name, ids(20)...)).ready()
		}
		var writing sync.WaitGroup
		for i := range int32(20) {
			name := string('a' + i%5)
			p := kiel.Partition{Topic: "t", ID: i}
			all[p] = name
			writing.Go(func() {
				noerr.Want(w, w.nodes[name].UpdateZones(w.Context(), map[kiel.Partition]string{p: name}))
			})
		}
		writing.Wait()
		w.agreeOn(all, where)
		for name := range where {
			for _, p := range w.nodes[name].Snapshot().Mine() {
				if all[p] != name {
					w.Errorf("%s has %v", name, p)
				}
			}
		}
		// What is so already is asked of nobody.
		sent := 0
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Path == zonesPath {
				sent++
			}
			return zktest.Action{}
		})
		for _, zones := range []map[kiel.Partition]string{all, zonesOf("a", "b"), nil} {
			if err := w.nodes["a"].UpdateZones(w.Context(), zones); err != nil || sent > 0 {
				w.Errorf("%v: %d requests, %v", zones, sent, err)
			}
		}
		w.srv.SetHook(nil)
		noerr.Want(w, w.nodes["a"].UpdateZones(w.Context(), map[kiel.Partition]string{{Topic: "t"}: ""}))
		delete(all, kiel.Partition{Topic: "t"})
		w.agreeOn(all, where)
	})
}

// Zones are written without Run, and refused when they are none.
func TestSetZonesWithoutRun(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("a", in("x", 0))
		b := w.make("b", in("y"))
		ctx, end := context.WithCancel(w.Context())
		ran := make(chan error, 1)
		go func() { ran <- b.session.Run(ctx) }()
		if len(b.Zones()) > 0 {
			w.Error("zones before anything was read")
		}
		for want, zones := range map[error]map[kiel.Partition]string{
			allocator.ErrZonesInvalid:  {{Topic: "t"}: "\n"},
			allocator.ErrZonesTooLarge: {{Topic: "t", ID: 1<<31 - 1}: "x"},
		} {
			if err := b.SetZones(w.Context(), zones); !errors.Is(err, want) {
				w.Errorf("got %v, want %v", err, want)
			}
		}
		noerr.Want(w, b.UpdateZones(w.Context(), zonesOf("x")))
		a.ready()
		w.agreeOn(zonesOf("x"), map[string]string{"a": "x"})
		end()
		noerr.Want(w, <-ran)
	})
}

// Whatever happens to members, servers and the znode: those that run agree, and on what it says.
func TestZonesAfterRandomSchedules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type step struct {
			op, name string
			zones    []string
			pause    time.Duration
		}
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				op: rapid.SampledFrom([]string{
					"join", "join", "leave", "set", "update", "update", "delete", "garbage", "kill", "cut", "restart", "rebalance",
				}).Draw(rt, "op"),
				name:  rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name"),
				zones: rapid.SliceOfN(rapid.SampledFrom([]string{"", "x", "y", "z"}), 1, 8).Draw(rt, "zones"),
				pause: time.Duration(rapid.SampledFrom([]int{0, 1, 50, 300, 2000}).Draw(rt, "ms")) * time.Millisecond,
			}
		}), 1, 20).Draw(rt, "steps")
		rapid.SyncTest(rt, func(t *rapid.T) {
			w := newWorld(t)
			where := map[string]string{"a": "x", "b": "y", "c": ""}
			for _, s := range steps {
				n := w.nodes[s.name]
				switch {
				case s.op == "join" && n == nil:
					w.start(s.name, in(where[s.name], ids(8)...))
				case s.op == "delete":
					_ = w.srv.Delete(zonesPath)
				case s.op == "garbage":
					w.put(zonesPath, `{"v":1,"zones":[]`)
				case s.op == "restart":
					w.srv.Restart(false)
				case n == nil:
				case s.op == "leave":
					n.end()
				case s.op == "set":
					if err := n.SetZones(t.Context(), zonesOf(s.zones...)); err != nil && !errors.Is(err, allocator.ErrZonesUnreadable) {
						t.Error(err)
					}
				case s.op == "update":
					if err := n.UpdateZones(t.Context(), zonesOf(s.zones...)); err != nil && !errors.Is(err, allocator.ErrZonesUnreadable) {
						t.Error(err)
					}
				case s.op == "kill":
					n.kill()
				case s.op == "cut":
					n.client.Cut()
				case s.op == "rebalance":
					if err := n.Rebalance(t.Context()); err != nil && !errors.Is(err, allocator.ErrZonesUnreadable) {
						t.Error(err)
					}
				}
				sleep(s.pause)
			}
			sleep(4 * timeout)
			run := map[string]string{}
			for name := range w.nodes {
				run[name] = where[name]
			}
			w.agreeOn(w.written(), run)
		})
	})
}

// written is what the znode says, read by somebody who runs no allocator.
func (w *world) written() map[kiel.Partition]string {
	w.Helper()
	data, _, _ := w.srv.Get(zonesPath)
	zones := map[kiel.Partition]string{}
	var doc struct {
		Zones  []string
		Topics map[string][]int
	}
	if json.Unmarshal(data, &doc) != nil {
		return zones
	}
	for topic, ids := range doc.Topics {
		for id, zone := range ids {
			if zone >= 0 {
				zones[kiel.Partition{Topic: topic, ID: int32(id)}] = doc.Zones[zone]
			}
		}
	}
	return zones
}

// What was written before a call of Rebalance is in its snapshot.
func TestRebalanceReadsZonesAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.start("a", in("x", 0))
		a.ready()
		for i := range 20 {
			sleep(time.Minute)
			w.put(zonesPath, fmt.Sprintf(`{"v":1,"zones":["z%d"],"topics":{"t":[0]}}`, i))
			noerr.Want(w, a.Rebalance(w.Context()))
			if got, want := a.Snapshot().Zones, zonesOf(fmt.Sprint("z", i)); !maps.Equal(got, want) {
				w.Errorf("got %v, want %v", got, want)
			}
		}
	})
}
