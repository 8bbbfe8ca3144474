package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/sharedset"
)

// inSeedRig is inRig with the seed t:0 t:1; adds notes the calls of Add.
func inSeedRig(t *testing.T, test func(r *rig, adds *[]string)) {
	t.Helper()
	inRig(t, func(o *Options) { o.Seed = map[string][]int32{"t": {0, 1}} }, func(r *rig) {
		adds := new([]string)
		r.set.add = func(items ...string) error {
			r.locked(func() { *adds = append(*adds, strings.Join(items, " ")) })
			time.Sleep(30 * time.Millisecond)
			return nil
		}
		test(r, adds)
	})
}

func TestSeedIsAddedOnJoining(t *testing.T) {
	inSeedRig(t, func(r *rig, adds *[]string) {
		r.join("a")
		r.showSet(&sharedset.View{})
		if len(*adds) != 0 {
			r.Error("seeded without being a member")
		}
		r.join("a", "b")
		if got := fmt.Sprint(*adds); got != "[t:0 t:1]" {
			r.Error(got)
		}
		ready := make(chan error, 1)
		go func() { ready <- r.Ready(r.Context()) }()
		synctest.Wait()
		if len(ready) != 0 {
			r.Error("ready without the seed in the set")
		}
		start := time.Now()
		r.partitions() // kazoo's lock makes the znode first
		r.partitions("t:0", "t:1")
		sleep(30 * time.Millisecond)
		if err := <-ready; err != nil || r.Snapshot().At != start {
			r.Errorf("after %v: %v", time.Since(start), err)
		}
		r.want(TriggerPartitions, "t:1")
		// Once removed it stays removed.
		sleep(time.Minute)
		r.partitions("t:0")
		sleep(time.Minute)
		r.lose(errors.New("x"))
		r.incarnate()
		r.partitions()
		r.join("a", "b")
		sleep(time.Minute)
		if len(*adds) != 1 {
			r.Error("seeded again:", *adds)
		}
	})
}

// TestSeedIsNotAddedTwice: when the seed is in the set, the last view is still one from before. Who removes a partition then has
// removed it.
func TestSeedIsNotAddedTwice(t *testing.T) {
	inSeedRig(t, func(r *rig, adds *[]string) {
		r.showSet(&sharedset.View{})
		r.join("b")
		r.partitions() // kazoo's lock makes the znode first
		sleep(40 * time.Millisecond)
		r.partitions("t:0", "t:1")
		r.partitions("t:0")
		sleep(time.Minute)
		if len(*adds) != 1 {
			r.Error("seeded again:", *adds)
		}
	})
}

func TestSeedThatIsThereIsNotAdded(t *testing.T) {
	inSeedRig(t, func(r *rig, adds *[]string) {
		r.begin("s:0", "t:0", "t:1", "u:0")
		if err := r.Ready(r.Context()); err != nil || len(*adds) != 0 {
			r.Error(err, *adds)
		}
	})
}

func TestSeedIsAddedAgainWhenTheSetIsDeleted(t *testing.T) {
	inSeedRig(t, func(r *rig, adds *[]string) {
		r.begin("t:0", "t:1")
		sleep(time.Minute)
		r.told()
		r.showSet(&sharedset.View{})
		if len(*adds) != 1 {
			r.Error(*adds)
		}
		sleep(20 * time.Millisecond)
		r.czxid = 2
		r.partitions()
		r.partitions("t:0", "t:1")
		sleep(time.Minute)
		if got := r.told(); got != "+ -" {
			r.Errorf("told %q: all was taken away in between", got)
		}
		r.showSet(&sharedset.View{})
		sleep(time.Minute)
		if r.want(TriggerPartitions, ""); len(*adds) != 2 {
			r.Error(*adds)
		}
	})
}

// TestSetMadeAgainByAnother: another member was faster, we never see it missing.
func TestSetMadeAgainByAnother(t *testing.T) {
	inSeedRig(t, func(r *rig, adds *[]string) {
		r.begin("t:0", "t:1")
		sleep(time.Minute)
		r.told()
		r.czxid = 2
		r.partitions("t:0")
		if len(*adds) != 1 {
			r.Error(*adds)
		}
		r.partitions("t:0", "t:1")
		sleep(time.Minute)
		if got := r.told(); got != "+ -" || len(*adds) != 1 {
			r.Errorf("told %q, adds %v", got, *adds)
		}
	})
}

