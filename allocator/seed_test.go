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

// seedRig has the seed t:0 t:1; adds notes the calls of Add.
func seedRig(t *testing.T) (r *rig, adds *[]string) {
	t.Helper()
	r = newRig(t, func(o *Options) { o.Seed = map[string][]int32{"t": {0, 1}} })
	adds = new([]string)
	r.set.add = func(items ...string) error {
		r.locked(func() { *adds = append(*adds, strings.Join(items, " ")) })
		time.Sleep(30 * time.Millisecond)
		return nil
	}
	return r, adds
}

func TestSeedIsAddedOnJoining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, adds := seedRig(t)
		r.run()
		r.join("a")
		r.showSet(&sharedset.View{})
		if len(*adds) != 0 {
			t.Error("seeded without being a member")
		}
		r.join("a", "b")
		if got := fmt.Sprint(*adds); got != "[t:0 t:1]" {
			t.Error(got)
		}
		ready := make(chan error, 1)
		go func() { ready <- r.Ready(t.Context()) }()
		synctest.Wait()
		if len(ready) != 0 {
			t.Error("ready without the seed in the set")
		}
		start := time.Now()
		r.partitions() // kazoo's lock makes the znode first
		r.partitions("t:0", "t:1")
		sleep(30 * time.Millisecond)
		if err := <-ready; err != nil || r.Snapshot().At != start {
			t.Errorf("after %v: %v", time.Since(start), err)
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
			t.Error("seeded again:", *adds)
		}
		r.stop()
	})
}

// TestSeedIsNotAddedTwice: when the seed is in the set, the last view is still one from before. Who removes a partition then
// has removed it.
func TestSeedIsNotAddedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, adds := seedRig(t)
		r.run()
		r.showSet(&sharedset.View{})
		r.join("b")
		r.partitions() // kazoo's lock makes the znode first
		sleep(40 * time.Millisecond)
		r.partitions("t:0", "t:1")
		r.partitions("t:0")
		sleep(time.Minute)
		if len(*adds) != 1 {
			t.Error("seeded again:", *adds)
		}
		r.stop()
	})
}

func TestSeedThatIsThereIsNotAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, adds := seedRig(t)
		r.begin("s:0", "t:0", "t:1", "u:0")
		if err := r.Ready(t.Context()); err != nil || len(*adds) != 0 {
			t.Error(err, *adds)
		}
		r.stop()
	})
}

func TestSeedIsAddedAgainWhenTheSetIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, adds := seedRig(t)
		r.begin("t:0", "t:1")
		sleep(time.Minute)
		r.told()
		r.showSet(&sharedset.View{})
		if len(*adds) != 1 {
			t.Error(*adds)
		}
		sleep(20 * time.Millisecond)
		r.czxid = 2
		r.partitions()
		r.partitions("t:0", "t:1")
		sleep(time.Minute)
		if got := r.told(); got != "+ -" {
			t.Errorf("told %q: all was taken away in between", got)
		}
		r.showSet(&sharedset.View{})
		sleep(time.Minute)
		if r.want(TriggerPartitions, ""); len(*adds) != 2 {
			t.Error(*adds)
		}
		r.stop()
	})
}

// TestSetMadeAgainByAnother: another member was faster, we never see it missing.
func TestSetMadeAgainByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, adds := seedRig(t)
		r.begin("t:0", "t:1")
		sleep(time.Minute)
		r.told()
		r.czxid = 2
		r.partitions("t:0")
		if len(*adds) != 1 {
			t.Error(*adds)
		}
		r.partitions("t:0", "t:1")
		sleep(time.Minute)
		if got := r.told(); got != "+ -" || len(*adds) != 1 {
			t.Errorf("told %q, adds %v", got, *adds)
		}
		r.stop()
	})
}

// TestSetOfServersThatLostTheirData: they count from the beginning, up to the same number when the same things are made.
func TestSetOfServersThatLostTheirData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, adds := seedRig(t)
		r.run()
		r.showSet(&sharedset.View{Items: []string{"t:0", "t:1"}, Exists: true, Czxid: 7, Ctime: 1000})
		r.join("b")
		sleep(time.Minute)
		r.showSet(&sharedset.View{Items: []string{"t:0"}, Exists: true, Czxid: 7, Ctime: 2000})
		if len(*adds) != 1 {
			t.Error("not seeded again")
		}
		r.stop()
	})
}

func TestEmptySetIsNotAMissingOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, adds := seedRig(t)
		r.begin("t:0", "t:1")
		r.partitions()
		sleep(time.Minute)
		if r.want(TriggerPartitions, ""); len(*adds) != 0 {
			t.Error(*adds)
		}
		r.stop()
	})
}

func TestSeedingIsRepeatedUntilItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := seedRig(t)
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
			t.Error(err)
		}
		sleep(time.Minute)
		if err := r.failed(); tries != 5 || err != nil {
			t.Errorf("%d tries, reported again: %v", tries, err)
		}
		r.stop()
	})
}

func TestUnreadableSetIsNotSeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, adds := seedRig(t)
		r.run()
		r.join("b")
		r.showSet(&sharedset.View{Exists: true, Czxid: 1, Err: sharedset.ErrUnreadable})
		sleep(time.Hour)
		if len(*adds) != 0 {
			t.Error(*adds)
		}
		r.partitions()
		if len(*adds) != 1 {
			t.Error("not seeded once it could be read")
		}
		r.stop()
	})
}

// TestSeedingAndRemovalTakeTurns: whatever comes first, the seeding of a member does not bring back what the member removes.
func TestSeedingAndRemovalTakeTurns(t *testing.T) {
	gone := map[string][]int32{"t": {0}}
	for name, removalFirst := range map[string]bool{"seeding first": false, "removal first": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := seedRig(t)
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
				remove := func() { removed <- r.RemovePartitions(t.Context(), gone) }
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
					t.Errorf("the set has %s", got)
				}
				if err := <-removed; err != nil {
					t.Error(err)
				}
				r.stop()
			})
		})
	}
}

// TestTurnIsWaitedForWithContext: a removal behind a seeding that hangs ends with its context.
func TestTurnIsWaitedForWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := seedRig(t)
		hang := make(chan struct{})
		r.set.add = func(...string) error { <-hang; return nil }
		r.begin()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for name, change := range map[string]func(context.Context, map[string][]int32) error{
			"add": r.AddPartitions, "remove": r.RemovePartitions,
		} {
			if err := change(ctx, map[string][]int32{"t": {0}}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		}
		close(hang)
		r.stop()
	})
}

// TestViewFromBeforeAddPartitions: a view without what was just added may be from before. It is no reason to add it again,
// which would undo the removal by another member. One that is still without it a second later is.
func TestViewFromBeforeAddPartitions(t *testing.T) {
	for name, shown := range map[string]bool{"added": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, adds := seedRig(t)
				added := func() (all string) {
					r.locked(func() { all = fmt.Sprint(*adds) })
					return all
				}
				r.seed.remove([]string{"t:0", "t:1"})
				r.run()
				r.showSet(&sharedset.View{})
				r.join("b")
				if err := r.AddPartitions(t.Context(), map[string][]int32{"t": {2}}); err != nil {
					t.Fatal(err)
				}
				r.partitions() // kazoo's lock makes the znode first
				sleep(seedSettle / 2)
				if shown {
					r.partitions("t:2")
					r.partitions() // another member removed it
				}
				if got := added(); got != "[t:2]" {
					t.Errorf("at once: added %s", got)
				}
				sleep(time.Minute)
				want := "[t:2 t:2]"
				if shown {
					want = "[t:2]"
				}
				if got := added(); got != want {
					t.Errorf("a minute later: added %s, want %s", got, want)
				}
				r.stop()
			})
		})
	}
}

// TestSeedingIsNotRepeatedOnAnOldView: after a try that failed the set is judged as it is then.
func TestSeedingIsNotRepeatedOnAnOldView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := seedRig(t)
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
			t.Errorf("%d tries", n)
		}
		r.partitions("t:0", "t:1") // another member added them
		r.partitions("t:0")
		sleep(time.Minute)
		if n := tried(); n != 1 {
			t.Errorf("added again what the set had: %d tries", n)
		}
		r.showSet(&sharedset.View{})
		sleep(seedRetryMin)
		if n := tried(); n < 3 {
			t.Errorf("%d tries: the pauses between them do not begin anew", n)
		}
		r.stop()
	})
}
