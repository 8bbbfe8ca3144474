package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/status"
)

// byMember is a finding about partitions of one member.
type byMember struct {
	kind   Kind
	member string
	none   bool // no offset is stored that counts: such partitions have a text of their own
}

// findPartitions finds partitions that nobody owns, that stand still, that fall behind, and of which that is not known.
func (l *look) findPartitions() {
	groups := map[byMember][]Partition{}
	unknown, why := []string{}, ""
	for i, p := range l.report.Partitions {
		if l.unknown(p) {
			unknown, why = append(unknown, id(p).String()), cmp.Or(why, p.Kafka.Error, "no leader answers")
		}
		if kind := l.judge(p); kind != "" {
			l.report.Partitions[i].Fault = kind
			key := byMember{kind, cmp.Or(p.Owner, p.Planned), p.Kafka != nil && (p.Kafka.Committed < 0 || p.Kafka.otherTopic)}
			if kind == OtherTree {
				key = byMember{kind: kind} // one finding of all members
			}
			groups[key] = append(groups[key], p)
		}
	}
	for key, ps := range groups {
		l.addPartitions(key, ps)
	}
	if len(unknown) > 0 {
		l.add(Finding{
			Kind: OffsetsUnknown, Waiting: -1, Runbook: "kielkafkaunreachable", Text: "Kafka does not say how far it is, so nothing can be said of it: " + why,
			Since: l.began(func(about string) bool { return slices.Contains(unknown, about) }, kafkaKinds()...),
			Do:    "look whether the partition has a leader, and whether this user may see its offsets",
		}, unknown...)
	}
}

// unknown returns whether Kafka has answered, but not about this partition, at all looks.
func (l *look) unknown(p Partition) bool {
	if p.Kafka == nil || l.refused != nil || p.Kafka.Error == "" && p.Kafka.End >= 0 {
		return false
	}
	if l.before == nil {
		return true
	}
	end, ok := l.before.ends[id(p)]
	return !ok || end.err != nil || l.before.stored[id(p)].Err != nil
}

// judge returns which kind of finding a partition is, "" for none.
func (l *look) judge(p Partition) Kind {
	switch {
	case p.State == status.Free && l.same(p) && l.claimed(p):
		return NoOwner
	case p.State == status.Free && l.python(p.Planned) && l.waits(p) && p.Kafka.Moved == 0:
		return ProgressUnknown
	case p.Kafka == nil || p.State != status.Owned || l.before != nil && !l.same(p): // a new owner has just begun
		return ""
	case p.Kafka.Tree != "" && l.report.Tree != "" && p.Kafka.Tree != l.report.Tree:
		return OtherTree
	case p.Token > 0 && p.Kafka.Token > p.Token && p.Kafka.Tree == l.report.Tree && (l.before == nil || l.before.stored[id(p)].Token > p.Token):
		return NewerOwner
	case l.astray(p):
		return OffsetAstray
	case l.neverCommitted(p) && !l.told[id(p)]:
		return ProgressUnknown
	case !l.waits(p) || l.told[id(p)]:
		return ""
	}
	o := p.Kafka
	switch {
	case o.Moved == 0 && o.Written > 0:
		return StandsStill
	case o.Moved >= 0 && o.Moved < o.Written && o.Oldest != nil && l.older(id(p), *o.Oldest):
		return FallsBehind
	case o.Moved == 0 && p.Offsets == nil:
		return ProgressUnknown
	default:
		return ""
	}
}

// astray returns whether the stored offset was no place in the partition's log at both looks: it is beyond the end, or that of a
// topic of this name that was deleted.
func (l *look) astray(p Partition) bool {
	if l.before == nil || p.Kafka.Committed < 0 || p.Kafka.End < 0 {
		return false
	}
	was, end := l.before.stored[id(p)], l.before.ends[id(p)]
	if was.Err != nil || end.err != nil || was.Offset != p.Kafka.Committed {
		return false
	}
	return p.Kafka.otherTopic && p.Kafka.End > 0 || p.Kafka.Committed > p.Kafka.End && was.Offset > end.offset && end.offset >= 0
}

// neverCommitted returns whether there are messages and no stored offset at both looks, though a member stores the one at which
// it starts. It may be one whose program keeps offsets itself: then the member says, if it answers, that none is uncommitted.
func (l *look) neverCommitted(p Partition) bool {
	if l.before == nil || l.refused != nil || p.Kafka.Committed >= 0 || p.Kafka.Error != "" || p.Kafka.End <= 0 {
		return false
	}
	was, ok := l.before.stored[id(p)]
	return ok && was.Err == nil && was.Offset < 0 && (p.Offsets == nil || p.Offsets.Uncommitted > 0)
}

