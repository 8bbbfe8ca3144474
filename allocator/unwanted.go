package allocator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kielgo/kiel"
)

// askedTopics returns the topics that members ask for, sorted. It returns nil if the partitions of all topics are to be divided:
// a member asks for all topics or has no record, or there are no members.
func askedTopics(members []member) []string {
	asked := make(map[string]bool)
	for i := range members {
		topics := members[i].Topics
		if len(topics) == 0 {
			return nil
		}
		if i > 0 && sameTopics(topics, members[i-1].Topics) {
			continue
		}
		for _, topic := range topics {
			asked[topic] = true
		}
	}
	if len(asked) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(asked))
}

// sameTopics reports whether two lists, which must not be empty, are equal. Members with equal records share a list.
func sameTopics(a, b []string) bool { return &a[0] == &b[0] && len(a) == len(b) || slices.Equal(a, b) }

// otherTopics returns the topics of partitions that are not among the asked ones, sorted; none if asked is nil.
func otherTopics(partitions []kiel.Partition, asked []string) (others []string) {
	if asked == nil {
		return nil
	}
	for i, p := range partitions { // partitions of one topic follow each other
		if i > 0 && p.Topic == partitions[i-1].Topic {
			continue
		}
		if _, found := slices.BinarySearch(asked, p.Topic); !found {
			others = append(others, p.Topic)
		}
	}
	slices.Sort(others)
	return others
}

// leaveOutUnwanted sets the topics that no member asks for, and the partitions to divide: those that the set would have without
// the items of these topics.
func (in *inputs) leaveOutUnwanted() {
	in.unwanted = otherTopics(in.partitions, in.topics)
	in.wanted, in.wantedPlaces = in.partitions, in.places
	if len(in.unwanted) == 0 {
		return
	}
	var wanted []string
	for _, item := range in.items {
		topic, _, _ := strings.Cut(item, ":")
		if _, found := slices.BinarySearch(in.unwanted, topic); !found {
			wanted = append(wanted, item)
		}
	}
	in.wanted, in.wantedPlaces, _ = kiel.ParsePartitions(wanted)
}

// reportUnwanted reports the topics in unwanted, which are sorted, that were not unwanted at the mapping before.
func (l *loop) reportUnwanted(unwanted []string) {
	topics := missing(unwanted, l.unwanted)
	l.unwanted = unwanted
	if len(unwanted) == 0 {
		l.errs.OK(kindUnwanted, "")
	}
	if len(topics) == 0 {
		return
	}
	for i, topic := range topics {
		topics[i] = fmt.Sprintf("%.120q", topic)
	}
	err := failed("", "", fmt.Errorf("%w: %s; RemoveTopic removes a topic from the set", ErrUnwantedTopic, names(topics)))
	l.errs.FailedWarn(kindUnwanted, "", err)
	l.delivery.error(err)
}
