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
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/internal/zones"
	"github.com/kielgo/kiel/status"
)

// Options configure a [PartitionAllocator]. The zero value works: the member adds no partitions to the set, and runs
// [allocfn.RoundRobin].
//
// Func, AlsoFuncs, Weight, Zone, Topics, Cluster and Static are published in this member's record, because all members have to
// compute one mapping from the same data. The other options concern this process alone, but for Seed, which goes into the set.
type Options struct {
	// Seed holds the partitions, as topic and ids, that Run adds to the set when the member joins, and whenever the set has lost
	// them: its znode is missing or was created anew, or the servers were restored from a backup. Run does not add again what
	// somebody removes from the set meanwhile. nil adds none. The map is not used after New has returned.
	Seed map[string][]int32

	// Func is the allocation function that this member prefers. The zero value is [allocfn.RoundRobin], which Python members run
	// too.
	Func allocfn.Func

	// AlsoFuncs are functions that this member can run as well, the preferred first. The group runs the first function in the
	// list of its first member by name that all members can run in the same version. So to change a group's function, or its
	// version, restart the members one at a time with both.
	AlsoFuncs []allocfn.Func

	// PythonFunc is the ID of the function that members without a record run, which are members in Python; an ID without a
	// version has version 1. "" is "roundrobin/1", kiel's default. It must be the same for all members of a group.
	PythonFunc string

	// OnRebalance is called for each new mapping and for each change of this member's share: one call at a time, in order. While
	// a call lasts, later ones are merged into one. No call begins after Run has returned. ctx ends when the allocator begins to
	// stop, and when the session on which the snapshot rests is no longer trusted. A panic is reported to OnError. OnRebalance
	// may call any method of the allocator; for Stop it uses ctx.
	OnRebalance func(ctx context.Context, r Rebalance)

	// OnError is called for each error that does not end Run. Such errors are those in Err of a [Snapshot], and those of seeding,
	// of members' records and of callbacks. Each is reported once, and again if its text changes or if it comes back after it was
	// gone. A topic that no member asks for ([ErrUnwantedTopic]) is reported once. OnError and OnRebalance are never called at
	// the same time. At most 64 errors wait behind a slow callback; then the oldest are dropped. ctx ends when the allocator
	// begins to stop; a call that begins after that has a ctx which ends with Run. For Stop OnError uses ctx.
	OnError func(ctx context.Context, err error)

	// Static makes this member static: a process that takes its name over while the former one's ZooKeeper session still lives,
	// after a stop with Keep or after a crash, changes nothing for the other members if its record is the same. The session must
	// be this member's alone. All that is said of [party.Static] holds.
	Static bool

	// Rejoin says that this member was in the group before, in this process, as an allocator that has ended. Then a refusal by
	// the servers, such as session.ErrNoAuth, does not end Run, not even before the member has joined again.
	Rejoin bool

	// Weight is this member's share compared with others', for allocation functions that go by weights. 0 is 1, and [MaxWeight]
	// is the most.
	Weight int

	// Zone is where this member runs, for allocation functions that go by zones. "" is unknown.
	Zone string

	// Topics are those that this member asks for; an empty list asks for all. An entry may be a pattern, which asks for topics of
	// the set: the package's page has the rules. Whatever the function, partitions of topics that no member asks for are in no
	// mapping ([ErrUnwantedTopic]). Topics have no effect while the group has a member without a record, such as one in Python.
	Topics []string

	// Cluster is the id of what holds the partitions' data, as of a Kafka cluster: 1 to [MaxCluster] visible ASCII characters. It
	// is part of this member's record. "" is unknown, and of no effect. Members that name another cluster than the oldest member
	// that names one would handle other data under the same partitions' names: they do not join, or leave, and Run returns an
	// [ErrOtherCluster].
	Cluster string

	// StatusAddr is where this member answers /status, for tools that look at the whole group: "http://host:port" or
	// "https://host:port", of status.MaxAddr bytes at most. It stands beside this member's znode, and members don't read it. ""
	// is nowhere.
	StatusAddr string

	// QuietPeriod and MaxDelay bound how changes are coalesced. The first change after QuietPeriod without any is acted on at
	// once. Those that follow are acted on when no change has come for QuietPeriod, or when the first of them has waited for
	// MaxDelay. When the set was deleted, the member waits until the members have added again what it held, MaxDelay at most. 0
	// is 200 ms and 1 s.
	QuietPeriod, MaxDelay time.Duration

	// StopTimeout bounds how long Run takes to return once it is to end. 0 is 30 s.
	StopTimeout time.Duration

	// Logger receives the log. With nil, warnings and errors go to slog.Default() and the rest is dropped; a Logger with
	// slog.DiscardHandler drops all.
	Logger *slog.Logger

	// Registerer registers the metrics, those of the session included, while Run runs; they get the label group. nil registers
	// none. Members of one group that share a process need a Registerer each, or one that adds a label, as
	// prometheus.WrapRegistererWith makes: Run fails if another member's metrics are registered with the same one.
	Registerer prometheus.Registerer
}

