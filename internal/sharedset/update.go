package sharedset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// op is what a change does, as the metric names it.
type op string

const (
	opAdd    op = "add"
	opRemove op = "remove"
)

// String is for errors, in front of a path.
func (o op) String() string {
	if o == opAdd {
		return "add to"
	}
	return "remove from"
}

// edit is one change of the set.
type edit struct {
	op op
	// apply returns the items after the change, and how many it adds or removes. Items and result are sorted and unique. apply
	// may be called more than once.
	apply func(items []string) (result []string, changed int)
}

// adding returns the edit that adds operands, which are sorted and unique.
func adding(operands []string) edit {
	return edit{opAdd, func(items []string) ([]string, int) {
		result := slices.Concat(items, operands)
		slices.Sort(result)
		result = slices.Compact(result)
		return result, len(result) - len(items)
	}}
}

// removing returns the edit that removes the items for which match returns true.
func removing(match func(item string) bool) edit {
	return edit{opRemove, func(items []string) ([]string, int) {
		result := slices.DeleteFunc(slices.Clone(items), match)
		return result, len(items) - len(result)
	}}
}

// Add adds items and returns how many of them were not in the set. It creates a missing znode. Its errors wrap ErrInvalidItem,
// ErrUnreadable, ErrTooLarge, a *recipe.BlockedError, the cause of ctx's end or the session's errors; after session.ErrUncertain
// the items may have been added.
func (s *Set) Add(ctx context.Context, items ...string) (added int, err error) {
	for _, item := range items {
		if err := checkItem(item); err != nil {
			s.count(opAdd, resultError)
			return 0, operr.New("sharedset", "add to", s.path, err)
		}
	}
	return s.update(ctx, adding(sorted(items)))
}

// Remove removes items and returns how many of them were in the set. A set that does not exist has none. Its errors are Add's,
// but for ErrInvalidItem.
func (s *Set) Remove(ctx context.Context, items ...string) (removed int, err error) {
	operands := sorted(items)
	return s.RemoveFunc(ctx, func(item string) bool {
		_, found := slices.BinarySearch(operands, item)
		return found
	})
}

// RemoveFunc removes the items for which match returns true, of those in the set when it is written, and returns their number. It
// may call match more than once for an item. Its errors are those of Remove.
func (s *Set) RemoveFunc(ctx context.Context, match func(item string) bool) (removed int, err error) {
	return s.update(ctx, removing(match))
}

// Changed returns the set as the last change that succeeded left it, nil before the first: with Add or Remove of this Set, or as
// it was found, if nothing had to change. Use Items, Exists, Czxid, Ctime and DataVersion alone: it has no Incarnation and no
// Version, and after a write Mzxid is that of the write before. It never blocks.
func (s *Set) Changed() *View { return s.changed.Load() }

// sorted returns items sorted and unique.
func sorted(items []string) []string { return slices.Compact(slices.Sorted(slices.Values(items))) }

// checkItem refuses items that could not be written and read back, or would garble a log.
func checkItem(item string) error {
	if !utf8.ValidString(item) {
		return fmt.Errorf("%w: %+q is not valid UTF-8", ErrInvalidItem, item)
	}
	for _, r := range item {
		if unicode.IsControl(r) {
			return fmt.Errorf("%w: %+q has the control character %U", ErrInvalidItem, item, r)
		}
	}
	return nil
}

// update makes a change, counts its result, and names the operation in its error.
func (s *Set) update(ctx context.Context, e edit) (int, error) {
	n, err := s.change(ctx, e)
	result := resultOK
	switch {
	case err != nil && errors.Is(context.Cause(ctx), ErrNotNeeded):
		result = resultNoop
		err = operr.New("sharedset", e.op.String(), s.path, err)
	case err != nil:
		result = resultError
		err = operr.New("sharedset", e.op.String(), s.path, err)
	case n == 0:
		result = resultNoop
	}
	s.count(e.op, result)
	return n, err
}

func (s *Set) count(o op, result string) { s.updates.WithLabelValues(string(o), result).Inc() }

