package allocator

import (
	"errors"
	"fmt"
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
