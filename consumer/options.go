package consumer

import (
	"cmp"
	"context"
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

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/zones"
	"github.com/kielgo/kiel/session"
)

// StartAt says where a new group starts: in partitions of a topic on which it has no committed offset. The zero value is "not
// set": then Consumer.Offsets.Initial of sarama's Config says it, the end by default, and without a Config it is Earliest.
// Whatever StartAt says, a partition without a committed offset starts at its first message in a group that has one in another
// partition of the topic.
type StartAt int

const (
	// Earliest starts at the first message that Kafka still has, as sarama.OffsetOldest does.
	Earliest StartAt = iota + 1
	// Latest starts at the end, as sarama.OffsetNewest does: at the end as it is when the group begins on the topic, in whichever
	// partition first. What comes into the others until they are opened is read, as far as the messages' timestamps tell it.
	Latest
)

// String returns "earliest", "latest", or "not set" for the zero value.
func (f StartAt) String() string {
	switch f {
	case 0:
		return "not set"
	case Earliest:
		return "earliest"
	case Latest:
		return "latest"
	default:
		return "StartAt(" + strconv.Itoa(int(f)) + ")"
	}
}

// Options of a [Group]. The zero value works. They say what sarama's configuration has no word for, because Kafka's own groups
// have no ZooKeeper, no claims and no functions that all members run; the rest is in Config. What both have, such as Zone and
// RackID, counts from here if it is set.
type Options struct {
	// Name is the member's name in the group: letters, digits and "._:-", at most 249 of them, unique in the group. "" is
	// host:pid-xxxxxxxx, with a random end. While another process has the name, Consume waits, and the log and Errors say so. The
	// znode of a dead process disappears within [session.Options].MaxSessionTimeout and a few seconds. If the znode still exists
	// then, Consume returns an allocator.ErrNameTaken.
	Name string

	// Static makes this member static, with its Name; Config.Consumer.Group.InstanceId does the same, and is the name. An orderly
	// stop, by Close or the end of Consume's or Run's context, commits and releases everything, and leaves the membership: it
	// stays until the ZooKeeper session has timed out ([session.Options].Timeout). A process that starts under the same name
	// before takes it over, after a crash too, and no partition of any other member moves, in eager sessions neither. Meanwhile
	// the partitions of this member are nobody's. docs/deploying.md says for which fleets that is, and what happens when two
	// processes have one name.
	//
	// A static member needs a session of its own, so only NewGroup makes one. It leaves as others do when it leaves for another
	// reason: because it reaches no Kafka, because a handler is stuck, or because no call of Consume followed the last one.
	Static bool

	// Config is sarama's configuration: security, client id, protocol version, fetch sizes, interceptors, isolation level. It is
	// copied and never written to. nil is sarama.NewConfig with client id "kiel" and version 3.6. Its strategies say which kind
	// of sessions Consume has, eager unless all are cooperative. docs/sarama-config.md says how each field is used. One warning
	// names the fields that are set and not honoured.
	Config *sarama.Config

	// StartAt is where a new group starts. Without it Config.Consumer.Offsets.Initial counts, which is sarama.OffsetNewest unless
	// changed: a new group then skips the messages that are there, and a warning says so. Without a Config, too, it is Earliest.
	StartAt StartAt

	// StartTime, when not zero, has a new group start at a time, in place of StartAt: in each partition at the first message
	// whose timestamp is StartTime or later, or at the end if there is none. Timestamps are in milliseconds, and producers may
	// set them.
	StartTime time.Time

	// Func is the allocation function of this member. The zero Func is [allocfn.Balanced], and then [allocfn.RoundRobin], which
	// members of Python kiel run, is put behind AlsoFuncs. With a function that does not look at topics, such as
	// [allocfn.CoPartitioned], all members need the same topics ([ErrTopicMismatch]). [FromStrategy] makes one of a strategy that
	// was written for sarama; without Func a strategy of Config that is not sarama's own is an error of New.
	Func allocfn.Func

	// AlsoFuncs are other functions that this member can run, after Func in order of preference, for changing the function of a
	// running group.
	AlsoFuncs []allocfn.Func

	// PythonFunc is the ID of the function that members of Python kiel run; "" is "roundrobin/1".
	PythonFunc string

	// Weight is this member's share compared with others', at most [allocator.MaxWeight], if the group's function looks at
	// weights, as [allocfn.Balanced] and [allocfn.TopicBalanced] do. 0 is 1, so give a weight to all members or to none: beside
	// members of weight 100 one without gets next to nothing.
	Weight int

	// Zone is where this member runs, in the words of the brokers' broker.rack. A member in a zone gets partitions whose
	// preferred leader is in that zone, as far as shares allow, if the group's function looks at zones, as [allocfn.Balanced] and
	// [allocfn.TopicBalanced] do. The member also writes for the group in which zones the partitions are, as Kafka says, if the
	// brokers have racks: docs/topics.md. "" is Config.RackID; if that is empty too, the member is in no zone.
	Zone string

	// StatusAddr is where this member answers /status (package health), for the command kiel: "http://host:port" or
	// "https://host:port", of status.MaxAddr bytes at most, as others reach it. "" is nowhere.
	StatusAddr string

	// RebalanceTimeout is how long a ConsumeClaim may go on after its partition was revoked, or its session has ended. After a
	// revocation in an incremental session the partition is then lost. After the end of a session the member leaves, which takes
	// StopTimeout at most, and Consume returns an ownership.ErrStuck; in an eager session Setup and Cleanup count, too. If ctx
	// ended the call, handlers have StopTimeout. When ConsumeClaim has returned in time, closing the partition may take 10 s more
	// while Kafka does not answer the last commit, and 10 s while the Observer does not return. 0 is
	// Config.Consumer.Group.Rebalance.Timeout, 60 s unless changed.
	RebalanceTimeout time.Duration

	// StopTimeout is how long leaving the group may take. An eager session has it for ConsumeClaims and Cleanup together, but for
	// a quarter of it, some 6 s at most, which is kept for the last commits and releases. With an incremental one a 20th of it,
	// half a second at most, is kept for Cleanup. 0 is 30 s.
	StopTimeout time.Duration

	// LeaveWithoutKafkaAfter is how long this member may be without an answer of any broker before it leaves the group, so that
	// the others get its partitions. 0 is never: its partitions wait for Kafka to be in reach again. Less than 10 s counts as 10
	// s, because Kafka counts as out of reach no earlier. Kafka's own groups expel such a member after 45 s.
	//
	// The member leaves only while its ZooKeeper session is trusted and another member is in the group. Handlers are asked to
	// finish, and nothing is committed: messages that were marked and not committed are handled again. The session's context ends
	// with sarama.ErrSessionHeartbeatFailed. Consume or Run goes on, and joins again when a broker answers, with Cleanup of this
	// session and Setup of the next. The first pause before that is 5 s; from leave to leave it doubles, up to 5 minutes, and is
	// 5 s again after a membership that has lasted for 5 minutes. Attempts that fail go to the log and to Errors; Consume or Run
	// returns the error when brokers answer, and the member can't join all the same.
	//
	// A member can't tell whether the others reach Kafka. If nobody does, each member but the last leaves once and joins once.
	// The first member in the order of names leaves 20 s later than the others, so that it is the last one and stays. If members
	// notice at times that lie further apart, the group may be without a member until Kafka is back.
	LeaveWithoutKafkaAfter time.Duration

	// CommitInterval is how often marked offsets are committed. 0 is Config.Consumer.Offsets.AutoCommit.Interval, 1 s unless
	// changed. It has no effect when AutoCommit.Enable is false.
	CommitInterval time.Duration

	// MaxUnmarked limits how many messages of a partition are handed out beyond the oldest one that is not marked. It applies
	// from the partition's first [Partition.Done] on. 0 is 10,000. A batch counts as its messages.
	MaxUnmarked int

	// BufferBytes bounds the buffers of all partitions of this member together, in bytes. Record batches count as they came,
	// compressed or not, and answers to requests in flight count in advance; docs/reading.md says what comes on top. Each open
	// partition has an equal share. 0 is 64 MiB.
	BufferBytes int

	// MaxBatchBytes bounds a record batch when it is decompressed, in bytes. One that is larger closes its partition alone, with
	// an [ErrUnreadable] that names its offset, its size and this option. sarama.MaxDecompressedBatchSize counts as well, if it
	// is set when the member joins. A compressed message of a format before record batches counts as a batch. 0 is 64 MiB.
	MaxBatchBytes int

	// ReopenPartition says what happens when a handler, a ConsumeClaim or a function given to Run, returns while its messages are
	// open. false ends the call, as in a group of sarama: all partitions are closed, their marks are committed, and the next call
	// opens them again. true closes that partition alone: its marks are committed, and the error goes to Errors ([ErrHandler]).
	// This member keeps the claim. After a pause, which grows from failure to failure up to 30 s, it opens the partition again.
	// Other partitions go on. With true, sessions of Consume are incremental.
	ReopenPartition bool

	// Fence, when not nil, is called each time a partition is opened: after the partition was claimed, before its committed
	// offset is read. It is for programs that commit offsets in Kafka's transactions. Fence makes the producer with the
	// partition's transactional id. Kafka then ends the transaction of the producer before, a former owner's, and refuses what
	// that one sends later. So no former owner changes the offset after it is read. docs/transactions.md has the recipe, and an
	// example is the whole program.
	//
	// The group then commits little itself (the package's Guarantees): mark nothing, and set
	// Config.Consumer.Offsets.AutoCommit.Enable to false. ErrGroupInUse is not noticed. Config.Version must be 2.5 or newer.
	//
	// Fence is called for several partitions at the same time. ctx ends when the partition is revoked or lost, or when the
	// session ends; from then on Fence has RebalanceTimeout to return, like a ConsumeClaim. When Fence returns an error or
	// panics, that is reported to Errors, the partition stays closed, and Fence is called again after a pause. ConsumeClaim does
	// not follow each Fence, since opening the partition may fail, or end, in between. So a producer may be left that no
	// ConsumeClaim has taken: close it at the next Fence, and in Cleanup.
	Fence func(ctx context.Context, topic string, partition int32) error

	// Observer, when not nil, is called with each event of this member.
	//
	// For one partition the calls begin in the order in which the events happen. They may overlap: the call for a message waits
	// for that of the message before, and the call for a commit for that of the commit before, but the observer may be notified
	// of a commit or of a change of the claim during the call for a message, and of Revoking during or after the calls for the
	// commits that follow it. The call for a message returns before the message is handed out. A call that blocks at Opened,
	// Message or Committed holds up that partition; at any other event it holds up the whole member.
	//
	// The Observer may call Commit, which does not wait for it, and must not call Close. A panic ends the call; it is logged and
	// goes to Errors, as ownership.ErrCallback. A call that takes longer than RebalanceTimeout, or than 5 s if that is more, is
	// logged and goes to Errors as an ownership.ErrStuck; then the member leaves, and Consume returns that error. For Setup,
	// Cleanup and the interceptors such a call is only reported.
	Observer func(Event)

	// Session are the options of the session that NewGroup makes: its timeout, the chroot, credentials, TLS. Without a Logger of
	// its own the session logs to the group's Logger. Close waits for the member for the Group's StopTimeout, and not for that of
	// the session. New and NewFromClient, which are given a session, ignore Session.
	Session session.Options

	// Logger receives the log of the group, those of allocator and ownership included. Errors of one kind are logged once, then
	// once in 10 s with a count; a line "recovered" follows when the errors have ended. docs/operating.md has all lines, and
	// their levels. With nil, warnings and errors go to slog.Default() and the rest is dropped; a Logger with slog.DiscardHandler
	// drops all. A session that New or NewFromClient is given has a Logger of its own.
	Logger *slog.Logger

	// Registerer receives the metrics of the group, those of allocator, ownership and its session included, with a label "group",
	// from New to Close; Session.Registerer is then not used. nil registers none. Groups of the same name in one process need a
	// Registerer each, or one that adds a label, such as prometheus.WrapRegistererWith makes. With the same Registerer the second
	// New returns an error until the first Group was closed.
	Registerer prometheus.Registerer
}

