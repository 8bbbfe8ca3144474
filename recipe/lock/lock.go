package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// Lock is one lock, or one side of a read/write lock. It may be used by several
// goroutines; each Acquire is a contender of its own.
type Lock struct {
	session *session.Session
	path    string
	words   []string // of those that Contenders shows
	opts    Options
	dir     *seqnode.Dir

	mu    sync.Mutex
	holds []*Held // those that have not ended, and some that have
}

// New returns a handle on the lock at path, kazoo's Lock. It checks its arguments and
// does no I/O. The session must be running for the other methods to succeed.
func New(s *session.Session, path string, opts Options) (*Lock, error) {
	return newLock(s, path, opts, word, word)
}

// NewWrite returns a handle on the writing side of the read/write lock at path, kazoo's
// WriteLock: it waits for all that came before, readers and writers.
func NewWrite(s *session.Session, path string, opts Options) (*Lock, error) {
	return newLock(s, path, opts, word, word, readWord)
}

// NewRead returns a handle on the reading side of the read/write lock at path, kazoo's
// ReadLock: it waits for the writers that came before, and holds it together with
// other readers. So that writers don't starve, a reader waits for those that wait, too.
func NewRead(s *session.Session, path string, opts Options) (*Lock, error) {
	return newLock(s, path, opts, readWord, word)
}

// newLock makes the handle of contenders that have one word and wait for the others.
func newLock(s *session.Session, path string, opts Options, own string, rivals ...string) (*Lock, error) {
	if s == nil {
		return nil, errors.New("lock: no session")
	}
	if err := session.CheckPath(path); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := opts.validate(); err != nil {
		return nil, err
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

// Identifier returns the data of our contenders.
func (l *Lock) Identifier() string { return l.opts.Identifier }

// Held reports whether this handle has a hold that may be relied on at this moment.
func (l *Lock) Held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	return slices.ContainsFunc(l.holds, (*Held).Valid)
}

// prune forgets holds that have ended. It needs mu.
func (l *Lock) prune() {
	l.holds = slices.DeleteFunc(l.holds, func(h *Held) bool { return h.hold.Context().Err() != nil })
}

func (l *Lock) add(h *Held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	l.holds = append(l.holds, h)
}

// Acquire waits until the lock is ours. It outlives lost connections and expired
// sessions; after an expiry it queues up again at the end. When ctx ends, the error
// wraps its cause, and is a [*recipe.BlockedError] if another contender was seen in front.
// Whatever the error, our contender is removed, in the background if need be; the
// next Acquire or TryAcquire on this handle first waits for that.
func (l *Lock) Acquire(ctx context.Context) (*Held, error) {
	return l.acquire(ctx, "acquire", func(n *seqnode.Node) (*session.Incarnation, error) {
		return n.Wait(ctx)
	})
}

// TryAcquire takes the lock if nobody else has it or waits for it. Otherwise the
// error wraps ErrNotAcquired and is a [*recipe.BlockedError]; no contender of ours is left
// then. It blocks for a few round trips, while there is no connection, and while an earlier
// contender of this handle is being removed.
func (l *Lock) TryAcquire(ctx context.Context) (*Held, error) {
	return l.acquire(ctx, "try", func(n *seqnode.Node) (*session.Incarnation, error) {
		return n.First(ctx, ErrNotAcquired)
	})
}

// acquire makes contenders until one of them is first.
func (l *Lock) acquire(ctx context.Context, op string, first func(*seqnode.Node) (*session.Incarnation, error)) (*Held, error) {
	for {
		n, err := l.dir.Create(ctx)
		if err != nil {
			return nil, l.wrap(ctx, op, err)
		}
		held, err := l.turn(ctx, n, first)
		if err == nil {
			l.add(held)
			return held, nil
		}
		_ = n.Remove(ctx) // at once when ctx has ended: then it goes on in the background
		lost := errors.Is(err, seqnode.ErrGone) || errors.Is(err, session.ErrSessionExpired)
		if lost && ctx.Err() != nil {
			err, lost = context.Cause(ctx), false
		}
		if !lost {
			return nil, l.wrap(ctx, op, err)
		}
	}
}

// turn waits for n's turn. It waits again when trust ends between the moment when
// it was seen to be first and the moment when it is handed out: n keeps its place.
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

// wrap says what failed, unless the error says what was in the way.
func (l *Lock) wrap(ctx context.Context, op string, err error) error {
	if b, ok := hold.Blocked(ctx, err); ok {
		return b
	}
	return fmt.Errorf("lock: %s %s: %w", op, l.path, err)
}

// Settle waits until the contenders that this handle has begun to remove, of holds that were released and of calls that have
// given up, are proved gone, or their sessions over: expired, or ended with the session's Run, after which they are gone
// within one session timeout. When ctx ends first the error wraps its cause and says which of them may
// still stand; their removal goes on. Those of holds and of calls that go on are left alone. It returns nil, too, when a
// persistent contender can't be removed any more because Run has ended: that is what Release reports.
func (l *Lock) Settle(ctx context.Context) error {
	if err := l.dir.Settle(ctx); err != nil {
		return l.wrap(ctx, "settle", err)
	}
	return nil
}

// Contender is a process that holds a lock or waits for it.
type Contender struct {
	Node       string    // path of its znode
	Identifier string    // its data, as far as it is UTF-8; "" if its ACL does not let us read it
	Token      int64     // czxid of its znode
	Reader     bool      // whether it is one of a ReadLock
	Session    int64     // the ZooKeeper session that it ends with; 0 if it ends with none
	Since      time.Time // when it was made, by the server's clock
}

// Contenders returns who holds the lock and who waits, in their order: the first
// one holds it; if that is a reader, so do the readers right behind it. Who waits at
// other kinds of handles is shown as far as this one has to do with it: Lock does not
// see readers. A lock whose znode is missing has none. It creates nothing.
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
