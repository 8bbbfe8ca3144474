package errlog

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/status"
)

// Troubles returns the troubles that last, and then at most MaxPast of those that are over, each the newest first. The caller may
// change the result.
func (l *Log) Troubles() []status.Trouble {
	l.mu.Lock()
	defer l.mu.Unlock()
	var troubles []status.Trouble
	for name, k := range l.kinds {
		if len(k.abouts) > 0 {
			troubles = append(troubles, k.trouble(name, time.Time{}))
		}
	}
	return Merge(append(troubles, l.past...))
}

// Merge returns the troubles of several Logs in one list, in the order of Troubles and with its limit on those that are over. The
// result is never nil.
func Merge(lists ...[]status.Trouble) []status.Trouble {
	all := append([]status.Trouble{}, slices.Concat(lists...)...)
	slices.SortStableFunc(all, func(a, b status.Trouble) int {
		switch {
		case a.Until == nil && b.Until == nil:
			return cmp.Or(b.Since.Compare(a.Since), strings.Compare(a.Kind, b.Kind))
		case a.Until == nil:
			return -1
		case b.Until == nil:
			return 1
		}
		return b.Until.Compare(*a.Until)
	})
	past := slices.IndexFunc(all, func(t status.Trouble) bool { return t.Until != nil })
	if past >= 0 && len(all)-past > MaxPast {
		all = all[:past+MaxPast]
	}
	return all
}

// trouble describes the kind; until is zero while it fails.
func (k *kind) trouble(name string, until time.Time) status.Trouble {
	t := status.Trouble{Kind: name, Since: k.since.Round(0), Count: k.count, Last: k.last}
	if !until.IsZero() {
		until = until.Round(0)
		t.Until = &until
		return t
	}
	abouts := slices.DeleteFunc(slices.Sorted(maps.Keys(k.abouts)), func(about string) bool { return about == "" })
	t.About = abouts[:min(len(abouts), statuswrite.MaxListed)]
	return t
}

// keep lists a trouble that is over. One that came back within an Interval is listed once.
func (l *Log) keep(t status.Trouble) {
	for i, before := range l.past {
		if before.Kind == t.Kind && t.Since.Sub(*before.Until) < Interval {
			t.Since, t.Count = before.Since, before.Count+t.Count
			l.past = slices.Delete(l.past, i, i+1)
			break
		}
	}
	l.past = append(l.past, t)
	if len(l.past) > MaxPast {
		l.past = slices.Delete(l.past, 0, 1)
	}
}

// failingKinds returns the names of the kinds that fail.
func (l *Log) failingKinds() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for name, k := range l.kinds {
		if len(k.abouts) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
