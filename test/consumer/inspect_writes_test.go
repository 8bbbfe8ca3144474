package consumer_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

const ownersPath = "/kiel/groups/g/owners"

// used lets a member handle ten messages of each of two partitions, and leave.
func (r *rig) used() {
	r.t.Helper()
	a := r.member("a", nil).start()
	r.produce(10, 0, 1)
	until(r.t, "all is committed", func() bool { return r.committed(topic, 0) == 10 && r.committed(topic, 1) == 10 })
	quit(a)
}

// target reads a target.
func target(t *testing.T, s string) inspect.Target {
	t.Helper()
	to, err := inspect.ParseTarget(s, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// Each target moves the offsets to where the next members begin, with what the group has to know of its commits.
func TestResetOffsets(t *testing.T) {
	for to, want := range map[string]int64{"start": 0, "end": 20, "7": 7, "99": 20, "-3": 7, "+1": 11, "-99": 0, "@-30s": 10, "@2001-01-01T00:00:00Z": 20} {
		t.Run(to, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				r.used()
				time.Sleep(time.Minute)
				r.produce(10, 0, 1)
				in := r.inspector("")
				before := r.kafka.GroupInfo(group).Commits[topic][0].Metadata
				reset := inspect.Reset{Topic: topic, To: target(t, to)}
				result, err := in.ResetOffsets(t.Context(), group, reset)
				if err != nil || result.Written || len(result.Partitions) != 2 || result.Partitions[0].From != 10 || result.Partitions[0].To != want {
					t.Fatalf("%+v, %v", result, err)
				}
				if got := r.committed(topic, 0); got != 10 {
					t.Fatalf("stored %d without Write", got)
				}
				reset.Write = true
				if result, err = in.ResetOffsets(t.Context(), group, reset); err != nil || !result.Written || result.NotExcluded == "" {
					t.Fatalf("%+v, %v", result, err)
				}
				ids, _, _ := strings.Cut(strings.TrimPrefix(before, "kiel1;"), ";")
				if got := r.kafka.GroupInfo(group).Commits[topic][0].Metadata; got != "kiel1;"+ids+";0/2;" {
					t.Errorf("metadata %q, before %q", got, before)
				}
				if got := r.committed(topic, 1); got != want {
					t.Errorf("stored %d", got)
				}
				b := r.member("b", nil).start()
				until(t, "b has read the rest", func() bool { return r.committed(topic, 0) == 20 && r.committed(topic, 1) == 20 })
				if n := total(b); n != int(2*(20-want)) {
					t.Errorf("b got %d messages", n)
				}
				quit(b)
			})
		})
	}
}

// Nothing is stored while somebody uses the group, or may.
func TestResetIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		use  func(r *rig)
		want error
		says string
	}{
		"a member": {func(r *rig) {
			b := r.member("b", nil).start()
			until(r.t, "b runs", func() bool { return len(b.owns()) == 2 })
			r.t.Cleanup(b.leave)
		}, inspect.ErrInUse, "members b run"},
		"a claim": {func(r *rig) { mustCreate(r, ownersPath+"/t:0") }, inspect.ErrInUse, "claims of t:0"},
		"a member under another chroot": {func(r *rig) {
			for _, path := range []string{"/x", "/x/kiel", "/x/kiel/groups", "/x/kiel/groups/g", "/x/kiel/groups/g/members", "/x/kiel/groups/g/members/m"} {
				mustCreate(r, path)
			}
		}, inspect.ErrInUse, "members under /x"},
		"a member that joins before the write": {func(r *rig) { r.once(kmsg.ListOffsets, func() { mustCreate(r, membersPath+"/late") }) }, inspect.ErrInUse, "members late"},
		"a claim made before the write":        {func(r *rig) { r.once(kmsg.ListOffsets, func() { mustCreate(r, ownersPath+"/t:1") }) }, inspect.ErrInUse, "t:1"},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				r.used()
				in := r.inspector("")
				tc.use(r)
				_, err := in.ResetOffsets(t.Context(), group, inspect.Reset{Topic: topic, To: target(t, "start"), Write: true})
				if !errors.Is(err, tc.want) || errors.Is(err, inspect.ErrChanged) || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("got %v", err)
				}
				if got := r.committed(topic, 0); got != 10 {
					t.Errorf("stored %d", got)
				}
			})
		})
	}
}

