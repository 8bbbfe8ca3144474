package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// Lock is one lock, or one side of a read/write lock. Several goroutines may use it; each Acquire is a contender of its own.
type Lock struct {
	session *session.Session
	path    string
	words   []string // the words of the contenders that Contenders returns
	opts    Options
	dir     *seqnode.Dir

	queued atomic.Bool // whether a contender was ever created

	mu    sync.Mutex
	holds []*Held // holds that have not ended, and some that have
}

// New returns a handle on the lock at path, as kazoo's Lock. It checks its arguments and does no I/O. The session must be running
// for the methods to succeed.
func New(s *session.Session, path string, opts Options) (*Lock, error) {
	return newLock(s, path, opts, word, word)
}

// NewWrite returns a handle on the writing side of the read/write lock at path, as kazoo's WriteLock: a writer waits for all
// readers and writers that came before it.
func NewWrite(s *session.Session, path string, opts Options) (*Lock, error) {
	return newLock(s, path, opts, word, word, readWord)
}

// NewRead returns a handle on the reading side of the read/write lock at path, as kazoo's ReadLock: a reader waits for the
// writers that came before it, and holds the lock together with other readers. A reader also waits for writers that are still
// waiting, so that writers don't starve.
func NewRead(s *session.Session, path string, opts Options) (*Lock, error) {
	return newLock(s, path, opts, readWord, word)
}

// newLock returns a handle whose contenders have the word own and wait for those with a word of rivals.
func newLock(s *session.Session, path string, opts Options, own string, rivals ...string) (*Lock, error) {
	if s == nil {
		return nil, operr.New("lock", "", "", errors.New("session is nil"))
	}
	if err := session.CheckPath(path); err != nil {
		return nil, operr.New("lock", "", "", err)
	}
	if err := opts.validate(); err != nil {
		return nil, operr.New("lock", "", "", err)
	}
	rivals = append(rivals, opts.ExtraPatterns...)
	words := rivals
	if !slices.Contains(words, own) {
		words = append(slices.Clip(words), own)
	}
	return &Lock{
		session: s,
		path:    path,
		words:   words,
		opts:    opts,
		dir: seqnode.NewDir(s, path, seqnode.Options{
			Word:       own,
			Rivals:     rivals,
			Data:       []byte(opts.Identifier),
			Persistent: opts.Persistent,
			Logger:     opts.Logger,
		}),
	}, nil
}

// Path returns the lock's path.
func (l *Lock) Path() string { return l.path }

// Identifier returns the data of this handle's contenders.
func (l *Lock) Identifier() string { return l.opts.Identifier }

// Queued reports whether a contender of this handle has ever been created, whether it has acquired the lock or not.
func (l *Lock) Queued() bool { return l.queued.Load() }

// Held reports whether this handle has a hold that may be relied on at this moment.
func (l *Lock) Held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	return slices.ContainsFunc(l.holds, (*Held).Valid)
}

// prune drops holds that have ended. The caller holds mu.
func (l *Lock) prune() {
	l.holds = slices.DeleteFunc(l.holds, func(h *Held) bool { return h.hold.Context().Err() != nil })
}

func (l *Lock) add(h *Held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	l.holds = append(l.holds, h)
}

// Acquire waits until it has acquired the lock. It goes on through lost connections and expired sessions; after an expiry its
// contender queues up again at the end. When ctx ends, the error wraps its cause, and is a [*recipe.BlockedError] if a contender
// was seen in front. After any error the call's contender is removed, in the background if the call does not wait for that. The
// next Acquire or TryAcquire on this handle waits for the removal first.
func (l *Lock) Acquire(ctx context.Context) (*Held, error) {
	return l.acquire(ctx, "acquire", func(n *seqnode.Node) (*session.Incarnation, error) {
		return n.Wait(ctx)
	})
}

// TryAcquire acquires the lock if nobody else has it or waits for it. Otherwise the error is a [*recipe.BlockedError] that wraps
// ErrNotAcquired, and the call's contender is gone. TryAcquire blocks for a few round trips, while there is no connection, and
// while an earlier contender of this handle is being removed.
func (l *Lock) TryAcquire(ctx context.Context) (*Held, error) {
	return l.acquire(ctx, "try to acquire", func(n *seqnode.Node) (*session.Incarnation, error) {
		return n.First(ctx, ErrNotAcquired)
	})
}

