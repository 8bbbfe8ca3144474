package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
)

// entry is one offset to store. allowed is asked before each request that
// carries the entry, and again when the request is written: an error leaves the
// entry out, and is its result.
type entry struct {
	partition allocfn.Partition
	offset    int64
	metadata  string
	allowed   func() error
}

// stored is an offset as read. Offset is -1 when none is committed.
type stored struct {
	offset   int64
	metadata string
	err      error
}

// offsetStore keeps the offsets of a group. Both calls end when ctx does.
type offsetStore interface {
	// fetch answers for each of ps. The error is of the whole request.
	fetch(ctx context.Context, ps []allocfn.Partition) (map[allocfn.Partition]stored, error)
	// commit answers for each entry, nil when it is stored.
	commit(ctx context.Context, es []entry) map[allocfn.Partition]error
}

// coordinator is what the store needs of a sarama.Broker.
type coordinator interface {
	CommitOffset(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error)
	FetchOffset(*sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error)
	Close() error
}

// Attempts of one request: all in all about 2.4 s of waiting.
const (
	storeAttempts   = 6
	storeBackoff    = 50 * time.Millisecond
	maxStoreBackoff = 800 * time.Millisecond
)

// kafkaOffsets stores offsets in Kafka as one who is no member of the group:
// generation -1, no member id. Kafka takes them while the group has no members
// of its own protocol; the last who writes wins.
type kafkaOffsets struct {
	group  string
	config *sarama.Config
	// find returns the coordinator of the group, asking anew when told to. It
	// may block; call bounds it.
	find func(again bool) (coordinator, error)
	do   *calls
	// guard makes the coordinator's connection ask allowed before it writes, until
	// release is called. nil for none.
	guard func(allowed func() error) (release func())
}

func (o *kafkaOffsets) fetch(ctx context.Context, ps []allocfn.Partition) (map[allocfn.Partition]stored, error) {
	out := make(map[allocfn.Partition]stored, len(ps))
	pending := ps
	err := ask(ctx, o, func() func(coordinator) (*sarama.OffsetFetchResponse, error) {
		req := o.fetchRequest(pending)
		return func(c coordinator) (*sarama.OffsetFetchResponse, error) { return c.FetchOffset(req) }
	}, func(resp *sarama.OffsetFetchResponse) error {
		if group := resp.GroupError(); retriable(group) {
			return group
		}
		var again []allocfn.Partition
		var last error
		for _, p := range pending {
			s := readStored(resp, p)
			if retriable(s.err) {
				again, last = append(again, p), s.err
				continue
			}
			out[p] = s
		}
		pending = again
		return last
	})
	if err != nil && len(pending) == len(ps) {
		return nil, fmt.Errorf("consumer: read offsets of group %s: %w", o.group, err)
	}
	for _, p := range pending {
		out[p] = stored{offset: -1, err: fmt.Errorf("consumer: read offset of %s: %w", p, err)}
	}
	return out, nil
}

func (o *kafkaOffsets) fetchRequest(ps []allocfn.Partition) *sarama.OffsetFetchRequest {
	byTopic := map[string][]int32{}
	for _, p := range ps {
		byTopic[p.Topic] = append(byTopic[p.Topic], p.ID)
	}
	req := sarama.NewOffsetFetchRequest(o.config.Version, o.group, byTopic)
	req.RequireStable = o.config.Consumer.IsolationLevel == sarama.ReadCommitted && req.Version >= 7
	return req
}

func readStored(resp *sarama.OffsetFetchResponse, p allocfn.Partition) stored {
	kerr := resp.GroupError()
	block := resp.GetBlock(p.Topic, p.ID)
	if kerr == sarama.ErrNoError {
		if block == nil {
			return stored{offset: -1, err: fmt.Errorf("consumer: read offset of %s: %w", p, sarama.ErrIncompleteResponse)}
		}
		kerr = block.Err
	}
	switch kerr {
	case sarama.ErrNoError:
		return stored{offset: block.Offset, metadata: block.Metadata}
	case sarama.ErrGroupIDNotFound:
		return stored{offset: -1}
	default:
		return stored{offset: -1, err: fmt.Errorf("consumer: read offset of %s: %w", p, kerr)}
	}
}

