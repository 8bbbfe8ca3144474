package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/status"
)

// runbooks is where the runbooks are.
const runbooks = "https://github.com/kielgo/kiel/blob/main/docs/operating.md#"

// recently is how long ago a member may have gone for a finding about it.
const recently = time.Hour

// find makes the findings.
func (l *look) find() {
	l.findSources()
	l.findTopics()
	if l.report.ZooKeeper.State == OK {
		l.findTrees()
		l.findMembers()
		l.findDisagreements()
		l.findHandlers()
		l.findPartitions()
		l.findTroubles() // last: it leaves out what the others have found
	}
	slices.SortStableFunc(l.report.Findings, func(a, b Finding) int {
		// "problem" is before "note".
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Kind, b.Kind), slices.Compare(a.Objects, b.Objects))
	})
}

// add adds a finding about objects, of which it lists a few.
func (l *look) add(f Finding, objects ...string) {
	f.Severity = cmp.Or(f.Severity, Problem)
	f.all = make([]string, len(objects))
	for i, o := range objects {
		f.all[i] = statuswrite.Name(o)
	}
	few := min(len(objects), statuswrite.MaxListed)
	f.Objects, f.More = f.all[:few:few], len(objects)-few
	if f.Runbook != "" {
		f.Runbook = runbooks + f.Runbook
	}
	l.report.Findings = append(l.report.Findings, f)
}

// command returns a command of kiel about the group, with its arguments and the flags that lead to its sources.
func (l *look) command(name string, args ...string) string {
	return l.commandWith(name, l.flags, args...)
}

// commandWith returns a command of kiel about the group, with these flags. Names that begin as flags do stand behind "--".
func (l *look) commandWith(name string, flags []string, args ...string) string {
	args = slices.Concat([]string{l.group}, args)
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-") }) {
		return words(slices.Concat([]string{"kiel", name}, flags, []string{"--"}, args))
	}
	return words(slices.Concat([]string{"kiel", name}, args, flags))
}

// commandIn returns a command of kiel about the group of this name in another chroot.
func (l *look) commandIn(chroot, name string) string {
	flags := slices.Clone(l.flags)
	at := strings.Join(l.in.from.Servers, ",") + chroot
	if i := slices.Index(flags, "--zookeeper"); i >= 0 && i+1 < len(flags) {
		flags[i+1] = at
	} else {
		flags = append(flags, "--zookeeper", at)
	}
	return l.commandWith(name, flags)
}

// words returns a command line.
func words(all []string) string {
	all = slices.Clone(all)
	for i := range all {
		all[i] = quoted(all[i])
	}
	return strings.Join(all, " ")
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
	switch {
	case l.denied:
		l.add(Finding{
			Kind: ZooKeeperRefused, Waiting: -1, Runbook: "security", Text: "ZooKeeper does not show the group to this user: " + r.ZooKeeper.Error,
			Do: "log in as the members do (--zookeeper-digest-file or --zookeeper-cert), or have them create znodes that others may read",
		}, l.group)
	case r.ZooKeeper.State == Failed:
		l.findQuorumLost()
	default:
		for _, s := range r.Servers {
			if !s.OK {
				l.add(Finding{
					Kind: ServerDown, Waiting: -1, Runbook: "kielzookeeperunreachable",
					Text: "this server of ZooKeeper does not serve: " + s.Error, Do: "look at its log; the group goes on while a quorum is left",
				}, s.Address)
			}
		}
	}
	if r.Kafka.State == Failed {
		l.findKafkaAway()
	}
	if l.refused != nil {
		l.add(Finding{
			Kind: GroupRefused, Waiting: -1, Since: l.began(nil, "commit", "offsets", "audit"), Runbook: "security",
			Text: "Kafka does not show the group's offsets to this user, and nothing of them can be said; members of the same user can't consume",
			Do:   "grant READ on the group to the members' user, DESCRIBE to this one",
		}, l.group)
	}
}

// findQuorumLost finds that ZooKeeper does not answer. What waits is read from Kafka.
func (l *look) findQuorumLost() {
	f := Finding{
		Kind: ZooKeeperUnreachable, Since: l.in.lastAnswer(), Runbook: "kielzookeeperunreachable",
		Text: "no quorum of ZooKeeper answers: no member can prove its session alive, so all stop within its timeout; " + l.report.ZooKeeper.Error,
		Do:   "ask each server for its state (echo srvr | nc HOST 2181) and start those that are down; restarting members does not help",
	}
	var oldest *time.Time
	f.Waiting, oldest = l.sum(func(Partition) bool { return true })
	if l.alone != nil {
		f.Waiting, oldest = l.alone.sum()
	}
	f.Since = cmp.Or(f.Since, oldest)
	l.add(f, l.in.from.Servers...)
}

