package partitioner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
)

// share returns our items. If another member has our identifier, it also returns the deadline until which the share is valid.
func (m *machine) share(ctx context.Context, v view) (share []string, deadline time.Time, err error) {
	deadline, err = m.checkIdentifier(ctx, v)
	if err != nil {
		return nil, deadline, err
	}
	var members []string
	for _, name := range v.children {
		members = append(members, party.ShallowIdentifier(name))
	}
	slices.Sort(members)
	share, err = m.pick(members)
	if err != nil {
		return nil, deadline, operr.Because(ErrFunction, err)
	}
	seen := make(map[string]bool, len(share))
	for _, item := range share {
		if m.p.locks[item] == nil {
			return nil, deadline, fmt.Errorf("%w: %q is not in the set", ErrFunction, item)
		}
		if seen[item] {
			return nil, deadline, fmt.Errorf("%w: %q twice", ErrFunction, item)
		}
		seen[item] = true
	}
	return share, deadline, nil
}

// pick calls the partition function.
func (m *machine) pick(members []string) (share []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	share, err = m.p.opts.Func(m.p.opts.Identifier, members, slices.Clone(m.p.items))
	return slices.Clone(share), err
}

// checkIdentifier checks that we are in the party, and that no other member has our identifier. Another such znode may be that of
// a dead member, such as this process before a restart; then it goes within the session's MaxExpiry. If it stays, the later one
// of the two members fails. checkIdentifier returns when that time is over; zero if no other member has our identifier.
func (m *machine) checkIdentifier(ctx context.Context, v view) (time.Time, error) {
	own := session.Join(m.p.path, "party") + "/"
	here := false
	var others []string
	for _, name := range v.children {
		switch {
		case own+name == m.party.Node():
			here = true
		case party.ShallowIdentifier(name) == m.p.opts.Identifier:
			others = append(others, name)
		}
	}
	if !here {
		// The party is about to create our znode again.
		select {
		case <-v.watch.C():
		case <-ctx.Done():
		}
		return time.Time{}, ErrMembersChanged
	}
	if n := m.p.sess.Stats().Reconnects; n != m.p.reconnects || len(others) == 0 {
		// A reconnect may be due to a new leader, which gives all sessions their full timeout again.
		clear(m.p.namesakes)
		m.p.reconnects = n
	}
	var deadline time.Time
	for _, name := range others {
		later, err := m.later(ctx, v.inc, own+name)
		if err != nil {
			return time.Time{}, err
		}
		if !later {
			continue
		}
		if m.p.namesakes[name].IsZero() {
			m.p.namesakes[name] = time.Now()
			m.p.opts.Logger.WarnContext(ctx, "older member has the same identifier, waiting for it to go",
				"identifier", m.p.opts.Identifier, "path", own+name, "patience", m.p.sess.MaxExpiry())
		}
		due := m.p.namesakes[name].Add(m.p.sess.MaxExpiry())
		if !time.Now().Before(due) {
			return time.Time{}, fmt.Errorf("%w: %q, in %s", ErrDuplicate, m.p.opts.Identifier, own+name)
		}
		if deadline.IsZero() || due.Before(deadline) {
			deadline = due
		}
	}
	return deadline, nil
}

// later reports whether our znode was created after the one at path.
func (m *machine) later(ctx context.Context, inc *session.Incarnation, path string) (bool, error) {
	exists, own, err := inc.Exists(ctx, m.party.Node())
	if err != nil {
		return false, err
	}
	if !exists {
		return false, ErrMembersChanged
	}
	exists, other, err := inc.Exists(ctx, path)
	return exists && other.Czxid < own.Czxid, err
}
