package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/status"
)

// askMembers asks the members what each knows of the partitions that are its own, or planned for it.
func (l *look) askMembers(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.in.from.Wait, errLate)
	defer cancel()
	of := make(holders, len(l.report.Partitions))
	for _, p := range l.report.Partitions {
		of[id(p)] = cmp.Or(p.Owner, p.Planned)
	}
	l.said, l.report.Answers = l.in.asker.ask(ctx, l.group, l.report.Members, of)
	l.takeOver()
}

// takeOver puts into the report what each member has said of the partitions that are its own, or planned for it.
func (l *look) takeOver() {
	type of struct {
		topic  string
		id     int32
		member string
	}
	known := map[of]*status.Partition{}
	for i, g := range l.said {
		if g == nil {
			continue
		}
		for k := range g.Partitions {
			p := &g.Partitions[k]
			known[of{p.Topic, p.Partition, l.report.Members[i].Name}] = p
		}
	}
	for i := range l.report.Partitions {
		p := &l.report.Partitions[i]
		if said := known[of{p.Topic, p.Partition.Partition, cmp.Or(p.Owner, p.Planned)}]; said != nil {
			p.Offsets, p.WaitsFor = said.Offsets, statuswrite.Text(said.WaitsFor)
		}
	}
}

// kafkaKinds are the kinds of members' errors that come from Kafka.
func kafkaKinds() []string {
	return []string{"kafka", "broker", "metadata", "fetch", "stall", "throttle", "missing-topic", "offsets", "commit", "audit"}
}

// claimKinds are the kinds of members' errors that come from claims.
func claimKinds() []string { return []string{"claim", "verify", "vanished", "room", "unclaimed"} }

// began returns when the first of the members' troubles of these kinds began that goes on and is about an object that matches;
// nil if none does.
func (l *look) began(match func(about string) bool, kinds ...string) (at *time.Time) {
	for _, g := range l.said {
		if g == nil {
			continue
		}
		for i := range g.Troubles {
			t := &g.Troubles[i]
			if t.Until != nil || !slices.Contains(kinds, t.Kind) || match != nil && !slices.ContainsFunc(t.About, match) {
				continue
			}
			if at == nil || t.Since.Before(*at) {
				at = &t.Since
			}
		}
	}
	return at
}

// missedSince returns when members have last noticed that a member was gone; nil if none has.
func (l *look) missedSince(member string) (at *time.Time) {
	for _, g := range l.said {
		if g == nil {
			continue
		}
		for i := range g.Changes {
			if c := &g.Changes[i]; slices.Contains(c.Gone, member) && (at == nil || c.At.After(*at)) {
				at = &c.At
			}
		}
	}
	return at
}

// stalled is after how long a handler that takes nothing counts as stuck: as in the library's own warning.
const stalled = time.Minute

// findHandlers finds handlers that stand or fail, as their members say.
func (l *look) findHandlers() {
	stuck := map[string][]Partition{}
	for _, p := range l.report.Partitions {
		if p.Owner != "" && p.Offsets != nil && p.Offsets.Stalled >= stalled.Seconds() {
			stuck[p.Owner] = append(stuck[p.Owner], p)
		}
	}
	for _, member := range slices.Sorted(maps.Keys(stuck)) {
		l.addStuck(member, stuck[member])
	}
	for i, g := range l.said {
		if g == nil {
			continue
		}
		for _, t := range g.Troubles {
			if t.Kind == "handler" && t.Until == nil {
				l.addFailing(l.report.Members[i].Name, t)
			}
		}
	}
}

// addStuck adds a finding about partitions of a member whose handlers stand.
func (l *look) addStuck(member string, ps []Partition) {
	f := Finding{
		Kind: HandlerStuck, Member: member, Waiting: -1, Runbook: "kielhandlerstuck", Command: l.command("why", id(ps[0]).String()),
		Text: fmt.Sprintf("%s says that its handler stands at offset %d", member, ps[0].Offsets.Marked), Do: "keep a goroutine dump of " + member + ", then restart it",
	}
	objects := make([]string, len(ps))
	for i, p := range ps {
		objects[i], l.told[id(p)] = id(p).String(), true
		at := l.report.At.Add(-time.Duration(p.Offsets.Stalled * float64(time.Second)))
		if f.Since == nil || at.Before(*f.Since) {
			f.Since = &at
		}
		waiting := p.Offsets.Lag
		if p.Kafka != nil && p.Kafka.Waiting >= 0 {
			waiting = p.Kafka.Waiting // with those that the handler has
		}
		if waiting >= 0 {
			f.Waiting = max(f.Waiting, 0) + waiting
		}
	}
	l.add(f, objects...)
}

// addFailing adds a finding about a handler that fails.
func (l *look) addFailing(member string, t status.Trouble) {
	f := Finding{
		Kind: HandlerFailing, Member: member, Since: &t.Since, Runbook: "kielhandlerfailing",
		Text: fmt.Sprintf("the handler of %s fails, %d times until now: %s", member, t.Count, t.Last),
		Do:   "mend what the handler needs, or have it put such messages aside and mark them",
	}
	f.Waiting, _ = l.sum(func(p Partition) bool { return p.Owner == member && slices.Contains(t.About, id(p).String()) })
	for _, about := range t.About {
		if p, err := kiel.ParsePartition(about); err == nil {
			l.told[p] = l.told[p] || l.owns(member, p) // nobody speaks for the partitions of others
			f.Command = cmp.Or(f.Command, l.command("why", about))
		}
	}
	objects := t.About
	if len(objects) == 0 {
		objects = []string{member}
	}
	l.add(f, objects...)
}