// A member that joins while the offsets are written, and an offset that somebody else stores, are seen after the write.
func TestResetLooksAgain(t *testing.T) {
	for name, meanwhile := range map[string]func(r *rig){
		"a member joins":       func(r *rig) { r.once(kmsg.OffsetCommit, func() { mustCreate(r, membersPath+"/late") }) },
		"another offset comes": func(r *rig) { r.afterCommit(func() { r.commitAs("kiel1;;77;", 0, 5) }) },
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				r.used()
				in := r.inspector("")
				meanwhile(r)
				result, err := in.ResetOffsets(t.Context(), group, inspect.Reset{Topic: topic, To: target(t, "start"), Write: true})
				if !errors.Is(err, inspect.ErrChanged) || result == nil || !result.Written {
					t.Errorf("%+v, %v", result, err)
				}
			})
		})
	}
}

// once calls f before the next request of a kind is answered.
func (r *rig) once(key kmsg.Key, f func()) {
	var called sync.Once
	r.kafka.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
		called.Do(f)
		return nil, nil, false
	})
}

// afterCommit calls f after the next commit, when ZooKeeper is asked for the members again.
func (r *rig) afterCommit(f func()) {
	var committed, called atomic.Bool
	r.once(kmsg.OffsetCommit, func() { committed.Store(true) })
	r.zk.SetHook(func(q *zktest.Request) zktest.Action {
		if committed.Load() && q.Path == membersPath && called.CompareAndSwap(false, true) {
			f()
		}
		return zktest.Action{}
	})
}

func mustCreate(r *rig, path string) {
	r.t.Helper()
	if err := r.zk.Create(path, nil); err != nil {
		r.t.Error(err)
	}
}

func TestBadTargets(t *testing.T) {
	for _, s := range []string{"", "middle", "@", "@1h", "@--1h", "@-1", "1e3", "@1969-01-01T00:00:00Z", "99999999999999999999", "\x1b[2J"} {
		if to, err := inspect.ParseTarget(s, time.Now()); !errors.Is(err, inspect.ErrTarget) {
			t.Errorf("%q: %+v, %v", s, to, err)
		} else if strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%q", err)
		}
	}
}

func TestReleaseAndRemoveTopic(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b := r.two(nil)
		in := r.inspector("")
		living, err := in.Release(t.Context(), group, kiel.Partition{Topic: topic, ID: 0}, true)
		if !errors.Is(err, ownership.ErrNotPersistent) || living == nil || living.Session == "" || len(a.owns())+len(b.owns()) != 4 {
			t.Errorf("a living claim: %+v, %v", living, err)
		}
		if err := errors.Join(r.zk.Delete(ownersPath+"/t:0"), r.zk.Create(ownersPath+"/t:0", nil)); err != nil {
			t.Fatal(err)
		}
		until(t, "its owner has lost it", func() bool { return len(a.owns())+len(b.owns()) == 3 })
		block, err := in.Release(t.Context(), group, kiel.Partition{Topic: topic, ID: 0}, false)
		if err != nil || !block.Persistent || !slices.Contains(r.zk.Children(ownersPath), "t:0") {
			t.Errorf("%+v, %v", block, err)
		}
		if _, err := in.Release(t.Context(), group, kiel.Partition{Topic: topic, ID: 0}, true); err != nil {
			t.Error(err)
		}
		until(t, "it is owned again", func() bool { return len(a.owns())+len(b.owns()) == 4 })
		if err := in.RemoveTopic(t.Context(), group, topic); !errors.Is(err, allocator.ErrTopicInUse) {
			t.Errorf("a topic in use: %v", err)
		}
		quit(a, b)
		if err := in.RemoveTopic(t.Context(), group, topic); err != nil || r.set() != "[]" {
			t.Errorf("%v, set %s", err, r.set())
		}
	})
}

// The reply to the delete gets lost: whether it was done is read.
func TestReleaseWithoutReply(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		quit(r.member("a", nil).start())
		mustCreate(r, ownersPath+"/t:0")
		in := r.inspector("")
		r.zk.LoseReply(1, func(q zktest.Request) bool { return q.Op == zktest.OpMulti && len(q.Ops) > 1 })
		if _, err := in.Release(t.Context(), group, kiel.Partition{Topic: topic, ID: 0}, true); err != nil {
			t.Error(err)
		}
		if left := r.zk.Children(ownersPath); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	})
}
