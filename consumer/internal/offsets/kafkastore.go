package offsets

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
)

// Coordinator is the part of sarama.Broker that the store needs.
type Coordinator interface {
	CommitOffset(*sarama.OffsetCommitRequest) (*sarama.OffsetCommitResponse, error)
	FetchOffset(*sarama.OffsetFetchRequest) (*sarama.OffsetFetchResponse, error)
	Close() error
}

// The attempts of one request, and the first and the longest wait between two of them: 1.55 s of waiting in all.
const (
	storeAttempts   = 6
	storeBackoff    = 50 * time.Millisecond
	maxStoreBackoff = 800 * time.Millisecond
)

// KafkaStore stores offsets in Kafka as a client that is no member of the group: generation -1, no member id. Kafka accepts them
// while the group has no members of its own protocol; the last write wins.
type KafkaStore struct {
	Group  string
	Config *sarama.Config
	// Find returns the coordinator of the group. With again it asks Kafka anew. It may block.
	Find func(again bool) (Coordinator, error)
	// Calls counts the calls that go on after the end of their context.
	Calls *kafkaconn.Calls
	// Gate makes the coordinator's connection call beforeWrite before each write, until release is called. nil is allowed.
	Gate func(beforeWrite func() error) (release func())

	unpeeked atomic.Bool // the last Peek failed: the group may have another coordinator

	room      int       // how much a request may have Kafka store since a larger one was refused, in bytes; belongs to Commit
	roomUntil time.Time // until when room counts
}

// Fetch reads the committed offsets of ps, in one request unless some must be asked for again.
func (o *KafkaStore) Fetch(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]Stored, error) {
	return o.fetch(ctx, ps, storeAttempts, false)
}

// Peek reads the committed offsets of ps in one request. After a Peek that failed it finds the coordinator anew before.
func (o *KafkaStore) Peek(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]Stored, error) {
	found, err := o.fetch(ctx, ps, 1, o.unpeeked.Load())
	unread := func(p kiel.Partition) bool { return retriable(found[p].Err) }
	o.unpeeked.Store(err != nil || slices.ContainsFunc(ps, unread))
	return found, err
}

// PeekAll reads all committed offsets of the group, in one request.
func (o *KafkaStore) PeekAll(ctx context.Context) (map[kiel.Partition]Stored, error) {
	out := map[kiel.Partition]Stored{}
	err := ask(ctx, o, 1, false, func() func(Coordinator) (*sarama.OffsetFetchResponse, error) {
		req := o.fetchRequestFor(nil)
		return func(c Coordinator) (*sarama.OffsetFetchResponse, error) { return c.FetchOffset(req) }
	}, func(resp *sarama.OffsetFetchResponse) error {
		if group := resp.GroupError(); group != sarama.ErrNoError && group != sarama.ErrGroupIDNotFound {
			return group
		}
		blocks := resp.Blocks
		if g := resp.GetGroup(o.Group); g != nil {
			blocks = g.Blocks
		}
		for topic, of := range blocks {
			for id := range of {
				p := kiel.Partition{Topic: topic, ID: id}
				out[p] = readStored(resp, p)
			}
		}
		return nil
	})
	if err != nil {
		return nil, operr.New("consumer", "read offsets of group", strconv.Quote(o.Group), err)
	}
	return out, nil
}

