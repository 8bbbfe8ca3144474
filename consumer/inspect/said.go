package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kielgo/kiel/status"
)

// askMembers asks the members, and takes over what each knows of its own partitions.
func (l *look) askMembers(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.in.from.Wait, errLate)
	defer cancel()
	l.said, l.report.Answers = ask(ctx, l.group, l.report.Members, l.in.from.Local)
	type owned struct {
		topic string
		id    int32
		owner string
	}
	known := map[owned]*status.Partition{}
	for i, g := range l.said {
		if g == nil {
			continue
		}
		for k := range g.Partitions {
			p := &g.Partitions[k]
			known[owned{p.Topic, p.Partition, l.report.Members[i].Name}] = p
		}
	}
	for i := range l.report.Partitions {
		p := &l.report.Partitions[i]
		if said := known[owned{p.Topic, p.Partition.Partition, p.Owner}]; said != nil && p.Owner != "" {
			p.Offsets, p.WaitsFor = said.Offsets, status.ShownText(said.WaitsFor)
		}
	}
}

// The stalled handlers that members report: as the library's own warning.
const stalled = time.Minute

// findSaid finds what members say of themselves.
func (l *look) findSaid() {
	for i, g := range l.said {
		if g == nil {
			continue
		}
		name := l.report.Members[i].Name
		l.findStalled(name)
		for _, t := range g.Troubles {
			if t.Until == nil {
				l.findTrouble(name, t)
			}
		}
	}
}

// findStalled finds handlers of a member that stand, as it says itself.
func (l *look) findStalled(member string) {
	for _, p := range l.report.Partitions {
		if p.Owner != member || p.Offsets == nil || p.Offsets.Stalled < stalled.Seconds() {
			continue
		}
		since := l.report.At.Add(-time.Duration(p.Offsets.Stalled * float64(time.Second)))
		f := Finding{
			Kind: HandlerStuck, Member: member, Since: &since, Waiting: max(p.Offsets.Lag, -1), Runbook: "kielhandlerstuck",
			Text: fmt.Sprintf("%s says that its handler stands at offset %d", member, p.Offsets.Marked),
			Do:   "keep a goroutine dump of " + member + ", then restart it", Command: l.command("why", id(p).String()),
		}
		l.add(f, id(p).String())
	}
}

func (l *look) findTrouble(member string, t status.Trouble) {
	f := Finding{
		Kind: MemberTrouble, Member: member, Waiting: -1, Runbook: "kinds-of-errors", Since: &t.Since,
		Text: fmt.Sprintf("%s has errors of the kind %s: %s", member, status.Shown(t.Kind), status.ShownText(t.Last)),
		Do:   "see the kind in the runbook, and the log of " + member,
	}
	if t.Kind == "handler" {
		f.Kind, f.Runbook = HandlerFailing, "kielhandlerfailing"
		f.Do = "mend what the handler needs, or have it put such messages aside and mark them"
		f.Waiting, _ = l.sum(func(p Partition) bool { return slices.Contains(t.About, id(p).String()) })
	}
	objects := t.About
	if len(objects) == 0 {
		objects = []string{member}
	}
	l.add(f, objects...)
}
