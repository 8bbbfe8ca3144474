package consumer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
)

// NewGroup returns a member of a group that consumes from the Kafka behind brokers, coordinated through a ZooKeeper session of
// its own, which Close ends. zookeeper are the addresses of the servers, as session.New takes them; Options.Session has what else
// the session needs.
//
// NewGroup is the one constructor of this package that starts something, and that waits, as sarama.NewConsumerGroup does. It
// connects to Kafka and asks for metadata: of all topics if Config.Metadata.Full is true. When no broker answers it returns an
// error that is sarama.ErrOutOfBrokers, after the time and the number of attempts that Config.Net and Config.Metadata allow;
// Net's timeouts count for 10 s at most. It closes the connection again. Then it starts the session, and does not wait for
// ZooKeeper. Consume waits for ZooKeeper, and returns the error if the session ends by itself, for example for refused
// credentials (session.ErrAuthFailed). When NewGroup returns an error, nothing runs.
func NewGroup(zookeeper, brokers []string, group string, opts Options) (g *Group, err error) {
	opts.Session.Logger = cmp.Or(opts.Session.Logger, opts.Logger)
	if opts.Registerer != nil {
		opts.Session.Registerer = nil // the group's metrics have those of its session
	}
	shown := promreg.NewRegistry(opts.Session.Registerer, "") // refuses metrics of another session now, not when the session runs
	opts.Session.Registerer = shown
	defer func() {
		if err != nil {
			shown.Close()
		}
	}()
	zk, refused := session.New(zookeeper, opts.Session)
	set, err := newSettings(brokers, group, opts)
	if err := errors.Join(err, refused); err != nil {
		return nil, failure("", "", err)
	}
	life := context.Background() //nolint:forbidigo // like sarama's constructor it takes no context; Close ends what it starts
	if err := checkKafka(life, brokers, set.config); err != nil {
		return nil, err
	}
	if g, err = newGroup(zk, &bootstrap{group: group, addresses: slices.Clone(brokers)}, group, set); err != nil {
		return nil, err
	}
	end := startSession(life, zk)
	g.endSession = func(limit time.Duration) error {
		defer shown.Close()
		return end(limit)
	}
	return g, nil
}

// New returns a member of a group that consumes from the Kafka behind brokers, coordinated through s. session.Start has started
// s, or the caller runs it. New checks its arguments, does no I/O and starts nothing. Several members, of different groups, may
// share a session; Close does not end it. New ignores Options.Session.
func New(s *session.Session, brokers []string, group string, opts Options) (*Group, error) {
	return newWith(s, &bootstrap{group: group, addresses: slices.Clone(brokers)}, group, opts)
}

// newWith is New with a bootstrap.
func newWith(s *session.Session, b *bootstrap, group string, opts Options) (*Group, error) {
	set, err := newSettings(b.list(), group, opts)
	if err == nil && set.Static {
		err = errors.New("option Static or Config.Consumer.Group.InstanceId: a static member needs a ZooKeeper session of its own: use NewGroup")
	}
	if err != nil {
		return nil, failure("", "", err)
	}
	return newGroup(s, b, group, set)
}

// NewFromClient is New for programs that have a sarama.Client. The Group uses the client's configuration, so Options.Config must
// be nil, and connects first to the brokers that the client knows. The Group makes connections of its own, because it aborts
// connections at times. It never closes client. When none of the brokers that the Group knows answers, it has client look for the
// group's coordinator, once in 5 s at most, and connects to the brokers that client knows then: so it finds brokers that have all
// moved to other addresses. Close waits for client to have looked for the coordinator, for 50 ms at most. When no broker answers,
// client may go on after Close for as long as its own timeouts and retries allow.
//
// When the program closes client before the Group, the member leaves in order, within a second, and the running call of Consume
// or Run returns sarama.ErrClosedClient, as do all later calls, like those of a group of sarama.
//
// For a closed client the error is sarama.ErrClosedClient. A client that has not asked Kafka for anything yet begins to connect
// to one of its brokers; NewFromClient does not wait for that.
func NewFromClient(s *session.Session, client sarama.Client, group string, opts Options) (*Group, error) {
	switch {
	case client == nil:
		return nil, failure("", "", errors.New("client is nil"))
	case client.Closed():
		return nil, failure("", "", sarama.ErrClosedClient)
	case opts.Config != nil:
		return nil, failure("", "", errors.New("option Config is not nil: the configuration is the client's"))
	}
	if opts.Config = client.Config(); opts.Config == nil {
		return nil, failure("", "", errors.New("configuration of the client is nil"))
	}
	return newWith(s, &bootstrap{group: group, client: client}, group, opts)
}

