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
)

// position finds out where to start, opens the tracker there, and commits it: the
// policy's choice must not be made twice, and the commit of an owner before us
// may come late.
func (o *opening) position(ctx context.Context) (int64, error) {
	o.enter(atTopic)
	if err := o.describe(ctx); err != nil {
		return 0, err
	}
	if err := o.fence(ctx); err != nil {
		return 0, err
	}
	o.enter(atOffset)
	o.topicID = o.member.catalog.id(o.tp.Topic)
	found, err := o.member.reader.Get(ctx, o.tp)
	if err != nil {
		return 0, err
	}
	o.member.refusals.readOffset()
	start, text, reason := found.Offset, found.Text, ""
	from := o.member.from
	switch {
	case start >= 0 && !offsets.SameTopic(found.TopicID, o.topicID), start < 0 && !offsets.SameTopic(o.prevTopicID, o.topicID):
		reason, from = reasonRecreated, Earliest // the policy was for the start of the old one
	case start < 0:
		reason = reasonNone
	}
	first, isNew, err := o.firstPartitions(ctx, found, reason)
	if err != nil {
		return 0, err
	}
	if isNew {
		from = Earliest // the group had started before there was this partition
	}
	o.epoch, o.origin = -1, fromCommitted
	if found.Ours && reason == "" { // others may store any number
		o.epoch = found.LeaderEpoch
	}
	if reason != "" {
		text, o.origin = "", fromPolicy
		if start, err = o.member.edge(ctx, o.tp, from); err != nil {
			return 0, fmt.Errorf("consumer: start of %s: %w", o.tp, err)
		}
	}
	if err := o.track(ctx, start, text, first, reason, from); err != nil {
		o.member.committer.Close(o.claim.Context(), o.tracker)
		return 0, err
	}
	o.prevTopicID, o.prevPartitions = o.topicID, o.member.catalog.count(o.tp.Topic)
	if start, err = o.seek(ctx, start); err != nil {
		o.member.committer.Close(o.claim.Context(), o.tracker)
	}
	return start, err
}

// fence has the user fence off the partition's former owners. What they have committed until then is read next.
func (o *opening) fence(ctx context.Context) error {
	switch {
	case !o.isFenced():
		return nil
	case ctx.Err() != nil: // the next owner may have fenced
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
		return fmt.Errorf("consumer: %w %s: %w", errFence, o.tp, err)
	}
	if !o.claim.Trusted() {
		return errUntrusted // it took long
	}
	return nil
}

// describe asks Kafka for the topic, not long after the last time, and returns ErrTopicMissing if Kafka does not have it. All
// partitions of a missing topic wait together, so they ask less often.
func (o *opening) describe(ctx context.Context) error {
	o.member.catalog.own(o.tp.Topic)
	age := time.Second
	if o.member.catalog.isMissing(o.tp.Topic) {
		age = maxOpenBackoff
	}
	err := o.member.catalog.refresh(ctx, age)
	if err == nil {
		o.member.group.log.OK(kindMetadata, "")
	} else if ctx.Err() == nil {
		o.member.group.log.FailedWarn(kindMetadata, "", err) // what is known is good enough
	}
	if o.member.catalog.isMissing(o.tp.Topic) {
		return fmt.Errorf("%w: %s", ErrTopicMissing, o.tp.Topic)
	}
	if err != nil && o.member.catalog.count(o.tp.Topic) == 0 {
		return err // nothing is known
	}
	return nil
}

