package fetch

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

var (
	// ErrTruncated says that the log was truncated below the position: an unclean
	// leader election threw away messages that were read already, and others may
	// have taken their offsets. A [TruncatedError] says where.
	ErrTruncated = errors.New("fetch: the log was truncated")

	// ErrClosed is returned when the partition or the fetcher is closed.
	ErrClosed = errors.New("fetch: closed")

	// ErrNoAnswer is returned by [Partition.Opened] when Kafka has not answered for the
	// partition in time. It wraps the newest failure.
	ErrNoAnswer = errors.New("fetch: no answer for the partition")

	// ErrOpen is returned by [Fetcher.Open] for a partition that is open already.
	ErrOpen = errors.New("fetch: the partition is open already")

	// ErrRunning is returned by a second [Fetcher.Run].
	ErrRunning = errors.New("fetch: running already")

	// errNoProgress says that nothing came though there is something.
	errNoProgress = errors.New("fetch: the broker gives nothing out though there is something")
	// errStall says why the watchdog has reset a partition.
	errStall = errors.New("fetch: the partition stood still though there was something to read, fetching it anew")
	// errIncomplete says that an answer lacks a partition that was asked for.
	errIncomplete = errors.New("fetch: the broker's answer lacks the partition")
)

// The kinds of errors in the log.
const (
	kindBroker   = "broker"   // requests to a broker fail
	kindFetch    = "fetch"    // a partition can't be read for 10 s or longer
	kindStall    = "stall"    // the watchdog has reset a partition
	kindThrottle = "throttle" // a broker wants to be left alone for too long
)

// RangeError says that Kafka does not have the position any more, or not yet. It
// wraps sarama.ErrOffsetOutOfRange.
type RangeError struct {
	Topic     string
	Partition int32
	Position  int64 // the offset that was asked for
	Start     int64 // the offset of the first message that Kafka has
	End       int64 // the offset after the last one
}

// Error names the partition, the position and what Kafka has.
func (e *RangeError) Error() string {
	return fmt.Sprintf("fetch: read %s:%d at %d, the log has %d to %d: %v", e.Topic, e.Partition, e.Position, e.Start, e.End, sarama.ErrOffsetOutOfRange)
}

// Unwrap returns sarama.ErrOffsetOutOfRange.
func (e *RangeError) Unwrap() error { return sarama.ErrOffsetOutOfRange }

// TruncatedError says where the log differs from what was read. It wraps [ErrTruncated].
type TruncatedError struct {
	Topic     string
	Partition int32
	Position  int64 // the offset up to which was read
	Diverges  int64 // the first offset known to hold something else, or to have been cut off; at most Position
	Epoch     int32 // the leader epoch of what was read last
	Found     int32 // the leader epoch of what is there now
}

// Error names the partition and both positions.
func (e *TruncatedError) Error() string {
	return fmt.Sprintf("fetch: read %s:%d at %d: epoch %d, was %d, differs from offset %d: %v",
		e.Topic, e.Partition, e.Position, e.Found, e.Epoch, e.Diverges, ErrTruncated)
}

// Unwrap returns [ErrTruncated].
func (e *TruncatedError) Unwrap() error { return ErrTruncated }

// heals reports whether an error goes away when the leader is known again, however
// long that takes.
func heals(err error) bool {
	var code sarama.KError
	if !errors.As(err, &code) {
		return !isDecoding(err)
	}
	switch code {
	case sarama.ErrNotLeaderForPartition, sarama.ErrLeaderNotAvailable, sarama.ErrReplicaNotAvailable,
		sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch, sarama.ErrKafkaStorageError,
		sarama.ErrOffsetNotAvailable, sarama.ErrBrokerNotAvailable, sarama.ErrNetworkException, sarama.ErrRequestTimedOut:
		return true
	default:
		return false
	}
}

// permanent reports whether an error stays until somebody changes Kafka's or this
// client's configuration.
func permanent(err error) bool {
	return errors.Is(err, sarama.ErrTopicAuthorizationFailed) || errors.Is(err, sarama.ErrClusterAuthorizationFailed) ||
		errors.Is(err, sarama.ErrInvalidTopic) || errors.Is(err, sarama.ErrUnsupportedVersion) ||
		errors.Is(err, sarama.ErrUnsupportedForMessageFormat)
}

// decodingError says that an answer could not be decoded.
type decodingError struct{ err error }

func (e *decodingError) Error() string {
	return fmt.Sprintf("fetch: decode the broker's answer: %v", e.err)
}
func (e *decodingError) Unwrap() error { return e.err }

func isDecoding(err error) bool {
	var d *decodingError
	return errors.As(err, &d)
}
