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

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/status"
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
		r.want(status.TopicAdded, "t:1")
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
		if r.want(status.TopicRemoved, ""); len(*adds) != 2 {
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
		if r.want(status.TopicRemoved, ""); len(*adds) != 0 {
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
		r.want(status.Started, "") // the loop goes on
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
				noerr.Want(r, <-removed)
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
				noerr.Must(r, r.AddPartitions(r.Context(), map[string][]int32{"t": {2}}))
				r.partitions() // kazoo's lock makes the znode first
				sleep(seedPause / 2)
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