// firstPartitions returns how many partitions the topic had when the group first started on it: as
// what is stored says, and as many as there are now if nothing says so. Of a topic that was created again
// it returns no more than the old one had, so that those it has more are new. isNew says whether this
// partition was not among them, or the topic is one that patterns have found since this member joined. Only one without an
// offset may be new, and only when the policy is Latest it matters: then what is stored for the others is read.
func (o *opening) firstPartitions(ctx context.Context, found offsets.Stored, reason string) (first int32, isNew bool, err error) {
	ids := o.member.catalog.partitions()[o.tp.Topic]
	now := int32(len(ids)) //nolint:gosec // partitions have numbers of 32 bits
	switch {
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
	isNew = o.member.catalog.isNew(o.tp.Topic)
	first, err = o.member.reader.FirstPartitions(ctx, all, o.topicID)
	if first == 0 {
		return now, isNew, err
	}
	return first, isNew || o.tp.ID >= first, err
}

// isFenced returns whether the user fences off former owners and commits positions in transactions.
func (o *opening) isFenced() bool { return o.member.group.settings.Fence != nil }

// leavesAlone returns whether a start position is not committed: with Fence the user commits positions in transactions, which a
// commit that comes late would lower. A position that is none yet need not be committed if the same policy chooses the same again.
func (o *opening) leavesAlone(reason string) bool {
	return o.isFenced() && (reason == "" || o.member.from == Earliest)
}

// track opens the tracker at start and commits that.
func (o *opening) track(ctx context.Context, start int64, text string, firstPartitions int32, reason string, policy From) error {
	o.enter(atStart)
	open := o.member.committer.Open
	if o.leavesAlone(reason) {
		open = o.member.committer.OpenStored
	}
	o.tracker = open(o.tp, o.claim, o.topicID, start, text)
	o.tracker.SetFirstPartitions(firstPartitions)
	o.tracker.SetStartEpoch(o.epoch)
	return o.first(ctx, reason, policy)
}

// first commits the position that the partition starts at. A reason says that a policy has chosen it, which is counted and
// logged.
func (o *opening) first(ctx context.Context, reason string, policy From) error {
	if !o.leavesAlone(reason) {
		if err := o.member.committer.Commit(ctx, o.tracker); err != nil {
			return fmt.Errorf("start position: %w", err)
		}
	}
	if o.isFenced() {
		o.tracker.LeaveAlone()
	}
	if reason != "" {
		o.member.metrics.resets.WithLabelValues(labelOf(o.tp.Topic), reason).Inc()
		start, _, _ := o.tracker.Marked() // nothing is marked yet
		o.member.openLog.startsByPolicy(o.tp, start, reason, policy)
	}
	if reason == reasonRecreated {
		o.member.pass(fmt.Errorf("%w: its offsets do not count, starting at the first message", offsets.Recreated(o.tp.Topic)), o.tp)
	}
	return nil
}

// openSource opens the source at start. If Kafka does not have start it opens where
// the policy says, and if the log was truncated below start, where it was.
func (o *opening) openSource(ctx context.Context, start int64) (source, int64, error) {
	o.enter(atLeader)
	if o.cut != nil && o.cut.Diverges < start {
		return o.openElsewhere(ctx, start, o.cut.Diverges, reasonTruncated, o.cut)
	}
	s, err := o.member.fetcher.open(ctx, o.tp, start, o.epoch)
	if !errors.Is(err, sarama.ErrOffsetOutOfRange) {
		return s, start, err
	}
	why := err
	oldest, err := o.member.edge(ctx, o.tp, Earliest)
	if err != nil {
		return nil, 0, err
	}
	next := oldest
	if start > oldest && o.member.from == Latest {
		if next, err = o.member.edge(ctx, o.tp, Latest); err != nil {
			return nil, 0, err
		}
	}
	return o.openElsewhere(ctx, start, next, reasonOutOfRange, why)
}

// openElsewhere opens the source at next because of why, and reports that, if the
// configuration allows it.
func (o *opening) openElsewhere(ctx context.Context, start, next int64, reason string, why error) (source, int64, error) {
	if !o.member.resetInvalid {
		return nil, 0, fmt.Errorf("%w: %d: %w", ErrOffsetReset, start, why)
	}
	o.member.pass(fmt.Errorf("%w: %d, continuing at %d: %w", ErrOffsetReset, start, next, why), o.tp)
	o.tracker.Move(next)
	o.origin = fromReset
	if err := o.first(ctx, reason, o.member.from); err != nil {
		return nil, 0, err
	}
	s, err := o.member.fetcher.open(ctx, o.tp, next, -1)
	return s, next, err
}