func (o *kafkaOffsets) commit(ctx context.Context, es []entry) map[allocfn.Partition]error {
	out := make(map[allocfn.Partition]error, len(es))
	pending := es
	err := ask(ctx, o, func() func(coordinator) (*sarama.OffsetCommitResponse, error) {
		pending = permitted(pending, out)
		if len(pending) == 0 {
			return nil
		}
		return o.commitOf(pending)
	}, func(resp *sarama.OffsetCommitResponse) error {
		var again []entry
		var last error
		for _, e := range pending {
			kerr, ok := resp.Errors[e.partition.Topic][e.partition.ID]
			switch {
			case !ok:
				out[e.partition] = fmt.Errorf("consumer: commit %s: %w", e.partition, sarama.ErrIncompleteResponse)
			case kerr == sarama.ErrNoError:
				out[e.partition] = nil
			case retriable(kerr):
				again, last = append(again, e), kerr
			case foreign(kerr):
				out[e.partition] = fmt.Errorf("commit %s: %w: %w", e.partition, ErrGroupInUse, kerr)
			default:
				out[e.partition] = fmt.Errorf("consumer: commit %s: %w", e.partition, kerr)
			}
		}
		pending = again
		return last
	})
	for _, e := range permitted(pending, out) {
		out[e.partition] = fmt.Errorf("consumer: commit %s: %w", e.partition, err)
	}
	return out
}

// commitOf sends one request. Finding the coordinator took time, and until the
// request is written more may pass: it asks again now, and lets the connection ask
// at the write.
func (o *kafkaOffsets) commitOf(es []entry) func(coordinator) (*sarama.OffsetCommitResponse, error) {
	req := o.commitRequest(es)
	allowed := func() error {
		for _, e := range es {
			if e.allowed() != nil {
				return errWithdrawn // and not why: that is of one entry
			}
		}
		return nil
	}
	return func(c coordinator) (*sarama.OffsetCommitResponse, error) {
		if err := allowed(); err != nil {
			return nil, err
		}
		if o.guard != nil {
			defer o.guard(allowed)()
		}
		return c.CommitOffset(req)
	}
}

// permitted drops the entries that may not be sent any more and notes why.
func permitted(es []entry, out map[allocfn.Partition]error) []entry {
	keep := make([]entry, 0, len(es))
	for _, e := range es {
		if err := e.allowed(); err != nil {
			out[e.partition] = err
			continue
		}
		keep = append(keep, e)
	}
	return keep
}

func (o *kafkaOffsets) commitRequest(es []entry) *sarama.OffsetCommitRequest {
	req := sarama.NewOffsetCommitRequest(o.config, o.group)
	for _, e := range es {
		req.AddBlockWithLeaderEpoch(e.partition.Topic, e.partition.ID, e.offset, -1, 0, e.metadata)
	}
	return req
}

// ask sends what prepare makes to the coordinator and has read look at the
// answer, until read returns nil or prepare has nothing to send. It asks for the
// coordinator anew after each failure. Too many attempts, ctx's end, and a
// refusal that will stay end it too.
func ask[T any](ctx context.Context, o *kafkaOffsets, prepare func() func(coordinator) (T, error), read func(T) error) error {
	wait := newBackoff(storeBackoff, maxStoreBackoff)
	for attempt := 1; ; attempt++ {
		send := prepare()
		if send == nil {
			return nil
		}
		answer, err := run(ctx, o.do, func() (T, error) {
			var none T
			c, err := o.find(attempt > 1)
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
		if err := wait.wait(ctx); err != nil {
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
		errors.Is(err, sarama.ErrClosedClient) || errors.Is(err, errLost)
}
