package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/operr"
)

// position determines the start position, opens the tracker there, and commits it. The commit has two reasons: a policy must not
// choose twice, and the commit of a former owner may arrive late.
func (o *opening) position(ctx context.Context) (int64, error) {
	o.enter(atTopic)
	if err := o.describe(ctx); err != nil {
		return 0, err
	}
	if err := o.fence(ctx); err != nil {
		return 0, err
	}
	o.enter(atOffset)
	o.topicID = o.member.catalog.ID(o.tp.Topic)
	found, err := o.member.reader.Get(ctx, o.tp)
	if err != nil {
		return 0, err
	}
	o.member.refusals.readOffset()
	start, text, from, reason := found.Offset, found.Text, o.member.from, o.reason(found)
	first, isNew, err := o.firstPartitions(ctx, found, reason)
	if err != nil {
		return 0, err
	}
	if isNew || reason == reasonRecreated {
		from = Earliest // the group had started before the partition, or the topic, existed
	}
	o.leaderEpoch, o.origin = -1, reporting.FromCommitted
	switch {
	case reason != "":
		text, o.origin = "", reporting.FromPolicy
		if start, err = o.member.edge(ctx, o.tp, from); err != nil {
			return 0, failure("find the start position of", o.tp.String(), err)
		}
	case o.isCopied(found):
		o.origin = reporting.FromCopied
	case found.Ours: // another program may store any epoch
		o.leaderEpoch = found.LeaderEpoch
	}
	if err := o.track(ctx, start, text, first, reason, from); err != nil {
		o.member.committer.Close(o.claim.Context(), o.tracker)
		return 0, err
	}
	o.prevTopicID, o.prevPartitions = o.topicID, o.member.catalog.Count(o.tp.Topic)
	if start, err = o.seek(ctx, start); err != nil {
		o.member.committer.Close(o.claim.Context(), o.tracker)
	}
	return start, err
}

// reason returns why a policy chooses the start position; "" if found does. The id in a commit says whether the topic was created
// again. Without a commit, and for one that was copied from another cluster, what this member has seen of the topic says that.
func (o *opening) reason(found offsets.Stored) string {
	before := found.TopicID
	if found.Offset < 0 || o.isCopied(found) {
		before = o.prevTopicID
	}
	switch {
	case !offsets.SameTopic(before, o.topicID):
		return reasonRecreated
	case found.Offset < 0:
		return reasonNone
	}
	return ""
}

// isCopied returns whether a stored offset was copied from another cluster than the one in this member's record.
func (o *opening) isCopied(found offsets.Stored) bool {
	return found.IsCopied(offsets.ClusterID(o.member.cluster))
}

// fence calls the user's Fence, which fences off the partition's former owners. The offset that they have committed is read next.
func (o *opening) fence(ctx context.Context) error {
	switch {
	case !o.isFenced():
		return nil
	case ctx.Err() != nil: // the next owner may have fenced already
		return context.Cause(ctx)
	case !o.claim.Trusted():
		return errUntrusted
	}
	o.enter(atFence)
	o.inUser.Store(true)
	defer o.inUser.Store(false)
	err := o.member.users.Guard.Go(ofOne(callFence, o.tp), func() error {
		return o.member.group.settings.Fence(ctx, o.tp.Topic, o.tp.ID)
	}, nil).Result()
	if err != nil {
		return failure("fence", o.tp.String(), operr.Mark(err, errFence))
	}
	if !o.claim.Trusted() {
		return errUntrusted // trust ended while Fence ran
	}
	return nil
}

// describe asks Kafka for the topic, unless Kafka was asked a second ago or less. It returns ErrTopicMissing if Kafka does not
// have the topic. All partitions of a missing topic wait together, so they ask less often.
func (o *opening) describe(ctx context.Context) error {
	o.member.catalog.Own(o.tp.Topic)
	age := time.Second
	if o.member.catalog.IsMissing(o.tp.Topic) {
		age = maxOpenBackoff
	}
	err := o.member.catalog.Refresh(ctx, age)
	if err == nil {
		o.member.group.log.OK(reporting.KindMetadata, "")
	} else if ctx.Err() == nil {
		o.member.group.log.FailedWarn(reporting.KindMetadata, "", err) // the older metadata are good enough
	}
	if o.member.catalog.IsMissing(o.tp.Topic) {
		return failure("", "", fmt.Errorf("%w: %s", ErrTopicMissing, o.tp.Topic))
	}
	if err != nil && o.member.catalog.Count(o.tp.Topic) == 0 {
		return err // the topic was never described
	}
	return nil
}

