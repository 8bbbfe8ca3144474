package allocator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// TestRemovedBeforeItWasSeen: an item that another member removes right after AddPartitions, before the loop has seen it in the
// set, leaves the seed. What a view from before the addition lacks does not.
func TestRemovedBeforeItWasSeen(t *testing.T) {
	tests := map[string]struct {
		views []int32 // the data versions of the views without t:2; the addition makes version 5
		early bool    // whether the views come while AddPartitions runs
		made  bool    // whether the addition makes the set
		anew  bool    // whether the set is deleted and made anew after the addition
		want  string  // what is added later, and when the set is deleted
	}{
		"removed":                          {views: []int32{6}, want: "[]"},
		"removed, with a view from before": {views: []int32{4, 6}, want: "[]"},
		"removed from a set that is new":   {views: []int32{6}, made: true, want: "[]"},
		"removed before the addition ends": {views: []int32{6}, early: true, want: "[]"},
		"views from before":                {views: []int32{3, 4}, want: "[t:2]"},
		"the set is made anew":             {views: []int32{6}, anew: true, want: "[t:2]"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inSeedRig(t, func(r *rig, adds *[]string) {
				r.seed.remove([]string{"t:0", "t:1"})
				r.run()
				r.join("b")
				r.showSet(&sharedset.View{})
				if !test.made {
					r.restored(2, "s:0")
				}
				show := func() {
					if test.anew {
						r.czxid++
					}
					for _, version := range test.views {
						r.restored(version, "s:0")
					}
				}
				r.set.left = &sharedset.View{Items: []string{"s:0", "t:2"}, Exists: true, Czxid: r.czxid, DataVersion: 5}
				r.set.add = func(items ...string) error {
					added := 0
					r.locked(func() {
						*adds = append(*adds, strings.Join(items, " "))
						added = len(*adds)
					})
					if test.early && added == 1 {
						show()
					}
					return nil
				}
				noerr.Must(r, r.AddPartitions(r.Context(), map[string][]int32{"t": {2}}))
				if !test.early {
					show()
				}
				sleep(time.Minute)
				r.showSet(&sharedset.View{}) // the set is deleted
				sleep(time.Minute)
				var got string
				r.locked(func() { got = fmt.Sprint(slices.Compact((*adds)[1:])) })
				if got != test.want {
					r.Errorf("added %s, want %s", got, test.want)
				}
			})
		})
	}
}

// TestRemovedWhileAway: another member removes an item of the seed right after it was added, and this member sees the set only
// when it does not wait for its addition any more.
func TestRemovedWhileAway(t *testing.T) {
	inSeedRig(t, func(r *rig, adds *[]string) {
		r.run()
		r.join("b")
		r.set.left = &sharedset.View{Items: []string{"t:0", "t:1"}, Exists: true, Czxid: r.czxid, DataVersion: 2}
		r.restored(1, "s:0")
		sleep(3 * seedPause)
		r.restored(3, "t:0")
		sleep(time.Minute)
		if got := fmt.Sprint(*adds); got != "[t:0 t:1]" {
			r.Errorf("added %s", got)
		}
	})
}

// TestRemovedBetweenTwoAdditions: the loop sees the set only after the second addition, which does not hide the removal.
func TestRemovedBetweenTwoAdditions(t *testing.T) {
	inSeedRig(t, func(r *rig, adds *[]string) {
		r.seed.remove([]string{"t:0", "t:1"})
		r.run()
		r.join("b")
		r.restored(1, "s:0")
		for i, items := range [][]string{{"s:0", "t:2"}, {"s:0", "u:3"}} {
			r.set.left = &sharedset.View{Items: items, Exists: true, Czxid: r.czxid, DataVersion: int32(2 + 2*i)}
			p := map[string][]int32{items[1][:1]: {int32(2 + i)}}
			noerr.Must(r, r.AddPartitions(r.Context(), p))
		}
		r.locked(func() { *adds = nil })
		r.restored(4, "s:0", "u:3")
		r.wantAddedWhenDeleted(adds, "[u:3]")
	})
}

// wantAddedWhenDeleted deletes the set, and checks what the member has added to it since adds was emptied.
func (r *rig) wantAddedWhenDeleted(adds *[]string, want string) {
	r.Helper()
	sleep(time.Minute)
	r.showSet(&sharedset.View{})
	sleep(time.Minute)
	r.locked(func() {
		if got := fmt.Sprint(slices.Compact(*adds)); got != want {
			r.Errorf("added %s when the set was deleted, want %s", got, want)
		}
	})
}

// TestAddedAgainAfterARemoval: a view that shows the removal of an item comes after this member has added the item again. The
// item stays in the seed.
func TestAddedAgainAfterARemoval(t *testing.T) {
	inSeedRig(t, func(r *rig, adds *[]string) {
		r.seed.remove([]string{"t:0"})
		r.run()
		r.join("b")
		r.restored(1, "t:1")
		r.set.left = &sharedset.View{Items: []string{"t:1"}, Exists: true, Czxid: r.czxid, DataVersion: 3}
		noerr.Must(r, r.AddPartitions(r.Context(), map[string][]int32{"t": {1}}))
		r.locked(func() { *adds = nil })
		r.restored(2)
		r.restored(3, "t:1")
		r.wantAddedWhenDeleted(adds, "[t:1]")
	})
}

// TestSeedingAddsTheSeedOnly: AddPartitions adds an item while the seeding waits for its turn, and another member removes the
// item at once. The seeding does not bring it back.
func TestSeedingAddsTheSeedOnly(t *testing.T) {
	inSeedRig(t, func(r *rig, adds *[]string) {
		locked, added := make(chan struct{}), make(chan error, 1)
		r.set.add = func(items ...string) error {
			r.locked(func() { *adds = append(*adds, items...) })
			if items[0] == "u:7" {
				<-locked
			}
			return nil
		}
		go func() { added <- r.AddPartitions(r.Context(), map[string][]int32{"u": {7}}) }()
		synctest.Wait()
		r.begin()
		close(locked)
		sleep(time.Minute)
		if got := fmt.Sprint(*adds); <-added != nil || got != "[u:7 t:0 t:1]" {
			r.Errorf("added %s", got)
		}
	})
}

// TestReadyThoughTheSeedWasRemoved: a member is ready although another removes an item of its seed before the loop has seen that
// item in the set, which then is as before the addition.
func TestReadyThoughTheSeedWasRemoved(t *testing.T) {
	for name, away := range map[string]time.Duration{"at once": 0, "seen late": 3 * seedPause} {
		t.Run(name, func(t *testing.T) {
			inSeedRig(t, func(r *rig, adds *[]string) {
				r.run()
				r.join("b")
				r.set.left = &sharedset.View{Items: []string{"t:0", "t:1"}, Exists: true, Czxid: r.czxid, DataVersion: 2}
				r.restored(1, "t:0")
				sleep(away)
				v := *r.set.view
				v.DataVersion = 3
				r.set.put(&v)
				sleep(time.Minute)
				ctx, cancel := context.WithTimeout(r.Context(), time.Second)
				defer cancel()
				if err := r.Ready(ctx); err != nil || len(*adds) != 1 {
					r.Errorf("%v, added %v", err, *adds)
				}
			})
		})
	}
}