// settings are the Options with all defaults filled in.
type settings struct {
	Options
	config     *sarama.Config
	policy     policy // where a new group starts
	autoCommit bool
	eager      bool         // sessions of Consume end when their partitions change
	log        *slog.Logger // Logger with this package's keys; the parts below add their own
}

// minVersion is the oldest Config.Version with which records come in batches (KIP-98).
func minVersion() sarama.KafkaVersion { return sarama.V0_11_0_0 }

// newSettings returns the settings of a group, or all faults at once, without the package's name.
func newSettings(brokers []string, group string, opts Options) (settings, error) {
	var errs faults
	if err := kiel.CheckGroup(group); err != nil {
		errs = append(errs, err)
	}
	errs.checkBrokers(brokers)
	errs.checkNumbers(opts)

	opts.AlsoFuncs = slices.Clone(opts.AlsoFuncs)
	if opts.Func.Assign == nil && opts.Func.Name == "" {
		errs.checkStrategies(opts.Config)
		opts.Func = allocfn.Balanced()
		opts.AlsoFuncs = withRoundRobin(opts.AlsoFuncs)
	}
	config, err := copyConfig(opts.Config)
	if err != nil {
		errs = append(errs, err)
	} else {
		errs.setZone(&opts, config.RackID)
		errs.setStatic(&opts, config.Consumer.Group.InstanceId)
	}
	name, err := defaultName(opts.Name)
	if err != nil {
		errs = append(errs, err)
	} else if err := kiel.CheckMember(name); err != nil {
		errs = append(errs, operr.New("", nameOption(config), "", err))
	}

	if opts.Fence != nil && config != nil && !config.Version.IsAtLeast(sarama.V2_5_0_0) {
		errs.add("option Fence: Config.Version is %s, and before 2.5 (KIP-447) an offset can be read while a transaction is about to store another", config.Version)
	}
	if err := opts.allocator().Validate(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return settings{}, errors.Join(errs...)
	}

	opts.Name = name
	opts.RebalanceTimeout = cmp.Or(opts.RebalanceTimeout, config.Consumer.Group.Rebalance.Timeout)
	opts.StopTimeout = cmp.Or(opts.StopTimeout, 30*time.Second)
	opts.CommitInterval = cmp.Or(opts.CommitInterval, config.Consumer.Offsets.AutoCommit.Interval)
	opts.Logger = defaultlog.Or(opts.Logger)
	return settings{
		Options: opts, config: config, policy: policyOf(opts), autoCommit: config.Consumer.Offsets.AutoCommit.Enable,
		eager: isEager(config) && !opts.ReopenPartition,
		log:   opts.Logger.With("component", "consumer", "group", group, "member", name),
	}, nil
}