// lastAnswer returns when ZooKeeper answered last, nil if it never did.
func (in *Inspector) lastAnswer() *time.Time {
	if in.zk == nil {
		return nil
	}
	at := in.zk.Stats().LastProof.UTC()
	if at.IsZero() {
		return nil
	}
	return &at
}

// findKafkaAway finds that Kafka does not answer here. Since when, and whether members reach it, they know alone.
func (l *look) findKafkaAway() {
	f := Finding{
		Kind: KafkaUnreachable, Waiting: -1, Runbook: "kielkafkaunreachable", Text: "no broker of Kafka answers here: " + l.report.Kafka.Error,
		Do: "look at Kafka. Members need nothing: they go on by themselves when it is back",
	}
	reach, away := 0, 0
	for _, g := range l.said {
		switch {
		case g == nil || g.Self.Kafka == nil:
		case g.Self.Kafka.Reachable:
			reach++
		default:
			away++
			if at := g.Self.Kafka.Since; at != nil && (f.Since == nil || at.Before(*f.Since)) {
				f.Since = at
			}
		}
	}
	switch {
	case reach > 0:
		f.Text += fmt.Sprintf("; %d of the %d members that answered reach it, and consume", reach, reach+away)
		f.Do = "look at the network between here and Kafka, and at --kafka"
		f.Since = nil
	case away > 0:
		f.Text += fmt.Sprintf("; %d members that answered reach it as little, and get no messages", away)
	default:
		f.Text += "; no member has said whether it reaches Kafka. Those that don't get no messages"
	}
	l.add(f, l.in.from.Brokers...)
}

// findTrees finds groups of the same name elsewhere, and ACLs that differ.
func (l *look) findTrees() {
	if l.noGroup != nil {
		l.add(Finding{
			Kind: NoGroup, Waiting: -1, Runbook: "kielmembersapart", Do: "start members. If some run, their log says what they wait for (a topic that is missing or refused), or they have other names of the group, the chroot or the servers",
			Text: "there is no group of this name under " + l.in.chroot() + ": no member has ever joined it here", Command: words(append([]string{"kiel", "groups"}, l.flags...)),
		}, l.group)
	}
	if len(l.siblings) > 0 {
		names := chroots(l.siblings)
		l.add(Finding{
			Kind: SiblingChroot, Waiting: -1, Runbook: "kielhandledtwice", Since: l.besideSince(), Command: l.commandIn(names[0], "describe"),
			Text: "a group of this name has members under another chroot too: if they consume the same Kafka, all messages are handled twice",
			Do:   "stop the members that are wrong, or give them another group",
		}, names...)
	}
	if len(l.acls) > 0 {
		l.add(Finding{
			Kind: ACLsDiffer, Severity: Note, Waiting: -1, Runbook: "security",
			Text: "these znodes have another ACL than the group's znode: a member of another user may be refused",
		}, l.acls...)
	}
}

// besideSince returns since when there are members both here and under another chroot.
func (l *look) besideSince() (at *time.Time) {
	for _, m := range l.report.Members {
		if m.Since != nil && (at == nil || m.Since.Before(*at)) {
			at = m.Since
		}
	}
	if first := l.siblings[0].since; at != nil && first.After(*at) {
		at = &first
	}
	return at
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

// sum returns how many messages wait in the partitions that match, -1 if that is not known of any, and since when the first of
// them.
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
		f := Finding{Kind: TopicMissing, Text: "Kafka: " + shown(info.Err), Do: "create it, or correct the members' topics"}
		if info.Err == sarama.ErrTopicAuthorizationFailed { //nolint:errorlint // Infos sets the code itself
			f.Kind, f.Runbook = TopicRefused, "security"
			f.Text = "Kafka refuses the topic to this user; members of the same user get no message of it"
			f.Do = "grant READ on the topic to the members' user, DESCRIBE to this one"
		}
		if who := l.askFor(name); len(who) > 0 {
			f.Text += ". Members that ask for it: " + few(who)
		}
		of := func(about string) bool { return about == name || strings.HasPrefix(about, name+":") }
		f.Since = cmp.Or(l.began(of, "missing-topic", "fetch", "offsets"), l.began(nil, "metadata"))
		f.Waiting, _ = l.sum(func(p Partition) bool { return p.Topic == name })
		l.add(f, name)
	}
}

// askFor returns the members that ask for a topic by its name.
func (l *look) askFor(topic string) (names []string) {
	for _, m := range l.report.Members {
		if slices.Contains(m.Topics, topic) {
			names = append(names, m.Name)
		}
	}
	return names
}