// TestSetOfServersThatLostTheirData: they count from the beginning, up to the same number when the same things are made.
func TestSetOfServersThatLostTheirData(t *testing.T) {
	inSeedRig(t, func(r *rig, adds *[]string) {
		r.showSet(&sharedset.View{Items: []string{"t:0", "t:1"}, Exists: true, Czxid: 7, Ctime: 1000})
		r.join("b")
		sleep(time.Minute)
		r.showSet(&sharedset.View{Items: []string{"t:0"}, Exists: true, Czxid: 7, Ctime: 2000})
		if len(*adds) != 1 {
			r.Error("not seeded again")
		}
	})
}

func TestEmptySetIsNotAMissingOne(t *testing.T) {
	inSeedRig(t, func(r *rig, adds *[]string) {
		r.begin("t:0", "t:1")
		r.partitions()
		sleep(time.Minute)
		if r.want(TriggerPartitions, ""); len(*adds) != 0 {
			r.Error(*adds)
		}
	})
}

func TestSeedingIsRepeatedUntilItWorks(t *testing.T) {
	inSeedRig(t, func(r *rig, _ *[]string) {
		tries := 0
		r.set.add = func(...string) error {
			if tries++; tries < 5 {
				return errors.New("blocked by somebody")
			}
			return nil
		}
		r.begin()
		r.want(TriggerInitial, "") // the loop goes on
		if err := r.failed(); err == nil || !strings.Contains(err.Error(), "blocked by somebody") {
			r.Error(err)
		}
		sleep(time.Minute)
		if err := r.failed(); tries != 5 || err != nil {
			r.Errorf("%d tries, reported again: %v", tries, err)
		}
	})
}

func TestUnreadableSetIsNotSeeded(t *testing.T) {
	inSeedRig(t, func(r *rig, adds *[]string) {
		r.join("b")
		r.showSet(&sharedset.View{Exists: true, Czxid: 1, Err: sharedset.ErrUnreadable})
		sleep(time.Hour)
		if len(*adds) != 0 {
			r.Error(*adds)
		}
		r.partitions()
		if len(*adds) != 1 {
			r.Error("not seeded once it could be read")
		}
	})
}

// TestSeedingAndRemovalTakeTurns: whatever comes first, the seeding of a member does not bring back what the member removes.
func TestSeedingAndRemovalTakeTurns(t *testing.T) {
	gone := map[string][]int32{"t": {0}}
	for name, removalFirst := range map[string]bool{"seeding first": false, "removal first": true} {
		t.Run(name, func(t *testing.T) {
			inSeedRig(t, func(r *rig, _ *[]string) {
				var set []string
				locked, removed := make(chan struct{}), make(chan error, 1)
				r.set.add = func(items ...string) error {
					if !removalFirst {
						<-locked
					}
					r.locked(func() { set = slices.Sorted(slices.Values(slices.Concat(set, items))) })
					return nil
				}
				r.set.remove = func(items ...string) error {
					r.locked(func() { set = missing(set, items) })
					if removalFirst {
						<-locked // the answer is on its way
					}
					return nil
				}
				remove := func() { removed <- r.RemovePartitions(r.Context(), gone) }
				if removalFirst {
					go remove()
					synctest.Wait()
				}
				r.begin() // without the seed, which is added
				if !removalFirst {
					go remove()
					synctest.Wait()
				}
				close(locked)
				sleep(time.Minute)
				if got := fmt.Sprint(set); got != "[t:1]" {
					r.Errorf("the set has %s", got)
				}
				if err := <-removed; err != nil {
					r.Error(err)
				}
			})
		})
	}
}

