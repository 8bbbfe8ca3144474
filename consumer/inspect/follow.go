package inspect

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// Change is something that has changed in a group.
type Change struct {
	At        time.Time      `json:"at"` // by the servers' clock if they know it, else when it was noticed
	Kind      ChangeKind     `json:"kind"`
	Member    string         `json:"member,omitempty"`
	Partition string         `json:"partition,omitempty"`
	From      string         `json:"from,omitempty"` // the owner before
	To        string         `json:"to,omitempty"`   // the owner now
	Owned     int            `json:"owned"`          // of a member that is gone: how many partitions it owned
	Reason    *status.Reason `json:"reason,omitempty"`
}

// ChangeKind is a word of a fixed list.
type ChangeKind string

// The kinds of changes.
const (
	MemberJoined ChangeKind = "joined"
	MemberGone   ChangeKind = "gone"
	Claimed      ChangeKind = "claimed"
	Freed        ChangeKind = "freed"
	Blocked      ChangeKind = "blocked" // a persistent znode is in the claim's place
)

// Follow calls show with each change of a group's members and owners, in the goroutine of its caller, until ctx ends; then it
// returns nil. It asks ZooKeeper every so often (a second if every is 0) whether znodes were created or deleted, by two requests,
// and reads claims if so. What comes and goes between two questions is not shown. When ZooKeeper does not answer, Follow ends
// with its error; a later call does not show what has changed in between.
func (in *Inspector) Follow(ctx context.Context, group string, every time.Duration, show func(Change)) error {
	if err := kiel.CheckGroup(group); err != nil {
		return operr.New(pkg, "follow group", "", err)
	}
	f := &following{in: in, group: group, show: show}
	for ctx.Err() == nil {
		if err := f.look(ctx); err != nil && ctx.Err() == nil {
			return operr.New(pkg, "follow group", strconv.Quote(group), err)
		}
		_ = pause.Sleep(ctx, cmp.Or(every, time.Second)) // the loop sees the end of ctx
	}
	return nil
}

// following is one call of Follow.
type following struct {
	in    *Inspector
	group string
	show  func(Change)
	seen  [2]int32      // how often children of the two directories were created or deleted
	last  *status.Group // nil before the first look
}

func (f *following) look(ctx context.Context) error {
	var now [2]int32
	err := f.in.read(ctx, func(ctx context.Context, inc *session.Incarnation) error {
		for i, elem := range []string{"members", "owners"} {
			exists, stat, err := inc.Exists(ctx, groupPath(f.group, elem))
			if err != nil {
				return err
			}
			now[i] = -1
			if exists {
				now[i] = stat.Cversion
			}
		}
		return nil
	})
	if err != nil || f.last != nil && now == f.seen {
		return err
	}
	g, err := ownership.Inspect(ctx, f.in.zk, f.group)
	if err != nil {
		return err
	}
	if f.last != nil {
		f.compare(f.last, g)
	}
	f.last, f.seen = g, now
	return nil
}

// compare shows what differs.
func (f *following) compare(before, now *status.Group) {
	var changes []Change
	is := func(name string) func(status.Member) bool {
		return func(m status.Member) bool { return m.Name == name }
	}
	for _, m := range before.Members {
		if !slices.ContainsFunc(now.Members, is(m.Name)) {
			gone := Change{At: now.At, Kind: MemberGone, Member: m.Name, Reason: why(now, m.Name)}
			if m.Owned != nil {
				gone.Owned = *m.Owned
			}
			changes = append(changes, gone)
		}
	}
	for _, m := range now.Members {
		if !slices.ContainsFunc(before.Members, is(m.Name)) {
			changes = append(changes, Change{At: timeOr(m.Since, now.At), Kind: MemberJoined, Member: m.Name})
		}
	}
	type key struct {
		topic string
		id    int32
	}
	was := make(map[key]status.Partition, len(before.Partitions))
	for _, p := range before.Partitions {
		was[key{p.Topic, p.Partition}] = p
	}
	for _, p := range now.Partitions {
		old := was[key{p.Topic, p.Partition}]
		if old.State == p.State && old.Token == p.Token {
			continue
		}
		c := Change{At: timeOr(p.Since, now.At), Partition: kiel.Partition{Topic: p.Topic, ID: p.Partition}.String(), From: cmp.Or(p.Previous, old.Owner), To: p.Owner}
		switch p.State {
		case status.Owned:
			c.Kind, c.Reason = Claimed, p.Reason
		case status.Blocked:
			c.Kind = Blocked
		default:
			c.Kind, c.At, c.From = Freed, now.At, old.Owner
			if c.From == "" { // nobody has owned it yet, or its claim's place is free again
				continue
			}
		}
		changes = append(changes, c)
	}
	for _, c := range changes {
		f.show(c)
	}
}

// why returns the reason of a claim that says how a member went; nil if there is none.
func why(g *status.Group, member string) *status.Reason {
	for _, p := range g.Partitions {
		if p.Reason != nil && p.Previous == member && slices.Contains(p.Reason.Names, member) {
			return p.Reason
		}
	}
	return nil
}

func timeOr(at *time.Time, otherwise time.Time) time.Time {
	if at != nil {
		return *at
	}
	return otherwise
}
