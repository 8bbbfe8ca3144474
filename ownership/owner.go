package ownership

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/session"
)

// Handler is called once for each partition that is owned, on a goroutine of its own. ctx ends with a cause: [ErrRevoked] when
// the partition is to go to another member (the handler may still commit, under [Claim.Context]), [ErrLost] when it is not this
// member's any more. The claim is released after the handler has returned, or after RebalanceTimeout. A handler that returns
// while the partition is still owned is called again after a pause, under the same claim.
//
// There is at most one call for a partition at any time in an Owner. ctx has the values of Run's. A handler that panics has
// returned with an error that is an [ErrCallback] and names the panic; the log has the stack.
type Handler func(ctx context.Context, c *Claim) error

// Owner claims the partitions that an allocator gives to this member, one handler at work for each, and hands them over.
type Owner struct {
	source  source
	session *session.Session
	handler Handler
	opts    Options
	metrics *metrics
	shown   *promreg.Set
	log     *slog.Logger
	paths   claims.Paths
	id      string // of this value, in the data of its claims

	troubles *errlog.Log
	loop     atomic.Pointer[loop]                // from Run's start on
	settled  atomic.Pointer[session.Incarnation] // in which the first claims are settled
	awaited  atomic.Int64                        // claims that are not
	leaving  atomic.Bool

	board   *board
	users   *callbacks
	started atomic.Bool
	leave   chan struct{} // closed by Stop
	once    sync.Once     // closes leave
	done    chan struct{} // closed when Run returned
	err     error         // of Run, after done
}

// New returns an owner of the partitions that a allocates to this member. It runs the allocator itself; a must not be run by
// anybody else. New does no I/O.
func New(a *allocator.PartitionAllocator, h Handler, opts Options) (*Owner, error) {
	if a == nil {
		return nil, operr.New(pkg, "", "", errors.New("the allocator is nil"))
	}
	return newOwner(allocation{a}, h, opts)
}

func newOwner(src source, h Handler, opts Options) (*Owner, error) {
	if h == nil {
		return nil, operr.New(pkg, "", "", errors.New("the handler is nil"))
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	m, shown := promreg.New(opts.Registerer, src.Group(), newMetrics)
	if err := shown.Complete(); err != nil {
		return nil, operr.New(pkg, "", "", err)
	}
	m.info.WithLabelValues(src.Member(), version()).Set(0)
	log := opts.Logger.With("component", "ownership", "group", src.Group(), "member", src.Member())
	o := &Owner{
		source:   src,
		session:  src.Session(),
		handler:  h,
		opts:     opts,
		metrics:  m,
		shown:    shown,
		log:      log,
		troubles: errlog.New(log),
		paths:    claims.NewPaths(src.GroupPath()),
		id:       rand.Text(),
		board:    newBoard(m),
		leave:    make(chan struct{}),
		done:     make(chan struct{}),
	}
	o.users = newCallbacks(o)
	return o, nil
}

// Allocator returns the allocator, for its snapshots and its set. It is nil if the Owner has another source of plans, as in
// tests.
func (o *Owner) Allocator() *allocator.PartitionAllocator {
	if a, ok := o.source.(allocation); ok {
		return a.PartitionAllocator
	}
	return nil
}

// Owned returns the claims whose handlers may be at work, sorted by topic and partition. It never waits for ZooKeeper or a
// handler.
func (o *Owner) Owned() []OwnedClaim { return o.board.list() }

// Run joins the group, claims and releases, until ctx ends, Stop is called, the allocator fails or the session is closed. Then it
// leaves: it deletes the member znode first, revokes each partition and releases it as soon as its handler has returned, and
// stops the allocator. If a claim could not be released, it gives the session up (session.GiveUp), so that nobody waits for the
// claim. It returns within StopTimeout:
//
//   - nil, if all was in order, and if ctx had ended or Stop was called before: then it joins nothing and calls no Observer;
//   - the error of the allocator or of the session that has ended it;
//   - [ErrStuck] for each handler or callback that has not returned, and for claims that were not released;
//   - [kiel.ErrRunTwice] at a second call.
//
// Afterwards no handler or callback is called. What may still run is a handler or a callback that has not returned, whose claim
// is lost; without ZooKeeper the allocator, for a session timeout at most; and, if a callback of the allocator's is stuck, the
// others of it until its StopTimeout is over.
//
// If ctx's cause wraps StuckErrors, the handlers of their partitions were asked to return [StuckError].For ago, and
// RebalanceTimeout counts from then. Run keeps the session from closing until it has released everything.
func (o *Owner) Run(ctx context.Context) error {
	if !o.started.CompareAndSwap(false, true) {
		return operr.New(pkg, "", "", kiel.ErrRunTwice)
	}
	defer close(o.done)
	select {
	case <-o.leave:
		return nil
	default:
	}
	defer o.session.KeepOpen()()
	hide, err := o.shown.Show()
	if err != nil {
		o.err = exported(errors.Join(err, o.endSource(ctx)))
		return o.err
	}
	defer hide()
	if ctx.Err() != nil { // the session may have ended with it, before we held it
		o.err = exported(o.endSource(ctx))
		return o.err
	}
	o.metrics.owner.Store(o)
	l := newLoop(ctx, o)
	o.loop.Store(l)
	o.err = exported(l.run(ctx))
	return o.err
}

// Kept reports whether Run has ended and the membership stays, because of [ErrKeep]. All claims are released then. The program
// calls [session.Session.LetExpire] to let it stay while the process ends, or [session.Session.GiveUp] to end it after all.
func (o *Owner) Kept() bool { return o.source.Kept() }

// endSource ends the allocator that was not run, so that nobody waits for it.
func (o *Owner) endSource(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	_ = o.source.Stop(ctx) // its Run returns at once then
	return o.source.Run(ctx)
}

// Stop makes Run leave and waits until it has returned. It returns Run's error, or ctx's cause when that ends first (Run goes on
// leaving). Before Run it only makes Run return nil at once. It may be called from anywhere but the callbacks and handlers that
// Run waits for.
func (o *Owner) Stop(ctx context.Context) error {
	o.once.Do(func() { close(o.leave) })
	if !o.started.Load() {
		return nil
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return operr.New(pkg, "stop", "", context.Cause(ctx))
	}
}
