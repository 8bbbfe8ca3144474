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

// errAgain says that the inner lock was lost and must be acquired anew.
var errAgain = errors.New("inner lock was lost")

// take waits for a free lease under the inner lock, and takes it. It goes on when the context of the inner lock's hold has ended
// and the contender exists, as after an end of trust: the contender keeps its place, and a lease is created only while the
// contender exists.
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
			continue // agree creates the znode again
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

// incarnation returns the newest incarnation if it belongs to the ZooKeeper session id.
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

// await waits until the leases, which are all taken, may have changed.
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
	case <-watch.C(): // fires also when the connection drops, and once per session timeout
		return nil
	case <-ctx.Done():
		blocked.Err = context.Cause(ctx)
		return blocked
	}
}

// agree makes sure that the semaphore's znode has our number of leases, and returns the znode's version. It leaves data alone
// that is not a number, as kazoo does.
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

// differs reports whether data of the semaphore's znode is a number other than this handle's.
func (s *Semaphore) differs(data []byte) bool {
	agreed, err := strconv.Atoi(strings.TrimSpace(string(data)))
	return err == nil && agreed != s.max || errors.Is(err, strconv.ErrRange)
}

func (s *Semaphore) disagree(data []byte) error {
	return fmt.Errorf("%w: %s, and Options.MaxLeases is %d", ErrMaxLeases, hold.Text(data, 64), s.max)
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

// clear returns nil if err says that the outcome of a write is unknown, after a Sync, so that the next read shows the outcome. It
// returns the error of the Sync, if any, and any other err as it is.
func (s *Semaphore) clear(ctx context.Context, inc *session.Incarnation, err error) error {
	if !errors.Is(err, session.ErrUncertain) {
		return err
	}
	if err = inc.Sync(ctx, s.path); errors.Is(err, session.ErrNoNode) {
		return nil
	}
	return err
}

// obtain creates a lease if the number of leases still has that version and the contender of the inner lock exists. It returns
// nil if the lease was not created, see errRefused. The requests do not end with ctx, see [hold.Own.Make].
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

// note stores the newest lease, for which the next Acquire waits.
func (s *Semaphore) note(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = l
}

// hand returns the hold of a lease. If trust has ended since the lease was created, hand waits for the next incarnation: the
// lease still exists.
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

// newLease returns a lease whose znode is yet to be created.
func newLease(s *Semaphore, inc *session.Incarnation) *lease {
	l := &lease{semaphore: s, inc: inc, path: session.Join(s.path, seqnode.NewGUID())}
	l.own = hold.NewOwn(l.path, s.log, nil, l.remove)
	return l
}
