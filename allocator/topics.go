package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
)

// LackingPartitions returns those of the given partitions that the set, as read last, lacks; "t:01" in the set is partition 1 of
// t. It returns none while the set is not known: before Run has read it, while it can't be read, and while the session is not
// trusted. It does not block and sends nothing. The map and its slices are the caller's.
func (a *PartitionAllocator) LackingPartitions(partitions map[string][]int32) map[string][]int32 {
	lacking := map[string][]int32{}
	v := a.set.View()
	if v == nil || v.Err != nil || !v.Incarnation.Trusted() {
		return lacking
	}
	there := sync.OnceValue(func() map[kiel.Partition]bool { return partitionsOf(v.Items) })
	for topic, ids := range partitions {
		for _, id := range ids {
			p := kiel.Partition{Topic: topic, ID: id}
			if _, found := slices.BinarySearch(v.Items, p.String()); !found && !there()[p] {
				lacking[topic] = append(lacking[topic], id)
			}
		}
	}
	return lacking
}

// partitionsOf returns the partitions of items, however these are written.
func partitionsOf(items []string) map[kiel.Partition]bool {
	partitions, _, _ := kiel.ParsePartitions(items)
	all := make(map[kiel.Partition]bool, len(partitions))
	for _, p := range partitions {
		all[p] = true
	}
	return all
}

// RemoveTopic removes all partitions of a topic from the group's set, unless a member asks for the topic by its name. It needs
// the session to run, not the allocator, and blocks until the topic is removed or ctx ends.
//
// RemoveTopic returns [ErrTopicInUse], with the name of the member, while a member's record names the topic or asks for all
// topics, or a member has no readable record, as members of Python kiel. What such a member asks for is not known; if you know
// that it does not need the topic, use [PartitionAllocator.RemovePartitions]. RemoveTopic returns [ErrTopicNotInSet] if the set
// has no partition of the topic, and kiel.ErrInvalidName if the name is not allowed. Other errors are [ErrSetUnreadable],
// [ErrSetTooLarge] and those of the session; with session.ErrUncertain the topic may have been removed.
//
// Members that ask for the topic by pattern alone do not keep it from being removed. A consumer among them that finds the topic
// in Kafka adds it again at its next metadata refresh. So does a consumer that asks for the topic and joins meanwhile. What other
// programs write to the set meanwhile is kept.
func (a *PartitionAllocator) RemoveTopic(ctx context.Context, topic string) error {
	if err := kiel.CheckTopic(topic); err != nil {
		return failed("remove topic", "", err)
	}
	return a.seed.inTurn(ctx, "remove topic", topic, func() error { return a.removeTopic(ctx, topic) })
}

func (a *PartitionAllocator) removeTopic(ctx context.Context, topic string) error {
	if err := a.checkUnused(ctx, topic); err != nil {
		return err
	}
	ofTopic := func(item string) bool {
		p, err := kiel.ParsePartition(item)
		return err == nil && p.Topic == topic
	}
	n, err := a.set.RemoveFunc(ctx, ofTopic)
	if err != nil {
		return err
	}
	a.seed.removeFunc(ofTopic)
	if n == 0 {
		return ErrTopicNotInSet
	}
	return nil
}

// checkUnused returns an error if a member asks for the topic, or may. It reads the members anew.
func (a *PartitionAllocator) checkUnused(ctx context.Context, topic string) error {
	for {
		inc, err := a.session.Incarnation(ctx)
		if err != nil {
			return err
		}
		err = a.checkMembers(ctx, inc, topic)
		if !session.Retryable(err) || ctx.Err() != nil {
			return err
		}
	}
}

func (a *PartitionAllocator) checkMembers(ctx context.Context, inc *session.Incarnation, topic string) error {
	members, err := party.Read(ctx, inc, a.MembersPath())
	if err != nil && !errors.Is(err, session.ErrNoNode) {
		return err
	}
	for _, m := range members {
		if err := checkUser(m, topic); err != nil {
			return err
		}
	}
	return nil
}

// checkUser returns an error if the member asks for the topic by its name, or may.
func checkUser(m party.Member, topic string) error {
	if m.Err != nil && !errors.Is(m.Err, party.ErrRecordTooLarge) {
		return operr.New("", "read the record of member", fmt.Sprintf("%.120q", m.Name), m.Err)
	}
	r, ok, err := parseRecord(m.Data, topiclist.Parse)
	switch {
	case !ok:
		why := "has no record"
		if err != nil || m.Err != nil {
			why = "has a record that can't be understood"
		}
		return fmt.Errorf("%w: member %.120q %s, so it may ask for any topic; RemovePartitions removes what none of them needs",
			ErrTopicInUse, m.Name, why)
	case len(r.Topics) == 0:
		return fmt.Errorf("%w: member %.120q asks for all topics", ErrTopicInUse, m.Name)
	case slices.Contains(r.asks.Names, topic):
		return fmt.Errorf("%w: member %.120q asks for it", ErrTopicInUse, m.Name)
	default:
		return nil
	}
}
