package allocator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/internal/zones"
)

// Options of a [PartitionAllocator]. The zero value works: a member without
// partitions of its own to add, that runs [allocfn.RoundRobin].
type Options struct {
	// Seed holds the partitions, as topic and ids, that Run adds to the set when
	// the member joins, and whenever the set has lost them: its znode is missing or
	// was made anew, or the servers were restored from a backup. What somebody
	// removes from the set meanwhile is not added again. nil adds none. The map is
	// not used after New returned.
	Seed map[string][]int32

	// Func is the allocation function this member prefers. The zero value is
	// [allocfn.RoundRobin], which Python members run too.
	Func allocfn.Func

	// AlsoFuncs are functions that this member can run as well, the preferred
	// first. The group runs the first function in the list of its first member
	// by name that all members can run, name and version; so a fleet is moved
	// from one function, or version, to another by restarting its processes one at
	// a time with both.
	AlsoFuncs []allocfn.Func

	// PythonFunc is the ID of the function that members without a record run,
	// those written in Python; without a version it is 1. "" is "roundrobin/1",
	// kiel's default. All members of a group must say the same.
	PythonFunc string

	// OnRebalance is told of each new mapping and of each change of the own
	// share. It is called once at a time, in order; while
	// a call lasts, later ones merge into one. It is not called after Run
	// returned. ctx ends when the allocator starts to stop, and when the session
	// on which the snapshot rests is no longer trusted. A panic is reported to
	// OnError. It may call any method of the allocator, Stop too.
	OnRebalance func(ctx context.Context, r Rebalance)

	// OnError is told of each error that does not end Run, once until it changes
	// or has gone: those that [Snapshot] carries in Err, and those of seeding, of
	// members' records and of callbacks; and, once for each topic, of those that no
	// member asks for ([ErrUnwantedTopic]). It is called in turn with
	// OnRebalance, never at the same time. Of more than 64 that wait behind a slow callback the oldest
	// are dropped.
	OnError func(err error)

	// Weight, Zone and Topics stand in this member's record, for allocation
	// functions that look at them. Weight 0 is 1, at most [MaxWeight]; an empty
	// Zone is unknown. Topics are those that this member asks for; none are all of
	// them. Whatever the function, partitions of topics that no member asks for are
	// in no mapping ([ErrUnwantedTopic]). Topics mean nothing while a member
	// without a record is in the group, as those in Python are. An entry of Topics
	// may be a pattern, which asks for topics of the set: the package's page has the rules.
	Weight int
	Zone   string
	Topics []string

	// QuietPeriod and MaxDelay say how changes are coalesced: the first change
	// after a time of QuietPeriod without any is acted on at once, the following
	// ones when none has come for QuietPeriod, or the first of them has waited
	// for MaxDelay. 0 is 200 ms and 1 s.
	QuietPeriod, MaxDelay time.Duration

	// StopTimeout bounds the end of Run. 0 is 30 s.
	StopTimeout time.Duration

	// Logger receives the log. With nil, warnings and errors go to
	// slog.Default() and the rest is dropped; a Logger with
	// slog.DiscardHandler drops all.
	Logger *slog.Logger

	// Registerer takes the metrics, those of the session included, with the
	// label group put on, while Run runs. nil registers none. Members of one group
	// that share a process need one each, or one that puts a label on, such as
	// prometheus.WrapRegistererWith makes: Run fails while another has the same.
	Registerer prometheus.Registerer
}

// MaxWeight is the largest weight of a member.
const MaxWeight = 1_000_000

// Defaults of Options.
const (
	defaultQuietPeriod = 200 * time.Millisecond
	defaultMaxDelay    = time.Second
	defaultStopTimeout = 30 * time.Second
	defaultPythonFunc  = "roundrobin/1"

	// computeTimeout is when an allocation function that has not returned is
	// reported. Its result still counts if nothing has changed when it comes.
	computeTimeout = 5 * time.Second

	// callbackTimeout is when a callback that has not returned is logged and counted.
	callbackTimeout = 30 * time.Second
)

// withDefaults returns a copy that shares nothing with o that can change, and
// all faults of o joined.
func (o Options) withDefaults() (Options, error) {
	if o.Func.Name == "" && o.Func.Assign == nil {
		o.Func = allocfn.RoundRobin()
	}
	o.AlsoFuncs = slices.Clone(o.AlsoFuncs)
	o.Topics = slices.Clone(o.Topics)
	o.QuietPeriod = cmp.Or(o.QuietPeriod, defaultQuietPeriod)
	o.MaxDelay = cmp.Or(o.MaxDelay, defaultMaxDelay)
	o.StopTimeout = cmp.Or(o.StopTimeout, defaultStopTimeout)
	o.Logger = defaultlog.Or(o.Logger)
	id, err := allocfn.ParseID(cmp.Or(o.PythonFunc, defaultPythonFunc))
	if err != nil {
		err = fmt.Errorf("field PythonFunc: %w", err)
	}
	o.PythonFunc = id
	return o, errors.Join(o.validate(), err)
}

func (o Options) validate() error {
	var faults []error
	seen := make(map[string]bool)
	for _, f := range o.funcs() {
		if err := f.Validate(); err != nil {
			faults = append(faults, err)
		} else if seen[f.ID()] {
			faults = append(faults, fmt.Errorf("function %s given twice", f.ID()))
		}
		seen[f.ID()] = true
	}
	if len(seen) > maxFunctions {
		faults = append(faults, fmt.Errorf("%d functions, at most %d", len(seen), maxFunctions))
	}
	if o.Weight < 0 || o.Weight > MaxWeight {
		faults = append(faults, fmt.Errorf("field Weight: %d is not in 0 to %d", o.Weight, MaxWeight))
	}
	if err := zones.Check(o.Zone); err != nil {
		faults = append(faults, fmt.Errorf("field Zone: %w", err))
	}
	if _, err := topiclist.Parse(o.Topics); err != nil {
		faults = append(faults, fmt.Errorf("field Topics: %w", err))
	}
	if o.QuietPeriod < 0 || o.MaxDelay < 0 || o.StopTimeout < 0 {
		faults = append(faults, errors.New("field QuietPeriod, MaxDelay or StopTimeout is negative"))
	}
	return errors.Join(faults...)
}

// funcs returns the functions this member can run, the preferred first.
func (o Options) funcs() []allocfn.Func {
	return append([]allocfn.Func{o.Func}, o.AlsoFuncs...)
}
