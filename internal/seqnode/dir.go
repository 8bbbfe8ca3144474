package seqnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/session"
)

// Options describe the contenders that a [Dir] creates.
type Options struct {
	Word       string       // the word in the names of the contenders, such as "__lock__"
	Rivals     []string     // the words of the contenders that these wait for; Word need not be one of them
	Data       []byte       // the data of the contenders; nil is empty
	Persistent bool         // whether the contenders outlive their session
	Logger     *slog.Logger // nil: warnings and errors go to slog.Default()
}

// Dir creates contenders in one directory. Several goroutines may use it.
type Dir struct {
	session *session.Session
	path    string
	opts    Options

	mu      sync.Mutex
	leaving []*Node // nodes that are being removed, or were created for callers that gave up; oldest first
}

// NewDir returns a Dir for the directory at path. It does no I/O. The caller has checked path and opts.
func NewDir(s *session.Session, path string, opts Options) *Dir {
	opts.Logger = defaultlog.Or(opts.Logger)
	opts.Data = bytes.Clone(opts.Data)
	return &Dir{session: s, path: path, opts: opts}
}

// Create creates a contender in the newest session, and the directory if it is missing. Create first waits until the nodes that
// this Dir has begun to remove are gone, so that none of them precedes the new one; then it waits for a trusted incarnation. When
// ctx ends, the error wraps its cause, and a contender that was or may yet be created is removed in the background.
func (d *Dir) Create(ctx context.Context) (*Node, error) {
	for {
		if err := d.Settle(ctx); err != nil {
			return nil, err
		}
		inc, err := d.session.Incarnation(ctx)
		if err != nil {
			return nil, err
		}
		n := &Node{dir: d, inc: inc, path: session.Join(d.path, NewGUID()+d.opts.Word)}
		n.own = hold.NewOwn(n.path, d.opts.Logger, d.lasting(), n.remove)
		err = n.create(ctx)
		if errors.Is(err, session.ErrSessionExpired) {
			continue // try again in the next session: the contender went with this one, or Settle waits for it
		}
		if err != nil {
			return nil, err
		}
		if n.self.Seq < 0 || n.self.Seq >= FirstRefused {
			_ = n.Remove(ctx) // when ctx ends, the removal goes on in the background
			return nil, fmt.Errorf("%w: %d", ErrSequenceExhausted, n.self.Seq)
		}
		return n, nil
	}
}

// Settle waits until the nodes are gone that this Dir has begun to remove or has created for callers that gave up. When ctx ends
// first, the error is a [*recipe.BlockedError] that names the oldest of them. The log names it when the wait takes long.
func (d *Dir) Settle(ctx context.Context) error {
	var patience Patience
	for {
		n := d.oldestLeaving()
		if n == nil {
			return nil
		}
		err := patience.Wait(ctx, n.own.Gone(), func(waited time.Duration) {
			d.opts.Logger.WarnContext(ctx, "still waiting", "path", d.path, "waited", waited,
				"blocker", Blocker{n.path, d.opts.Data, session.Stat{EphemeralOwner: n.owner()}})
		})
		if err != nil {
			return d.blocked(n.path, d.opts.Data, 0, err)
		}
	}
}

// blocked returns the error of a wait that ended with err while blocker was in the way.
func (d *Dir) blocked(blocker string, data []byte, ahead int, err error) error {
	return &recipe.BlockedError{
		Recipe: "lock", Path: d.path, Blocker: blocker, Identifier: hold.Identifier(data), Detail: hold.Detail(ahead, "ahead"), Err: err,
	}
}

// lasting returns the session that persistent contenders keep open, or nil if the contenders are ephemeral.
func (d *Dir) lasting() *session.Session {
	if d.opts.Persistent {
		return d.session
	}
	return nil
}

// oldestLeaving drops the nodes at the head of leaving that are gone, and returns the first that is not, or nil.
func (d *Dir) oldestLeaving() *Node {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.leaving) > 0 {
		select {
		case <-d.leaving[0].own.Gone():
			d.leaving = d.leaving[1:]
		default:
			return d.leaving[0]
		}
	}
	return nil
}

func (d *Dir) addLeaving(n *Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaving = append(d.leaving, n)
}
