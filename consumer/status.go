package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/status"
)

// Waiting returns these texts while there is no membership.
const (
	waitsForConsume = "Consume was not called"
	waitsForAnother = "Consume has returned and was not called again"
	waitsForTopics  = "Kafka to describe the topics"
	waitsForNothing = "nothing: the group is closed"
)

// errZooKeeperOver is why a Group is not alive whose session runs no more.
var errZooKeeperOver = errors.New("consumer: the ZooKeeper session has been closed, or has failed for good: the process has to be started anew")

// Status describes the group as this member sees it: what ownership.Owner's Status tells, whether Kafka can be reached, and of the
// partitions that are its own how far their opening is, what that waits for, their offsets and their lag. Troubles are those of all parts.
// Before the first Consume, and when the member has left, it knows itself and its session alone.
//
// It asks neither ZooKeeper nor Kafka nor handlers, and may be called at any time and from anywhere, also from handlers and after Close. It
// waits for the owner's loop for a second at most. While nobody calls it, it costs nothing. The result is the caller's.
func (g *Group) Status() *status.Group {
	m := g.member()
	owner := g.idle
	if m != nil {
		owner = m.owner
	}
	out := owner.Status()
	out.Self.Waiting = g.Waiting()
	out.Self.Ready = out.Self.Waiting == ""
	out.Self.Kafka = g.describeKafka()
	out.Troubles = errlog.Merge(out.Troubles, g.log.Troubles())
	if m != nil {
		m.describe(out)
	}
	return out
}

// Waiting returns why this member is not ready, "" when it is: it has joined, its session is trusted, and its first claims are settled, as
// ownership.Owner's Waiting has it. Between two calls of Consume a member that stays in the group is as ready as before. Waiting does
// not block.
func (g *Group) Waiting() string {
	g.mu.Lock()
	m, closed, called, running := g.current, g.closed, g.called, g.running != nil
	g.mu.Unlock()
	switch {
	case m != nil:
		return m.owner.Waiting()
	case closed:
		return waitsForNothing
	case running:
		return waitsForTopics
	case called:
		return waitsForAnother
	default:
		return waitsForConsume
	}
}

// Alive returns nil when the loops of the membership have answered, that of the allocator, that of the owner and that of the committer, and
// when there is no membership. Otherwise it returns why not, when ctx ends at the latest. Before Close it also returns an error when the
// session has ended for good, since no call of Consume can join then. It asks no other loops, such as those that read from ZooKeeper and
// Kafka: what they do shows in Status. It depends on neither ZooKeeper nor Kafka nor handlers.
func (g *Group) Alive(ctx context.Context) error {
	g.mu.Lock()
	m, closed := g.current, g.closed
	g.mu.Unlock()
	if !closed && g.zk.Stats().State == "closed" {
		return errZooKeeperOver
	}
	if m == nil {
		return nil
	}
	err := m.owner.Alive(ctx)
	if err == nil {
		err = m.committer.Alive(ctx)
	}
	select {
	case <-m.closed:
		return nil // why it has ended is what Consume returns
	default:
	}
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	return nil
}

// describeKafka describes what is known of Kafka.
func (g *Group) describeKafka() *status.Kafka {
	reachable, since := g.reach.State()
	k := &status.Kafka{Reachable: reachable}
	if !since.IsZero() {
		k.Since = new(since.UTC())
	}
	return k
}

// describe adds to the member's own partitions what the consumer knows of them.
func (m *membership) describe(out *status.Group) {
	now := time.Now()
	openings := map[kiel.Partition]*opening{}
	for _, o := range m.openings.list() {
		openings[o.tp] = o
	}
	open := map[kiel.Partition]*Partition{}
	if s := m.session(); s != nil {
		open = s.opens()
	}
	for i := range out.Partitions {
		p := &out.Partitions[i]
		tp := kiel.Partition{Topic: p.Topic, ID: p.Partition}
		o := openings[tp]
		if o == nil || p.Owner != out.Self.Name {
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

// waitsFor says what the opening waits for, and why the last try failed.
func (o *opening) waitsFor() string {
	text := o.at().waitsFor()
	if failure := o.failure.Load(); failure != nil {
		text += "; the last try: " + *failure
	}
	return status.ShownText(text)
}

// describe adds what is known of an open partition.
func (p *Partition) describe(out *status.Partition, now time.Time) {
	out.Offsets = new(p.standing(now))
	if since := p.source.FailingSince(); !since.IsZero() {
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
