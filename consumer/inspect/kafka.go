package inspect

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/topics"
	"github.com/kielgo/kiel/internal/statuswrite"
)

// kafka is a client of Kafka for one call.
type kafka struct {
	group  string
	client sarama.Client
	calls  kafkaconn.Calls
	store  *offsets.KafkaStore
	end    func()
}

// openKafka makes a client, which connects when it is used. end must be called.
func (in *Inspector) openKafka(ctx context.Context, group string) (*kafka, error) {
	if len(in.from.Brokers) == 0 {
		return nil, errNotAsked
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	d := kafkaconn.NewDialer(life, in.from.Config, 0)
	config := kafkaconn.ControlConfig(*in.from.Config, d)
	config.Metadata.Retry.Max = min(config.Metadata.Retry.Max, 1)
	client, err := sarama.NewClient(in.from.Brokers, config)
	if err != nil {
		end()
		return nil, err
	}
	k := &kafka{group: group, client: client}
	k.store = &offsets.KafkaStore{Group: group, Config: config, Calls: &k.calls, Find: k.coordinator}
	k.end = func() {
		end()
		d.Abort()
		k.calls.Wait()
		_ = client.Close()
		d.Wait()
	}
	return k, nil
}

func (k *kafka) coordinator(again bool) (offsets.Coordinator, error) {
	if again {
		if err := k.client.RefreshCoordinator(k.group); err != nil {
			return nil, err
		}
	}
	return k.client.Coordinator(k.group)
}

// peek reads stored offsets, and once more if the coordinator has moved.
func (k *kafka) peek(ctx context.Context, ps []kiel.Partition) (found map[kiel.Partition]offsets.Stored, err error) {
	for range 2 {
		found, err = k.store.Peek(ctx, ps)
		if err == nil && !slices.ContainsFunc(ps, func(p kiel.Partition) bool { return found[p].Err != nil }) {
			break
		}
	}
	return found, err
}

// committed returns the partitions of which the group has stored offsets.
func (k *kafka) committed(ctx context.Context) (ps []kiel.Partition, err error) {
	found, err := k.store.PeekAll(ctx)
	for p := range found {
		if kiel.CheckTopic(p.Topic) == nil {
			ps = append(ps, p)
		}
	}
	return ps, err
}

// description is what Kafka says of topics.
type description struct {
	topics  map[string]topics.Info
	cluster string // the id of the cluster; "" if it has none
}

// offsetsTopic is a topic that every cluster has: an empty list of topics would ask for all.
const offsetsTopic = "__consumer_offsets"

// describe asks for topics, and for the id of the cluster.
func (k *kafka) describe(ctx context.Context, names []string) (description, error) {
	return kafkaconn.Run(ctx, &k.calls, func() (description, error) {
		known := k.client.RefreshMetadata(slices.Concat(names, []string{offsetsTopic})...)
		if errors.Is(known, sarama.ErrOutOfBrokers) {
			return description{}, known
		}
		broker := k.client.LeastLoadedBroker()
		if broker == nil {
			return description{}, errors.Join(known, sarama.ErrOutOfBrokers)
		}
		req := sarama.NewMetadataRequest(k.client.Config().Version, slices.Concat(names, []string{offsetsTopic}))
		req.AllowAutoTopicCreation = false
		resp, err := broker.GetMetadata(req)
		if err != nil {
			_ = broker.Close()
			return description{}, err
		}
		d := description{topics: topics.Infos(resp)}
		if resp.ClusterID != nil {
			d.cluster = *resp.ClusterID
		}
		return d, nil
	}, nil)
}

// found is an offset that a broker has found.
type found struct {
	offset int64     // -1 if there is none
	at     time.Time // zero if it is not known
	err    error
}

// list asks the leaders for an offset of each partition, as the members of this configuration would; see kafkaconn.ListOffsets.
func (k *kafka) list(ctx context.Context, at map[kiel.Partition]int64) (map[kiel.Partition]found, error) {
	return k.listAt(ctx, k.client.Config().Consumer.IsolationLevel, at)
}

func (k *kafka) listAt(ctx context.Context, level sarama.IsolationLevel, at map[kiel.Partition]int64) (map[kiel.Partition]found, error) {
	answers, err := kafkaconn.Run(ctx, &k.calls, func() (map[kiel.Partition]kafkaconn.Listed, error) {
		return kafkaconn.ListOffsets(k.client, level, at), nil
	}, nil)
	if err != nil {
		return nil, err
	}
	out := make(map[kiel.Partition]found, len(answers))
	for p, l := range answers {
		out[p] = foundOf(l)
	}
	return out, nil
}

func foundOf(l kafkaconn.Listed) found {
	f := found{offset: l.Offset, err: l.Err}
	if at := statuswrite.Millis(l.Millis); at != nil { // producers choose timestamps, also such as JSON can't hold
		f.at = *at
	}
	return f
}

// ends asks for the ends of partitions.
func (k *kafka) ends(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]found, error) {
	return k.list(ctx, newest(ps))
}

