package fetch

import (
	"math"
	"net"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/errlog"
)

const (
	// defaultMaxBytes is the default of Options.MaxBytes.
	defaultMaxBytes = 64 << 20
	// minFetch is the least number of bytes that a request asks for of a partition.
	minFetch = 16 << 10
	// minHandOut and maxHandOut bound the memory that the messages take which Next hands out together. An eighth of a partition's
	// share is the aim. It may be exceeded by one message.
	minHandOut = 16 << 10
	maxHandOut = 256 << 10
	// maxFetch is the largest number of bytes that a request asks for of a partition that is alone in it.
	maxFetch = math.MaxInt32
	// silence is how long a connection may bring no byte while an answer is due. Where that has ended a request, the next one
	// gets twice as long, up to Config.Net.ReadTimeout.
	silence = 5 * time.Second
	// slowFor is how long a broker gets more time than silence after it has needed more.
	slowFor = time.Minute
	// minShortPoll and maxShortPoll bound how long the second connection of a broker waits for messages; the time doubles while
	// no messages come. A partition that becomes ready meanwhile waits for the end of the poll.
	minShortPoll = time.Millisecond
	maxShortPoll = 8 * time.Millisecond
	// mergeWait is how long the first connection waits for the end of a short poll before it starts a long one, so that the long
	// poll has the same partitions, too.
	mergeWait = 2 * maxShortPoll
	// idleTimeout is how long an unused connection is kept, and a broker without partitions.
	idleTimeout = time.Minute
	// minBackoff and maxBackoff bound the wait before a partition's leader is searched again.
	minBackoff = 20 * time.Millisecond
	maxBackoff = 2 * time.Second
	// patience is how long a partition may fail with an error that may stay before Next returns that error.
	patience = 10 * time.Second
	// maxThrottle bounds how long a broker gets no request because of its quotas (KIP-13, KIP-219). Kafka limits answers so that
	// the throttle time is about one window of its quotas, 11 s unless configured otherwise. A longer time is a mistake of a
	// broker, or an attack, and must not stop a partition for days. A broker that does throttle longer does not read the next
	// request in time: the connection ends after 5 s of silence, and a new one is opened, once a minute.
	maxThrottle = time.Minute
	// watchInterval is the time between two checks of the watchdog.
	watchInterval = 5 * time.Second
	// stuckAfter is how long a partition may stand still while there are messages to fetch.
	stuckAfter = 30 * time.Second
	// resetAtMost is the least time between two resets of a partition.
	resetAtMost = time.Minute
	// defaultLease is how long a follower is fetched from when Metadata.RefreshFrequency is 0.
	defaultLease = 10 * time.Minute
)

// The limits of fields of Config.
const (
	MaxWriteTimeout = silence  // of Net.WriteTimeout
	MinFetch        = minFetch // of Consumer.Fetch.Default, in bytes
)

// Dialer opens connections to brokers. It is called from several goroutines. Its connections must end by themselves when the
// program gives up, because Run waits for them.
type Dialer interface {
	Dial(network, address string) (net.Conn, error)
}

// Options of a [Fetcher]. The zero value works.
type Options struct {
	// Config is sarama's configuration: security, version, fetch sizes, isolation level and rack. Consumer.Fetch.Default is the
	// size that a partition is fetched with, Fetch.MaxBytes bounds an answer, Fetch.Max is ignored. Net.ReadTimeout bounds how
	// long a slow broker may send no byte while an answer is due. Config is copied. nil is sarama.NewConfig.
	Config *sarama.Config

	// Dialer opens the connections, before TLS. Config has no say in it; nil dials within Config.Net.DialTimeout.
	Dialer Dialer

	// MaxBytes bounds the memory of all partitions together, in bytes; answers to requests in flight count in advance. Each open
	// partition has an equal share, of four times Config.Consumer.Fetch.Default at most and 32 KiB at least. 0 is 64 MiB.
	MaxBytes int

	// MaxBatchBytes bounds a record batch when it is decompressed, in bytes. One that is larger can't be read: Next returns an
	// [UnreadableError]. sarama.MaxDecompressedBatchSize counts if it is set when the Fetcher is made and less. 0 is 64 MiB.
	MaxBatchBytes int

	// OnReset is called when the watchdog has reset a partition that stood still, in the goroutine of Run. It must not block. nil
	// is allowed.
	OnReset func(topic string, partition int32)

	// OnFailure is called with the reason of each failure to fetch a partition. Each partition of a request that fails has one.
	// It must not block. nil is allowed.
	OnFailure func(Reason)

	// Reachable reports whether any broker answers. While no broker answers, leaders can't be found, so brokers without
	// partitions are kept. It must not block. With nil brokers always count as reachable.
	Reachable func() bool

	// Errors receives the errors of brokers and partitions, after which the fetcher goes on. nil logs to slog.Default.
	Errors *errlog.Log
}

