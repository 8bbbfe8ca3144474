package semaphore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// errAgain says that the inner lock was lost, and is to be acquired anew.
var errAgain = errors.New("semaphore: inner lock lost")

// take waits for a free lease under the inner lock, and takes it. The contender of the
// inner lock is what counts, not the context of its hold: it keeps us in front as long as
// it stands, also after trust has ended for a while, and a lease is made only while it
// stands.
func (s *Semaphore) take(ctx context.Context, inner *lock.Held, wait bool) (*Held, error) {
	var patience seqnode.Patience
	for {
		inc, err := s.incarnation(ctx, inner.Incarnation().SessionID())
		if err != nil {
			return nil, err
		}
		version, err := s.agree(ctx, inc)
		if err != nil {
			return nil, err
		}
		children, _, watch, err := inc.ChildrenW(ctx, s.path)
		if errors.Is(err, session.ErrNoNode) {
			continue // agree makes it again
		}
		if err != nil {
			return nil, err
		}
		if len(children) >= s.max {
			err = s.await(ctx, inc, inner, children, watch, wait, &patience)
			watch.Stop()
			if err != nil {
				return nil, err
			}
			continue
		}
		watch.Stop()
		made, err := s.obtain(ctx, inc, inner.Node(), version)
		if err != nil {
			return nil, err
		}
		if made != nil {
			return s.hand(ctx, made)
		}
	}
}

// incarnation returns the newest incarnation, if it is of that ZooKeeper session.
func (s *Semaphore) incarnation(ctx context.Context, id int64) (*session.Incarnation, error) {
	inc, err := s.session.Incarnation(ctx)
	if err != nil {
		return nil, err
	}
	if inc.SessionID() != id {
		return nil, session.ErrSessionExpired
	}
	return inc, nil
}

// await waits until the leases may have changed. All of them are taken now.
func (s *Semaphore) await(
	ctx context.Context, inc *session.Incarnation, inner *lock.Held, children []string, watch *session.Watch, wait bool, patience *seqnode.Patience,
) error {
	path := session.Join(s.path, children[0])
	data, stat, err := seqnode.Read(ctx, inc, path)
	if errors.Is(err, session.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	blocked := s.blocked(path, data, len(children), ErrNotAcquired)
	if !wait {
		return blocked
	}
	exists, _, err := inc.Exists(ctx, inner.Node())
	if err != nil {
		return err
	}
	if !exists {
		return errAgain
	}
	if waited, over := patience.Over(); over {
		s.log.WarnContext(ctx, "still waiting",
			"path", s.path, "waited", waited, "leases", len(children), "blocker", seqnode.Blocker{Path: path, Data: data, Stat: stat})
	}
	select {
	case <-watch.C(): // also when the connection drops, and once per session timeout
		return nil
	case <-ctx.Done():
		blocked.Err = context.Cause(ctx)
		return blocked
	}
}

// agree makes sure that the semaphore's znode holds our number of leases, and returns its
// version. Data that is no number is left alone, as in kazoo.
func (s *Semaphore) agree(ctx context.Context, inc *session.Incarnation) (int32, error) {
	number := []byte(strconv.Itoa(s.max))
	for {
		data, stat, err := inc.Get(ctx, s.path)
		switch {
		case errors.Is(err, session.ErrNoNode):
			err = s.clear(ctx, inc, s.make(ctx, inc, number))
			if err == nil || errors.Is(err, session.ErrNodeExists) {
				continue
			}
			return 0, err
		case err != nil:
			return 0, err
		case len(data) == 0:
			_, err := inc.Set(ctx, s.path, number, stat.Version)
			err = s.clear(ctx, inc, err)
			if err == nil || errors.Is(err, session.ErrBadVersion) || errors.Is(err, session.ErrNoNode) {
				continue
			}
			return 0, err
		}
		if s.differs(data) {
			return 0, s.disagree(data)
		}
		return stat.Version, nil
	}
}

// differs reports whether the data of the semaphore's znode is another number than ours.
func (s *Semaphore) differs(data []byte) bool {
	agreed, err := strconv.Atoi(strings.TrimSpace(string(data)))
	return err == nil && agreed != s.max || errors.Is(err, strconv.ErrRange)
}

func (s *Semaphore) disagree(data []byte) error {
	return fmt.Errorf("%w: %s, Options.MaxLeases is %d", ErrMaxLeases, hold.Text(data, 64), s.max)
}

// make creates the semaphore's znode with its number, in one request.
func (s *Semaphore) make(ctx context.Context, inc *session.Incarnation, number []byte) error {
	_, err := inc.Create(ctx, s.path, number, session.Persistent)
	if !errors.Is(err, session.ErrNoNode) {
		return err
	}
	if err := inc.EnsurePath(ctx, s.path[:max(1, strings.LastIndexByte(s.path, '/'))]); err != nil {
		return err
	}
	_, err = inc.Create(ctx, s.path, number, session.Persistent)
	return err
}

// clear returns nil for the error of a write of which only a look can tell what became of it, and sees to it that a
// look does. If it can't, because the session is over, it says that.
func (s *Semaphore) clear(ctx context.Context, inc *session.Incarnation, err error) error {
	if !errors.Is(err, session.ErrUncertain) {
		return err
	}
	if err = inc.Sync(ctx, s.path); errors.Is(err, session.ErrNoNode) {
		return nil
	}
	return err
}

// obtain makes a lease, if the number of leases and the contender of the inner lock are as
// they were. It returns nil when they are not, or the znode is gone. The requests do not end
// with ctx: see [hold.Own.Make].
func (s *Semaphore) obtain(ctx context.Context, inc *session.Incarnation, contender string, version int32) (*lease, error) {
	l := newLease(s, inc)
	err := l.own.Make(ctx, func(life context.Context) error { return l.make(life, contender, version) })
	if err == nil || errors.Is(err, hold.ErrUnsure) || ctx.Err() != nil {
		s.note(l)
	}
	switch {
	case errors.Is(err, errRefused):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return l, nil
}

// note keeps the newest lease, for the next Acquire to wait for.
func (s *Semaphore) note(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = l
}

// hand makes a hold of a lease. It waits when trust has ended since it was made: the lease
// stands.
func (s *Semaphore) hand(ctx context.Context, l *lease) (*Held, error) {
	for {
		inc, err := s.incarnation(ctx, l.inc.SessionID())
		var h *Held
		if err == nil {
			h, err = s.hold(ctx, l, inc)
		}
		if err != nil {
			l.own.Abandon(ctx)
			return nil, err
		}
		if h != nil {
			s.mu.Lock()
			s.held = h
			s.mu.Unlock()
			return h, nil
		}
	}
}

// newLease returns a lease that is to be made.
func newLease(s *Semaphore, inc *session.Incarnation) *lease {
	l := &lease{semaphore: s, inc: inc, path: session.Join(s.path, seqnode.NewGUID())}
	l.own = hold.NewOwn(l.path, s.log, nil, l.remove)
	return l
}
