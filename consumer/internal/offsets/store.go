package offsets

import (
	"context"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/session"
)

// Store keeps the offsets of a group. Both calls end when ctx does.
type Store interface {
	// Fetch returns the stored offset of each of ps. It returns no offset of a partition while a transaction is about to store
	// one (KIP-447), because a repeat that writes the older offset again would lower the new one. The error is that of the whole
	// request.
	Fetch(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]Stored, error)
	// Peek is Fetch in one request at most: what can't be read at once has an error.
	Peek(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]Stored, error)
	// Commit stores cs, each of which is of another partition, and returns the result for each partition, nil when its offset is
	// stored.
	Commit(ctx context.Context, cs []OffsetCommit) map[kiel.Partition]error
}

// OffsetCommit is one offset to store, and the claim under which it is stored.
type OffsetCommit struct {
	Partition kiel.Partition
	Offset    int64       // the offset of the next message to read
	TopicID   sarama.Uuid // the id of the topic (KIP-516); zero when it is not known
	Text      string      // the user's metadata, given with the mark

	// LeaderEpoch is that of the record batch before Offset (KIP-320); -1 when it is not known.
	LeaderEpoch int32

	// FirstPartitions is how many partitions the topic had when the group first started on it, as far as the members know; 0 when
	// it is not known. Each commit repeats the number.
	FirstPartitions int32

	// Began is when the group began on the topic, in milliseconds; zero when that is not known, or long ago.
	Began time.Time

	// Place is where the commit is made, as far as it is known.
	Place Place

	// The fields below are the claim, for stores that can refuse a former owner.

	Token        int64                // the fencing token
	EpochPath    string               // the path of the partition's epoch znode
	EpochVersion int32                // the version of that znode
	Incarnation  *session.Incarnation // the incarnation that holds the claim

	// Authorize returns nil if the offset may be stored at this moment. The store calls it before each request that has the
	// offset, and again when the request is written. With an error the store leaves the offset out of the request, and returns
	// the error for the partition.
	Authorize func() error
}

// Stored is the offset that a store has for a partition.
type Stored struct {
	Offset  int64       // -1 when no offset is committed
	TopicID sarama.Uuid // the id of the offset's topic in the cluster of Place; zero when it is not known
	Token   int64       // the token of the claim that stored the offset; 0 when it is not known
	Text    string      // the user's metadata, given with the mark
	Ours    bool        // a member of a group like this one has stored the offset
	Err     error       // why the offset could not be read

	// LeaderEpoch is that of the commit; -1 when it had none. It is valid only if Ours is true.
	LeaderEpoch int32

	// FirstPartitions is that of the commit; 0 when it had none.
	FirstPartitions int32

	// Began is that of the commit; zero when it had none.
	Began time.Time

	// Place is that of the commit; zero when it had none.
	Place Place
}

// IsCopied reports whether the offset was committed in another cluster than the one with the ID cluster: a mirror, a backup or
// somebody by hand has copied it from there. Topic ids, leader epochs and tokens of another cluster mean nothing here. A commit
// of which the cluster is not known, such as that of an earlier version, counts as one of this cluster.
func (s Stored) IsCopied(cluster ID) bool {
	return s.Place.Cluster != cluster && s.Place.Cluster != (ID{}) && cluster != (ID{})
}

// SameTopic reports whether two ids may be of the same topic. An unknown id may be of any topic.
func SameTopic(a, b sarama.Uuid) bool {
	return a == b || a == (sarama.Uuid{}) || b == (sarama.Uuid{})
}
