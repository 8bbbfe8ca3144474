package allocator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/internal/sharedset"
)

const (
	// seedRetryMin and seedRetryMax bound the back-off of seeding that fails.
	seedRetryMin = 100 * time.Millisecond
	seedRetryMax = 10 * time.Second

	// seedPause is for how long after an addition to the set this member does not add its seed: the loop may not have seen all
	// views of the set from before, and would add again what somebody removes meanwhile.
	seedPause = time.Second
)

// seed has the items that this member adds to a set that lacks them: those of Options.Seed and those that the member has added
// since, without those that were removed since, by the member or by somebody else.
type seed struct {
	// turn has one element while this member writes the set. The seeding, AddPartitions and RemovePartitions write one after the
	// other, and each changes or reads items in its turn. So the seeding adds nothing that this member has removed.
	turn chan struct{}

	mu          sync.Mutex
	items       []string  // sorted; replaced, never changed in place
	pausedUntil time.Time // when seedPause after the last addition ends

	// written is the set that had all items of the last addition; nil once the loop has compared it with a later one that it has
	// read. It shows what somebody has removed before the loop could see it in the set.
	written *sharedset.View
}

func newSeed(items []string) *seed { return &seed{turn: make(chan struct{}, 1), items: items} }

// errTurn is the kind of an error of a change that another one kept waiting until its context ended.
var errTurn = errors.New("waiting for another change of the set by this member")

// inTurn calls write when it is this caller's turn to write the set. It waits for the turn until ctx ends. Errors name the
// operation op on object.
func (s *seed) inTurn(ctx context.Context, op, object string, write func() error) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
		if err := write(); err != nil {
			return failed(op, object, err)
		}
		return nil
	case <-ctx.Done():
		return failed(op, object, operr.Because(errTurn, context.Cause(ctx)))
	}
}

// all returns the items.
func (s *seed) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.items
}

// add adds items, which this member has added to the set: written is the set with them.
func (s *seed) add(items []string, written *sharedset.View) {
	s.compare(written)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = written
	all := slices.Concat(s.items, items)
	slices.Sort(all)
	s.items, s.pausedUntil = slices.Compact(all), time.Now().Add(seedPause)
}

// pause returns for how long the seed must not be added yet.
func (s *seed) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.pausedUntil)
}

// remove removes items, which are sorted.
func (s *seed) remove(items []string) {
	s.removeFunc(func(item string) bool {
		_, found := slices.BinarySearch(items, item)
		return found
	})
}