// waits returns whether messages waited at the first of two looks, and how far the partition has come is known at both.
func (l *look) waits(p Partition) bool {
	return l.before != nil && p.Kafka != nil && l.before.waiting(id(p)) > 0 && p.Kafka.Waiting >= 0
}

// python returns whether a member has no record, as those in Python.
func (l *look) python(member string) bool {
	return slices.ContainsFunc(l.report.Members, func(m status.Member) bool { return m.Name == member && len(m.Functions) == 0 })
}

// older returns whether the oldest waiting message was older than the window at both looks, and older at the second.
func (l *look) older(p kiel.Partition, now time.Time) bool {
	was, ok := l.before.times[p]
	if !ok {
		return false
	}
	first, second := l.before.at.Sub(was), l.before.at.Add(l.opts.Window).Sub(now)
	return first > l.opts.Window && second > first
}

// claimed returns whether a partition is to be claimed: a member asks for its topic, there is a mapping, and the member that has
// it there is none in Python. Those claim nothing. If the mapping is not known here, there must be none in Python at all.
func (l *look) claimed(p Partition) bool {
	unwanted := func(d status.Disagreement) bool {
		return d.Kind == status.UnwantedTopic && slices.Contains(d.Names, p.Topic) || d.Kind == status.NoCommonFunction
	}
	if len(l.report.Members) == 0 || slices.ContainsFunc(l.report.Disagreements, unwanted) {
		return false
	}
	if p.Planned != "" {
		return !l.python(p.Planned)
	}
	return !slices.ContainsFunc(l.report.Members, func(m status.Member) bool { return len(m.Functions) == 0 })
}

// addPartitions adds a finding about partitions that have the same fault with the same member.
func (l *look) addPartitions(key byMember, ps []Partition) {
	f := Finding{Kind: key.kind, Member: key.member, Waiting: -1, Command: l.command("why", id(ps[0]).String())}
	for _, p := range ps {
		if p.Kafka == nil {
			continue
		}
		if p.Kafka.Waiting >= 0 {
			f.Waiting = max(f.Waiting, 0) + p.Kafka.Waiting
		}
		if at := l.since(key.kind, p); at != nil && (f.Since == nil || at.Before(*f.Since)) {
			f.Since = at
		}
	}
	l.say(&f, ps)
	objects := make([]string, len(ps))
	for i, p := range ps {
		objects[i] = id(p).String()
	}
	l.add(f, objects...)
}

// say says what a finding about partitions means, and what to do.
func (l *look) say(f *Finding, ps []Partition) {
	first := ps[0]
	switch f.Kind {
	case StandsStill:
		f.Text = fmt.Sprintf("stands still in %s at offset %d", f.Member, first.Kafka.Committed) + l.hints(f.Member, ps) + l.refusal(f.Member)
		f.Do = "keep a goroutine dump of " + f.Member + " and the end of its log (kind=handler: its handler fails), then restart it"
		f.Runbook = "kielhandlerstuck"
		if l.silent(f.Member) {
			f.Do = "see whether its process runs, and whether it is stopped. One that is gone needs nothing: when its session ends, others go on"
		}
	case FallsBehind:
		f.Text = fmt.Sprintf("falls behind in %s: %d of %d new messages were committed in %.0f s", f.Member, moved(ps), written(ps), l.opts.Window.Seconds())
		f.Do, f.Runbook = "look for what the handler waits for; more members help if a member has several partitions", "kielfallingbehind"
	case ProgressUnknown:
		f.Severity = Note
		f.Text = fmt.Sprintf("messages wait, none was committed and none written in %.0f s: whether %s goes on is not known, it does not say (StatusAddr)",
			l.opts.Window.Seconds(), f.Member)
		if first.State == status.Free {
			f.Text = fmt.Sprintf("messages wait, and none was committed in %.0f s: whether %s goes on is not known, members in Python do not say",
				l.opts.Window.Seconds(), f.Member)
		}
		f.Do, f.Runbook = "look again for longer: what stays the same is stuck", "kielhandlerstuck"
		f.Command = l.commandWith("doctor", slices.Concat([]string{"--window", "2m"}, l.flags))
		if first.State == status.Owned && first.Kafka.Committed < 0 {
			f.Text = "no offset is stored, though there are messages: " + f.Member + " can't commit, or its program keeps offsets itself" + l.refusal(f.Member)
			f.Do, f.Runbook = "look for kind=commit in the log of "+f.Member, "kielcommitsstalled"
		}
	case OffsetAstray:
		f.Text = fmt.Sprintf("the stored offset %d is beyond the log's end %d: %s gets no message until the log has grown to it", first.Kafka.Committed, first.Kafka.End, f.Member)
		if first.Kafka.otherTopic {
			f.Text = fmt.Sprintf("the stored offset %d is of a topic of this name that was deleted, and %s has committed none since", first.Kafka.Committed, f.Member)
		}
		f.Do, f.Runbook = "look at the log of "+f.Member+"; if it does not go on, stop the members and reset the offset (kiel offsets reset)", "kielhandlerstuck"
	case NoOwner:
		l.sayUnowned(f, first)
	case OtherTree:
		f.Text = fmt.Sprintf("owned by %s, but members of another ZooKeeper tree (%s) have committed its offset: they consume it too, so all is handled twice",
			few(owners(ps)), first.Kafka.Tree)
		f.Do, f.Runbook = "stop the members of the other tree, or give them another group", "kielhandledtwice"
		f.Since = l.began(nil, "shared")
		if len(l.siblings) > 0 {
			f.Since = cmp.Or(f.Since, l.besideSince())
			f.Command = l.commandIn(l.siblings[0].chroot, "describe")
		}
	case NewerOwner:
		f.Text = fmt.Sprintf("its offset was committed with token %d, which is newer than that of the owner %s", first.Kafka.Token, f.Member)
		f.Do, f.Runbook = "wait for a session timeout; if it does not end, restart "+f.Member, "kielhandledtwice"
		f.Since = l.began(nil, "shared")
	default:
	}
}