// addressesOf returns the addresses of the brokers that a client knows.
func addressesOf(client sarama.Client) []string {
	brokers := client.Brokers()
	if len(brokers) == 0 { // the client has no metadata yet, and returns one of the brokers that it was given
		if b := client.LeastLoadedBroker(); b != nil {
			brokers = append(brokers, b)
		}
	}
	addresses := make([]string, len(brokers))
	for i, b := range brokers {
		addresses[i] = b.Addr()
	}
	return addresses
}

func newGroup(s *session.Session, b *bootstrap, group string, set settings) (*Group, error) {
	if s == nil {
		return nil, failure("", "", errors.New("session is nil"))
	}
	keeper := promreg.NewRegistry(set.Registerer, group)
	m, shown := promreg.New(keeper, group, newMetrics)
	g := &Group{
		zk: s, brokers: b, name: group, settings: set, metrics: m, registerer: keeper,
		report: newReporter(set, m),
	}
	g.log = g.report.Log
	m.observed = set.Registerer != nil
	m.gauges.group.Store(g)
	if err := errors.Join(shown.Complete(), g.showParts()); err != nil {
		keeper.Close()
		return nil, failure("", "", err)
	}
	warnConfig(set.log, set.config, set.policy)
	return g, nil
}

// newReporter returns the Reporter of a Group.
func newReporter(set settings, m *metrics) *reporting.Reporter {
	r := reporting.New(set.config.Consumer.Return.Errors, set.config.ChannelBufferSize, m.dropped.Inc)
	r.Log, r.Logger, r.Late = errlog.New(set.log), set.log, m.ignored.WithLabelValues(lateError).Inc
	r.Log.Explains(reporting.KindKafka, reporting.KindCommit, reporting.KindFetch, reporting.KindMetadata, reporting.KindOffsets, reporting.KindBroker)
	return r
}

// showParts makes the parts that each membership makes anew, so that their metrics exist before the first membership.
func (g *Group) showParts() error {
	a, err := allocator.New(g.zk, g.name, g.settings.Name, allocator.Options{Registerer: g.registerer, Logger: g.settings.Logger})
	if err != nil {
		return err
	}
	nobody := func(context.Context, *ownership.Claim) error { return nil }
	g.idle, err = ownership.New(a, nobody, ownership.Options{Registerer: g.registerer, Logger: g.settings.Logger})
	return err
}

// startSession runs zk until end is called. end waits for the users of zk, for limit at most, and returns the error of zk's
// Close.
func startSession(life context.Context, zk *session.Session) (end func(limit time.Duration) error) {
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = zk.Run(life) // Close returns its error
	}()
	return func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(life, limit)
		defer cancel()
		err := zk.Close(ctx)
		<-ran
		return err
	}
}

// offsetsTopic is a topic that nearly every Kafka has.
const offsetsTopic = "__consumer_offsets"

// checkKafka returns an error when no broker answers, within the timeouts of config. Errors of topics are answers.
func checkKafka(life context.Context, brokers []string, config *sarama.Config) error {
	dialer := kafkaconn.NewDialer(life, config, 0)
	control := kafkaconn.ControlConfig(*config, dialer)
	control.Metadata.RefreshFrequency = 0 // the client asks nothing by itself
	client, err := sarama.NewClient(brokers, control)
	if err != nil {
		return failure("connect to Kafka", "", err)
	}
	var topics []string // all
	if !config.Metadata.Full {
		topics = []string{offsetsTopic}
	}
	err = explainLogin(client.RefreshMetadata(topics...), brokers, control)
	dialer.Abort()
	_ = client.Close()
	for _, answer := range []error{
		sarama.ErrLeaderNotAvailable, sarama.ErrReplicaNotAvailable, sarama.ErrUnknownTopicOrPartition,
		sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed,
	} {
		if errors.Is(err, answer) {
			return nil
		}
	}
	if err != nil {
		return failure("connect to Kafka", "", err)
	}
	return nil
}