// removeFunc removes the items for which match returns true.
func (s *seed) removeFunc(match func(item string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items = slices.DeleteFunc(slices.Clone(s.items), match)
}

// compare removes the items that somebody has removed from the set between the last addition and v, if v is of that time.
func (s *seed) compare(v *sharedset.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.written; w != nil && v.SameZnode(w) && v.DataVersion >= w.DataVersion {
		s.items, s.written = missing(s.items, missing(w.Items, v.Items)), nil
	}
}

// removed removes the items that somebody has removed from the set between two views of one znode. An item that this member has
// added after the second view stays.
func (s *seed) removed(before, v *sharedset.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := missing(before.Items, v.Items)
	if w := s.written; w != nil && v.SameZnode(w) && v.DataVersion < w.DataVersion {
		gone = missing(gone, w.Items)
	}
	s.items = missing(s.items, gone)
}

// seeder is what the loop knows of its seed.
type seeder struct {
	*seed
	running  bool                    // a seeding goroutine runs
	known    *sharedset.View         // the last set that could be read
	in       *sharedset.View         // the last set that had the seed; nil if the set may have lost it since
	had      bool                    // a set has had the seed
	view     uint64                  // the seed was last added at this version of the set's view; wait for a later view before adding again
	failures int                     // how often in a row adding the seed has failed
	stop     context.CancelCauseFunc // ends the addition of the seed; nil before the first
}

// seeding is what the seeding goroutine sends: err at once when an attempt has failed, and over when the goroutine ends.
type seeding struct {
	err  error // why the seed could not be added
	over bool  // whether the loop may start the seeding again
}

// seedWhenNeeded starts adding the seed to the set when this member has joined, and again whenever the set may have lost the
// seed: the znode is missing or is another one, or the servers were restored from a backup. The goroutine sends its progress to
// the loop. After an attempt that failed, the loop decides by the view of the set that it has by then.
func (l *loop) seedWhenNeeded(ctx context.Context) {
	if len(l.seeder.all()) == 0 || l.seeder.running || !l.paired() || !l.members.Joined || l.set.Err != nil {
		return // a set that can't be read is not written; the seed is added when the set can be read
	}
	if l.seeder.hadIn(l.set) || l.set.Version <= l.seeder.view {
		return
	}
	l.seeder.running = true
	if wait := l.seeder.pause(); wait > 0 {
		l.running.Go("seeding", func() {
			_ = pause.Sleep(ctx, wait)
			send(ctx, l.seedings, seeding{over: true})
		})
		return
	}
	l.seeder.view = l.set.Version
	wanted, there := l.seeder.all(), l.set.Items
	again := l.seeder.had // the set has had the seed before
	rest := pause.Jitter(pause.Doubling(seedRetryMin, seedRetryMax).After(l.seeder.failures))
	adding, stop := context.WithCancelCause(ctx)
	l.seeder.stop = stop
	l.running.Go("seeding", func() {
		defer stop(nil)
		added, err := l.addSeed(adding, wanted, there)
		if err != nil && errors.Is(context.Cause(adding), sharedset.ErrNotNeeded) {
			err = nil
		}
		if again && added > 0 {
			l.log.WarnContext(ctx, "added partitions of the seed that the set had lost", "partitions", added)
		}
		if err == nil {
			rest = seedPause
		} else {
			send(ctx, l.seedings, seeding{err: err})
		}
		_ = pause.Sleep(ctx, rest)
		send(ctx, l.seedings, seeding{over: true})
	})
}

// addSeed adds the items that are in wanted, still in the seed and not in there, which is what the set had. It leaves out items
// of there, and items added by AddPartitions since: somebody may have removed them on purpose while addSeed waited for its turn
// and the lock.
func (l *loop) addSeed(ctx context.Context, wanted, there []string) (added int, err error) {
	err = l.seeder.inTurn(ctx, "", "", func() error {
		lacking := missing(wanted, missing(wanted, l.seeder.all()))
		lacking = missing(lacking, there)
		if len(lacking) == 0 {
			return nil
		}
		added, err = l.readers.set.Add(ctx, lacking...)
		if err == nil {
			l.seeder.add(nil, l.readers.set.Changed())
		}
		return err
	})
	return added, err
}

func (l *loop) onSeeding(s seeding) {
	if s.err != nil {
		l.report(kindSeed, failed("seed", "", s.err))
		l.seeder.view = 0
		l.seeder.failures++
	}
	if s.over && l.seeder.running {
		l.seeder.running = false
		l.compareAgain()
	}
}

// compareAgain compares the last set once more with the seed, after the addition that ends now: somebody may have removed items
// of the seed before the loop could see them in the set.
func (l *loop) compareAgain() {
	if l.seeder.known == nil || l.seeder.done(l.set) {
		return
	}
	l.compareSeed(l.seeder.known)
	if !l.wasReady && l.seeder.done(l.set) {
		l.change(true)
	}
}

// done reports whether a set has the seed or has had it: what somebody has removed since is meant to stay removed.
func (s *seeder) done(set *sharedset.View) bool { return len(s.all()) == 0 || s.hadIn(set) }

// hadIn reports whether v shows the znode that has had the seed.
func (s *seeder) hadIn(v *sharedset.View) bool { return v.Exists && s.in != nil && v.SameZnode(s.in) }

// compareSeed compares a set that could be read with the one read before. It removes from the seed the items that somebody has
// removed in between, and records whether the set has the seed.
//
// An item was removed if the same znode was written since and has the item no more. A znode that has other items, and a data
// version that is no higher than before, comes from a backup: the items that it lacks were lost, not removed. A new session, and
// so another Incarnation.History, does not count: others remove items while this member has no connection.
func (l *loop) compareSeed(v *sharedset.View) {
	before := l.seeder.known
	l.seeder.known = v
	if before != nil {
		l.seeder.compare(before) // an addition may have ended since before came
	}
	if before != nil && before.Exists && v.SameZnode(before) {
		if v.DataVersion > before.DataVersion {
			l.seeder.removed(before, v)
		} else if !slices.Equal(v.Items, before.Items) {
			l.seeder.in = nil
		}
	}
	l.seeder.compare(v)
	if hasAll(v.Items, l.seeder.all()) {
		l.seeder.in, l.seeder.had = v, true
		if l.seeder.stop != nil {
			l.seeder.stop(sharedset.ErrNotNeeded) // of members that start together the others wait for the set's lock to add the same
		}
		l.report(kindSeed, nil)
		l.seeder.failures = 0
	}
}

// missing returns the items of before that are not in now. Both are sorted.
func missing(before, now []string) (gone []string) {
	for i, item := range before {
		for len(now) > 0 && now[0] < item {
			now = now[1:]
		}
		if len(now) == 0 {
			return append(gone, before[i:]...)
		}
		if now[0] != item {
			gone = append(gone, item)
		}
	}
	return gone
}

// hasAll reports whether all wanted items are in items. Both are sorted.
func hasAll(items, wanted []string) bool {
	for _, item := range wanted {
		for len(items) > 0 && items[0] < item {
			items = items[1:]
		}
		if len(items) == 0 || items[0] != item {
			return false
		}
	}
	return true
}