// change makes a change under the lock, unless there is nothing to change. It starts over when the lock is lost on the way.
func (s *Set) change(ctx context.Context, e edit) (int, error) {
	if done, err := s.nothingToDo(ctx, e); done || err != nil {
		return 0, err
	}
	unanswered := 0
	for {
		held, err := s.acquire(ctx)
		if err != nil {
			return 0, err
		}
		n, err := s.changeLocked(ctx, held, e, &unanswered)
		s.release(ctx, held)
		if !errors.Is(err, errLockLost) && !errors.Is(err, session.ErrSessionExpired) || ctx.Err() != nil {
			return n, err
		}
	}
}

// nothingToDo reports whether the set, read after a Sync, already is as asked for. With no items to add it creates a missing set.
func (s *Set) nothingToDo(ctx context.Context, e edit) (bool, error) {
	for {
		inc, err := s.session.Incarnation(ctx)
		if err != nil {
			return false, err
		}
		v, err := readSynced(ctx, inc, s.path)
		switch {
		case err == nil:
			_, n := e.apply(v.Items)
			if n == 0 {
				s.changed.Store(v)
			}
			return n == 0, nil
		case errors.Is(err, session.ErrNoNode) && e.op == opRemove:
			return true, nil
		case errors.Is(err, session.ErrNoNode):
			if _, n := e.apply(nil); n > 0 {
				return false, nil
			}
			err = inc.EnsurePath(ctx, s.path)
			if err == nil {
				return true, nil
			}
		}
		if session.Classify(err) == session.ClassFatal || ctx.Err() != nil {
			return false, err
		}
	}
}

// acquire acquires the lock, which creates the set's znode if it is missing.
func (s *Set) acquire(ctx context.Context) (*lock.Held, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.lockTimeout,
		fmt.Errorf("no lock within %v: %w", s.lockTimeout, context.DeadlineExceeded))
	defer cancel()
	return s.lock.Acquire(ctx)
}

// release releases the lock. It waits only briefly for a lost connection, and not at all when ctx has ended, because the change
// is already done; the removal goes on in the background.
func (s *Set) release(ctx context.Context, held *lock.Held) {
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := held.Release(brief); err != nil && ctx.Err() == nil {
		s.logger.WarnContext(ctx, "lock not released yet", "error", err)
	}
}

// errLockLost says that somebody removed our contender, or that trust ended.
var errLockLost = errors.New("lock lost")

// changeLocked reads the set, changes it, and writes it if the set has not changed and our contender still exists. A write that
// comes too late is made again from the items of that moment. After a write without an answer, what remains to be done after a
// Sync shows its outcome; *unanswered holds how many items such a write changed.
func (s *Set) changeLocked(ctx context.Context, held *lock.Held, e edit, unanswered *int) (int, error) {
	inc := held.Incarnation()
	for {
		// We have seen that the contender in front of our contender is gone, so we also see its write.
		data, stat, err := inc.Get(ctx, s.path)
		if errors.Is(err, session.ErrNoNode) {
			return 0, errLockLost // the lock is below the set
		}
		if err != nil {
			return 0, err
		}
		v := viewOf(stat)
		if v.Items, err = decodeFor(inc, data); err != nil {
			return 0, err
		}
		items, n := e.apply(v.Items)
		if n == 0 {
			s.changed.Store(v)
			return *unanswered, nil
		}
		if held.Context().Err() != nil {
			return 0, errLockLost
		}
		written := encode(items)
		_, err = inc.Multi(ctx, session.CheckOp(held.Node(), -1), session.SetOp(s.path, written, stat.Version))
		switch {
		case err == nil:
			v.Items, v.DataVersion = items, stat.Version+1
			s.changed.Store(v)
			return n, nil
		case errors.Is(err, session.ErrUncertain) && ctx.Err() == nil:
			*unanswered = n
			if err := inc.Sync(ctx, s.path); err != nil {
				return 0, err
			}
		case errors.Is(err, session.ErrBadVersion):
			*unanswered = 0
			s.count(e.op, resultConflict)
		case errors.Is(err, session.ErrNoNode):
			return 0, errLockLost
		default:
			if large, ok := errors.AsType[*session.TooLargeError](err); ok {
				why := fmt.Errorf("%w: %d items are %d bytes of data: %s", ErrTooLarge, len(items), len(written), large.Reason())
				err = operr.Mark(why, large)
			}
			return 0, err
		}
	}
}
