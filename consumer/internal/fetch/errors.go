package fetch

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/operr"
)

var (
	// ErrTruncated says that the log was truncated below the position: an unclean leader election removed messages that were read
	// already, and other messages may have got their offsets. A [TruncatedError] says where.
	ErrTruncated = errors.New("the log was truncated")

	// ErrUnreadable says that a record batch in Kafka can't be read. An [UnreadableError] says which, and what is behind it.
	ErrUnreadable = errors.New("a record batch can't be read")

	// ErrClosed is returned when the partition or the fetcher is closed.
	ErrClosed = errors.New("closed")

	// ErrNoAnswer is returned by [Partition.Opened] when Kafka has not answered for the partition in time. It wraps the newest
	// failure.
	ErrNoAnswer = errors.New("no answer")

	// ErrOpen is returned by [Fetcher.Open] for a partition that is open already.
	ErrOpen = errors.New("open already")

	// errNoProgress says that an answer had no messages although the log has some.
	errNoProgress = errors.New("the broker sends no messages although the log has some")
	// errStall is why the watchdog has reset a partition.
	errStall = errors.New("the partition stood still though there was something to read, fetching it anew")
	// errIncomplete says that an answer lacks a partition that was asked for.
	errIncomplete = errors.New("the broker's answer lacks the partition")
	// errNotKept says that sarama has decoded an answer in place of this package.
	errNotKept = errors.New("the connection has not kept the answer")
	// errQuota says that an answer lacks all partitions because a quota of the broker allows no messages at the moment.
	errQuota = errors.New("a quota of the broker for this client allows no messages at the moment")
)

// The kinds of errors in the log.
const (
	kindBroker   = "broker"   // requests to a broker fail
	kindFetch    = "fetch"    // a partition can't be read for 10 s or longer
	kindStall    = "stall"    // the watchdog has reset a partition
	kindThrottle = "throttle" // a broker throttles for longer than maxThrottle
)

// reading returns the error of reading a partition at an offset.
func reading(topic string, id int32, at int64, why string) *operr.Error {
	return &operr.Error{Package: "consumer", Op: "read", Object: fmt.Sprintf("%s:%d at %d", topic, id, at), Err: errors.New(why)}
}

// RangeError says that Kafka's log begins after the position, or ends before it. It wraps sarama.ErrOffsetOutOfRange.
type RangeError struct {
	Topic     string
	Partition int32
	Position  int64 // the offset that was asked for
	Start     int64 // the offset of the first message that Kafka has
	End       int64 // the offset after the last one
}

// Error names the partition, the position and what Kafka has.
func (e *RangeError) Error() string { return e.Operation().Error() }

// Operation is for operr.
func (e *RangeError) Operation() *operr.Error {
	return reading(e.Topic, e.Partition, e.Position, e.Reason())
}

// Reason returns the part of the text that says what Kafka has.
func (e *RangeError) Reason() string { return fmt.Sprintf("the log has %d to %d", e.Start, e.End) }

// Unwrap returns sarama.ErrOffsetOutOfRange.
func (e *RangeError) Unwrap() error { return sarama.ErrOffsetOutOfRange }

// TruncatedError says where the log differs from the messages that were read. It wraps [ErrTruncated].
type TruncatedError struct {
	Topic     string
	Partition int32
	Position  int64 // the offset after the last message that was read
	Diverges  int64 // the first offset known to have another message, or none; at most Position
	Epoch     int32 // the leader epoch of the last batch that was read
	Found     int32 // the leader epoch of the batch in the log now
}

// Error names the partition and both positions.
func (e *TruncatedError) Error() string { return e.Operation().Error() }

// Operation is for operr.
func (e *TruncatedError) Operation() *operr.Error {
	return reading(e.Topic, e.Partition, e.Position, e.Reason())
}

// Reason returns the part of the text that says where the log differs.
func (e *TruncatedError) Reason() string {
	return fmt.Sprintf("%v, epoch %d, was %d, differs from offset %d", ErrTruncated, e.Found, e.Epoch, e.Diverges)
}

// Unwrap returns [ErrTruncated].
func (e *TruncatedError) Unwrap() error { return ErrTruncated }

// heals returns whether an error ends when the leader is known again, however long that takes. Of Kafka's codes these are the
// ones that reasonOf counts as NoLeader or KafkaStorage.
func heals(err error) bool {
	var code sarama.KError
	if !errors.As(err, &code) {
		return !isDecoding(err)
	}
	reason := reasonOf(code)
	return reason == NoLeader || reason == KafkaStorage
}

// permanent returns whether an error stays until somebody changes the configuration of Kafka or of this client.
func permanent(err error) bool {
	return errors.Is(err, sarama.ErrTopicAuthorizationFailed) || errors.Is(err, sarama.ErrClusterAuthorizationFailed) ||
		errors.Is(err, sarama.ErrInvalidTopic) || errors.Is(err, sarama.ErrUnsupportedVersion) ||
		errors.Is(err, sarama.ErrUnsupportedForMessageFormat)
}

// decodingError says that an answer could not be decoded.
type decodingError struct{ err error }

func (e *decodingError) Error() string {
	return fmt.Sprintf("decode the broker's answer: %v", e.err)
}
func (e *decodingError) Unwrap() error { return e.err }

func isDecoding(err error) bool {
	var d *decodingError
	return errors.As(err, &d)
}

// silentError says that a connection was closed because the broker has sent no byte for that long.
type silentError struct {
	after time.Duration
	err   error
}

func (e *silentError) Error() string {
	return fmt.Sprintf("the broker has sent no byte for %v while an answer was due: %v", e.after, e.err)
}
func (e *silentError) Unwrap() error { return e.err }
