package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/status"
)

// NotReady returns these texts while there is no membership.
const (
	waitsForConsume = "Consume was not called"
	waitsForAnother = "Consume has returned and was not called again"
	waitsForTopics  = "Kafka to describe the topics"
	waitsForBroker  = "a broker of Kafka to answer, to join the group again"
	waitsForNothing = "nothing: the group is closed"
)

// errZooKeeperOver is the error of Alive when the ZooKeeper session does not run any more.
var errZooKeeperOver = errors.New("the ZooKeeper session has been closed, or has failed for good: the process has to be started anew")

// Status describes the group as this member sees it. To the Status of ownership.Owner it adds whether Kafka can be reached, and
// for the member's own partitions how far their opening is, what the opening waits for, their offsets and their lag. Troubles are
// those of all parts. Before the first Consume, and when the member has left, Status describes the member and its session alone.
//
// Status asks neither ZooKeeper nor handlers, and may be called at any time and from anywhere, also from handlers and after
// Close. It waits for the owner's loop for a second at most. It asks Kafka for the ends of partitions that are not fetched, and
// waits for half a second at most, as [Partition.Lag] does. While nobody calls it, it costs nothing. The result is the caller's.
func (g *Group) Status() *status.Group {
	m := g.member()
	owner := g.idle
	if m != nil {
		owner = m.owner
	}
	out := owner.Status()
	out.Self.Waiting = g.NotReady()
	out.Self.Ready = out.Self.Waiting == ""
	out.Self.Kafka = g.describeKafka()
	out.Troubles = errlog.Merge(out.Troubles, g.log.Troubles())
	if m != nil {
		m.describe(out)
	}
	return out
}

// NotReady returns why this member is not ready, or "" when it is ready: it has joined, its session is trusted, and its first
// claims are decided, as with ownership.Owner's NotReady. Between two calls of Consume a member that stays in the group is as
// ready as before. NotReady does not block.
func (g *Group) NotReady() string {
	g.mu.Lock()
	m, closed, called, running, cutOff, outside := g.current, g.closed, g.called, g.running != nil, g.waitsForBroker, g.outside
	g.mu.Unlock()
	switch {
	case m != nil:
		return m.owner.NotReady()
	case closed:
		return waitsForNothing
	case running && cutOff:
		return waitsForBroker
	case running:
		return waitsForTopics + lastTry(outside)
	case called:
		return waitsForAnother + lastTry(outside)
	default:
		return waitsForConsume
	}
}

// lastTry returns how a text about waiting names the error of the last attempt, "" for none.
func lastTry(err string) string {
	if err == "" {
		return ""
	}
	return "; the last try: " + err
}

// Alive returns nil when the loops of the allocator, the owner and the committer have answered, or when there is no membership.
// Otherwise it returns the reason, when ctx ends at the latest. Before Close it also returns an error when the session has ended
// for good, because no call of Consume can join then. It does not ask the loops that read from ZooKeeper and Kafka; Status shows
// their state. Alive depends on neither ZooKeeper nor Kafka nor handlers.
func (g *Group) Alive(ctx context.Context) error {
	g.mu.Lock()
	m, closed := g.current, g.closed
	g.mu.Unlock()
	if !closed && g.zk.Stats().State == "closed" {
		return failure("", "", errZooKeeperOver)
	}
	if m == nil {
		return nil
	}
	err := m.owner.Alive(ctx)
	if err == nil {
		err = m.committer.Alive(ctx)
	}
	if err == nil || m.driver.isOver() { // the membership has ended, and Consume returns why
		return nil
	}
	return failure("", "", err)
}

// describeKafka describes whether Kafka can be reached, and since when.
func (g *Group) describeKafka() *status.Kafka {
	reachable, since := g.reach.State()
	k := &status.Kafka{Reachable: reachable}
	if !since.IsZero() {
		k.Since = new(since.UTC())
	}
	return k
}

// describe adds the state of openings and open partitions to the member's own partitions.
func (m *membership) describe(out *status.Group) {
	now := time.Now()
	m.findings.Disagreements(out, now)
	openings := map[kiel.Partition]*opening{}
	for _, o := range m.openings.list() {
		openings[o.tp] = o
	}
	open := map[kiel.Partition]*Partition{}
	if s := m.driver.current(); s != nil {
		open = s.opens()
	}
	freshen(open)
	for i := range out.Partitions {
		p := &out.Partitions[i]
		tp := kiel.Partition{Topic: p.Topic, ID: p.Partition}
		if p.Owner != out.Self.Name {
			continue
		}
		if open[tp] == nil {
			m.describeShut(p, tp, now)
		}
		o := openings[tp]
		if o == nil {
			continue
		}
		if at := o.at(); at != atHandler && p.State == status.Owned {
			p.State, p.WaitsFor = status.Opening, o.waitsFor()
		}
		if one := open[tp]; one != nil {
			one.describe(p, now)
		}
	}
}

// describeShut adds the offsets of a partition that is owned and not open.
func (m *membership) describeShut(out *status.Partition, p kiel.Partition, now time.Time) {
	if out.Offsets = m.shut.offsets(p, now); out.Offsets != nil {
		out.Offsets.Paused = m.pauses.has(p)
	}
}

// waitsFor returns what the opening waits for, and why the last attempt failed.
func (o *opening) waitsFor() string {
	text := o.at().waitsFor()
	if failure := o.failure.Load(); failure != nil {
		text += lastTry(*failure)
	}
	return statuswrite.Text(text)
}

// describe adds the state of an open partition.
func (p *Partition) describe(out *status.Partition, now time.Time) {
	out.Offsets = new(p.standing(now))
	if since := p.stream.FailingSince(); !since.IsZero() {
		out.WaitsFor = "Kafka to answer its fetches, which have failed since " + since.UTC().Format(time.RFC3339)
	}
	if out.Times == nil {
		out.Times = &status.Times{}
	}
	out.Times.Open = p.openTook.Seconds()
	if first := p.firstMessage(); !first.IsZero() {
		out.Times.FirstMessage = max(first.Sub(p.openedAt).Seconds(), 0)
	}
}

// snapshot returns the newest mapping, nil before the first.
func (m *membership) snapshot() *allocator.Snapshot {
	if m.allocator == nil { // build has not made it yet
		return nil
	}
	return m.allocator.Snapshot()
}

// version returns the version of the newest mapping, 0 before the first.
func (m *membership) version() uint64 {
	if s := m.snapshot(); s != nil {
		return s.Version
	}
	return 0
}