// MaxWeight is the largest weight of a member.
const MaxWeight = 1_000_000

// MaxCluster is the length of the longest id of a cluster.
const MaxCluster = 128

// Defaults of Options.
const (
	defaultQuietPeriod = 200 * time.Millisecond
	defaultMaxDelay    = time.Second
	defaultStopTimeout = 30 * time.Second
	defaultPythonFunc  = "roundrobin/1"

	// computeTimeout is after how long an allocation function that has not returned is reported. Its result still counts if
	// nothing has changed until it comes.
	computeTimeout = 5 * time.Second

	// callbackTimeout is after how long a callback that has not returned is logged and counted.
	callbackTimeout = 30 * time.Second
)

// Validate returns all faults of the options, joined, as [New] does.
func (o Options) Validate() error {
	if _, err := o.withDefaults(); err != nil {
		return failed("", "", err)
	}
	return nil
}

// withDefaults returns a copy of o with the defaults, which shares nothing with o that can change, and all faults of o joined.
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
		err = operr.New("", "option PythonFunc", "", err)
	}
	o.PythonFunc = id
	return o, errors.Join(o.validate(), err)
}

func (o Options) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("option "+format, args...)) }
	seen := make(map[string]bool)
	for i, f := range o.funcs() {
		name := "Func"
		if i > 0 {
			name = fmt.Sprintf("AlsoFuncs[%d]", i-1)
		}
		if err := f.Validate(); err != nil {
			faults = append(faults, operr.New("", "option", name, err))
		} else if seen[f.ID()] {
			fault("%s: %s is given twice", name, f.ID())
		}
		seen[f.ID()] = true
	}
	if len(seen) > maxFunctions {
		fault("AlsoFuncs: %d, with Func, is more than %d", len(seen), maxFunctions)
	}
	if o.Weight < 0 {
		fault("Weight: %d is less than 0", o.Weight)
	}
	if o.Weight > MaxWeight {
		fault("Weight: %d is more than %d", o.Weight, MaxWeight)
	}
	if err := zones.Check(o.Zone); err != nil {
		faults = append(faults, operr.New("", "option Zone", "", err))
	}
	if _, err := topiclist.Parse(o.Topics); err != nil {
		faults = append(faults, operr.New("", "option Topics", "", err))
	}
	if o.Cluster != "" && !IsCluster(o.Cluster) {
		fault("Cluster: %.200q has more than %d characters, or others than visible ASCII ones", o.Cluster, MaxCluster)
	}
	if o.StatusAddr != "" {
		if err := status.CheckAddr(o.StatusAddr); err != nil {
			faults = append(faults, operr.New("", "option StatusAddr", "", err))
		}
	}
	if o.QuietPeriod < 0 {
		fault("QuietPeriod: %v is less than 0", o.QuietPeriod)
	}
	if o.MaxDelay < 0 {
		fault("MaxDelay: %v is less than 0", o.MaxDelay)
	}
	if o.StopTimeout < 0 {
		fault("StopTimeout: %v is less than 0", o.StopTimeout)
	}
	return errors.Join(faults...)
}

// funcs returns the functions that this member can run, the preferred first.
func (o Options) funcs() []allocfn.Func {
	return append([]allocfn.Func{o.Func}, o.AlsoFuncs...)
}
