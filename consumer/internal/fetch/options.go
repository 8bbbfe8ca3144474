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
	// minFetch is the smallest size that a partition is fetched with, in bytes.
	minFetch = 16 << 10
	// maxFetch is the largest size that a partition is fetched with, if it is alone in a request.
	maxFetch = math.MaxInt32
	// silence is how long a connection may bring no byte while an answer is due.
	silence = 5 * time.Second
	// minShortPoll and maxShortPoll bound how long the second connection of a broker waits
	// for messages; the time doubles while none come. A partition that becomes ready
	// meanwhile waits for the end of the poll.
	minShortPoll = time.Millisecond
	maxShortPoll = 8 * time.Millisecond
	// mergeWait is how long the first connection waits for the end of a short poll
	// before it starts a long one, to take its partitions over.
	mergeWait = 2 * maxShortPoll
	// idleTimeout is how long a connection is kept that nothing is fetched on, and a
	// broker that leads none of the partitions.
	idleTimeout = time.Minute
	// minBackoff and maxBackoff bound the wait before a partition is looked for again.
	minBackoff = 20 * time.Millisecond
	maxBackoff = 2 * time.Second
	// patience is how long a partition may fail with what need not heal before that
	// is an error of Next.
	patience = 10 * time.Second
	// maxThrottle bounds how long a broker is asked for nothing because its quotas say so. Kafka cuts answers so that
	// the time is about a window of its quotas, 11 s unless configured otherwise; a longer one is a broker's
	// mistake, or hostile, and must not stop a partition for days. A Kafka that means it does not read the next
	// request until then; the connection ends after 5 s of silence, and another is opened, once a minute.
	maxThrottle = time.Minute
	// watchInterval is how often the watchdog looks.
	watchInterval = 5 * time.Second
	// stuckAfter is how long a partition may stand still while there is something to
	// fetch; resetAtMost is the time between two resets of one.
	stuckAfter  = 30 * time.Second
	resetAtMost = time.Minute
	// defaultLease is how long a follower is fetched from when Metadata.RefreshFrequency is 0.
	defaultLease = 10 * time.Minute
)

// How far Config is honoured: Net.WriteTimeout is MaxWriteTimeout at most, and Consumer.Fetch.Default is MinFetch bytes at least.
const (
	MaxWriteTimeout = silence
	MinFetch        = minFetch
)

// Dialer opens connections to brokers. It is called from several goroutines. What
// Dial returns must end by itself when the program gives up: Run waits for it.
type Dialer interface {
	Dial(network, address string) (net.Conn, error)
}

// Options of a [Fetcher]. The zero value works.
type Options struct {
	// Config is sarama's configuration: security, version, fetch sizes, isolation
	// level and rack. Consumer.Fetch.Default is the size that a partition is fetched
	// with, Fetch.MaxBytes bounds an answer, Fetch.Max is not looked at. It is copied. nil is
	// sarama.NewConfig.
	Config *sarama.Config

	// Dialer opens the connections, before TLS. nil dials as Config says.
	Dialer Dialer

	// MaxBytes bounds what all partitions hold in memory, with what requests in
	// flight may bring, in bytes. Each open partition has an equal share, of four times
	// Config.Consumer.Fetch.Default at most and 32 KiB at least. 0 is 64 MiB.
	MaxBytes int

	// OnReset is called when the watchdog has reset a partition that stood still, in
	// the goroutine of Run. It must not block. nil is allowed.
	OnReset func(topic string, partition int32)

	// OnFailure is called with the reason of each failure to fetch a partition. Each partition of a request
	// that fails has one. It must not block. nil is allowed.
	OnFailure func(Reason)

	// Reachable reports whether any broker answers. While none does a broker that fails is not given up, though no partition is
	// fetched from it: who leads them is not known. It must not block. nil is always.
	Reachable func() bool

	// Errors receives what fails, for a while or for good; all of it is tried again. nil logs to slog.Default.
	Errors *errlog.Log
}

// settings are Options with all defaults in.
type settings struct {
	Options
	fetch   int // bytes of a partition in one request
	answer  int32
	version int16
	lease   time.Duration
	errs    *errlog.Log
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
		opts.Dialer = dialerOf(&c)
	}
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = defaultMaxBytes
	}
	if opts.OnFailure == nil {
		opts.OnFailure = func(Reason) {}
	}
	if opts.Reachable == nil {
		opts.Reachable = func() bool { return true }
	}
	s := settings{
		Options: opts, fetch: max(int(c.Consumer.Fetch.Default), MinFetch), answer: c.Consumer.Fetch.MaxBytes,
		version: requestVersion(c.Version), lease: c.Metadata.RefreshFrequency, errs: opts.Errors,
	}
	if s.errs == nil {
		s.errs = errlog.New(defaultlog.Or(nil))
	}
	if s.lease <= 0 {
		s.lease = defaultLease
	}
	if s.answer <= 0 {
		s.answer = math.MaxInt32
	}
	return s, nil
}

func dialerOf(c *sarama.Config) Dialer {
	if c.Net.Proxy.Enable {
		return c.Net.Proxy.Dialer
	}
	return &net.Dialer{Timeout: c.Net.DialTimeout, KeepAlive: c.Net.KeepAlive, LocalAddr: c.Net.LocalAddr}
}

// brokerConfig is the configuration of one connection. sarama's read deadline covers
// a whole answer; conn has a better one.
func (s *settings) brokerConfig(d Dialer) *sarama.Config {
	c := *s.Config
	c.Net.Proxy.Enable = true
	c.Net.Proxy.Dialer = d
	c.Net.WriteTimeout = min(c.Net.WriteTimeout, MaxWriteTimeout)
	return &c
}

// readable returns the offset after the last message that may be read, by a high watermark and a last stable offset.
func (s *settings) readable(end, stable int64) int64 {
	if s.Config.Consumer.IsolationLevel == sarama.ReadCommitted && stable >= 0 {
		return min(end, stable)
	}
	return end
}

// requestVersion returns the version of Fetch for a protocol version, as sarama's consumer chooses it.
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