// TestTurnIsWaitedForWithContext: a removal behind a seeding that hangs ends with its context.
func TestTurnIsWaitedForWithContext(t *testing.T) {
	inSeedRig(t, func(r *rig, _ *[]string) {
		hang := make(chan struct{})
		r.set.add = func(...string) error { <-hang; return nil }
		r.begin()
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		for name, change := range map[string]func(context.Context, map[string][]int32) error{
			"add": r.AddPartitions, "remove": r.RemovePartitions,
		} {
			if err := change(ctx, map[string][]int32{"t": {0}}); !errors.Is(err, context.DeadlineExceeded) {
				r.Errorf("%s: %v", name, err)
			}
		}
		close(hang)
	})
}

// TestViewFromBeforeAddPartitions: a view without what was just added may be from before. It is no reason to add it again, which
// would undo the removal by another member. One that is still without it a second later is.
func TestViewFromBeforeAddPartitions(t *testing.T) {
	for name, shown := range map[string]bool{"added": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			inSeedRig(t, func(r *rig, adds *[]string) {
				added := func() (all string) {
					r.locked(func() { all = fmt.Sprint(*adds) })
					return all
				}
				r.seed.remove([]string{"t:0", "t:1"})
				r.run()
				r.showSet(&sharedset.View{})
				r.join("b")
				if err := r.AddPartitions(r.Context(), map[string][]int32{"t": {2}}); err != nil {
					r.Fatal(err)
				}
				r.partitions() // kazoo's lock makes the znode first
				sleep(seedSettle / 2)
				if shown {
					r.partitions("t:2")
					r.partitions() // another member removed it
				}
				if got := added(); got != "[t:2]" {
					r.Errorf("at once: added %s", got)
				}
				sleep(time.Minute)
				want := "[t:2 t:2]"
				if shown {
					want = "[t:2]"
				}
				if got := added(); got != want {
					r.Errorf("a minute later: added %s, want %s", got, want)
				}
			})
		})
	}
}

// TestSeedingIsNotRepeatedOnAnOldView: after a try that failed the set is judged as it is then.
func TestSeedingIsNotRepeatedOnAnOldView(t *testing.T) {
	inSeedRig(t, func(r *rig, _ *[]string) {
		var tries []time.Time
		r.set.add = func(...string) error {
			r.locked(func() { tries = append(tries, time.Now()) })
			return errors.New("blocked by somebody")
		}
		tried := func() (n int) {
			r.locked(func() { n = len(tries) })
			return n
		}
		r.begin()
		if n := tried(); n != 1 {
			r.Errorf("%d tries", n)
		}
		r.partitions("t:0", "t:1") // another member added them
		r.partitions("t:0")
		sleep(time.Minute)
		if n := tried(); n != 1 {
			r.Errorf("added again what the set had: %d tries", n)
		}
		r.showSet(&sharedset.View{})
		sleep(seedRetryMin)
		if n := tried(); n < 3 {
			r.Errorf("%d tries: the pauses between them do not begin anew", n)
		}
	})
}

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
				if err := r.AddPartitions(r.Context(), map[string][]int32{"t": {2}}); err != nil {
					r.Fatal(err)
				}
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
		sleep(3 * seedSettle)
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
			if err := r.AddPartitions(r.Context(), p); err != nil {
				r.Fatal(err)
			}
		}
		r.locked(func() { *adds = nil })
		r.restored(4, "s:0", "u:3")
		sleep(time.Minute)
		r.showSet(&sharedset.View{}) // the set is deleted
		sleep(time.Minute)
		r.locked(func() {
			if got := fmt.Sprint(slices.Compact(*adds)); got != "[u:3]" {
				r.Errorf("added %s when the set was deleted", got)
			}
		})
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
		if err := r.AddPartitions(r.Context(), map[string][]int32{"t": {1}}); err != nil {
			r.Fatal(err)
		}
		r.locked(func() { *adds = nil })
		r.restored(2)
		r.restored(3, "t:1")
		sleep(time.Minute)
		r.showSet(&sharedset.View{}) // the set is deleted
		sleep(time.Minute)
		r.locked(func() {
			if got := fmt.Sprint(slices.Compact(*adds)); got != "[t:1]" {
				r.Errorf("added %s when the set was deleted", got)
			}
		})
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
	for name, away := range map[string]time.Duration{"at once": 0, "seen late": 3 * seedSettle} {
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
