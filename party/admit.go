package party

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// join creates this member's znode. If admission is asked for, and this session owns no such znode, join reads the members first.
// Records that it reads are not read again afterwards.
func (l *loop) join(ctx context.Context) error {
	if l.admit != nil {
		if err := l.askToJoin(ctx); err != nil {
			return err
		}
	}
	if l.static != nil {
		return l.joinStatic(ctx)
	}
	return l.enter(ctx)
}

// askToJoin returns an ErrNotAdmitted if this member may not join the members as they are now. It lists both directories at the
// same time: what it finds decides nothing but whether the member tries to join, and is read again after that.
func (l *loop) askToJoin(ctx context.Context) error {
	var records error
	var listing sync.WaitGroup
	listing.Go(func() { records = l.listRecords(ctx, false) })
	names, directory, err := l.list(ctx)
	listing.Wait()
	if errors.Is(err, session.ErrNoNode) {
		return nil // nobody is there
	}
	if err = cmp.Or(err, records); err != nil {
		return err
	}
	view, err := l.readListed(ctx, names, directory)
	if err != nil {
		return err
	}
	own, stands := l.members[l.name]
	view.Joined = stands && own.Session == l.sid
	return l.checkAdmitted(&view)
}

// checkAdmitted returns an ErrNotAdmitted if this member may not be one of the view's.
func (l *loop) checkAdmitted(v *View) error {
	if l.admit == nil || v.same(l.admitted) {
		return nil
	}
	if err := l.admit(v); err != nil {
		return operr.Because(ErrNotAdmitted, err)
	}
	l.admitted = v
	return nil
}