// createsTopics reports whether the user's Config has Kafka create topics that do not exist.
func (s *settings) createsTopics() bool {
	return s.Config != nil && s.config.Metadata.AllowAutoTopicCreation
}

// kind returns the kind of sessions that Consume has.
func (s *settings) kind() sessions.Kind {
	return sessions.Kind{Eager: s.eager, Hold: !s.autoCommit && s.Fence == nil}
}

// faults collects what is wrong with the arguments of a constructor.
type faults []error

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

// nameOption returns what the operation is called that has given the member its name.
func nameOption(config *sarama.Config) string {
	if config != nil && config.Consumer.Group.InstanceId != "" {
		return "option Config.Consumer.Group.InstanceId"
	}
	return "option Name"
}

// setZone sets the zone of a member that has it by sarama's configuration.
func (f *faults) setZone(opts *Options, rackID string) {
	if opts.Zone != "" {
		return
	}
	if err := zones.Check(rackID); err != nil {
		*f = append(*f, operr.New("", "option Config.RackID", "", err))
		return
	}
	opts.Zone = rackID
}

// setStatic sets the name of a member that is static by sarama's configuration.
func (f *faults) setStatic(opts *Options, instanceID string) {
	switch {
	case instanceID != "" && opts.Name != "" && opts.Name != instanceID:
		f.add("option Name: is %q, and Config.Consumer.Group.InstanceId is %q: a static member has one name", opts.Name, instanceID)
	case instanceID != "":
		opts.Name, opts.Static = instanceID, true
	case opts.Static && opts.Name == "":
		f.add("option Static: needs a Name that stays the same")
	}
}

