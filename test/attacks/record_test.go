package attacks_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/zktest"
)

// byWeight gives each member a run of the partitions, as long as its weight says.
func byWeight() allocfn.Func {
	return allocfn.Func{Name: "by-weight", Assign: func(in allocfn.Input) (allocfn.Assignment, error) {
		total := 0
		for _, m := range in.Members {
			total += max(1, m.Weight)
		}
		a := make(allocfn.Assignment, len(in.Partitions))
		for i := range a {
			at := i * total / len(a)
			for k, m := range in.Members {
				if at -= max(1, m.Weight); at < 0 {
					a[i] = int32(k)
					break
				}
			}
		}
		return a, nil
	}}
}

func seed(n int32) map[string][]int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i)
	}
	return map[string][]int32{topic: ids}
}

// sameMapping compares the mappings that members act on.
func sameMapping(o *outcome, a, b *member) {
	x, y := fmt.Sprint(a.alloc.Snapshot().Mapping()), fmt.Sprint(b.alloc.Snapshot().Mapping())
	if x != y {
		o.harmed(diverged, "%s acts on %s, %s on %s", a.name, x, b.name, y)
	}
}

// Execution §7: a member comes back under its name with another weight before the others have read that it was gone.
func TestSameNameNewRecord(t *testing.T) {
	withstood(t, bubble(t, zktest.Options{}, func(w *world) *outcome {
		opts := options{allocator: allocator.Options{Func: byWeight(), Seed: seed(10)}}
		m1, m2 := w.member("m1", opts), w.member("m2", opts)
		m1.owns(10*time.Second, "0 1 2 3 4")
		m2.owns(time.Second, "5 6 7 8 9")
		time.Sleep(10 * time.Second)
		w.net.Client("m1").Delay(200 * time.Millisecond)
		m2.stop()
		opts.allocator.Weight = 5
		again := w.member("m2", opts)
		time.Sleep(time.Second)
		w.heal()
		time.Sleep(time.Minute)
		now := &outcome{harms: map[harm]string{}}
		sameMapping(now, m1, again)
		owned := len(m1.owner.Owned()) + len(again.owner.Owned())
		o := w.close()
		for h, s := range now.harms {
			o.harmed(h, "%s; a minute later %d of 10 partitions have an owner", s, owned)
		}
		return o
	}))
}

// Negative control "members with different functions and the check off": each prefers another function that both have.
func TestDifferentFunctions(t *testing.T) {
	withstood(t, bubble(t, zktest.Options{}, func(w *world) *outcome {
		member := func(name string, fn, also allocfn.Func) *member {
			return w.member(name, options{allocator: allocator.Options{Func: fn, AlsoFuncs: []allocfn.Func{also}, Seed: seed(8)}})
		}
		a := member("a", allocfn.RoundRobin(), allocfn.Range())
		b := member("b", allocfn.Range(), allocfn.RoundRobin())
		time.Sleep(time.Minute)
		now := &outcome{harms: map[harm]string{}}
		sameMapping(now, a, b)
		owned := len(a.owner.Owned()) + len(b.owner.Owned())
		o := w.close()
		for h, s := range now.harms {
			o.harmed(h, "%s; a minute later %d of 8 partitions have an owner", s, owned)
		}
		if owned < 8 && len(now.harms) == 0 {
			o.harmed(unowned, "%d of 8 partitions have an owner", owned)
		}
		return o
	}))
}