// settings are the Options with all defaults filled in.
type settings struct {
	Options
	fetch      int           // bytes to ask for of one partition
	answer     int32         // the largest answer, in bytes
	version    int16         // the version of fetch requests
	lease      time.Duration // how long a follower is fetched from
	maxSilence time.Duration // the longest time for which a broker may send no byte while an answer is due
	unpacker   *unpacker
}

func newSettings(opts Options) (settings, error) {
	if opts.Config == nil {
		opts.Config = sarama.NewConfig()
	}
	c := *opts.Config
	if err := c.Validate(); err != nil {
		return settings{}, err
	}
	opts.Config = &c
	if opts.Dialer == nil {
		opts.Dialer = &net.Dialer{Timeout: c.Net.DialTimeout}
	}
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = defaultMaxBytes
	}
	if opts.MaxBatchBytes <= 0 {
		opts.MaxBatchBytes = defaultMaxBatch
	}
	if opts.OnFailure == nil {
		opts.OnFailure = func(Reason) {}
	}
	if opts.Reachable == nil {
		opts.Reachable = func() bool { return true }
	}
	if opts.Errors == nil {
		opts.Errors = errlog.New(defaultlog.Or(nil))
	}
	s := settings{
		Options: opts, fetch: max(int(c.Consumer.Fetch.Default), MinFetch), answer: c.Consumer.Fetch.MaxBytes,
		version: requestVersion(c.Version), lease: c.Metadata.RefreshFrequency,
		maxSilence: max(c.Net.ReadTimeout, silence), unpacker: newUnpacker(opts.MaxBatchBytes),
	}
	if s.lease <= 0 {
		s.lease = defaultLease
	}
	if s.answer <= 0 {
		s.answer = math.MaxInt32
	}
	return s, nil
}

// brokerConfig returns the configuration of one connection. sarama's read deadline is for a whole answer; conn replaces it by one
// for the next byte. d puts TLS on the connection, if there is to be any.
func (s *settings) brokerConfig(d Dialer) *sarama.Config {
	c := *s.Config
	c.Net.Proxy.Enable = true
	c.Net.Proxy.Dialer = d
	c.Net.TLS.Enable, c.Net.TLS.Config = false, nil
	c.Net.WriteTimeout = min(c.Net.WriteTimeout, MaxWriteTimeout)
	return &c
}

// committed returns whether messages of undecided and aborted transactions are hidden.
func (s *settings) committed() bool { return s.Config.Consumer.IsolationLevel == sarama.ReadCommitted }

// readable returns the offset after the last readable message, by high watermark and last stable offset.
func (s *settings) readable(end, stable int64) int64 {
	if s.committed() && stable >= 0 {
		return min(end, stable)
	}
	return end
}

// requestVersion returns the version of fetch requests for a version of Kafka, as sarama's consumer chooses it.
func requestVersion(v sarama.KafkaVersion) int16 {
	for _, c := range []struct {
		since   sarama.KafkaVersion
		version int16
	}{
		{sarama.V2_7_0_0, 12},
		{sarama.V2_3_0_0, 11},
		{sarama.V2_1_0_0, 10},
		{sarama.V2_0_0_0, 8},
		{sarama.V1_1_0_0, 7},
		{sarama.V1_0_0_0, 6},
	} {
		if v.IsAtLeast(c.since) {
			return c.version
		}
	}
	return 5
}