func (f *faults) checkBrokers(brokers []string) {
	if len(brokers) == 0 {
		f.add("argument brokers is empty")
	}
	if i := slices.Index(brokers, ""); i >= 0 {
		f.add("argument brokers[%d] is empty", i)
	}
}

func (f *faults) checkNumbers(opts Options) {
	if opts.StartAt < 0 || opts.StartAt > Latest {
		f.add("option StartAt: %d is not known", int(opts.StartAt))
	}
	if opts.StartAt != 0 && !opts.StartTime.IsZero() {
		f.add("option StartTime: option StartAt is set, too")
	}
	if opts.MaxUnmarked < 0 {
		f.add("option MaxUnmarked: %d is less than 0", opts.MaxUnmarked)
	}
	if opts.BufferBytes < 0 {
		f.add("option BufferBytes: %d is less than 0", opts.BufferBytes)
	}
	if opts.MaxBatchBytes < 0 {
		f.add("option MaxBatchBytes: %d is less than 0", opts.MaxBatchBytes)
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"RebalanceTimeout", opts.RebalanceTimeout},
		{"StopTimeout", opts.StopTimeout},
		{"CommitInterval", opts.CommitInterval},
		{"LeaveWithoutKafkaAfter", opts.LeaveWithoutKafkaAfter},
	} {
		if d.value < 0 {
			f.add("option %s: %v is less than 0", d.field, d.value)
		}
	}
}

// allocator returns the options that the allocator has, too, and checks.
func (o *Options) allocator() allocator.Options {
	return allocator.Options{
		Func: o.Func, AlsoFuncs: o.AlsoFuncs, PythonFunc: o.PythonFunc, Weight: o.Weight, Zone: o.Zone, StatusAddr: o.StatusAddr, Static: o.Static,
		Logger: o.Logger,
	}
}

// withRoundRobin removes Balanced from also, and appends the function that Python members run unless also has it.
func withRoundRobin(also []allocfn.Func) []allocfn.Func {
	last, first := allocfn.RoundRobin(), allocfn.Balanced().ID()
	also = slices.DeleteFunc(also, func(f allocfn.Func) bool { return f.ID() == first })
	if slices.ContainsFunc(also, func(f allocfn.Func) bool { return f.ID() == last.ID() }) {
		return also
	}
	return append(also, last)
}

// defaultName returns name, or without one a name made from host and process. Characters of the host that a member name may not
// have are replaced.
func defaultName(name string) (string, error) {
	if name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("option Name: read the host's name: %w", err)
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
