package election

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// Observe yields the leader, at once and after each change. A Contender without a Node says that nobody leads. The sequence ends
// when the loop breaks, or with an error when ctx ends or the session has ended for good; before the first leader also when the
// servers refuse a request. Later refusals are logged, and Observe tries again, after pauses that grow to 5 s. Observe creates no
// candidate. It reads nothing while the loop's body runs, and skips leaders that came and went meanwhile.
func (e *Election) Observe(ctx context.Context) iter.Seq2[lock.Contender, error] {
	return func(yield func(lock.Contender, error) bool) {
		var (
			last  lock.Contender
			first = true

			refusals = hold.NewRefusals(e.errs, "leader")
		)
		for {
			leader, watch, err := e.leader(ctx)
			if err != nil {
				if errors.Is(err, session.ErrSessionExpired) && ctx.Err() == nil {
					continue
				}
				if !first && refusals.Outlast(ctx, err) {
					continue
				}
				yield(lock.Contender{}, hold.Wrap(ctx, "election", "observe", e.lock.Path(), err))
				return
			}
			refusals.Over()
			if first || leader != last {
				first, last = false, leader
				if !yield(leader, nil) {
					watch.Stop()
					return
				}
			}
			select {
			case <-watch.C():
			case <-ctx.Done(): // the next read returns the cause
			}
			watch.Stop()
		}
	}
}

// leader returns the leader, with a watch that fires when to ask again. No candidate can come in front of the leader, so leader
// watches the leader's znode alone, or the directory if there is no candidate.
func (e *Election) leader(ctx context.Context) (lock.Contender, *session.Watch, error) {
	inc, err := e.session.Incarnation(ctx)
	if err != nil {
		return lock.Contender{}, nil, err
	}
	for {
		children, watch, err := list(ctx, inc, e.lock.Path())
		if err != nil {
			return lock.Contender{}, nil, err
		}
		contenders := seqnode.Contenders(children, "__lock__")
		if len(contenders) == 0 {
			return lock.Contender{}, watch, nil
		}
		watch.Stop()
		path := session.Join(e.lock.Path(), contenders[0].Name)
		data, stat, watch, err := seqnode.ReadW(ctx, inc, path)
		if errors.Is(err, session.ErrNoNode) {
			continue
		}
		if err != nil {
			return lock.Contender{}, nil, err
		}
		return lock.Contender{
			Node:       path,
			Identifier: strings.ToValidUTF8(string(data), ""),
			Token:      stat.Czxid,
			Session:    stat.EphemeralOwner,
			Since:      time.UnixMilli(stat.Ctime),
		}, watch, nil
	}
}

// list returns the children of a directory, with a watch. A missing directory has none.
func list(ctx context.Context, inc *session.Incarnation, path string) ([]string, *session.Watch, error) {
	for {
		children, _, watch, err := inc.ChildrenW(ctx, path)
		if !errors.Is(err, session.ErrNoNode) {
			return children, watch, err
		}
		exists, _, watch, err := inc.ExistsW(ctx, path)
		if err != nil || !exists {
			return nil, watch, err
		}
		watch.Stop()
	}
}
