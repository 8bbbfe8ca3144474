package consumer

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/zones"
	"github.com/kielgo/kiel/session"
)

// From says where a partition starts that has no committed offset.
type From int

const (
	// Earliest starts at the first message that Kafka still has. It is the
	// default, because nothing may be lost; sarama's own default is the end.
	Earliest From = iota
	// Latest starts at the end of the partition as it is when the partition is
	// opened for the first time; at the first message if the topic got the partition
	// after the group had started on it.
	Latest
)

// String returns "earliest" or "latest".
func (f From) String() string {
	switch f {
	case Earliest:
		return "earliest"
	case Latest:
		return "latest"
	default:
		return "From(" + strconv.Itoa(int(f)) + ")"
	}
}

// Options of a [Group]. The zero value works.
type Options struct {
	// Name is the member's name in the group: letters, digits and "._:-", at
	// most 249 of them, unique in the group. "" is host:pid-xxxxxxxx, with a
	// random end.
	Name string

	// Config is sarama's configuration: security, client id, protocol version,
	// fetch sizes, interceptors, isolation level. It is copied and never
	// written to. nil is sarama.NewConfig with client id "kiel" and version
	// 3.6. The package's page has a table of the fields that mean something
	// else here than in a group of sarama.
	Config *sarama.Config

	// From is where a partition without a committed offset starts.
	From From

	// Func is the allocation function of this member, AlsoFuncs are others that
	// it can run, after Func in order of preference, for changing the function of a
	// running group. The zero Func is [allocfn.Balanced], and then
	// [allocfn.RoundRobin], which members of Python kiel run, is put behind
	// AlsoFuncs. With a function that does not look at topics, such as
	// [allocfn.CoPartitioned], all members need the same topics ([ErrTopicMismatch]).
	Func      allocfn.Func
	AlsoFuncs []allocfn.Func
	// PythonFunc is the ID of the function that members of Python kiel run; "" is
	// "roundrobin/1".
	PythonFunc string

	// Weight is this member's share compared with others', at most [allocator.MaxWeight],
	// if the group's function looks at weights, as [allocfn.Balanced] and
	// [allocfn.TopicBalanced] do. 0 is 1, so give a weight to all members or to none:
	// beside members of weight 100 one without gets next to nothing.
	Weight int

	// Zone is where this member runs, in the words of the brokers' broker.rack. A
	// member in a zone gets partitions whose preferred leader is in that zone, as far
	// as shares allow, if the group's function looks at zones, as [allocfn.Balanced]
	// and [allocfn.TopicBalanced] do; and it tells the group in which zones the
	// partitions are, as Kafka says, if the brokers have racks. The package's page
	// says more. "" is Config.RackID; if that is empty too, the member is in no zone.
	Zone string

	// RebalanceTimeout is how long a ConsumeClaim may go on after its partition
	// was revoked. After that the partition is lost to it. 0 is
	// Config.Consumer.Group.Rebalance.Timeout, 60 s unless changed.
	RebalanceTimeout time.Duration

	// StopTimeout is how long leaving the group may take. A 20th of it, half a
	// second at most, is kept for Cleanup. 0 is 30 s.
	StopTimeout time.Duration

	// CommitInterval is how often marked offsets are committed. 0 is
	// Config.Consumer.Offsets.AutoCommit.Interval, 1 s unless changed. It means
	// nothing when AutoCommit.Enable is false.
	CommitInterval time.Duration

	// Window is how many messages of a partition may be handed out from the oldest one
	// on that is not marked, once [Partition.Done] was called for it. 0 is 10,000. A
	// batch counts as its messages.
	Window int

	// BufferBytes bounds what waits in the buffers of all partitions of this member, in
	// bytes, with what requests in flight may bring; the package's page says what comes
	// on top. Each open partition has an equal share. 0 is 64 MiB.
	BufferBytes int

	// AfterHandlerError says what happens when a handler, a function given to Run or a
	// ConsumeClaim, returns before its partition is revoked or lost.
	AfterHandlerError HandlerErrorAction

	// Observer, when not nil, is called with each event of this member. For a
	// partition the calls begin in the order in which the events happen, and may
	// overlap: of its messages and commits each waits for the one before, but a
	// commit, or what befalls the claim, may be told during the call for a message.
	// The call for a message returns before the message is handed out.
	// One that blocks at Opened, Message or Committed holds up that partition, at
	// any other event all of this member. It may call Commit, which does not wait
	// for it, and must not call Close. A panic ends the call; it is logged and goes
	// to Errors, as ownership.ErrCallback. A call that takes longer than
	// RebalanceTimeout, and 5 s, is an ownership.ErrStuck, logged and sent to
	// Errors; then the member leaves, and Consume returns that. For Setup, Cleanup
	// and the interceptors it is only reported.
	Observer func(Event)

	// Logger receives the log of the group, those of allocator and ownership
	// included. With nil, warnings and errors go to slog.Default() and the rest is
	// dropped; a Logger with slog.DiscardHandler drops all. The session has a Logger
	// of its own.
	Logger *slog.Logger

	// Registerer receives the metrics of the group, those of allocator and ownership
	// included, with a label "group". nil registers none. Groups of the same name in one
	// process need one each, or one that adds a label: with the same they share gauges,
	// which then are wrong.
	Registerer prometheus.Registerer
}

