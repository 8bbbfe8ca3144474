package page

import (
	"cmp"
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/internal/latest"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/status"
)

const pkg = "page"

// Handler serves the page of one group. Its methods may be called from any goroutine.
type Handler struct {
	group    string
	opts     Options
	series   *inspect.Series // Run's
	renderer *renderer
	assets   map[string]asset

	snapshots *latest.Value[snapshot] // nil while nobody watches
	started   atomic.Bool
	ended     chan struct{} // closed when Run has returned
	wake      chan struct{} // has a value when somebody has begun to watch

	mu      sync.Mutex
	viewers int       // that are served what is new
	asked   time.Time // when the page was last asked for, or a viewer has left
}

// New makes a Handler for a group. It starts nothing and connects to nothing: [Handler.Run] does. It returns an error if the
// group's name, the sources or the options are not valid. Sources.Wait is 2 s unless set.
func New(group string, sources inspect.Sources, opts Options) (*Handler, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, operr.New(pkg, "new", "", err)
	}
	sources.Wait = cmp.Or(sources.Wait, defaultWait)
	look := inspect.SeriesOptions{Window: opts.Window, MaxClaims: maxClaims}
	if opts.Self != nil {
		look.Self = func() *status.Group { return opts.Self.Status() }
	}
	series, err := inspect.NewSeries(sources, group, look)
	if err != nil {
		return nil, operr.New(pkg, "new", "", err)
	}
	h := &Handler{
		group: group, opts: opts, series: series, snapshots: latest.New[snapshot](nil), ended: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	templates, err := parse()
	if err != nil {
		return nil, operr.New(pkg, "new", "", err)
	}
	h.renderer = &renderer{
		templates: templates, seed: maphash.MakeSeed(), stale: int(max(10*time.Second, 3*opts.Refresh).Seconds()), now: map[any]fragment{},
	}
	if h.assets, err = loadAssets(); err != nil {
		return nil, operr.New(pkg, "new", "", err)
	}
	return h, nil
}

// linger is how long after a request for the page somebody counts as watching: without scripts it is asked for every 5 s.
const linger = 12 * time.Second

// closing is how long the end of the connections may take.
const closing = 2 * time.Second

// Run looks at the group while somebody watches, until ctx ends; then it returns nil. It returns [ErrRun] if it was called
// before.
func (h *Handler) Run(ctx context.Context) error {
	if !h.started.CompareAndSwap(false, true) {
		return operr.New(pkg, "run", "", ErrRun)
	}
	defer close(h.ended)
	defer h.rest(ctx)
	state := newState()
	for ctx.Err() == nil {
		if !h.watched(time.Now()) {
			h.rest(ctx)
			state = newState()
			select {
			case <-h.wake:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		report, err := h.series.Look(ctx)
		if ctx.Err() != nil {
			break
		}
		h.snapshots.Store(newSnapshot(h, state.next(report, err)))
		took := time.Since(began)
		_ = pause.Sleep(ctx, max(h.opts.Refresh-took, took)) // the loop sees the end of ctx
	}
	return nil
}

// rest ends the connections, and forgets what was seen.
func (h *Handler) rest(ctx context.Context) {
	h.snapshots.Store(nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	_ = h.series.Close(ctx) // its sessions end by themselves if the servers do not answer
}

// watched reports whether somebody watches.
func (h *Handler) watched(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.viewers > 0 || now.Sub(h.asked) < linger
}

// ask says that somebody watches.
func (h *Handler) ask() {
	h.mu.Lock()
	h.asked = time.Now()
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// enter counts a viewer until leave is called. It returns false if there are too many.
func (h *Handler) enter() (leave func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.viewers >= h.opts.MaxViewers {
		return nil, false
	}
	h.viewers++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.viewers--
		h.asked = time.Now() // the viewer may come again: its stream has ended, or its page is loaded anew
	}, true
}
