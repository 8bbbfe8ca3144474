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

// lockWord is the word in the names of a lock's contenders.
const lockWord = "__lock__"

// Order is how the default partition function sorts items. All members must sort alike.
type Order int

// The orders.
const (
	// OrderUnset is OrderText, but New refuses it for items that are all integers and sort differently as numbers and as text,
	// such as 9 and 10, or -1 and -2: for those the Order depends on whether Python members have them as int or as str.
	OrderUnset Order = iota
	// OrderText sorts byte by byte, as Python sorts str: 1, 10, 2.
	OrderText
	// OrderNumeric sorts by value, as Python sorts int: 1, 2, 10.
	OrderNumeric
)

// PartitionFunc picks the items of one member. Items are sorted as Options.Order says, members byte by byte; members has an
// identifier twice if two members have it. Every member calls the function with the same items and, once the members do not
// change, with the same members: the function must then give each item to exactly one of the members. It must be quick, and must
// not keep the slices that it is given.
type PartitionFunc func(identifier string, members, items []string) ([]string, error)

// Options of a [SetPartitioner]. The zero value works.
type Options struct {
	// Func picks this member's items. Default: [EveryNth], kazoo's function.
	Func PartitionFunc

	// Identifier names this member. It must differ from all others', and be valid in the name of a znode. Default: the host's
	// name, "-", the process id.
	Identifier string

	// TimeBoundary is how long the members must not have changed before items are allocated. Give all members the same boundary.
	// Default: 30 s.
	TimeBoundary time.Duration

	// MaxReactionTime is how often, while this member waits for locks, it reads the members though no watch has fired. It reads
	// them at once when a watch fires. Default: 1 s.
	MaxReactionTime time.Duration

	// MaxPartitionTime is how long an allocation may take, from Start or ReleaseSet until ACQUIRED; past that the state is
	// FAILURE, and Run starts again. Default: 0, no limit.
	MaxPartitionTime time.Duration

	// AcquireTimeout is the time after which WaitForAcquire returns false. It limits that wait alone: the allocation goes on.
	// Default: 30 s.
	AcquireTimeout time.Duration

	// Order is how items are sorted.
	Order Order

	// Escape makes each item one element of a path, percent-encoded, so that an item may be any text. kazoo does not do that:
	// only Go members, all with Escape, can share such a set.
	Escape bool

	// Logger gets errors that no call can return. It gets a warning "still waiting" with the znode that this member waits for,
	// such as that of a lock's holder: after about half a minute, and then whenever the time has doubled. It gets transitions as
	// debug messages.
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
			errs = append(errs, fmt.Errorf("option %s: %v is less than 0", name, d))
		}
	}
	if o.Order < OrderUnset || o.Order > OrderNumeric {
		errs = append(errs, fmt.Errorf("option Order: %d is not known", o.Order))
	}
	if o.Identifier == "" {
		host, err := os.Hostname()
		if err != nil {
			errs = append(errs, fmt.Errorf("option Identifier: the host has no name to take: %w", err))
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

// EveryNth is kazoo's partition function: of n members the one at index i gets the items at i, i+n, i+2n, and so on. It fails
// when identifier is not among the members.
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

// sorted returns the items, sorted as order says.
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
			return nil, fmt.Errorf("option Order: OrderNumeric, but item %q is no integer", item)
		} else {
			return items, nil
		}
	}
	byValue := slices.Clone(items)
	slices.SortStableFunc(byValue, func(a, b string) int { return numbers[a].Cmp(numbers[b]) })
	if order == OrderUnset && !slices.Equal(items, byValue) {
		return nil, errors.New("option Order: OrderUnset, but the items are integers that sort differently as numbers and as text: give OrderNumeric or OrderText")
	}
	return byValue, nil
}

// lockPaths returns the path of each item's lock below dir.
func lockPaths(dir string, items []string, escape bool) (map[string]string, error) {
	var errs []error
	bad := func(item, format string, args ...any) {
		errs = append(errs, fmt.Errorf("item %q: %s", item, fmt.Sprintf(format, args...)))
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