// acquire creates contenders until one of them is first.
func (l *Lock) acquire(ctx context.Context, op string, first func(*seqnode.Node) (*session.Incarnation, error)) (*Held, error) {
	for {
		n, err := l.dir.Create(ctx)
		if err != nil {
			return nil, l.wrap(ctx, op, err)
		}
		l.queued.Store(true)
		held, err := l.turn(ctx, n, first)
		if err == nil {
			l.add(held)
			return held, nil
		}
		_ = n.Remove(ctx) // returns at once if ctx has ended; the removal then goes on in the background
		lost := errors.Is(err, seqnode.ErrGone) || errors.Is(err, session.ErrSessionExpired)
		if lost && ctx.Err() != nil {
			err, lost = context.Cause(ctx), false
		}
		if !lost {
			return nil, l.wrap(ctx, op, err)
		}
	}
}

// turn waits until n is first, and returns the hold. If trust ends after n was seen to be first and before the hold is made, n
// keeps its place and turn waits again.
func (l *Lock) turn(ctx context.Context, n *seqnode.Node, first func(*seqnode.Node) (*session.Incarnation, error)) (*Held, error) {
	for {
		inc, err := first(n)
		if err != nil {
			return nil, err
		}
		held, err := l.hold(ctx, n, inc)
		if held != nil || err != nil && !n.Outlives(err) {
			return held, err
		}
	}
}

func (l *Lock) wrap(ctx context.Context, op string, err error) error {
	return hold.Wrap(ctx, "lock", op, l.path, err)
}

// Settle waits until the contenders that this handle has begun to remove are proved gone or their sessions are over: expired, or
// ended with the session's Run, after which they are gone within one session timeout. These are the contenders of released holds
// and of calls that gave up; Settle leaves those of other holds and calls alone. When ctx ends first, the error wraps its cause
// and names a contender that may still exist; the removal goes on. Settle also returns nil when a persistent contender can't be
// removed any more because Run has ended: Release reports that.
func (l *Lock) Settle(ctx context.Context) error {
	if err := l.dir.Settle(ctx); err != nil {
		return l.wrap(ctx, "settle", err)
	}
	return nil
}

// Contender is a process that holds a lock or waits for it.
type Contender struct {
	Node       string    // path of its znode
	Identifier string    // data of its znode, without invalid UTF-8; "" if the ACL forbids reading
	Token      int64     // czxid of its znode
	Reader     bool      // whether it is a contender of a ReadLock
	Session    int64     // the ZooKeeper session that owns its znode; 0 if the znode is persistent
	Since      time.Time // when its znode was created, by the server's clock
}

// Contenders returns the holder of the lock and those that wait, in their order. The first one holds the lock; if it is a reader,
// so do the readers right behind it. The list has the contenders of other kinds of handles that contenders of this handle wait
// for: a Lock does not show readers. A lock whose znode is missing has no contenders. Contenders creates nothing.
func (l *Lock) Contenders(ctx context.Context) ([]Contender, error) {
	for {
		list, err := l.contenders(ctx)
		if err == nil {
			return list, nil
		}
		if !errors.Is(err, session.ErrSessionExpired) || ctx.Err() != nil {
			return nil, l.wrap(ctx, "list", err)
		}
	}
}

func (l *Lock) contenders(ctx context.Context) ([]Contender, error) {
	inc, err := l.session.Incarnation(ctx)
	if err != nil {
		return nil, err
	}
	children, _, err := inc.Children(ctx, l.path)
	if errors.Is(err, session.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Contender
	for _, c := range seqnode.Contenders(children, l.words...) {
		path := session.Join(l.path, c.Name)
		data, stat, err := seqnode.Read(ctx, inc, path)
		if errors.Is(err, session.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, Contender{
			Node:       path,
			Identifier: hold.Text(data, 0),
			Token:      stat.Czxid,
			Reader:     c.Word == readWord,
			Session:    stat.EphemeralOwner,
			Since:      time.UnixMilli(stat.Ctime),
		})
	}
	return list, nil
}