// firstPartitions returns how many partitions the topic had when the group first started on it. Stored offsets have that number;
// without any it is the number of partitions now. For a topic that was created again the number is at most that of the old topic,
// so that its additional partitions are new. A number that was copied from another cluster is at most that of partitions here, so
// that those which the topic gets later are new.
//
// isNew says that this partition was added later, or that patterns have found the topic after this member joined. Only a
// partition without an offset can be new, and isNew matters only when the policy is Latest. Only then are the offsets of the
// other partitions read.
func (o *opening) firstPartitions(ctx context.Context, found offsets.Stored, reason string) (first int32, isNew bool, err error) {
	ids := o.member.catalog.Partitions()[o.tp.Topic]
	now := int32(len(ids))
	switch {
	case reason == "" && o.isCopied(found):
		return min(now, cmp.Or(found.FirstPartitions, now)), false, nil
	case reason == "":
		return cmp.Or(found.FirstPartitions, now), false, nil
	case reason == reasonRecreated:
		return min(now, cmp.Or(found.FirstPartitions, o.prevPartitions, now)), false, nil
	case reason != reasonNone || o.member.from != Latest:
		return now, false, nil
	}
	all := make([]kiel.Partition, len(ids))
	for i, id := range ids {
		all[i] = kiel.Partition{Topic: o.tp.Topic, ID: id}
	}
	isNew = o.member.catalog.IsNew(o.tp.Topic)
	first, err = o.member.reader.FirstPartitions(ctx, all, o.topicID, offsets.ClusterID(o.member.cluster))
	if first == 0 {
		return now, isNew, err
	}
	return first, isNew || o.tp.ID >= first, err
}

// isFenced returns whether the user gave a Fence, and so commits positions in transactions.
func (o *opening) isFenced() bool { return o.member.group.settings.Fence != nil }

// leavesAlone returns whether the start position is not committed. With Fence the user commits positions in transactions, and a
// late commit of the start position would lower them. The choice of the policy Earliest need not be committed either: Earliest
// chooses the same again.
func (o *opening) leavesAlone(reason string) bool {
	return o.isFenced() && (reason == "" || o.member.from == Earliest)
}

// track opens the tracker at start and commits the start position.
func (o *opening) track(ctx context.Context, start int64, text string, firstPartitions int32, reason string, policy From) error {
	o.enter(atStart)
	o.member.learnTree(ctx, o.claim.Incarnation())
	open := o.member.committer.Open
	if o.leavesAlone(reason) {
		open = o.member.committer.OpenStored
	}
	o.tracker = open(o.tp, o.claim, o.topicID, start, text)
	o.tracker.SetFirstPartitions(firstPartitions)
	o.tracker.SetStartLeaderEpoch(o.leaderEpoch)
	return o.first(ctx, reason, policy)
}

// first commits the start position. With a reason a policy has chosen the position, which is counted and logged. A position that
// was copied from another cluster is logged, too.
func (o *opening) first(ctx context.Context, reason string, policy From) error {
	if !o.leavesAlone(reason) {
		if err := o.member.committer.Commit(ctx, o.tracker); err != nil {
			return notCommitted(o.tp, err)
		}
	}
	if o.isFenced() {
		o.tracker.LeaveAlone()
	}
	start, _, _ := o.tracker.Marked() // nothing is marked yet
	if reason != "" {
		o.member.metrics.resets.WithLabelValues(labelOf(o.tp.Topic), reason).Inc()
		o.member.openLog.StartsByPolicy(o.tp, start, reason, policy.String())
	} else if o.origin == reporting.FromCopied {
		o.member.openLog.StartsByCopy(o.tp, start)
	}
	if reason == reasonRecreated {
		o.member.report.SendOf(o.tp, fmt.Errorf("%w: its offsets do not count, starting at the first message", offsets.Recreated(o.tp.Topic)))
	}
	return nil
}

// openStream opens the stream at start. If Kafka does not have that offset, it opens the stream where the policy says. If the log
// was truncated below start, it opens the stream there.
func (o *opening) openStream(ctx context.Context, start int64) (stream, int64, error) {
	o.enter(atLeader)
	if o.cut != nil && o.cut.Diverges < start {
		return o.openElsewhere(ctx, start, o.cut.Diverges, reasonTruncated, o.cut)
	}
	s, err := o.member.fetcher.open(ctx, o.tp, start, o.leaderEpoch)
	if !errors.Is(err, sarama.ErrOffsetOutOfRange) {
		return s, start, err
	}
	why := err
	oldest, err := o.member.edge(ctx, o.tp, Earliest)
	if err != nil {
		return nil, 0, failure("find the start position of", o.tp.String(), err)
	}
	next := oldest
	if start > oldest && o.member.from == Latest {
		if next, err = o.member.edge(ctx, o.tp, Latest); err != nil {
			return nil, 0, failure("find the start position of", o.tp.String(), err)
		}
	}
	return o.openElsewhere(ctx, start, next, reasonOutOfRange, why)
}

// openElsewhere opens the stream at next, and reports why, if the configuration allows resets.
func (o *opening) openElsewhere(ctx context.Context, start, next int64, reason string, why error) (stream, int64, error) {
	if !o.member.resetInvalid {
		return nil, 0, outOfLog(o.tp, start, why, "")
	}
	o.member.report.SendOf(o.tp, outOfLog(o.tp, start, why, ", continuing at %d", next))
	o.tracker.Move(next)
	o.origin = reporting.FromReset
	if err := o.first(ctx, reason, o.member.from); err != nil {
		return nil, 0, err
	}
	s, err := o.member.fetcher.open(ctx, o.tp, next, -1)
	return s, next, err
}
