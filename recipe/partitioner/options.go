package partitioner

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

const (
	defaultTimeBoundary = 30 * time.Second
	defaultReactionTime = time.Second
	defaultAcquireTime  = 30 * time.Second
)

// lockWord is the word of a lock's contenders.
const lockWord = "__lock__"

// Order is how the default partition function sorts items. All members must sort alike.
type Order int

// The orders.
const (
	// OrderUnsaid is text, and refused for items that are integers of different lengths:
	// there it has to be said whether Python members have them as int or as str.
	OrderUnsaid Order = iota
	// OrderText sorts byte by byte, as Python sorts str: 1, 10, 2.
	OrderText
	// OrderNumeric sorts by value, as Python sorts int: 1, 2, 10.
	OrderNumeric
)

// PartitionFunc picks the items of one member. Items are sorted as Options.Order says,
// members byte by byte; an identifier that two members have is there twice. Every member
// calls it with the same items and, after quiet, the same members: what it picks for each of
// them must then be all items, none twice. It must be quick, and must not keep what it is
// given.
type PartitionFunc func(identifier string, members, items []string) ([]string, error)

// Options of a [SetPartitioner]. The zero value works.
type Options struct {
	// Func picks our items. Default: [EveryNth], kazoo's.
	Func PartitionFunc

	// Identifier is our name among the members. It must differ from all others', and
	// be fit for the name of a znode. Default: the host's name, "-", the process id.
	Identifier string

	// TimeBoundary is how long the members must not have changed before items are
	// allocated. Give all members the same. Default: 30 s.
	TimeBoundary time.Duration

	// MaxReactionTime is how often, while waiting for locks, the members are looked at
	// without a hint that they have changed. Hints come at once. Default: 1 s.
	MaxReactionTime time.Duration

	// MaxPartitionTime is how long an allocation may take, from Start or ReleaseSet until
	// ACQUIRED; past it the state is FAILURE. Run starts anew then. Default: 0, no limit.
	MaxPartitionTime time.Duration

	// AcquireTimeout is after how long WaitForAcquire returns false. It bounds that wait and nothing else: what is
	// waited for goes on. Default: 30 s.
	AcquireTimeout time.Duration

	// Order is how items are sorted.
	Order Order

	// Escape makes one element of a path of each item, percent-encoded, so that items may
	// hold anything. kazoo does not do that: only Go members, all with Escape, can share
	// such a set.
	Escape bool

	// Logger is told what can't be returned as an error, and, as "still waiting", for which znode we wait
	// for long, such as who has the lock of an item: after about half a minute, and then whenever the
	// time has doubled. Transitions it is told as debug messages.
	// With nil, warnings and errors go to slog.Default() and the rest is dropped; a Logger with slog.DiscardHandler drops all.
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	var errs []error
	for name, d := range map[string]time.Duration{
		"TimeBoundary": o.TimeBoundary, "MaxReactionTime": o.MaxReactionTime, "MaxPartitionTime": o.MaxPartitionTime,
		"AcquireTimeout": o.AcquireTimeout,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("partitioner: %s %v: must not be negative", name, d))
		}
	}
	if o.Order < OrderUnsaid || o.Order > OrderNumeric {
		errs = append(errs, fmt.Errorf("partitioner: unknown Order %d", o.Order))
	}
	if o.Identifier == "" {
		host, err := os.Hostname()
		if err != nil {
			errs = append(errs, fmt.Errorf("partitioner: default Identifier: %w", err))
		}
		o.Identifier = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	if o.Func == nil {
		o.Func = EveryNth
	}
	o.TimeBoundary = cmp.Or(o.TimeBoundary, defaultTimeBoundary)
	o.MaxReactionTime = cmp.Or(o.MaxReactionTime, defaultReactionTime)
	o.AcquireTimeout = cmp.Or(o.AcquireTimeout, defaultAcquireTime)
	o.Logger = defaultlog.Or(o.Logger)
	return o, errors.Join(errs...)
}

// EveryNth is kazoo's partition function: of n members the one at index i has the items at
// i, i+n, i+2n, and so on. It fails when identifier is not among the members.
func EveryNth(identifier string, members, items []string) ([]string, error) {
	at := slices.Index(members, identifier)
	if at < 0 {
		return nil, fmt.Errorf("%q is not among the members %q", identifier, members)
	}
	var share []string
	for ; at < len(items); at += len(members) {
		share = append(share, items[at])
	}
	return share, nil
}

// sorted returns the items in their order.
func sorted(items []string, order Order) ([]string, error) {
	items = slices.Clone(items)
	slices.Sort(items)
	if order == OrderText {
		return items, nil
	}
	numbers := make(map[string]*big.Int, len(items))
	for _, item := range items {
		if n, ok := new(big.Int).SetString(item, 10); ok {
			numbers[item] = n
		} else if order == OrderNumeric {
			return nil, fmt.Errorf("partitioner: item %q is no integer, and Order is numeric", item)
		} else {
			return items, nil
		}
	}
	byValue := slices.Clone(items)
	slices.SortStableFunc(byValue, func(a, b string) int { return numbers[a].Cmp(numbers[b]) })
	if order == OrderUnsaid && !slices.Equal(items, byValue) {
		return nil, fmt.Errorf("partitioner: the items are integers: Options.Order must say whether they are sorted as numbers or as text")
	}
	return byValue, nil
}

// lockPaths returns the path of each item's lock below dir.
func lockPaths(dir string, items []string, escape bool) (map[string]string, error) {
	var errs []error
	bad := func(item, format string, args ...any) {
		errs = append(errs, fmt.Errorf("partitioner: item %q: %s", item, fmt.Sprintf(format, args...)))
	}
	paths, by := make(map[string]string, len(items)), make(map[string]string, len(items))
	for _, item := range items {
		name := item
		if escape {
			name = escaped(item)
		}
		path := session.Join(dir, name)
		if path == dir {
			bad(item, "is empty")
			continue
		}
		if err := session.CheckPath(path); err != nil {
			bad(item, "%v", err)
			continue
		}
		for part := range strings.SplitSeq(path[len(dir):], "/") {
			if _, ok := seqnode.Parse(part, lockWord); ok {
				bad(item, "%q is named like a lock's contender", part)
			}
		}
		if other, ok := by[path]; ok {
			bad(item, "is the same path as item %q", other)
		}
		paths[item], by[path] = path, item
	}
	return paths, errors.Join(errs...)
}

// escaped returns item as one element of a path.
func escaped(item string) string {
	if item == "." || item == ".." {
		return strings.ReplaceAll(item, ".", "%2E")
	}
	return url.PathEscape(item)
}
