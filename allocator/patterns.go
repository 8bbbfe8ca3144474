package allocator

import (
	"fmt"
	"slices"

	"github.com/kielgo/kiel/internal/topiclist"
)

// noTopic is the only topic of a member whose patterns find none, because an empty list of topics asks for all. No item of a set
// has such a topic.
const noTopic = ":"

// found has the topics that a list with patterns asks for. It never changes.
type found struct {
	topics []string // the topics that the list names, and those that its patterns find in the set; sorted, never empty
	finds  []bool   // for each topic of the set, whether a pattern finds it
}

// listCache has parsed lists of topics with patterns.
type listCache struct {
	known map[*topiclist.List]found  // the lists that were known when the job began
	lists map[string]*topiclist.List // all lists, by their entries
}

// parse parses a list of topics. Members with the same patterns get the same list, which is parsed once.
func (c *listCache) parse(topics []string) (*topiclist.List, error) {
	if !topiclist.HasPatterns(topics) {
		return topiclist.Parse(topics)
	}
	if c.lists == nil {
		c.lists = make(map[string]*topiclist.List, len(c.known))
		for list := range c.known {
			c.lists[fmt.Sprintf("%q", list.Entries)] = list
		}
	}
	key := fmt.Sprintf("%q", slices.Compact(slices.Sorted(slices.Values(topics))))
	if list := c.lists[key]; list != nil {
		return list, nil
	}
	list, err := topiclist.Parse(topics)
	if err == nil {
		c.lists[key] = list
	}
	return list, err
}

// findTopics sets the Topics of members whose records have patterns to those that the patterns find in the set, and reports
// whether there are such members. It does not match a topic and a list again that known has. same says that members and set are
// those of known.
func (in *inputs) findTopics(known *inputs, same bool) bool {
	if same {
		return len(in.found) > 0
	}
	in.setTopics, in.found = nil, nil
	for i := range in.read {
		list := in.read[i].patterns()
		if list == nil {
			continue
		}
		if in.found == nil {
			in.setTopics, in.found = topicsOf(in), map[*topiclist.List]found{}
		}
		f, ok := in.found[list]
		if !ok {
			f = find(list, in.setTopics, known.setTopics, known.found[list].finds)
			in.found[list] = f
		}
		in.read[i].Topics = f.topics
	}
	return len(in.found) > 0
}

// topicsOf returns the topics of the set, sorted.
func topicsOf(in *inputs) (topics []string) {
	for i, p := range in.partitions { // partitions of one topic follow each other
		if i == 0 || p.Topic != in.partitions[i-1].Topic {
			topics = append(topics, p.Topic)
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// find returns the topics that a list asks for. before are sorted topics of which finds says whether a pattern finds them.
func find(list *topiclist.List, topics, before []string, finds []bool) found {
	f := found{topics: slices.Clone(list.Names), finds: make([]bool, len(topics))}
	for i, topic := range topics {
		if at, ok := slices.BinarySearch(before, topic); ok && at < len(finds) {
			f.finds[i] = finds[at]
		} else {
			f.finds[i] = list.Finds(topic)
		}
		if f.finds[i] {
			f.topics = append(f.topics, topic)
		}
	}
	slices.Sort(f.topics)
	f.topics = slices.Compact(f.topics)
	if len(f.topics) == 0 {
		f.topics = []string{noTopic}
	}
	return f
}