// owns returns whether a member owns a partition.
func (l *look) owns(member string, tp kiel.Partition) bool {
	return slices.ContainsFunc(l.report.Partitions, func(p Partition) bool { return p.Owner == member && id(p) == tp })
}

// saidTrouble is a trouble of a member.
type saidTrouble struct {
	member string
	status.Trouble
}

// findTroubles finds what else goes wrong, as members say: one finding for each kind.
func (l *look) findTroubles() {
	byKind := map[string][]saidTrouble{}
	for i, g := range l.said {
		if g == nil {
			continue
		}
		for _, t := range g.Troubles {
			if t.Until == nil && t.Kind != "handler" && !l.isFound(t) {
				byKind[t.Kind] = append(byKind[t.Kind], saidTrouble{l.report.Members[i].Name, t})
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		l.addTroubles(kind, byKind[kind])
	}
}

// addTroubles adds a finding about troubles of one kind.
func (l *look) addTroubles(kind string, all []saidTrouble) {
	first := all[0]
	f := Finding{
		Kind: MemberTrouble, Since: &first.Since, Runbook: runbookOf(kind),
		Text: fmt.Sprintf("%s has errors of the kind %s: %s", first.member, kind, first.Last), Do: "see the kind in the runbook, and the log of " + first.member,
	}
	objects := first.About
	if len(all) == 1 {
		f.Member = first.member
	}
	if len(all) > 1 || len(objects) == 0 {
		objects = nil
		for _, t := range all {
			objects = append(objects, t.member)
			if t.Since.Before(*f.Since) {
				f.Since = &t.Since
			}
		}
	}
	if len(all) > 1 {
		f.Text = fmt.Sprintf("%d members have errors of the kind %s, as %s: %s", len(all), kind, first.member, first.Last)
	}
	f.Waiting, _ = l.sum(func(p Partition) bool {
		return slices.ContainsFunc(all, func(t saidTrouble) bool {
			return t.member == p.Owner && (len(t.About) == 0 || slices.ContainsFunc(t.About, concerns(id(p).String())))
		})
	})
	l.add(f, objects...)
}

// concerns returns whether an object is a partition, or its topic.
func concerns(partition string) func(object string) bool {
	return func(object string) bool { return object == partition || strings.HasPrefix(partition, object+":") }
}

// runbookOf returns the runbook of a kind of members' errors.
func runbookOf(kind string) string {
	switch kind {
	case "session":
		return "kielzookeeperunreachable"
	case "membership":
		return "kielmembershiprefused"
	case "kafka":
		return "kielkafkaunreachable"
	case "commit":
		return "kielcommitsstalled"
	case "stands":
		return "kielhandlerstands"
	case "stuck", "held-back":
		return "kielhandlerstuck"
	case "shared":
		return "kielhandledtwice"
	default:
		return "kinds-of-errors"
	}
}

// isFound returns whether a finding tells already what a trouble says.
func (l *look) isFound(t status.Trouble) bool {
	return slices.ContainsFunc(l.report.Findings, func(f Finding) bool {
		if slices.Contains(tells(f.Kind), t.Kind) {
			return true
		}
		return slices.Contains(tellsOfObjects(f.Kind), t.Kind) && slices.ContainsFunc(t.About, func(about string) bool {
			return slices.ContainsFunc(f.all, func(o string) bool { return concerns(about)(o) || concerns(o)(about) })
		})
	})
}

// tells returns the kinds of troubles that a finding tells, whatever they are about.
func tells(kind Kind) []string {
	switch kind {
	case KafkaUnreachable:
		return kafkaKinds()
	case TopicRefused, TopicMissing:
		return []string{"metadata"}
	case GroupRefused:
		return []string{"commit", "offsets", "audit"}
	case OtherTree, NewerOwner:
		return []string{"shared"}
	default: // a disagreement, or none tells it
	}
	switch status.DisagreementKind(kind) {
	case status.UnwantedTopic:
		return []string{"unwanted-topic"}
	case status.NoCommonFunction:
		return []string{"allocation"}
	case status.UnreadableRecord:
		return []string{"records"}
	case status.UnreadableSet:
		return []string{"set"}
	case status.UnreadableZones:
		return []string{"zones"}
	case status.OddItem:
		return []string{"odd-item"}
	case status.PersistentClaim:
		return []string{"persistent-claim"}
	case status.OrphanClaim, status.UnreadableClaim:
		return []string{"foreign-claim", "held"}
	default:
		return nil
	}
}

// tellsOfObjects returns the kinds of troubles that a finding tells if they are about its objects.
func tellsOfObjects(kind Kind) []string {
	switch kind {
	case TopicRefused, TopicMissing, OffsetsUnknown:
		return kafkaKinds()
	case HandlerStuck:
		return []string{"stands", "stuck", "held-back", "unmarked"}
	case NoOwner, Kind(status.PersistentClaim), Kind(status.OrphanClaim), Kind(status.UnreadableClaim):
		return claimKinds()
	default:
		return nil
	}
}
