package allocator

import (
	"fmt"
	"slices"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/status"
)

// disagreementKinds returns the kinds of disagreements that a member can see. The others are about claims.
func disagreementKinds() []status.DisagreementKind {
	return []status.DisagreementKind{
		status.NoCommonFunction, status.UnwantedTopic, status.TopicsIgnored, status.UnreadableRecord, status.PersistentMember, status.OtherCluster,
		status.OddItem, status.UnreadableSet, status.UnreadableZones,
	}
}

// disagreements returns what keeps the members from acting as one, as far as members' records and the set show it.
func disagreements(in *inputs) []status.Disagreement {
	all := []status.Disagreement{}
	about := func(kind status.DisagreementKind, text string, names []string) {
		if len(names) > 0 {
			all = append(all, statuswrite.Disagreement(kind, text, names...))
		}
	}
	about(status.NoCommonFunction, "These members can't run the allocation function that the first member prefers, and no other one is common "+
		"to all, so no new mapping is applied. Give all members one function more, by AlsoFuncs.", in.withoutCommonFunction())
	about(status.UnwantedTopic, "No member asks for these topics, so nobody owns their partitions. "+
		"RemoveTopic removes a topic that is not needed any more.", in.unwanted)
	about(status.TopicsIgnored, "These members have no record that can be read, as members of Python kiel. While they are in the group all "+
		"topics are divided among all members, and a partition may be planned for a member that does not ask for its topic.", in.ignoringTopics())
	about(status.UnreadableRecord, "The records of these members can't be read, so they count as members without one.",
		in.names(func(_ *party.Member, m *member) bool { return m.fault != nil }))
	about(status.PersistentMember, "No session owns the znodes of these members: they stay, and get partitions, until somebody deletes them.",
		in.names(func(p *party.Member, _ *member) bool { return p.Czxid != 0 && p.Session == 0 }))
	if first, others := in.otherClusters(); first != "" {
		about(status.OtherCluster, fmt.Sprintf("These members consume another Kafka cluster than member %q, the oldest that names one. A member of this "+
			"version leaves by itself. Stop them, or give them another group.", statuswrite.Name(first)), others)
	}
	about(status.OddItem, "These items of the set are no partitions, or name one a second time, and belong to nobody. "+
		"Members of Python kiel may fail on them. Remove them from the set.", in.odd)
	return all
}

// names returns the names of the members that match.
func (in *inputs) names(match func(p *party.Member, m *member) bool) (names []string) {
	for i := range in.members {
		if match(&in.members[i], &in.read[i]) {
			names = append(names, in.members[i].Name)
		}
	}
	return names
}

// withoutCommonFunction returns the members that can't run the function that the first member prefers, if no function is common
// to all.
func (in *inputs) withoutCommonFunction() []string {
	if len(in.read) == 0 {
		return nil
	}
	if _, ok := commonFunc(in.read); ok {
		return nil
	}
	preferred := in.read[0].runs[0]
	return in.names(func(_ *party.Member, m *member) bool { return !slices.Contains(m.runs, preferred) })
}

// ignoringTopics returns the members without a record, if another member does not ask for all topics.
func (in *inputs) ignoringTopics() []string {
	if !slices.ContainsFunc(in.read, func(m member) bool { return len(m.asksFor()) > 0 }) {
		return nil
	}
	return in.names(func(_ *party.Member, m *member) bool { return !m.recorded() })
}

// unreadableSet returns the disagreement about a set that can't be read.
func unreadableSet(err error) status.Disagreement {
	return statuswrite.Disagreement(status.UnreadableSet, "The set can't be read, and is not written. Its last good partitions stay, "+
		"and new members get none. Repair or delete the znode. "+statuswrite.Text(operr.Text(err)))
}

// unreadableZones returns the disagreement about zones that can't be read.
func unreadableZones(err error) status.Disagreement {
	return statuswrite.Disagreement(status.UnreadableZones, "The zones can't be read, so partitions count as having none. Repair or delete the "+
		"znode. "+statuswrite.Text(operr.Text(err)))
}
