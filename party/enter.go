package party

import (
	"context"
	"errors"

	"github.com/kielgo/kiel/session"
)

// enter creates this member's znode, and in the same transaction its entry in the directory of records, if there is to be one. It
// returns nil if the outcome is known, or will show when the loop reads the directories. Whatever the servers refuse about both,
// enter tries about the member's znode alone: without an entry the others read that znode.
func (l *loop) enter(ctx context.Context) error {
	if l.records.path == "" {
		return create(ctx, l.inc, l.path, l.node, l.data)
	}
	err := l.createBoth(ctx)
	if errors.Is(err, session.ErrNoNode) {
		err = l.inc.EnsurePath(ctx, l.path)
		if err == nil {
			err = l.inc.EnsurePath(ctx, l.records.path)
		}
		if err == nil {
			err = l.createBoth(ctx)
		}
	}
	switch {
	case err == nil:
		return nil
	case isAbout(err, 0) && (errors.Is(err, session.ErrNodeExists) || errors.Is(err, session.ErrNoNode)):
		return nil // the loop reads whose znode it is, or creates the directory that somebody has deleted again
	case isAbout(err, 0):
		return err
	case errors.Is(err, session.ErrUncertain):
		// Before the answer to a Sync the transaction was executed, or it never will be.
		err = l.inc.Sync(ctx, l.path)
		if err == nil || errors.Is(err, session.ErrNoNode) {
			return nil
		}
		return err
	case unreadable(ctx, err):
		return create(ctx, l.inc, l.path, l.node, l.data)
	default:
		return err
	}
}

// isAbout reports whether err is the refusal of that operation of a transaction.
func isAbout(err error, operation int) bool {
	refused, ok := errors.AsType[*session.MultiError](err)
	return ok && refused.Index == operation
}

func (l *loop) createBoth(ctx context.Context) error {
	_, err := l.inc.Multi(ctx,
		session.CreateOp(l.node, l.data, session.Ephemeral),
		session.CreateOp(l.ownEntry(), l.info, session.Ephemeral))
	return err
}

// exit deletes this member's znode of that version, and its entry in the same transaction. The entry is this session's by its
// name, and nobody needs it without the member's znode.
func (l *loop) exit(ctx context.Context, version int32) error {
	if l.records.path == "" {
		return l.inc.Delete(ctx, l.node, version)
	}
	_, err := l.inc.Multi(ctx, session.DeleteOp(l.node, version), session.DeleteOp(l.ownEntry(), -1))
	if isAbout(err, 0) || !unreadable(ctx, err) {
		return err
	}
	return l.inc.Delete(ctx, l.node, version) // the entry is gone, or ends with the session
}

// exitEntry deletes this member's entry, if there is one, when the member's znode is gone or another session's.
func (l *loop) exitEntry(ctx context.Context) error {
	if l.records.path == "" {
		return nil
	}
	err := l.inc.Delete(ctx, l.ownEntry(), -1)
	if unreadable(ctx, err) { // there is none, or it ends with the session
		return nil
	}
	return ended(err)
}
