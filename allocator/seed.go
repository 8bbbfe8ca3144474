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

const (
	// Back-off of seeding that fails.
	seedRetryMin = 100 * time.Millisecond
	seedRetryMax = 10 * time.Second

	// seedSettle is how long the seed is not added again after it was: the loop may not have seen all views of the set from
	// before, and would add again what somebody removes meanwhile.
	seedSettle = time.Second
)

// seed is what this member adds to a set that lacks it: Options.Seed, with what the member has added since, and without
// what was removed since, by the member itself or, as it saw, by somebody else.
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

// seedWhenNeeded starts adding the seed to the set when we have joined, and again whenever the set may have lost it: the
// znode is missing or another one, or the servers were restored from a backup. The loop hears of its progress.
func (l *loop) seedWhenNeeded(ctx context.Context) {
	if len(l.seed.all()) == 0 || l.seeding || !l.paired() || !l.members.Joined || l.set.Err != nil {
		return // what can't be read is not written over; it is tried again when it can be read
	}
	if l.seededIn(l.set) || l.set.Version <= l.seedView {
		return
	}
	l.seeding, l.seedView = true, l.set.Version
	there := l.set.Items
	again := l.seeded // the set had the seed before
	l.running.Go("seeding", func() {
		for retry := seedRetryMin; ; retry = min(2*retry, seedRetryMax) {
			// Add no item that the set had: somebody may remove it while we wait for the lock.
			added, err := l.src.set.Add(ctx, missing(l.seed.all(), there)...)
			if again && added > 0 {
				l.log.WarnContext(ctx, "the set had lost partitions of the seed, added them again", "partitions", added)
			}
			if err == nil && !pause(ctx, seedSettle) {
				return
			}
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
	l.seeding = false
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

// judgeSeed compares a set that could be read with the one read before. It strikes from the seed what somebody has removed
// in between, and notes whether the set has the seed.
//
// An item was removed if the same znode was written since and has it no more. A znode that has other items though it was
// not written more often than before comes from a backup: what it lacks was lost, not removed.
func (l *loop) judgeSeed(v *sharedset.View) {
	before := l.known
	l.known = v
	if before != nil && before.Exists && v.SameZnode(before) {
		if v.DataVersion > before.DataVersion {
			l.seed.remove(missing(before.Items, v.Items))
		} else if !slices.Equal(v.Items, before.Items) {
			l.seedIn = nil
		}
	}
	if len(missing(l.seed.all(), v.Items)) == 0 {
		l.seedIn, l.seeded = v, true
	}
}

// missing returns the items of before that are not in now. Both are sorted.
func missing(before, now []string) (gone []string) {
	for _, item := range before {
		for len(now) > 0 && now[0] < item {
			now = now[1:]
		}
		if len(now) == 0 || now[0] != item {
			gone = append(gone, item)
		}
	}
	return gone
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
