package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
)

var (
	errHandler = errors.New("the handler's own error")
	errCause   = errors.New("the cause given to ctx")
)

// ownError is an error of a handler that can be told from others.
type ownError string

// Error returns the text.
func (e ownError) Error() string { return string(e) }

// sentinel is an error that a program may compare with.
type sentinel struct {
	err  error
	name string
}

func sentinels() []sentinel {
	return []sentinel{
		{errHandler, "the handler's error"},
		{errCause, "the cause given to ctx"},
		{sarama.ErrSessionConsumeClaimExited, "ErrSessionConsumeClaimExited"},
		{sarama.ErrSessionHeartbeatFailed, "ErrSessionHeartbeatFailed"},
		{sarama.ErrSessionPartitionCountChanged, "ErrSessionPartitionCountChanged"},
		{sarama.ErrRebalanceTimedOut, "ErrRebalanceTimedOut"},
		{sarama.ErrRebalanceInProgress, "ErrRebalanceInProgress"},
		{sarama.ErrClosedConsumerGroup, "ErrClosedConsumerGroup"},
		{sarama.ErrOutOfBrokers, "ErrOutOfBrokers"},
		{sarama.ErrUnknownTopicOrPartition, "ErrUnknownTopicOrPartition"},
		{sarama.ErrInvalidTopic, "ErrInvalidTopic"},
		{sarama.ErrOffsetOutOfRange, "ErrOffsetOutOfRange"},
		{sarama.ErrOffsetMetadataTooLarge, "ErrOffsetMetadataTooLarge"},
		{sarama.ErrUnknownMemberId, "ErrUnknownMemberId"},
		{sarama.ErrIllegalGeneration, "ErrIllegalGeneration"},
		{ownership.ErrStuck, "ownership.ErrStuck"},
		{ownership.ErrLost, "ownership.ErrLost"},
		{ownership.ErrCallback, "ownership.ErrCallback"},
		{consumer.ErrBusy, "consumer.ErrBusy"},
		{consumer.ErrHandler, "consumer.ErrHandler"},
		{consumer.ErrOffsetReset, "consumer.ErrOffsetReset"},
		{consumer.ErrTopicMissing, "consumer.ErrTopicMissing"},
		{context.Canceled, "context.Canceled"},
		{context.DeadlineExceeded, "context.DeadlineExceeded"},
	}
}

// describe returns what a program can tell of an error: its type in sarama's shape, what it is and what it wraps.
func (s *scene) describe(err error) string {
	if err == nil {
		return "nil"
	}
	if e, ok := err.(*sarama.ConsumerError); ok { //nolint:errorlint // the shape of this very error
		return fmt.Sprintf("ConsumerError of partition %d: %s", e.Partition, s.describe(e.Err))
	}
	if own, ok := err.(ownError); ok { //nolint:errorlint // this very error
		return "the handler's error " + string(own)
	}
	var wrapped []string
	for _, known := range sentinels() {
		if err == known.err { //nolint:errorlint // this very error
			return known.name
		}
		if errors.Is(err, known.err) {
			wrapped = append(wrapped, known.name)
		}
	}
	if len(wrapped) > 0 {
		return "wraps " + strings.Join(wrapped, ", ")
	}
	return "another error"
}

// life reports whether a context has ended, and how.
func (s *scene) life(ctx context.Context) string {
	if ctx.Err() == nil {
		return "open"
	}
	return fmt.Sprintf("%s, cause %s", s.describe(ctx.Err()), s.describe(context.Cause(ctx)))
}

// claims returns a map of claims as text.
func (s *scene) claims(claims map[string][]int32) string {
	return strings.ReplaceAll(fmt.Sprint(claims), s.topic, "t")
}

// stock returns what is stored for a partition as text.
func (s *scene) stock(partition int32) string {
	offset, _ := s.stored(partition)
	if offset < 0 {
		return "nothing"
	}
	return fmt.Sprint(offset)
}
