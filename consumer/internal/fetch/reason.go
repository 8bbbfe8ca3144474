package fetch

import (
	"errors"

	"github.com/IBM/sarama"
)

// Reason is why a partition could not be fetched, as a word of a fixed list.
type Reason string

// The reasons.
const (
	Unreachable  Reason = "unreachable"   // no broker could be asked, or the connection has failed
	NoLeader     Reason = "no_leader"     // the partition has no leader, or another one, or its leader is not ready
	Missing      Reason = "missing"       // Kafka does not have the partition
	Refused      Reason = "refused"       // ACLs refuse the topic, or the password is wrong
	OutOfRange   Reason = "out_of_range"  // Kafka does not have the position
	Truncated    Reason = "truncated"     // the log was truncated below the position
	Undecodable  Reason = "undecodable"   // the answer can't be decoded
	NothingCame  Reason = "nothing_came"  // the answer lacks the partition, or its messages
	Quota        Reason = "quota"         // the broker's quota for this client is used up
	KafkaStorage Reason = "kafka_storage" // the broker can't read its disk
	Other        Reason = "other"         // any other error code
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{Unreachable, NoLeader, Missing, Refused, OutOfRange, Truncated, Undecodable, NothingCame, Quota, KafkaStorage, Other}
}

// ReasonOf returns the reason of a failure.
func ReasonOf(err error) Reason {
	var code sarama.KError
	switch {
	case errors.Is(err, ErrTruncated):
		return Truncated
	case errors.Is(err, errNoProgress), errors.Is(err, errIncomplete):
		return NothingCame
	case errors.Is(err, errQuota):
		return Quota
	case errors.Is(err, ErrUnreadable):
		return Undecodable
	case errors.As(err, &code):
		return reasonOf(code)
	case isDecoding(err):
		return Undecodable
	default:
		return Unreachable
	}
}

// reasonOf returns the reason of an error code of Kafka.
func reasonOf(code sarama.KError) Reason {
	switch code {
	case sarama.ErrNotLeaderForPartition, sarama.ErrLeaderNotAvailable, sarama.ErrReplicaNotAvailable, sarama.ErrFencedLeaderEpoch,
		sarama.ErrUnknownLeaderEpoch, sarama.ErrOffsetNotAvailable, sarama.ErrBrokerNotAvailable, sarama.ErrRequestTimedOut, sarama.ErrNetworkException:
		return NoLeader
	case sarama.ErrUnknownTopicOrPartition, sarama.ErrInvalidTopic:
		return Missing
	case sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed, sarama.ErrSASLAuthenticationFailed:
		return Refused
	case sarama.ErrOffsetOutOfRange:
		return OutOfRange
	case sarama.ErrInvalidMessage:
		return Undecodable
	case sarama.ErrKafkaStorageError:
		return KafkaStorage
	default:
		return Other
	}
}