// sayUnowned says what it means that a member has not claimed partitions, of which first is one.
func (l *look) sayUnowned(f *Finding, first Partition) {
	f.Since = cmp.Or(l.began(func(about string) bool { return about == id(first).String() }, claimKinds()...), f.Since)
	f.Text, f.Runbook = "no member has claimed it", "kielpartitionwithoutowner"
	f.Do = "look at the logs of the members; restart the one that is to own it"
	if f.Member != "" {
		f.Text += ", it is planned for " + f.Member
		f.Do = "look at the log of " + f.Member + "; restart it"
	}
	ignored := slices.ContainsFunc(l.report.Disagreements, func(d status.Disagreement) bool { return d.Kind == status.TopicsIgnored })
	if ignored && !slices.Contains(l.askFor(first.Topic), f.Member) {
		f.Text += ", which does not ask for the topic: beside members without a record, as those in Python, all topics are divided among all"
		f.Do = "stop the members in Python, or have all members ask for the same topics"
	}
	if first.WaitsFor != "" {
		f.Text += "; it waits for " + first.WaitsFor
	}
}

// owners returns who owns partitions.
func owners(ps []Partition) (names []string) {
	for _, p := range ps {
		names = append(names, p.Owner)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// hints returns what else is known of partitions that stand still.
func (l *look) hints(member string, ps []Partition) (text string) {
	if ps[0].WaitsFor != "" {
		text = ", waiting for " + ps[0].WaitsFor
	}
	all, silent := len(ps) > 1 && len(ps) == l.owned(member), l.silent(member)
	switch {
	case silent && all:
		return text + ", as do all its partitions, and it does not answer: the process is gone or stopped"
	case silent:
		return text + ", and does not answer"
	case all && ps[0].Offsets != nil:
		return text + ", as do all its partitions: its handlers wait for one thing"
	case all:
		return text + ", as do all its partitions: the process is stopped, cut off from Kafka, or its handlers wait for one thing"
	default:
		return text
	}
}

// silent returns whether a member was asked, and nothing has answered.
func (l *look) silent(member string) bool {
	return slices.ContainsFunc(l.report.Answers, func(a Answer) bool { return a.Member == member && a.State == Failed && a.Silent })
}

// refusal returns with what a member has answered that was not its status, "" if it has not.
func (l *look) refusal(member string) string {
	i := slices.IndexFunc(l.report.Answers, func(a Answer) bool { return a.Member == member && a.State == Failed && !a.Silent })
	switch {
	case i < 0 || l.report.Answers[i].Error == errLocal.Error() || l.report.Answers[i].Error == errFull.Error():
		return ""
	case l.report.Answers[i].Error == errAuth.Error():
		return "; it answers, but wants a login"
	default:
		return "; asked for its status, it answers: " + l.report.Answers[i].Error
	}
}

// since returns since when a partition does not go on: when its first waiting message was written, or its owner claimed it if
// that was later, or, if it stands still, when a Series has seen it go on last. Without a Series, one that has always lagged may
// have stopped later.
func (l *look) since(kind Kind, p Partition) *time.Time {
	at := p.Kafka.Oldest
	if at == nil {
		return nil
	}
	if p.State == status.Owned && p.Since != nil && p.Since.After(*at) {
		at = p.Since
	}
	if went, ok := l.went[id(p)]; ok && kind == StandsStill && went.After(*at) {
		at = &went
	}
	return at
}

// owned returns how many partitions a member owns.
func (l *look) owned(member string) int {
	i := slices.IndexFunc(l.report.Members, func(m status.Member) bool { return m.Name == member })
	if i < 0 || l.report.Members[i].Owned == nil {
		return 0
	}
	return *l.report.Members[i].Owned
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