// settings are Options with all defaults in.
type settings struct {
	Options
	config     *sarama.Config
	autoCommit bool
	log        *slog.Logger // Logger with our keys; the parts below put on their own
}

// minVersion is the oldest protocol ceiling with which records have batches.
func minVersion() sarama.KafkaVersion { return sarama.V0_11_0_0 }

func newSettings(brokers []string, group string, opts Options) (settings, error) {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if err := session.CheckGroup(group); err != nil {
		errs = append(errs, err)
	}
	if len(brokers) == 0 {
		fail("brokers: at least one address is needed")
	}
	if i := slices.Index(brokers, ""); i >= 0 {
		fail("brokers[%d]: the address is empty", i)
	}
	if opts.From != Earliest && opts.From != Latest {
		fail("option From: %d is neither Earliest nor Latest", int(opts.From))
	}
	if opts.Window < 0 {
		fail("option Window: %d is negative", opts.Window)
	}
	if opts.BufferBytes < 0 {
		fail("option BufferBytes: %d is negative", opts.BufferBytes)
	}
	if opts.AfterHandlerError != RetryPartition && opts.AfterHandlerError != EndRun {
		fail("option AfterHandlerError: %d is neither RetryPartition nor EndRun", int(opts.AfterHandlerError))
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"RebalanceTimeout", opts.RebalanceTimeout},
		{"StopTimeout", opts.StopTimeout},
		{"CommitInterval", opts.CommitInterval},
	} {
		if d.value < 0 {
			fail("option %s: %v is negative", d.field, d.value)
		}
	}

	opts.AlsoFuncs = slices.Clone(opts.AlsoFuncs)
	if opts.Func.Assign == nil && opts.Func.Name == "" {
		opts.Func = allocfn.Balanced()
		opts.AlsoFuncs = withRoundRobin(opts.AlsoFuncs)
	}
	if err := opts.Func.Validate(); err != nil {
		fail("option Func: %w", err)
	}
	for i, f := range opts.AlsoFuncs {
		if err := f.Validate(); err != nil {
			fail("option AlsoFuncs[%d]: %w", i, err)
		}
		if f.ID() == opts.Func.ID() || slices.ContainsFunc(opts.AlsoFuncs[:i], func(g allocfn.Func) bool { return g.ID() == f.ID() }) {
			fail("option AlsoFuncs[%d]: %s is given twice", i, f.ID())
		}
	}

	if opts.Weight < 0 || opts.Weight > allocator.MaxWeight {
		fail("option Weight: %d is not in 0 to %d", opts.Weight, allocator.MaxWeight)
	}

	name, err := defaultName(opts.Name)
	if err != nil {
		errs = append(errs, err)
	} else if err := session.CheckMember(name); err != nil {
		errs = append(errs, err)
	}

	config, err := copyConfig(opts.Config)
	if err != nil {
		errs = append(errs, err)
	} else if opts.Zone == "" {
		opts.Zone = config.RackID
	}
	if err := zones.Check(opts.Zone); err != nil {
		fail("option Zone or Config.RackID: %w", err)
	}
	if len(errs) > 0 {
		return settings{}, fmt.Errorf("consumer: %w", errors.Join(errs...))
	}

	opts.Name = name
	opts.RebalanceTimeout = cmp.Or(opts.RebalanceTimeout, config.Consumer.Group.Rebalance.Timeout)
	opts.StopTimeout = cmp.Or(opts.StopTimeout, 30*time.Second)
	opts.CommitInterval = cmp.Or(opts.CommitInterval, config.Consumer.Offsets.AutoCommit.Interval)
	opts.Logger = defaultlog.Or(opts.Logger)
	return settings{
		Options: opts, config: config, autoCommit: config.Consumer.Offsets.AutoCommit.Enable,
		log: opts.Logger.With("component", "consumer", "group", group, "member", name),
	}, nil
}

// withRoundRobin appends the function that Python members run, if it is not
// among those that come behind Balanced, and takes Balanced out of them.
func withRoundRobin(also []allocfn.Func) []allocfn.Func {
	last, first := allocfn.RoundRobin(), allocfn.Balanced().ID()
	also = slices.DeleteFunc(also, func(f allocfn.Func) bool { return f.ID() == first })
	if slices.ContainsFunc(also, func(f allocfn.Func) bool { return f.ID() == last.ID() }) {
		return also
	}
	return append(also, last)
}

// defaultName makes a name from the host and the process. What a host name may
// hold and a member name may not is replaced.
func defaultName(name string) (string, error) {
	if name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("option Name: the host has no name to take: %w", err)
	}
	var end [4]byte
	rand.Read(end[:]) // never fails
	clean := []byte(host)
	for i, b := range clean {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '.', b == '_', b == '-':
		default:
			clean[i] = '_'
		}
	}
	return fmt.Sprintf("%.200s:%d-%s", clean, os.Getpid(), hex.EncodeToString(end[:])), nil
}
