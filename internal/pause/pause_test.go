package pause_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

var errEnd = errors.New("end")

// Sleep lasts as long as it was told to, or as its context, and no longer when that has ended before.
func TestSleep(t *testing.T) {
	for name, test := range map[string]struct {
		d, ends, lasts time.Duration // ends is when the context does; 0 when it does not
		want           error
	}{
		"to its end":         {d: time.Hour, lasts: time.Hour},
		"no time":            {d: 0, lasts: 0},
		"less than no time":  {d: -time.Hour, lasts: 0},
		"until ctx ends":     {d: time.Hour, ends: time.Minute, lasts: time.Minute, want: errEnd},
		"after ctx's end":    {d: time.Hour, ends: -1, lasts: 0, want: errEnd},
		"not at all, and so": {d: 0, ends: -1, lasts: 0, want: errEnd},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				switch {
				case test.ends > 0:
					time.AfterFunc(test.ends, func() { cancel(errEnd) })
				case test.ends < 0:
					cancel(errEnd)
				}
				began := time.Now()
				if err := pause.Sleep(ctx, test.d); err != test.want || time.Since(began) != test.lasts { //nolint:errorlint // the cause itself
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
}

func TestGrowth(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		growth pause.Growth
		want   []time.Duration
	}{
		"doubling":      {pause.Doubling(100*ms, time.Second), []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second}},
		"by a quarter":  {pause.Growth{First: 400 * ms, Most: 650 * ms, Percent: 25}, []time.Duration{400 * ms, 500 * ms, 625 * ms, 650 * ms}},
		"first is most": {pause.Doubling(time.Second, time.Second), []time.Duration{time.Second, time.Second}},
		"first is more": {pause.Doubling(time.Minute, time.Second), []time.Duration{time.Second, time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			b := pause.Backoff{Growth: test.growth}
			for range 2 {
				var got []time.Duration
				for range test.want {
					got = append(got, b.Next())
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("%v, want %v", got, test.want)
				}
				b.Reset()
			}
			if far := test.growth.After(math.MaxInt); far != test.growth.Most {
				t.Errorf("at last %v", far)
			}
		})
	}
}

func TestBackoffWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := pause.Backoff{Growth: pause.Doubling(time.Second, time.Minute)}
		began := time.Now()
		for range 3 {
			noerr.Want(t, b.Wait(t.Context()))
		}
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("three pauses took %v", took)
		}
	})
}

// Early returns at least the time without the part that may be left out, at most the whole, and not always the same.
func TestEarly(t *testing.T) {
	seen := make(map[time.Duration]bool)
	for range 1000 {
		d := pause.Early(time.Second, time.Second/4)
		if d <= 3*time.Second/4 || d > time.Second {
			t.Fatalf("%v of a second", d)
		}
		seen[d] = true
	}
	if len(seen) < 100 {
		t.Errorf("%d different times of 1000", len(seen))
	}
	if d := pause.Early(3, 0); d != 3 {
		t.Errorf("%v of 3 ns", d)
	}
}

// Jitter returns between half of a duration and the whole of it, and not always the same.
func TestJitter(t *testing.T) {
	seen := make(map[time.Duration]bool)
	for range 1000 {
		d := pause.Jitter(time.Second)
		if d < time.Second/2 || d >= time.Second {
			t.Fatalf("%v of a second", d)
		}
		seen[d] = true
	}
	if len(seen) < 100 {
		t.Errorf("%d different times of 1000", len(seen))
	}
	if d := pause.Jitter(1); d != 0 {
		t.Errorf("%v of a nanosecond", d)
	}
}
