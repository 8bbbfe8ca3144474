package inspect

import (
	"fmt"
	"slices"
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
	case status.TopicNobodyAsks:
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

// findDisagreements makes findings of disagreements. Those about claims have one for each partition, because each has its own command.
func (l *look) findDisagreements() {
	for _, d := range l.report.Disagreements {
		a := adviceOn(d.Kind)
		f := Finding{Kind: Kind(d.Kind), Severity: a.severity, Text: d.Text, Waiting: -1, Do: a.do, Runbook: a.runbook}
		if d.Kind == status.PersistentClaim || d.Kind == status.OrphanClaim || d.Kind == status.UnreadableClaim {
			l.findClaims(d, f)
			continue
		}
		switch d.Kind {
		case status.TopicNobodyAsks:
			f.Waiting, f.Since = l.sum(func(p Partition) bool { return slices.Contains(d.Names, p.Topic) })
			if len(d.Names) > 0 {
				f.Command = l.command("remove-topic", d.Names[0])
			}
		case status.NoCommonFunction:
			f.Waiting, _ = l.sum(func(p Partition) bool { return p.State == status.Free })
			f.Since = l.joined(d.Names)
		case status.PersistentMember, status.UnreadableRecord, status.OtherCluster:
			f.Since = l.joined(d.Names)
		default:
		}
		l.add(f, d.Names...)
		l.report.Findings[len(l.report.Findings)-1].More += d.More
	}
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

// findClaims finds what is in claims' places and no claim. Persistent znodes are found by the partitions: a disagreement lists a few.
func (l *look) findClaims(d status.Disagreement, f Finding) {
	var found []Partition
	for _, p := range l.report.Partitions {
		if d.Kind == status.PersistentClaim && p.State == status.Blocked || d.Kind != status.PersistentClaim && slices.Contains(d.Names, id(p).String()) {
			found = append(found, p)
		}
	}
	for i, p := range found[:min(len(found), maxClaimFindings)] {
		one, name := f, id(p).String()
		one.Since, one.Command = p.Since, l.command("release", name)
		switch {
		case d.Kind == status.PersistentClaim:
			one.Text = "a znode without a session is in the claim's place, so nobody can own the partition"
		case d.Kind == status.UnreadableClaim:
			one.Text = "a znode that is no member's is in the claim's place, so nobody can own the partition"
		case l.same(p):
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

// addPartitions adds a finding about partitions that have the same fault with the same member.
func (l *look) addPartitions(key byMember, ps []Partition) {
	f := Finding{Kind: key.kind, Member: key.member, Waiting: -1}
	for _, p := range ps {
		if p.Kafka == nil {
			continue
		}
		if p.Kafka.Waiting >= 0 {
			f.Waiting = max(f.Waiting, 0) + p.Kafka.Waiting
		}
		if at := since(p); at != nil && (f.Since == nil || at.Before(*f.Since)) {
			f.Since = at
		}
	}
	switch key.kind {
	case StandsStill:
		f.Text = fmt.Sprintf("stands still in %s at offset %d", key.member, ps[0].Kafka.Committed)
		f.Do = "keep a goroutine dump of " + key.member + " and the end of its log (kind=handler: its handler fails), then restart it"
		f.Runbook = "kielhandlerstuck"
		if all := l.owned(key.member); len(ps) > 1 && len(ps) == all {
			f.Text += ", with all its partitions: the process is stopped, cut off from Kafka, or its handlers wait for one thing"
		}
		f.Command = l.command("why", id(ps[0]).String())
	case FallsBehind:
		f.Text = fmt.Sprintf("falls behind in %s: %d of %d new messages were committed in %.0f s", key.member, moved(ps), written(ps), l.opts.Window.Seconds())
		f.Do, f.Runbook = "look for what the handler waits for; more members help if a member has several partitions", "kielfallingbehind"
		f.Command = l.command("why", id(ps[0]).String())
	case NoOwner:
		f.Text = "no member has claimed it"
		f.Do, f.Runbook = "look at the log of the member that is to own it; restart that member", "kielpartitionwithoutowner"
		f.Command = l.command("why", id(ps[0]).String())
	case OtherTree:
		f.Text = fmt.Sprintf("owned by %s, but its offset was committed in another ZooKeeper tree (%s): members there consume it too, or did", key.member, ps[0].Kafka.Tree)
		f.Do, f.Runbook = "stop the members of the other tree, or give them another group", "kielhandledtwice"
		f.Command = l.command("why", id(ps[0]).String())
	case NewerOwner:
		f.Text = fmt.Sprintf("its offset was committed with token %d, which is newer than that of the owner %s", ps[0].Kafka.Token, key.member)
		f.Do, f.Runbook = "wait for a session timeout; if it does not end, restart "+key.member, "kielhandledtwice"
		f.Command = l.command("why", id(ps[0]).String())
	default:
	}
	objects := make([]string, len(ps))
	for i, p := range ps {
		objects[i] = id(p).String()
	}
	l.add(f, objects...)
}

// since returns since when a partition does not go on: when its first waiting message was written, or its owner claimed it if that was later.
func since(p Partition) *time.Time {
	at := p.Kafka.Oldest
	if at != nil && p.State == status.Owned && p.Since != nil && p.Since.After(*at) {
		return p.Since
	}
	return at
}

// owned returns how many partitions a member owns.
func (l *look) owned(member string) int {
	i := slices.IndexFunc(l.report.Members, func(m status.Member) bool { return m.Name == member })
	if i < 0 {
		return 0
	}
	return l.report.Members[i].Owned
}

func moved(ps []Partition) (n int64) {
	for _, p := range ps {
		n += p.Kafka.Moved
	}
	return n
}

func written(ps []Partition) (n int64) {
	for _, p := range ps {
		n += p.Kafka.Written
	}
	return n
}