// fetch reads the committed offsets of ps, in so many attempts. With anew it finds the coordinator anew before the first one,
// too.
func (o *KafkaStore) fetch(ctx context.Context, ps []kiel.Partition, attempts int, anew bool) (map[kiel.Partition]Stored, error) {
	out := make(map[kiel.Partition]Stored, len(ps))
	pending := ps
	err := ask(ctx, o, attempts, anew, func() func(Coordinator) (*sarama.OffsetFetchResponse, error) {
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
		return nil, operr.New("consumer", "read offsets of group", strconv.Quote(o.Group), err)
	}
	for _, p := range pending {
		out[p] = Stored{Offset: -1, Err: operr.New("consumer", "read offset of", p.String(), err)}
	}
	return out, nil
}

func (o *KafkaStore) fetchRequest(ps []kiel.Partition) *sarama.OffsetFetchRequest {
	byTopic := map[string][]int32{}
	for _, p := range ps {
		byTopic[p.Topic] = append(byTopic[p.Topic], p.ID)
	}
	return o.fetchRequestFor(byTopic)
}

// fetchRequestFor returns a request for partitions by topic; nil asks for all.
func (o *KafkaStore) fetchRequestFor(byTopic map[string][]int32) *sarama.OffsetFetchRequest {
	req := sarama.NewOffsetFetchRequest(o.Config.Version, o.Group, byTopic)
	req.RequireStable = req.Version >= 7 // KIP-447
	return req
}

// readStored returns the stored offset of p from an answer.
func readStored(resp *sarama.OffsetFetchResponse, p kiel.Partition) Stored {
	kerr := resp.GroupError()
	block := resp.GetBlock(p.Topic, p.ID)
	if kerr == sarama.ErrNoError {
		if block == nil {
			return Stored{Offset: -1, Err: operr.New("consumer", "read offset of", p.String(), sarama.ErrIncompleteResponse)}
		}
		kerr = block.Err
	}
	switch kerr {
	case sarama.ErrNoError:
		m, ours := parseMetadata(block.Metadata)
		return Stored{
			Offset: block.Offset, TopicID: m.topicID, Token: m.token, Text: m.text, Ours: ours && block.Offset >= 0,
			LeaderEpoch: block.LeaderEpoch, FirstPartitions: m.partitions, Began: m.began, Place: m.place,
		}
	case sarama.ErrGroupIDNotFound:
		return Stored{Offset: -1}
	default:
		return Stored{Offset: -1, Err: operr.New("consumer", "read offset of", p.String(), kerr)}
	}
}

// Commit stores cs, in one request unless they are too large for one, and sends those again that a later attempt may store. One
// goroutine calls it at a time.
func (o *KafkaStore) Commit(ctx context.Context, cs []OffsetCommit) map[kiel.Partition]error {
	out := make(map[kiel.Partition]error, len(cs))
	for len(cs) > 0 {
		n := o.fitting(cs)
		large, err := o.send(ctx, cs[:n], out)
		cs = cs[n:]
		if err != nil { // the others would fail, too
			failed(cs, err, out)
			break
		}
		if len(large) > 0 {
			o.shrink(large)
			cs = slices.Concat(large, cs)
		}
	}
	return out
}

// send stores cs in one request, and sends those again that a later attempt may store. It returns those that Kafka refused
// because they are too large together, without adding them to out. If no answer has decided about any of cs, it returns the
// error.
func (o *KafkaStore) send(ctx context.Context, cs []OffsetCommit, out map[kiel.Partition]error) (large []OffsetCommit, _ error) {
	pending, decided := cs, false
	err := ask(ctx, o, storeAttempts, false, func() func(Coordinator) (*sarama.OffsetCommitResponse, error) {
		pending = permitted(pending, out)
		if len(pending) == 0 {
			return nil
		}
		return o.commitOf(pending)
	}, func(resp *sarama.OffsetCommitResponse) error {
		var again []OffsetCommit
		var last error
		size := sync.OnceValue(func() int { return o.size(pending) })
		for _, e := range pending {
			kerr, ok := resp.Errors[e.Partition.Topic][e.Partition.ID]
			switch {
			case !ok:
				out[e.Partition] = operr.New("consumer", "commit", e.Partition.String(), sarama.ErrIncompleteResponse)
			case kerr == sarama.ErrNoError:
				out[e.Partition] = nil
			case retriable(kerr):
				again, last = append(again, e), kerr
			case hasOtherMembers(kerr):
				out[e.Partition] = operr.New("consumer", "commit", e.Partition.String(), operr.Because(ErrGroupInUse, kerr))
			case kerr == sarama.ErrGroupIDNotFound: // Kafka makes a group for a commit unless one of another kind has the name
				out[e.Partition] = operr.New("consumer", "commit", e.Partition.String(), operr.Because(errOtherKind, kerr))
			case len(pending) > 1 && (requestTooLarge(kerr) || kerr == sarama.ErrUnknown && size() > unknownSize):
				large = append(large, e)
			case tooLarge(kerr):
				out[e.Partition] = operr.New("consumer", "commit", e.Partition.String(), operr.Because(ErrTooLarge, kerr))
			default:
				out[e.Partition] = operr.New("consumer", "commit", e.Partition.String(), markRefused(kerr))
			}
		}
		decided = decided || len(again) < len(pending)
		pending = again
		return last
	})
	failed(pending, err, out)
	if decided {
		err = nil
	}
	return large, err
}

// failed adds the error err to out, for those of cs that may still be sent; for the others it adds why they may not.
func failed(cs []OffsetCommit, err error, out map[kiel.Partition]error) {
	for _, e := range permitted(cs, out) {
		out[e.Partition] = operr.New("consumer", "commit", e.Partition.String(), markRefused(err))
	}
}

// commitOf returns a function that sends one request. Time has passed while the coordinator was found, and more may pass until
// the request is written. So the function authorizes the offsets again, and has the connection authorize them at the write.
func (o *KafkaStore) commitOf(cs []OffsetCommit) func(Coordinator) (*sarama.OffsetCommitResponse, error) {
	req := o.commitRequest(cs)
	beforeWrite := func() error {
		for _, e := range cs {
			if e.Authorize() != nil {
				return errWithdrawn // not Authorize's error, which is about one offset alone
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

// permitted returns the offsets that may still be sent. It adds the errors of the others to out.
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

// ask sends the request of prepare to the coordinator and passes the answer to read, until read returns nil or prepare has
// nothing to send. After each failure, and with anew at once, it finds the coordinator anew. It gives up after so many attempts,
// when ctx ends, or after a permanent refusal.
func ask[T any](
	ctx context.Context, o *KafkaStore, attempts int, anew bool, prepare func() func(Coordinator) (T, error), read func(T) error,
) error {
	wait := pause.Backoff{Growth: pause.Doubling(storeBackoff, maxStoreBackoff)}
	for attempt := 1; ; attempt++ {
		send := prepare()
		if send == nil {
			return nil
		}
		answer, err := kafkaconn.Run(ctx, o.Calls, func() (T, error) {
			var none T
			c, err := o.Find(anew || attempt > 1)
			if err != nil {
				return none, err
			}
			answer, err := send(c)
			if err != nil {
				_ = c.Close() // Find opens it again
				return none, err
			}
			return answer, nil
		}, nil)
		if err == nil {
			err = read(answer)
		}
		if err == nil || attempt == attempts || ctx.Err() != nil || permanent(err) {
			return err
		}
		if err := wait.Wait(ctx); err != nil {
			return err
		}
	}
}

// retriable reports whether the coordinator may answer differently soon, or another broker is the coordinator now.
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

// hasOtherMembers reports whether the answer to a commit means that the group has members of Kafka's own protocol.
func hasOtherMembers(kerr sarama.KError) bool {
	return kerr == sarama.ErrUnknownMemberId || kerr == sarama.ErrIllegalGeneration || kerr == sarama.ErrRebalanceInProgress
}

// permanent reports whether a repeated request would fail again: the broker refuses this client.
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
