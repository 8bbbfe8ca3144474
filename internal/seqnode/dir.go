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

// Options say what kind of contenders a [Dir] makes.
type Options struct {
	Word       string       // the word of the contenders made here, such as "__lock__"
	Rivals     []string     // the words of those that a contender waits for; Word need not be one of them
	Data       []byte       // the data of the contenders made here; nil is empty
	Persistent bool         // the contenders made here outlive their session
	Logger     *slog.Logger // nil: warnings and errors go to slog.Default()
}

// Dir makes contenders in one directory. It may be used by several goroutines.
type Dir struct {
	session *session.Session
	path    string
	opts    Options

	mu      sync.Mutex
	leaving []*Node // being removed, or made for a caller that gave up
}

// NewDir returns a maker of contenders in the directory path. It does no I/O. Path
// and options are checked by the caller.
func NewDir(s *session.Session, path string, opts Options) *Dir {
	opts.Logger = defaultlog.Or(opts.Logger)
	opts.Data = bytes.Clone(opts.Data)
	return &Dir{session: s, path: path, opts: opts}
}

// Create makes a contender in the newest session, and the directory when it is
// missing. It waits for a trusted incarnation, and before that until the nodes that
// this Dir has begun to remove are gone, so that none of them is in the way of the
// new one. When ctx ends, what was made or may yet be made is removed in the
// background, and the error wraps the cause.
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
			continue // the next session is another try, when nothing can be left of this one
		}
		if err != nil {
			return nil, err
		}
		if n.self.Seq < 0 || n.self.Seq >= firstRefused {
			_ = n.Remove(ctx) // goes on in the background when ctx ends
			return nil, fmt.Errorf("%w: %s got %d", ErrSequenceExhausted, d.path, n.self.Seq)
		}
		return n, nil
	}
}

// Settle waits until the nodes that this Dir has begun to remove, or that were made for callers that gave up, are gone. When
// ctx ends first, the error is a [*recipe.BlockedError] that names the oldest of them, as does the log when it takes long.
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
			return d.blocked(n.path, d.opts.Data, 1, err)
		}
	}
}

// blocked says what stands in front of a node, or of the next one.
func (d *Dir) blocked(blocker string, data []byte, ahead int, err error) error {
	return &recipe.BlockedError{
		Recipe: "lock", Path: d.path, Blocker: blocker, Identifier: hold.Identifier(data), Ahead: ahead, Err: err,
	}
}

// lasting returns the session that persistent contenders keep open, nil for others.
func (d *Dir) lasting() *session.Session {
	if d.opts.Persistent {
		return d.session
	}
	return nil
}

// oldestLeaving returns the first in leaving that is not gone yet, or nil. It
// forgets those in front of it.
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
