package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/status"
)

// runbooks is where the runbooks are.
const runbooks = "https://github.com/kielgo/kiel/blob/main/docs/operating.md#"

// recently is how long ago a member may have gone for a finding about it.
const recently = time.Hour

// find makes the findings.
func (l *look) find() {
	l.findSources()
	if l.report.ZooKeeper.State == OK {
		l.findTrees()
		l.findMembers()
		l.findDisagreements()
		l.findPartitions()
		l.findSaid()
	}
	l.findTopics()
	slices.SortStableFunc(l.report.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(b.Waiting, a.Waiting)) // "problem" is before "note"
	})
}

// add adds a finding about objects, which it cuts to the limits.
func (l *look) add(f Finding, objects ...string) {
	f.Severity = cmp.Or(f.Severity, Problem)
	f.Objects, f.More = []string{}, max(len(objects)-status.MaxListed, 0)
	for _, o := range objects[:len(objects)-f.More] {
		f.Objects = append(f.Objects, status.Shown(o))
	}
	if f.Runbook != "" {
		f.Runbook = runbooks + f.Runbook
	}
	l.report.Findings = append(l.report.Findings, f)
}

// command returns a command of kiel about the group, with its arguments.
func (l *look) command(name string, args ...string) string {
	words := []string{"kiel", name, quoted(l.group)}
	for _, a := range args {
		words = append(words, quoted(a))
	}
	return strings.Join(words, " ")
}

