package allocfn_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/kielgo/kiel/allocfn"
)

// TestConcurrentCalls calls each function from several goroutines at once on one input, which is all they share, and wants one
// result. It is meant for -race.
func TestConcurrentCalls(t *testing.T) {
	in := inZones(groupOf(numberedNames("host", 7), append(topicOf("t", 20), topicOf("u", 5)...)...), 3, 4)
	for m := range in.Members {
		in.Members[m].Weight = 1 + m%3
	}
	text := fmt.Sprint(in)
	for _, f := range append(everyFunc(), kielRoundRobin()) {
		want := mustCall(t, f, in)
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for k := range errs {
			wg.Go(func() { errs[k] = callAll(f, in, want) })
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
		}
	}
	if after := fmt.Sprint(in); after != text {
		t.Errorf("the input was changed to %s", after)
	}
}

// callAll makes f's result in every way, a few times.
func callAll(f allocfn.Func, in allocfn.Input, want allocfn.Assignment) error {
	for range 5 {
		a, err := allocfn.Call(f, in)
		if err != nil || !slices.Equal(a, want) {
			return fmt.Errorf("got %v, %w, want %v", a, err, want)
		}
		if a, err = f.Assign(in); err != nil || !slices.Equal(a, want) {
			return fmt.Errorf("Assign: got %v, %w, want %v", a, err, want)
		}
	}
	v, err := allocfn.NewView(in, want)
	if err != nil {
		return err
	}
	if _, err := allocfn.Measure(allocfn.Plan{in, want}, allocfn.Plan{in, want}); err != nil {
		return err
	}
	if got := allocfn.Mapping(in, want); len(got) > 0 && len(v.Of(0)) == 0 {
		return fmt.Errorf("member 0 has nothing in %v", got)
	}
	return nil
}
