package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/status"
)

// advice is what a kind of disagreement means for people.
type advice struct {
	severity Severity
	do       string
	runbook  string
}

// adviceOn returns the advice on a kind of disagreement.
func adviceOn(kind status.DisagreementKind) advice {
	switch kind {
	case status.PersistentClaim:
		return advice{Problem, "find out who made it, and that nobody consumes because of it; then delete it", "kielpersistentclaim"}
	case status.OrphanClaim, status.UnreadableClaim:
		return advice{Problem, "find the process of the session (cons of the servers) and end it", "kielforeignclaim"}
	case status.StrayClaim:
		return advice{Note, "nothing: the claim goes with its owner's session", ""}
	case status.UnwantedTopic:
		return advice{Problem, "start members that ask for the topic, or remove it from the group", "kielunwantedtopic"}
	case status.NoCommonFunction:
		return advice{Problem, "finish the deploy, or give both functions to all members (AlsoFuncs)", "kielmembersdisagree"}
	case status.PersistentMember:
		return advice{Problem, "find out who made the znode, and that nobody consumes because of it; then delete it", "kielpersistentmember"}
	case status.TopicsIgnored:
		return advice{Note, "nothing, if members in Python belong to the group", ""}
	default:
		return advice{Problem, "see the runbook", "kielmembersdisagree"}
	}
}

// findDisagreements makes findings of disagreements. Those about claims have one for each partition, because each has its own
// command.
func (l *look) findDisagreements() {
	for _, d := range l.report.Disagreements {
		a := adviceOn(d.Kind)
		f := Finding{Kind: Kind(d.Kind), Severity: a.severity, Text: d.Text, Waiting: -1, Do: a.do, Runbook: a.runbook}
		if d.Kind == status.PersistentClaim || d.Kind == status.OrphanClaim || d.Kind == status.UnreadableClaim {
			l.findClaims(d, f)
			continue
		}
		switch d.Kind {
		case status.UnwantedTopic:
			var oldest *time.Time
			f.Waiting, oldest = l.sum(func(p Partition) bool { return slices.Contains(d.Names, p.Topic) })
			f.Since = cmp.Or(l.began(nil, "unwanted-topic"), oldest)
			if len(d.Names) > 0 {
				f.Command = l.command("remove-topic", d.Names[0])
			}
		case status.NoCommonFunction:
			f.Waiting, _ = l.sum(func(p Partition) bool { return p.State == status.Free })
			f.Since = cmp.Or(l.began(nil, "allocation"), l.joined(d.Names))
			f.Text = l.mismatch(d.Names)
			f.Command = l.commandWith("describe", slices.Concat([]string{"--section", "members"}, l.flags))
		case status.PersistentMember, status.UnreadableRecord, status.OtherCluster:
			f.Since = l.joined(d.Names)
		default:
		}
		l.add(f, d.Names...)
		l.report.Findings[len(l.report.Findings)-1].More += d.More
	}
}

// mismatch says which functions members run that can't run those of the others.
func (l *look) mismatch(names []string) string {
	functions := func(match func(string) bool) string {
		var all []string
		for _, m := range l.report.Members {
			if match(m.Name) {
				all = append(all, cmp.Or(strings.Join(m.Functions, ","), "roundrobin/1"))
			}
		}
		slices.Sort(all)
		return few(slices.Compact(all))
	}
	these := func(name string) bool { return slices.Contains(names, name) }
	return fmt.Sprintf("can run %s, the others %s: there is no function that all can run, so no new mapping is applied. New members get nothing, and "+
		"partitions of members that go have no owner", functions(these), functions(func(name string) bool { return !these(name) }))
}

// orphaned returns since when the owner of a claim is no member: since it was missed or, if it has joined again in another
// session, since then.
func (l *look) orphaned(p Partition) *time.Time {
	if at := l.joined([]string{p.Owner}); at != nil {
		return at
	}
	return l.missedSince(p.Owner)
}

// joined returns when the first of these members joined.
func (l *look) joined(names []string) (at *time.Time) {
	for _, m := range l.report.Members {
		if m.Since != nil && slices.Contains(names, m.Name) && (at == nil || m.Since.Before(*at)) {
			at = m.Since
		}
	}
	return at
}

// maxClaimFindings bounds how many findings of one kind are about one partition each.
const maxClaimFindings = 100

// findClaims finds what is in claims' places and no claim. Persistent znodes are found by the partitions: a disagreement lists a
// few.
func (l *look) findClaims(d status.Disagreement, f Finding) {
	var found []Partition
	for _, p := range l.report.Partitions {
		if d.Kind == status.PersistentClaim && p.State == status.Blocked || d.Kind != status.PersistentClaim && slices.Contains(d.Names, id(p).String()) {
			found = append(found, p)
		}
	}
	for i, p := range found[:min(len(found), maxClaimFindings)] {
		one, name := f, id(p).String()
		l.told[id(p)] = true
		one.Since, one.Command = p.Since, l.command("release", name)
		switch {
		case d.Kind == status.PersistentClaim:
			one.Text = "a znode without a session is in the claim's place, so nobody can own the partition"
		case d.Kind == status.UnreadableClaim:
			one.Text = "a znode that is no member's is in the claim's place, so nobody can own the partition"
		case l.same(p):
			one.Since = l.orphaned(p)
			one.Text = fmt.Sprintf("its owner %q is no member (any more): members that leave finish their work so, for RebalanceTimeout at most", p.Owner)
			one.Do = "if it lasts longer, " + f.Do
		default:
			one.Severity, one.Do = Note, "nothing, unless it lasts"
			one.Text = fmt.Sprintf("its owner %q is no member at this moment: it leaves or joins", p.Owner)
		}
		if p.Kafka != nil {
			one.Waiting = p.Kafka.Waiting
		}
		l.add(one, name)
		if i == min(len(found), maxClaimFindings)-1 { // the others
			l.report.Findings[len(l.report.Findings)-1].More = len(found) - i - 1
		}
	}
}
