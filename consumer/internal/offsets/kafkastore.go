package offsets

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/pause"
)

// Coordinator is what the store needs of a sarama.Broker.
type Coordinator interface {
	CommitOffset(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error)
	FetchOffset(*sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error)
	Close() error
}

// Attempts of one request: all in all 1.55 s of waiting.
const (
	storeAttempts   = 6
	storeBackoff    = 50 * time.Millisecond
	maxStoreBackoff = 800 * time.Millisecond
)

// KafkaStore stores offsets in Kafka as one who is no member of the group:
// generation -1, no member id. Kafka takes them while the group has no members
// of its own protocol; the last who writes wins.
type KafkaStore struct {
	Group  string
	Config *sarama.Config
	// Find returns the coordinator of the group, asking anew when told to. It may block.
	Find func(again bool) (Coordinator, error)
	// Calls counts the calls that did not end with their context.
	Calls *kafkaconn.Calls
	// Gate makes the coordinator's connection call beforeWrite before it writes, until
	// release is called. nil for none.
	Gate func(beforeWrite func() error) (release func())
}

// Fetch reads the offsets that are committed for ps, in one request if all goes well.
func (o *KafkaStore) Fetch(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]Stored, error) {
	out := make(map[kiel.Partition]Stored, len(ps))
	pending := ps
	err := ask(ctx, o, func() func(Coordinator) (*sarama.OffsetFetchResponse, error) {
		req := o.fetchRequest(pending)
		return func(c Coordinator) (*sarama.OffsetFetchResponse, error) { return c.FetchOffset(req) }
	}, func(resp *sarama.OffsetFetchResponse) error {
		if group := resp.GroupError(); retriable(group) {
			return group
		}
		var again []kiel.Partition
		var last error
		for _, p := range pending {
			s := readStored(resp, p)
			if retriable(s.Err) {
				again, last = append(again, p), s.Err
				continue
			}
			out[p] = s
		}
		pending = again
		return last
	})
	if err != nil && len(pending) == len(ps) {
		return nil, fmt.Errorf("consumer: read offsets of group %s: %w", o.Group, err)
	}
	for _, p := range pending {
		out[p] = Stored{Offset: -1, Err: fmt.Errorf("consumer: read offset of %s: %w", p, err)}
	}
	return out, nil
}

func (o *KafkaStore) fetchRequest(ps []kiel.Partition) *sarama.OffsetFetchRequest {
	byTopic := map[string][]int32{}
	for _, p := range ps {
		byTopic[p.Topic] = append(byTopic[p.Topic], p.ID)
	}
	req := sarama.NewOffsetFetchRequest(o.Config.Version, o.Group, byTopic)
	req.RequireStable = req.Version >= 7
	return req
}

func readStored(resp *sarama.OffsetFetchResponse, p kiel.Partition) Stored {
	kerr := resp.GroupError()
	block := resp.GetBlock(p.Topic, p.ID)
	if kerr == sarama.ErrNoError {
		if block == nil {
			return Stored{Offset: -1, Err: fmt.Errorf("consumer: read offset of %s: %w", p, sarama.ErrIncompleteResponse)}
		}
		kerr = block.Err
	}
	switch kerr {
	case sarama.ErrNoError:
		m, ours := parseMetadata(block.Metadata)
		return Stored{
			Offset: block.Offset, TopicID: m.topicID, Token: m.token, Text: m.text, Ours: ours && block.Offset >= 0,
			LeaderEpoch: block.LeaderEpoch, FirstPartitions: m.partitions,
		}
	case sarama.ErrGroupIDNotFound:
		return Stored{Offset: -1}
	default:
		return Stored{Offset: -1, Err: fmt.Errorf("consumer: read offset of %s: %w", p, kerr)}
	}
}

// Commit stores cs in one request, and in more when some are to be sent again.
func (o *KafkaStore) Commit(ctx context.Context, cs []OffsetCommit) map[kiel.Partition]error {
	out := make(map[kiel.Partition]error, len(cs))
	pending := cs
	err := ask(ctx, o, func() func(Coordinator) (*sarama.OffsetCommitResponse, error) {
		pending = permitted(pending, out)
		if len(pending) == 0 {
			return nil
		}
		return o.commitOf(pending)
	}, func(resp *sarama.OffsetCommitResponse) error {
		var again []OffsetCommit
		var last error
		for _, e := range pending {
			kerr, ok := resp.Errors[e.Partition.Topic][e.Partition.ID]
			switch {
			case !ok:
				out[e.Partition] = fmt.Errorf("consumer: commit %s: %w", e.Partition, sarama.ErrIncompleteResponse)
			case kerr == sarama.ErrNoError:
				out[e.Partition] = nil
			case retriable(kerr):
				again, last = append(again, e), kerr
			case foreign(kerr):
				out[e.Partition] = fmt.Errorf("commit %s: %w: %w", e.Partition, ErrGroupInUse, kerr)
			default:
				out[e.Partition] = fmt.Errorf("consumer: commit %s: %w", e.Partition, markRefused(kerr))
			}
		}
		pending = again
		return last
	})
	for _, e := range permitted(pending, out) {
		out[e.Partition] = fmt.Errorf("consumer: commit %s: %w", e.Partition, markRefused(err))
	}
	return out
}