func newest(ps []kiel.Partition) map[kiel.Partition]int64 {
	at := make(map[kiel.Partition]int64, len(ps))
	for _, p := range ps {
		at[p] = sarama.OffsetNewest
	}
	return at
}

// uncommitted asks for the ends of the logs of partitions whose stored offset is beyond the end that was found: with
// ReadCommitted that is where a transaction begins which is not over, and members that read all have passed it.
func (k *kafka) uncommitted(ctx context.Context, g *glance) error {
	var beyond []kiel.Partition
	for p, end := range g.ends {
		if end.err == nil && end.offset >= 0 && g.stored[p].Err == nil && g.stored[p].Offset > end.offset {
			beyond = append(beyond, p)
		}
	}
	if len(beyond) == 0 || k.client.Config().Consumer.IsolationLevel == sarama.ReadUncommitted {
		return nil
	}
	ends, err := k.listAt(ctx, sarama.ReadUncommitted, newest(beyond))
	maps.Copy(g.ends, ends)
	return err
}

// The bounds of the search for the times of messages.
const (
	maxSearched = 1000 // partitions; see look.fewest
	maxRounds   = 24   // requests to each leader
)

// searched is what is known of the time of the message at an offset: from lo to hi, in milliseconds.
type searched struct {
	offset, lo, hi, now int64

	coarse bool // while the message is young, a sixteenth of its age is near enough
}

// young is the age in milliseconds up to which no verdict depends on a message's time: the default window of a Series.
const young = 10_000

// near returns how near lo and hi have to come.
func (s *searched) near() int64 {
	if age := s.now - s.lo; s.coarse && age <= young {
		return max(age/16, 100)
	}
	return 1
}

// times returns the timestamps of the messages at these offsets, of some roughly. It reads no message: it asks for the offsets at
// times, as often as needed.
func (k *kafka) times(ctx context.Context, at map[kiel.Partition]int64, coarse map[kiel.Partition]bool, now time.Time) map[kiel.Partition]time.Time {
	out, open := map[kiel.Partition]time.Time{}, map[kiel.Partition]*searched{}
	for p, offset := range at {
		open[p] = &searched{offset: offset, lo: 0, hi: now.UnixMilli() + 1, now: now.UnixMilli(), coarse: coarse[p]}
	}
	for age := time.Second.Milliseconds(); age < now.UnixMilli(); age *= 8 { // how old are they, roughly?
		older := func(s *searched) int64 { return min(s.now-age, s.hi) }
		if !k.round(ctx, open, out, older, func(s *searched) bool { return s.lo > 0 }) {
			break
		}
	}
	for range maxRounds {
		if len(open) == 0 || !k.round(ctx, open, out, func(s *searched) int64 { return (s.lo + s.hi) / 2 }, nil) {
			break
		}
	}
	for p, s := range open {
		if s.lo > 0 {
			out[p] = time.UnixMilli(s.lo).UTC()
		}
	}
	return out
}

// round asks once for each partition that is open, except those that skip, and puts what it learns into them. A partition whose
// time is known goes from open to out. It returns false if nothing was asked.
func (k *kafka) round(
	ctx context.Context, open map[kiel.Partition]*searched, out map[kiel.Partition]time.Time, probe func(*searched) int64, skip func(*searched) bool,
) bool {
	at := map[kiel.Partition]int64{}
	for p, s := range open {
		if skip == nil || !skip(s) {
			at[p] = probe(s)
		}
	}
	if len(at) == 0 {
		return false
	}
	answers, err := k.list(ctx, at)
	if err != nil {
		return false
	}
	for p, t := range at {
		s := open[p]
		f, ok := answers[p]
		switch {
		case !ok || f.err != nil:
			delete(open, p)
			continue
		case f.offset == s.offset:
			if !f.at.IsZero() {
				out[p] = time.UnixMilli(min(f.at.UnixMilli(), s.now)).UTC()
			}
			delete(open, p)
			continue
		case f.offset < 0 || f.offset > s.offset: // the message is older than t
			s.hi = min(s.hi, t)
		default:
			s.lo = max(t, min(f.at.UnixMilli(), s.hi-1))
		}
		if s.lo > 0 && s.hi-s.lo <= s.near() {
			out[p] = time.UnixMilli(s.lo).UTC()
			delete(open, p)
		}
	}
	return true
}

// names returns the topics of partitions that Kafka may be asked about.
func names(ps []kiel.Partition) []string {
	set := map[string]bool{}
	for _, p := range ps {
		set[p.Topic] = true
	}
	return slices.Sorted(maps.Keys(set))
}