// quoted returns a word as a shell takes it.
func quoted(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/@%+=,"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// findSources finds sources that do not answer.
func (l *look) findSources() {
	r := l.report
	if r.ZooKeeper.State == Failed {
		l.add(Finding{
			Kind: ZooKeeperUnreachable, Waiting: -1, Since: &l.zkFailed, Runbook: "kielzookeeperunreachable",
			Text: "no quorum of ZooKeeper answers: no member can prove its session alive, so all stop within its timeout; " + r.ZooKeeper.Error,
			Do:   "ask each server for its state (echo srvr | nc HOST 2181); restarting members does not help",
		}, l.in.from.Servers...)
	} else {
		for _, s := range r.Servers {
			if !s.OK {
				l.add(Finding{
					Kind: ServerDown, Waiting: -1, Since: &r.At, Runbook: "kielzookeeperunreachable",
					Text: "this server of ZooKeeper does not serve: " + s.Error, Do: "look at its log; the group goes on while a quorum is left",
				}, s.Address)
			}
		}
	}
	if r.Kafka.State == Failed {
		l.add(Finding{
			Kind: KafkaUnreachable, Waiting: -1, Since: &r.At, Runbook: "kielkafkaunreachable",
			Text: "no broker of Kafka answers here: " + r.Kafka.Error,
			Do:   "look at Kafka; if members reach it (their log has no line with kind=kafka), at the network between here and Kafka",
		}, l.in.from.Brokers...)
	}
	if l.refused != nil {
		l.add(Finding{
			Kind: GroupRefused, Waiting: -1, Since: &r.At, Runbook: "security",
			Text: "Kafka does not show the group's offsets to this user, and nothing of them can be said; members of the same user can't consume",
			Do:   "grant READ on the group",
		}, l.group)
	}
}

// findTrees finds groups of the same name elsewhere, and ACLs that differ.
func (l *look) findTrees() {
	if l.noGroup != nil {
		l.add(Finding{
			Kind: NoGroup, Waiting: -1, Runbook: "kielmembersapart", Do: "look at the members' names of the group, of the chroot and of the servers, which must be the same",
			Text: "there is no group of this name under " + l.in.chroot() + ": no member has ever joined it here", Command: "kiel groups",
		}, l.group)
	}
	if len(l.siblings) > 0 {
		l.add(Finding{
			Kind: SiblingChroot, Waiting: -1, Runbook: "kielhandledtwice",
			Text: "a group of this name has members under another chroot too: if they consume the same Kafka, all messages are handled twice",
			Do:   "stop the members that are wrong, or give them another group; --zookeeper HOST:PORT" + l.siblings[0] + " shows them",
		}, l.siblings...)
	}
	if len(l.acls) > 0 {
		l.add(Finding{
			Kind: ACLsDiffer, Severity: Note, Waiting: -1, Runbook: "security",
			Text: "these znodes have another ACL than the group's znode: a member of another user may be refused",
		}, l.acls...)
	}
}

// findMembers finds a group without members, and members that went lately.
func (l *look) findMembers() {
	r := l.report
	if len(r.Members) == 0 && l.noGroup == nil {
		waiting, oldest := l.sum(func(Partition) bool { return true })
		l.add(Finding{
			Kind: NoMembers, Waiting: waiting, Since: oldest, Runbook: "kielgroupgone", Text: "the group has no members: nobody consumes",
			Do: "start members; if some run, their log says why they have not joined (topic, ACL, chroot, name)",
		}, l.group)
	}
	type went struct {
		left  bool
		since time.Time
		moved int
	}
	gone := map[string]*went{}
	for _, p := range r.Partitions {
		if p.Reason == nil || p.Since == nil || p.State == status.Free || r.At.Sub(*p.Since) > recently {
			continue
		}
		if p.Reason.Code != status.MemberGone && p.Reason.Code != status.MemberLeft || p.Previous == "" || !slices.Contains(p.Reason.Names, p.Previous) {
			continue
		}
		w := gone[p.Previous]
		if w == nil {
			w = &went{since: *p.Since}
			gone[p.Previous] = w
		}
		w.moved++
		w.left = w.left || p.Reason.Code == status.MemberLeft
		if p.Since.Before(w.since) {
			w.since = *p.Since
		}
	}
	for name, w := range gone {
		f := Finding{Kind: MemberWent, Severity: Note, Member: name, Since: &w.since, Waiting: 0}
		f.Text = fmt.Sprintf("left in order: %d of its partitions went to others", w.moved)
		if !w.left {
			f.Text = fmt.Sprintf("gone (did not leave, or the others saw it late): %d of its partitions were read again from their last commits, so its "+
				"last messages were handled twice", w.moved)
			f.Do = "read the end of its log: one that died ends in the middle"
		}
		l.add(f, name)
	}
}

// sum returns how many messages wait in the partitions that match, -1 if that is not known of any, and since when the first of them.
func (l *look) sum(match func(Partition) bool) (waiting int64, oldest *time.Time) {
	waiting = -1
	for _, p := range l.report.Partitions {
		if p.Kafka == nil || p.Kafka.Waiting < 0 || !match(p) {
			continue
		}
		waiting = max(waiting, 0) + p.Kafka.Waiting
		if at := p.Kafka.Oldest; at != nil && (oldest == nil || at.Before(*oldest)) {
			oldest = at
		}
	}
	return waiting, oldest
}

// findTopics finds topics that Kafka refuses or does not have.
func (l *look) findTopics() {
	for name, info := range l.known {
		if name == offsetsTopic || info.Err == nil {
			continue
		}
		f := Finding{Kind: TopicMissing, Waiting: -1, Since: &l.report.At, Text: "Kafka: " + shown(info.Err), Do: "create it, or correct the members' topics"}
		if info.Err == sarama.ErrTopicAuthorizationFailed { //nolint:errorlint // Infos sets the code itself
			f.Kind, f.Runbook = TopicRefused, "security"
			f.Text = "Kafka refuses the topic to this user; members of the same user get no message of it"
			f.Do = "grant READ on the topic"
		}
		l.add(f, name)
	}
}

// byMember is a finding about partitions of one member.
type byMember struct {
	kind   Kind
	member string
}

// findPartitions finds partitions that nobody owns, that stand still, and that fall behind.
func (l *look) findPartitions() {
	groups := map[byMember][]Partition{}
	unknown, why := []string{}, ""
	for _, p := range l.report.Partitions {
		if l.unknown(p) {
			unknown, why = append(unknown, id(p).String()), cmp.Or(why, p.Kafka.Error, "no leader answers")
		}
		if kind := l.judge(p); kind != "" {
			groups[byMember{kind, p.Owner}] = append(groups[byMember{kind, p.Owner}], p)
		}
	}
	for key, ps := range groups {
		l.addPartitions(key, ps)
	}
	if len(unknown) > 0 {
		l.add(Finding{
			Kind: OffsetsUnknown, Waiting: -1, Runbook: "kielkafkaunreachable", Text: "Kafka does not say how far it is, so nothing can be said of it: " + why,
			Do: "look whether the partition has a leader, and whether this user may see its offsets",
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
	case p.State == status.Free && l.same(p) && l.claimed(p.Topic):
		return NoOwner
	case p.Kafka == nil || p.State != status.Owned || l.before != nil && !l.same(p): // a new owner has just begun
		return ""
	case p.Kafka.Tree != "" && l.report.Tree != "" && p.Kafka.Tree != l.report.Tree:
		return OtherTree
	case p.Token > 0 && p.Kafka.Token > p.Token && p.Kafka.Tree == l.report.Tree && (l.before == nil || l.before.stored[id(p)].Token > p.Token):
		return NewerOwner
	case l.before == nil:
		return ""
	}
	b, o := l.before, p.Kafka
	was := b.waiting(id(p))
	switch {
	case was > 0 && o.Moved == 0 && o.Written > 0:
		return StandsStill
	case was > 0 && o.Moved >= 0 && o.Moved < o.Written && o.Oldest != nil && l.older(id(p), *o.Oldest):
		return FallsBehind
	default:
		return ""
	}
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

// claimed returns whether members claim the partitions of a topic: all members have records, and one asks for it. Python's claim nothing.
func (l *look) claimed(topic string) bool {
	for _, m := range l.report.Members {
		if len(m.Functions) == 0 {
			return false
		}
	}
	unwanted := func(d status.Disagreement) bool {
		return d.Kind == status.TopicNobodyAsks && slices.Contains(d.Names, topic) || d.Kind == status.NoCommonFunction
	}
	return len(l.report.Members) > 0 && !slices.ContainsFunc(l.report.Disagreements, unwanted)
}