// commitOf sends one request. Finding the coordinator took time, and until the
// request is written more may pass: it asks again now, and lets the connection ask
// at the write.
func (o *KafkaStore) commitOf(cs []OffsetCommit) func(Coordinator) (*sarama.OffsetCommitResponse, error) {
	req := o.commitRequest(cs)
	beforeWrite := func() error {
		for _, e := range cs {
			if e.Authorize() != nil {
				return errWithdrawn // and not why: that is of one offset
			}
		}
		return nil
	}
	return func(c Coordinator) (*sarama.OffsetCommitResponse, error) {
		if err := beforeWrite(); err != nil {
			return nil, err
		}
		if o.Gate != nil {
			defer o.Gate(beforeWrite)()
		}
		return c.CommitOffset(req)
	}
}

// permitted drops the offsets that may not be sent any more and notes why.
func permitted(cs []OffsetCommit, out map[kiel.Partition]error) []OffsetCommit {
	keep := make([]OffsetCommit, 0, len(cs))
	for _, e := range cs {
		if err := e.Authorize(); err != nil {
			out[e.Partition] = err
			continue
		}
		keep = append(keep, e)
	}
	return keep
}

func (o *KafkaStore) commitRequest(cs []OffsetCommit) *sarama.OffsetCommitRequest {
	req := sarama.NewOffsetCommitRequest(o.Config, o.Group)
	for _, e := range cs {
		req.AddBlockWithLeaderEpoch(e.Partition.Topic, e.Partition.ID, e.Offset, e.LeaderEpoch, 0, metadataOf(e).String())
	}
	return req
}

// ask sends what prepare makes to the coordinator and has read look at the
// answer, until read returns nil or prepare has nothing to send. It asks for the
// coordinator anew after each failure. Too many attempts, ctx's end, and a
// refusal that will stay end it too.
func ask[T any](ctx context.Context, o *KafkaStore, prepare func() func(Coordinator) (T, error), read func(T) error) error {
	wait := pause.Backoff{Growth: pause.Doubling(storeBackoff, maxStoreBackoff)}
	for attempt := 1; ; attempt++ {
		send := prepare()
		if send == nil {
			return nil
		}
		answer, err := kafkaconn.Run(ctx, o.Calls, func() (T, error) {
			var none T
			c, err := o.Find(attempt > 1)
			if err != nil {
				return none, err
			}
			answer, err := send(c)
			if err != nil {
				_ = c.Close() // finding it again opens it again
				return none, err
			}
			return answer, nil
		}, nil)
		if err == nil {
			err = read(answer)
		}
		if err == nil || attempt == storeAttempts || ctx.Err() != nil || permanent(err) {
			return err
		}
		if err := wait.Wait(ctx); err != nil {
			return err
		}
	}
}

// retriable says whether the coordinator will answer otherwise soon, or another
// broker is the coordinator now.
func retriable(err error) bool {
	kerr, ok := errors.AsType[sarama.KError](err)
	if !ok {
		return false
	}
	switch kerr {
	case sarama.ErrNotCoordinatorForConsumer, sarama.ErrConsumerCoordinatorNotAvailable,
		sarama.ErrOffsetsLoadInProgress, sarama.ErrUnstableOffsetCommit, sarama.ErrRequestTimedOut,
		sarama.ErrNotLeaderForPartition, sarama.ErrLeaderNotAvailable, sarama.ErrNotEnoughReplicas,
		sarama.ErrNotEnoughReplicasAfterAppend, sarama.ErrNetworkException, sarama.ErrKafkaStorageError:
		return true
	default:
		return false
	}
}

// foreign says whether the answer to a commit means that the group has members
// of Kafka's own protocol.
func foreign(kerr sarama.KError) bool {
	return kerr == sarama.ErrUnknownMemberId || kerr == sarama.ErrIllegalGeneration || kerr == sarama.ErrRebalanceInProgress
}

// permanent says whether asking again can't help: the broker refuses who we are.
func permanent(err error) bool {
	return errors.Is(err, sarama.ErrSASLAuthenticationFailed) || errors.Is(err, sarama.ErrGroupAuthorizationFailed) ||
		errors.Is(err, sarama.ErrClosedClient) || errors.Is(err, ErrLost)
}

// markRefused makes err an ErrRefused if it is permanent.
func markRefused(err error) error {
	if permanent(err) {
		return refusedError{err}
	}
	return err
}
