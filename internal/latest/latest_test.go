package latest_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/latest"
)

// closed reports whether c is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestStoreWakesWhoWaits(t *testing.T) {
	v := latest.New(new(1))
	one, newer := v.Watch()
	if *one != 1 || closed(newer) {
		t.Errorf("%d, closed %v", *one, closed(newer))
	}
	v.Store(new(2))
	two, next := v.Watch()
	if !closed(newer) || *two != 2 || *v.Load() != 2 || *one != 1 || closed(next) {
		t.Errorf("closed %v, %d, then %d and closed %v", closed(newer), *one, *two, closed(next))
	}
}

func TestAmendWakesNobody(t *testing.T) {
	v := latest.New(new(1))
	_, newer := v.Watch()
	v.Amend(new(2))
	if closed(newer) || *v.Load() != 2 {
		t.Errorf("closed %v, %d", closed(newer), *v.Load())
	}
	if v.Store(new(3)); !closed(newer) {
		t.Error("the value after the amended one has woken nobody")
	}
}

// read starts a reader whose loop body takes so long, and returns what it has seen.
func read(ctx context.Context, v *latest.Value[int], ended <-chan struct{}, body time.Duration) <-chan []int {
	seen := make(chan []int, 1)
	go func() {
		var all []int
		for n := range v.Updates(ctx, ended) {
			all = append(all, *n)
			time.Sleep(body)
		}
		seen <- all
	}()
	return seen
}

// A fast reader sees all, a slow one skips, and each comes to the last, also when that was stored just before the end.
func TestUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := latest.New[int](nil)
		ended := make(chan struct{})
		fast, slow := read(t.Context(), v, ended, 0), read(t.Context(), v, ended, 2300*time.Millisecond)
		for n := range 6 {
			synctest.Wait()
			v.Store(new(n))
			if n == 5 {
				close(ended)
			}
			time.Sleep(time.Second)
		}
		if got := <-fast; !slices.Equal(got, []int{0, 1, 2, 3, 4, 5}) {
			t.Errorf("a fast reader saw %v", got)
		}
		if got := <-slow; !slices.Equal(got, []int{0, 2, 4, 5}) {
			t.Errorf("a slow reader saw %v", got)
		}
		if got := <-read(t.Context(), v, ended, 0); !slices.Equal(got, []int{5}) {
			t.Errorf("one that came after the end saw %v", got)
		}
	})
}

// An amended value is seen by who comes later, and by nobody twice.
func TestUpdatesAfterAmend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := latest.New(new(1))
		ctx, cancel := context.WithCancel(t.Context())
		early := read(ctx, v, nil, 0)
		synctest.Wait()
		v.Amend(new(2))
		late := read(ctx, v, nil, 0)
		synctest.Wait()
		cancel()
		if a, b := <-early, <-late; !slices.Equal(a, []int{1}) || !slices.Equal(b, []int{2}) {
			t.Errorf("%v and %v", a, b)
		}
	})
}

// After the end of its context, or a break, a reader sees nothing more.
func TestUpdatesEnd(t *testing.T) {
	v := latest.New(new(1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := 0
	for range v.Updates(ctx, nil) {
		seen++
		v.Store(new(2))
		cancel()
	}
	for range v.Updates(t.Context(), nil) {
		seen++
		break
	}
	if seen != 2 {
		t.Errorf("seen %d values, want 2", seen)
	}
}
