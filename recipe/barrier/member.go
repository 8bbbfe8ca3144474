package barrier

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// Member is a member that has entered a double barrier, until it leaves.
type Member struct {
	d     *DoubleBarrier
	name  string // name of our znode
	node  *node
	hold  *hold.Hold
	round int64 // largest czxid that a member which entered with us can have

	clearing chan struct{} // full while ready is being deleted
}

// newMember returns the member whose znode n is. It returns nil when inc is not trusted any more.
func newMember(ctx context.Context, d *DoubleBarrier, name string, n *node, inc *session.Incarnation, round int64) (*Member, error) {
	base, err := hold.New(ctx, hold.Options{Session: d.session, Incarnation: inc, Path: n.path, Lost: ErrLost})
	switch {
	case errors.Is(err, hold.ErrGone):
		return nil, fmt.Errorf("%w: %s was deleted", ErrLost, n.path)
	case err != nil:
		return nil, operr.Because(ErrLost, err)
	case base == nil:
		return nil, nil
	}
	return &Member{d: d, name: name, node: n, hold: base, round: round, clearing: make(chan struct{}, 1)}, nil
}

// Context ends when it is no longer sure that the others count this member, or when Leave is called. Its cause is ErrLost,
// ErrLeft, or that of the incarnation. It is not derived from Enter's context.
func (m *Member) Context() context.Context { return m.hold.Context() }

// Valid reports whether the others surely count this member at this moment. Call it right before each effect that must not happen
// unless they do: the context ends a moment later.
func (m *Member) Valid() bool { return m.hold.Valid() }

// Node returns the path of our znode.
func (m *Member) Node() string { return m.node.path }

// Incarnation returns the incarnation in which the barrier was entered.
func (m *Member) Incarnation() *session.Incarnation { return m.hold.Incarnation() }

// Leave leaves the barrier, and waits until all members that entered with us have left. Call it once the work under
// [Member.Context] has returned, also when the member was lost. When ctx ends before, the error is a [*recipe.BlockedError] if
// another member is in the way; our member leaves all the same, and its znode is deleted in the background. Only the first call
// of Leave deletes the znode; the others wait.
func (m *Member) Leave(ctx context.Context) error {
	first, letGo := false, func() {}
	m.hold.Release(ErrLeft, func() { first, letGo = true, m.d.session.KeepOpen() })
	if first {
		defer m.d.left(m)
		defer letGo()
	}
	err := m.await(ctx, first)
	if first {
		m.abandon(ctx)
	}
	if err == nil {
		return nil
	}
	if _, ok := hold.Blocked(ctx, err); ok {
		return err
	}
	return operr.New("barrier", "leave", m.d.path, err)
}

// abandon deletes ready, then our znode, in the background if need be.
func (m *Member) abandon(ctx context.Context) {
	m.node.own.Abandon(ctx, func(life context.Context) {
		if err := m.clear(life, m.node.inc); err != nil && !hold.Over(err) {
			m.d.log.WarnContext(life, "delete of ready failed", "path", m.d.path, "error", err)
		}
	})
}

// clear deletes ready, before our own znode is deleted: a kazoo process that leaves takes ready for a member, and waits for it.
// When ctx ends the delete goes on in the background, and the next clear waits for that: a delete that was given up before it was
// sent could meet the ready of the next round.
func (m *Member) clear(ctx context.Context, inc *session.Incarnation) error {
	select {
	case m.clearing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	result := make(chan error, 1)
	go func() {
		err := removeReady(context.WithoutCancel(ctx), inc, m.d.path)
		<-m.clearing
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// await follows kazoo's order of leaving: the member with the lowest name stays until the others have gone; the others go at once
// and wait for that one. Only the first call of Leave deletes znodes.
func (m *Member) await(ctx context.Context, first bool) error {
	cleared := !first
	var patience seqnode.Patience
	for {
		inc, err := m.d.session.Incarnation(ctx)
		if err == nil && !cleared && m.mayExist(inc) {
			err = m.clear(ctx, inc)
			cleared = err == nil
		}
		var done bool
		if err == nil {
			done, err = m.step(ctx, inc, first, &patience)
		}
		switch {
		case err == nil && done:
			return nil
		case err == nil:
		case ctx.Err() == nil && (errors.Is(err, session.ErrSessionExpired) || errors.Is(err, session.ErrUncertain)):
		default:
			return err
		}
	}
}

// mayExist reports whether this member's znode may exist: the member has not deleted it, and its session is inc's.
func (m *Member) mayExist(inc *session.Incarnation) bool {
	select {
	case <-m.node.own.Gone():
		return false
	default:
		return m.node.inc.SessionID() == inc.SessionID()
	}
}

// step waits for one other member. It returns true if no other member is left.
func (m *Member) step(ctx context.Context, inc *session.Incarnation, first bool, patience *seqnode.Patience) (done bool, err error) {
	others, mine, err := m.others(ctx, inc)
	if err != nil {
		return false, err
	}
	lowest, err := m.firstOfRound(ctx, inc, others)
	if err != nil {
		return false, err
	}
	wait := lowest
	if mine && m.mayExist(inc) {
		if lowest.name != "" && m.name < lowest.name {
			slices.Reverse(others)
			if wait, err = m.firstOfRound(ctx, inc, others); err != nil {
				return false, err
			}
		} else {
			if first {
				m.abandon(ctx)
			}
			if err := m.node.own.Wait(ctx); err != nil {
				return false, err
			}
		}
	}
	if wait.name == "" {
		return lowest.name == "", nil
	}
	_, err = awaitGone(ctx, m.d.session, m.d.path, session.Join(m.d.path, wait.name), &wait.czxid, func(b seqnode.Blocker) {
		m.d.warnWaiting(ctx, patience, b)
	})
	return false, err
}

// other is another member.
type other struct {
	name  string
	czxid int64
}

// others returns the names of the other members, sorted, and whether our znode exists.
func (m *Member) others(ctx context.Context, inc *session.Incarnation) (list []string, mine bool, err error) {
	names, _, err := inc.Children(ctx, m.d.path)
	if errors.Is(err, session.ErrNoNode) {
		return nil, false, nil
	}
	for _, name := range names {
		switch name {
		case readyName:
		case m.name:
			mine = true
		default:
			list = append(list, name)
		}
	}
	return list, mine, err
}

// firstOfRound returns the first of these members that entered with us.
func (m *Member) firstOfRound(ctx context.Context, inc *session.Incarnation, names []string) (other, error) {
	for _, name := range names {
		exists, stat, err := inc.Exists(ctx, session.Join(m.d.path, name))
		if err != nil {
			return other{}, err
		}
		if exists && stat.Czxid <= m.round {
			return other{name, stat.Czxid}, nil
		}
	}
	return other{}, nil
}
