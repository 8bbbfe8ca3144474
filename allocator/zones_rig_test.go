package allocator

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/zones"
	"github.com/kielgo/kiel/status"
)

// zonal gives b what is in zone b, and the rest to the first member.
func zonal() allocfn.Func {
	return allocfn.Func{Name: "zonal", Assign: func(in allocfn.Input) (allocfn.Assignment, error) {
		owner := make(allocfn.Assignment, len(in.Partitions))
		for i, p := range in.Partitions {
			if in.Zones[p] == "b" {
				owner[i] = int32(len(in.Members) - 1)
			}
		}
		return owner, nil
	}}
}

func withZonal(o *Options) { o.Func, o.PythonFunc = zonal(), "zonal" }

// zoned is zones in which these partitions of t are in b.
func zoned(ids ...int32) *zones.View {
	v := &zones.View{Zones: map[kiel.Partition]string{}}
	for _, id := range ids {
		v.Zones[kiel.Partition{Topic: "t", ID: id}] = "b"
	}
	return v
}

func TestZonesAreAChangeLikeOthers(t *testing.T) {
	inRig(t, withZonal, func(r *rig) {
		r.showZones(zoned(0, 9))
		r.partitions("t:0", "t:1", "t:2")
		r.join("a", "b")
		s := r.want(status.Started, "t:0")
		if !maps.Equal(s.Zones, zoned(0, 9).Zones) {
			r.Error(s.Zones)
		}
		sleep(time.Minute)
		n := r.published()
		r.showZones(zoned(1)) // at once, as after calm
		r.want(status.ZonesChanged, "t:1")
		for i := range int32(3) { // these together
			sleep(50 * time.Millisecond)
			r.showZones(zoned(i))
		}
		r.want(status.ZonesChanged, "t:1")
		sleep(defaultQuietPeriod)
		r.want(status.ZonesChanged, "t:2")
		if n := r.published() - n; n != 2 {
			r.Errorf("%d snapshots of two changes", n)
		}
		// What is read again and has not changed is no change.
		r.showZones(zoned(2))
		sleep(time.Minute)
		if now := r.published() - n; now != 2 {
			r.Errorf("%d snapshots of two changes", now)
		}
		// With something else, that is named.
		r.showZones(zoned(0))
		r.showZones(zoned(1))
		r.partitions("t:0", "t:1")
		sleep(time.Minute)
		r.want(status.TopicRemoved, "t:1")
		// Overtaken by a refresh.
		old := *r.zones.view
		old.Zones, old.Version = zoned(0).Zones, 1
		r.zones.put(&old)
		sleep(time.Minute)
		r.want(status.TopicRemoved, "t:1")
		noerr.Want(r, r.failed())
	})
}

// Zones that can't be read are none, and an error that goes when they can.
func TestUnreadableZonesAreNone(t *testing.T) {
	inRig(t, withZonal, func(r *rig) {
		bad := errors.New("no zones")
		r.showZones(&zones.View{Err: bad})
		r.partitions("t:0", "t:1")
		r.join("a", "b")
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		noerr.Want(r, r.Ready(ctx))
		if s := r.want(status.Started, ""); !errors.Is(s.Err, bad) || !errors.Is(r.failed(), bad) {
			r.Error(s.Err)
		}
		sleep(time.Minute)
		r.showZones(zoned())
		if s := r.want(status.Started, ""); s.Err != nil || !s.Joined {
			r.Errorf("repaired, to none: %v", s.Err)
		}
		sleep(time.Minute)
		r.showZones(zoned(1))
		r.want(status.ZonesChanged, "t:1")
		sleep(time.Minute)
		r.showZones(&zones.View{Err: bad})
		if s := r.want(status.ZonesChanged, ""); !errors.Is(s.Err, bad) || !errors.Is(r.failed(), bad) || len(s.Zones) != 0 {
			r.Errorf("%v, zones %v", s.Err, s.Zones)
		}
	})
}

// The zones of the incarnation before are none of this one's: they may be gone, and the others' mapping is another.
func TestZonesOfTwoIncarnations(t *testing.T) {
	inRig(t, withZonal, func(r *rig) {
		r.late = true
		r.run()
		r.showZones(zoned(0))
		r.partitions("t:0", "t:1")
		r.join("a", "b")
		r.want(status.Started, "t:0")
		r.lose(errors.New("session over"))
		r.incarnate()
		r.join("a", "b")
		r.partitions("t:0", "t:1")
		sleep(time.Hour)
		if s := r.Snapshot(); s.Incarnation == r.inc {
			r.Errorf("a mapping of zones that are no more: %s by %s", list(s.Mine()), s.Reason)
		}
		r.showZones(zoned(1))
		sleep(time.Minute)
		if s := r.Snapshot(); s.Incarnation != r.inc || list(s.Mine()) != "t:1" {
			r.Errorf("got %s, %v", list(s.Mine()), s.Err)
		}
	})
}

// A refresh counts though what it has read was not forwarded yet.
func TestRefreshedZones(t *testing.T) {
	inRig(t, withZonal, func(r *rig) {
		r.begin("t:0", "t:1")
		r.join("a", "b")
		r.loop.readers.refresh = func(context.Context) refreshed {
			v := zoned(1)
			v.Version, v.Incarnation = r.version+1, r.inc
			return refreshed{r.members.view, r.set.view, v, nil}
		}
		noerr.Want(r, r.Rebalance(r.Context()))
		r.want(status.MemberJoined, "t:1")
	})
}

// The seed is added while the zones are still being read; only the mapping waits for them.
func TestSeedDoesNotWaitForZones(t *testing.T) {
	inRig(t, func(o *Options) { o.Seed = map[string][]int32{"t": {0}} }, func(r *rig) {
		r.late = true
		added := 0
		r.set.add = func(...string) error { added++; return nil }
		r.run()
		r.partitions()
		r.join("b")
		if added != 1 || r.Snapshot() != nil {
			r.Errorf("added %d times, snapshot %v", added, r.Snapshot())
		}
		r.showZones(zoned())
		r.partitions("t:0")
		r.want(status.TopicAdded, "t:0")
	})
}
