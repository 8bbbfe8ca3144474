package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/operr"
)

// position determines the start position, opens the tracker there, and commits it unless that is not needed (isStored). The
// commit has two reasons: a policy must not choose twice, and Kafka may refuse commits of this group. If reads is true the caller
// opens the stream next, and position may begin with that.
func (o *opening) position(ctx context.Context, reads bool) (int64, error) {
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
	s, err := o.start(ctx, found)
	if err != nil {
		return 0, failure("find the start position of", o.tp.String(), err)
	}
	o.member.shut.found(o, s.offset)
	text := ""
	o.leaderEpoch, o.origin = -1, reporting.FromCommitted
	switch {
	case s.line.Reason != "":
		o.origin = reporting.FromPolicy
	case o.isCopied(found):
		text, o.origin = found.Text, reporting.FromCopied
	case found.Ours: // another program may store any epoch
		text, o.leaderEpoch = found.Text, found.LeaderEpoch
	default:
		text = found.Text
	}
	o.member.learnTree(ctx, o.claim.Incarnation())
	stored := o.isStored(found, s)
	if stored && o.member.committer.Accepts() {
		o.found(s, text)
	} else {
		if stored && reads {
			o.openEarly(ctx, s.offset)
		}
		if err := o.track(ctx, s, text); err != nil {
			o.member.committer.Close(o.claim.Context(), o.tracker)
			return 0, err
		}
	}
	o.prevTopicID, o.prevPartitions = o.topicID, o.member.catalog.Count(o.tp.Topic)
	next, err := o.seek(ctx, s.offset)
	if err != nil {
		o.member.committer.Close(o.claim.Context(), o.tracker)
		return next, err
	}
	o.member.shut.found(o, next)
	return next, nil
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

// isCopied reports whether a stored offset was copied from another cluster than the one in this member's record.
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

// start returns where the partition starts: at the offset that was found, or where a policy says.
//
// Stored offsets have the number of partitions that the topic had when the group first started on it; without any it is the
// number now. For a topic that was created again the number is at most that of the old topic, so that its additional partitions
// are new. A number that was copied from another cluster is at most that of partitions here, so that those which the topic gets
// later are new.
func (o *opening) start(ctx context.Context, found offsets.Stored) (start, error) {
	now := o.member.catalog.Count(o.tp.Topic)
	reason := o.reason(found)
	switch {
	case reason == reasonNone:
		return o.begin(ctx)
	case reason == reasonRecreated: // the group had started before this topic existed
		first, err := o.member.logOffset(ctx, o.tp, Earliest)
		line := reporting.Start{Reason: reason, Policy: Earliest.String()}
		return start{offset: first, firstPartitions: min(now, cmp.Or(found.FirstPartitions, o.prevPartitions, now)), line: line}, err
	case o.isCopied(found):
		return start{offset: found.Offset, firstPartitions: min(now, cmp.Or(found.FirstPartitions, now))}, nil
	}
	s := start{offset: found.Offset, firstPartitions: cmp.Or(found.FirstPartitions, now)}
	if isBeginning(found.Began) {
		s.began = found.Began
	}
	return s, nil
}

// isFenced reports whether the user gave a Fence, and so commits positions in transactions.
func (o *opening) isFenced() bool { return o.member.group.settings.Fence != nil }

// leavesAlone reports whether the start position is not committed. With Fence the user commits positions in transactions, and a
// late commit of the start position would lower them. The choice of the policy Earliest need not be committed either: Earliest
// chooses the same again.
func (o *opening) leavesAlone(reason string) bool {
	return o.isFenced() && (reason == "" || o.member.policy.from == Earliest)
}

// isStored reports whether the start position need not be committed if Kafka takes commits of this member: a member of this group
// has stored it with all that this member would store but its token, of the same topic, in this tree and this cluster. A commit
// of a former owner that arrives from now on is one that the repeats find, as they find one that arrives after a commit of the
// start position. The first repeat also commits what is found here, so that offsets of partitions that change hands do not
// expire.
func (o *opening) isStored(found offsets.Stored, s start) bool {
	here := o.member.place(o.claim.Incarnation())
	return !o.isFenced() && s.line.Reason == "" && found.Ours && o.topicID != (sarama.Uuid{}) && found.TopicID == o.topicID &&
		here.Tree != (offsets.ID{}) && here.Cluster != (offsets.ID{}) && found.Place == here && !o.isCopied(found) &&
		found.FirstPartitions == s.firstPartitions && found.Began.Equal(s.began)
}

// found opens the tracker at s, which is stored.
func (o *opening) found(s start, text string) {
	o.tracker = o.member.committer.OpenFound(o.tp, o.claim, o.topicID, s.offset, text)
	o.tracker.SetBeginning(s.firstPartitions, s.began)
	o.tracker.SetStartLeaderEpoch(o.leaderEpoch)
}

// track opens the tracker at s and commits the start position.
func (o *opening) track(ctx context.Context, s start, text string) error {
	o.enter(atStart)
	open := o.member.committer.Open
	if o.leavesAlone(s.line.Reason) {
		open = o.member.committer.OpenStored
	}
	o.tracker = open(o.tp, o.claim, o.topicID, s.offset, text)
	o.tracker.SetBeginning(s.firstPartitions, s.began)
	o.tracker.SetStartLeaderEpoch(o.leaderEpoch)
	return o.first(ctx, s.line)
}

// first commits the start position. With a reason a policy has chosen the position, which is counted and logged. A position that
// was copied from another cluster is logged, too.
func (o *opening) first(ctx context.Context, line reporting.Start) error {
	if !o.leavesAlone(line.Reason) {
		if err := o.member.committer.Commit(ctx, o.tracker); err != nil {
			return notCommitted(o.tp, err)
		}
	}
	if o.isFenced() {
		o.tracker.LeaveAlone()
	}
	start, _, _ := o.tracker.Marked() // nothing is marked yet
	if line.Reason != "" {
		o.member.metrics.resets.WithLabelValues(labelOf(o.tp.Topic), line.Reason).Inc()
		o.member.openLog.StartsByPolicy(o.tp, start, line)
	} else if o.origin == reporting.FromCopied {
		o.member.openLog.StartsByCopy(o.tp, start)
	}
	if line.Reason == reasonRecreated {
		o.member.report.SendOf(o.tp, fmt.Errorf("%w: its offsets do not count, starting at the first message", offsets.Recreated(o.tp.Topic)))
	}
	return nil
}

// openStream opens the stream at start. If Kafka does not have that offset, it opens the stream at the first message, or where
// beyondEnd says. If the log was truncated below start, it opens the stream there.
func (o *opening) openStream(ctx context.Context, start int64) (stream, int64, error) {
	o.enter(atLeader)
	if o.cut != nil && o.cut.Diverges < start {
		return o.openElsewhere(ctx, start, o.cut.Diverges, reasonTruncated, o.cut)
	}
	s, err := o.openAt(ctx, start)
	if !errors.Is(err, sarama.ErrOffsetOutOfRange) {
		return s, start, err
	}
	why := err
	oldest, err := o.member.logOffset(ctx, o.tp, Earliest)
	if err != nil {
		return nil, 0, failure("find the start position of", o.tp.String(), err)
	}
	next := oldest
	if start > oldest && o.member.beyondEnd() != Earliest {
		if next, err = o.member.logOffset(ctx, o.tp, Latest); err != nil {
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
	if err := o.first(ctx, reporting.Start{Reason: reason, Policy: o.member.beyondEnd().String()}); err != nil {
		return nil, 0, err
	}
	s, err := o.member.fetcher.open(ctx, o.tp, next, -1)
	return s, next, err
}
