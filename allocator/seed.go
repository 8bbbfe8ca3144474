package allocator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel/sharedset"
)

// Back-off of seeding that fails.
const (
	seedRetryMin = 100 * time.Millisecond
	seedRetryMax = 10 * time.Second
)

// seed is what this member adds to a set that is missing: Options.Seed, with what
// it has added and without what it has removed since.
type seed struct {
	mu    sync.Mutex
	items []string // sorted; never changed, only replaced
}

// all returns the items.
func (s *seed) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.items
}

func (s *seed) add(items []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Concat(s.items, items)
	slices.Sort(all)
	s.items = slices.Compact(all)
}

func (s *seed) remove(items []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items = slices.DeleteFunc(slices.Clone(s.items), func(item string) bool {
		_, found := slices.BinarySearch(items, item)
		return found
	})
}

// seeding is how far the seeding goroutine came: err is of a try that failed
// and is repeated, nil when it is done.
type seeding struct{ err error }

// seedWhenNeeded starts adding the seed to the set when we have joined, and
// whenever its znode is missing or another one than that which had the seed. The
// loop hears of its progress.
func (l *loop) seedWhenNeeded(ctx context.Context) {
	if len(l.seed.all()) == 0 || l.seeding || !l.paired() || !l.members.Joined || l.set.Err != nil {
		return // what can't be read is not written over; it is tried again when it can be read
	}
	if l.seededIn(l.set) || l.set.Version <= l.seedView {
		return
	}
	l.seeding = true
	l.running.Go("seeding", func() {
		for retry := seedRetryMin; ; retry = min(2*retry, seedRetryMax) {
			_, err := l.src.set.Add(ctx, l.seed.all()...)
			send(ctx, l.seedings, seeding{err})
			if err == nil || !pause(ctx, retry/2+rand.N(retry)/2) {
				return
			}
		}
	})
}

func (l *loop) onSeeding(s seeding) {
	if s.err != nil {
		l.report("seed", fmt.Errorf("allocator: add the seed: %w", s.err))
		return
	}
	l.report("seed", nil)
	l.seeding, l.seedView = false, l.set.Version
}

// hasSeed says whether the set has our seed, or had it: then who removed it has
// meant it.
func (l *loop) hasSeed() bool {
	return len(l.seed.all()) == 0 || l.seededIn(l.set)
}

// seededIn says whether v shows the znode that was seen to have our seed.
func (l *loop) seededIn(v *sharedset.View) bool {
	return v.Exists && l.seedIn != nil && v.SameZnode(l.seedIn)
}

// containsAll says whether all parts are in the sorted items.
func containsAll(items, parts []string) bool {
	for _, p := range parts {
		if _, ok := slices.BinarySearch(items, p); !ok {
			return false
		}
	}
	return true
}

// pause waits for d, and says whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
