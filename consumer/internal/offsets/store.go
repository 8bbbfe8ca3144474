package offsets

import (
	"context"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/session"
)

// Store keeps the offsets of a group. Both calls end when ctx does.
type Store interface {
	// Fetch returns what is stored for each of ps. It does not answer for a partition while
	// a transaction is about to store an offset of it: what is read is written again. The error is of
	// the whole request.
	Fetch(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]Stored, error)
	// Commit stores cs and returns the result for each partition, nil when it is stored.
	Commit(ctx context.Context, cs []OffsetCommit) map[kiel.Partition]error
}

// OffsetCommit is one offset to store, and the claim under which it is stored.
type OffsetCommit struct {
	Partition kiel.Partition
	Offset    int64       // of the next message to read
	TopicID   sarama.Uuid // zero when it is not known
	Text      string      // the user's, given with the mark

	// LeaderEpoch is that of the record batch before Offset; -1 when it is not known.
	LeaderEpoch int32

	// FirstPartitions is how many partitions the topic had when the group first started on it, as far
	// as the members know; 0 when it is not known. Each commit carries it on.
	FirstPartitions int32

	// The claim, as a store needs it that can refuse an old owner: the fencing token, the path
	// and the version of the partition's epoch znode, and the incarnation that holds the claim.
	Token        int64
	EpochPath    string
	EpochVersion int32
	Incarnation  *session.Incarnation

	// Authorize says whether the offset may be stored at this moment. The store calls it before
	// each request that carries the offset, and again when the request is written. An error
	// leaves the offset out of the request, and is the result for the partition.
	Authorize func() error
}

// Stored is what a store has for a partition.
type Stored struct {
	Offset  int64       // -1 when none is committed
	TopicID sarama.Uuid // the id of the topic that the offset is of; zero when it is not known
	Token   int64       // of the claim that stored it; 0 when it is not known
	Text    string      // the user's, given with the mark
	Ours    bool        // a member of a group like ours stored it
	Err     error       // why it could not be read

	// LeaderEpoch is what the commit had; -1 when it had none. It says something only if Ours is true.
	LeaderEpoch int32

	// FirstPartitions is what the commit had; 0 when it is not known.
	FirstPartitions int32
}

// SameTopic says whether two ids can be of one topic; an unknown id can be any.
func SameTopic(a, b sarama.Uuid) bool {
	return a == b || a == (sarama.Uuid{}) || b == (sarama.Uuid{})
}
