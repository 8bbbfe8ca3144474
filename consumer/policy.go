package consumer

import (
	"cmp"
	"context"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
)

// policy says where a new group starts.
type policy struct {
	from   StartAt
	at     time.Time // with Latest: at the first message of this time or later; zero is the end
	option string    // the option that says so
}

// policyOf returns the policy of a group: Options.StartAt or StartTime, or what a Config says, or else Earliest.
func policyOf(opts Options) policy {
	switch {
	case opts.StartAt != 0:
		return policy{from: opts.StartAt, option: "Options.StartAt"}
	case !opts.StartTime.IsZero():
		return policy{from: Latest, at: opts.StartTime, option: "Options.StartTime"}
	case opts.Config == nil:
		return policy{from: Earliest, option: "default"}
	case opts.Config.Consumer.Offsets.Initial == sarama.OffsetOldest:
		return policy{from: Earliest, option: "Config.Consumer.Offsets.Initial"}
	default:
		return policy{from: Latest, option: "Config.Consumer.Offsets.Initial"}
	}
}

// String returns the policy's text in the log: earliest, latest or a time.
func (p policy) String() string {
	if !p.at.IsZero() {
		return p.at.UTC().Format(time.RFC3339Nano)
	}
	return p.from.String()
}

// byPolicy returns where the member's policy has a partition start.
func (m *membership) byPolicy(ctx context.Context, p kiel.Partition) (int64, error) {
	at, err := m.logOffset(ctx, p, m.policy.from)
	if err != nil || m.policy.at.IsZero() {
		return at, err
	}
	return m.since(ctx, p, m.policy.at, at)
}

// since returns the offset of the first message of p whose timestamp is t or later, end if there is none. The end was read
// before: what has come since is younger.
func (m *membership) since(ctx context.Context, p kiel.Partition, t time.Time, end int64) (int64, error) {
	at, err := m.at(ctx, p, t)
	if err != nil || at < 0 {
		return end, err
	}
	return min(at, end), nil
}

// beyondEnd returns where a partition goes on whose position is beyond the end of its log. That is another log than the group has
// read, one of a topic that was created again, say, and all of it may be new. So it is the end only if Options.StartAt says so:
// that Config leaves a new group at the end does not mean that a group at work may skip messages.
func (m *membership) beyondEnd() StartAt {
	if m.group.settings.StartAt == Latest {
		return Latest
	}
	return Earliest
}

// beginningFor is how long after its beginning on a topic a group counts as beginning: if it starts at the end, a partition
// without an offset then starts where the group began. It is much longer than members need to open what they own, and than their
// clocks differ.
const beginningFor = 5 * time.Minute

// isBeginning reports whether a group that began on a topic at began counts as beginning now. A clock that is behind counts, too.
func isBeginning(began time.Time) bool {
	return !began.IsZero() && time.Since(began).Abs() < beginningFor
}

// start is where a partition starts, and what its commits are to say of the group's beginning on the topic.
type start struct {
	offset          int64
	firstPartitions int32     // see offsets.OffsetCommit
	began           time.Time // see offsets.OffsetCommit
	line            reporting.Start
}

// begin returns where a partition without an offset starts.
//
// A group that starts at the end, and has no offset on the topic, begins on it right before the end is read. The end is read
// before the offsets, so nothing is skipped that comes after the group's beginning, whoever begins. If others have begun a moment
// ago, the partition starts at the first message of that time or later, because its end may be further now: it had to wait for a
// leader, say, or was handed over before its first commit. Otherwise the group has worked on the topic, and this partition's
// offset was deleted or has expired, or the topic got the partition later or was created again: it starts at its first message.
func (o *opening) begin(ctx context.Context) (start, error) {
	policy, now := o.member.policy, time.Now()
	end, err := o.member.byPolicy(ctx, o.tp)
	if err != nil {
		return start{}, err
	}
	if o.newEnd != nil { // the attempt before was not committed: what has come since is not skipped
		end = min(end, *o.newEnd)
	}
	group, err := o.beginning(ctx)
	s := start{offset: end, firstPartitions: cmp.Or(group.FirstPartitions, o.member.catalog.Count(o.tp.Topic))}
	isLate := group.FirstPartitions > 0 && o.tp.ID >= group.FirstPartitions || o.member.catalog.IsNew(o.tp.Topic)
	switch {
	case err != nil || isLate:
	case !group.Stored:
		s.began = now.Truncate(time.Millisecond).Add(time.Millisecond) // the first that no message from before has
	case isBeginning(group.At):
		s.began = group.At
	}
	s.line = reporting.Start{Reason: reasonNone, Policy: policy.String(), Option: policy.option}
	s.line.NewGroup = !s.began.IsZero() || err == nil && !group.Stored
	switch {
	case policy.from == Earliest: // that is certain without the other offsets, too
		return s, nil
	case err != nil:
		return start{}, err
	case !isLate && !group.Stored:
		o.newEnd = &end
	case !s.began.IsZero():
		if s.offset, err = o.member.since(ctx, o.tp, group.At, end); err != nil {
			return start{}, err
		}
	default:
		s.offset, err = o.member.logOffset(ctx, o.tp, Earliest)
		s.line.Policy, s.line.Option, s.line.NewGroup = Earliest.String(), "", false
		return s, err
	}
	oldest, err := o.member.logOffset(ctx, o.tp, Earliest)
	s.line.Skipped = max(0, s.offset-oldest)
	return s, err
}

// beginning returns what the offsets of the topic's partitions say of the group's beginning on the topic. With Fence and Earliest
// it asks for none, since one that a transaction is about to store would hold this partition up, and takes the group for new.
func (o *opening) beginning(ctx context.Context) (offsets.Beginning, error) {
	if o.isFenced() && o.member.policy.from == Earliest {
		return offsets.Beginning{}, nil
	}
	return o.member.reader.Beginning(ctx, offsets.Topic{
		Name: o.tp.Topic, ID: o.topicID, Cluster: offsets.ClusterID(o.member.cluster), Partitions: o.member.catalog.IDs(o.tp.Topic),
	})
}
