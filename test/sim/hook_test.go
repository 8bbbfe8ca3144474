package sim_test

import (
	"sync"
	"time"

	"github.com/kielgo/kiel/zktest"
)

// hook is what the server's hook does to single requests.
type hook struct {
	w *world

	mu      sync.Mutex
	client  string // whose requests; "" is everybody's
	errors  int    // so many are answered with an error
	code    zktest.Error
	ignore  int             // so many begin a silence: neither they nor what follows on their connections is answered
	mute    map[string]bool // clients whose connection is in such a silence; pings are answered where it is true
	unheard map[string]bool // clients of which a request was ignored since they connected
	cut     int             // so many reset their connection
	slow    time.Duration   // each takes so long
	touches bool            // touches are told to the leader late
	windows map[int64]window

	refused func(r *zktest.Request) bool // which are refused, and are no trouble to who is; nil for none
}

// window is a stretch in which what a session says is not told to the leader.
type window struct {
	began time.Time
	over  bool // the next request is told
}

func newHook(w *world) *hook {
	return &hook{w: w, windows: map[int64]window{}, mute: map[string]bool{}, unheard: map[string]bool{}}
}

func (h *hook) on(r *zktest.Request) zktest.Action {
	h.mu.Lock()
	other := h.client != "" && h.client != r.Client
	if other || r.Op == zktest.OpCloseSession || r.Op == zktest.OpSetWatches {
		h.mu.Unlock()
		return zktest.Action{}
	}
	var act zktest.Action
	ping := r.Op == zktest.OpPing
	if r.Op == zktest.OpConnect {
		delete(h.mute, r.Client)
		if h.unheard[r.Client] {
			delete(h.unheard, r.Client)
			h.w.mon.Relieved(r.Client, 0)
		}
	}
	pings, mute := h.mute[r.Client]
	switch {
	case mute:
		// Replies come in the order of requests: when one does not come, no later one does.
		act.Ignore = !ping || !pings
	case h.isRefused(r):
		act.Err = zktest.ErrNoAuth
		h.w.cov.hit("hook: refused")
	case h.errors > 0 && !ping && r.Op != zktest.OpConnect:
		h.errors--
		act.Err = h.code
		h.w.mon.Disturbed(r.Client)
		h.w.cov.hit("hook: answered with an error")
	case h.ignore > 0 && !ping:
		h.ignore--
		act.Ignore = true
		if !h.unheard[r.Client] {
			h.unheard[r.Client] = true
			h.w.mon.Troubled(r.Client)
		}
		if r.Op != zktest.OpConnect {
			h.mute[r.Client] = h.ignore%2 == 0
		}
		h.w.cov.hit("hook: ignored")
	case h.cut > 0 && !ping:
		h.cut--
		act.Cut = true
		h.w.mon.Disturbed(r.Client)
		h.w.cov.hit("hook: cut")
	case h.touches && r.Op != zktest.OpConnect:
		act.NoTouch = h.untold(r.Session)
	}
	slow := h.slow
	h.mu.Unlock()
	if slow > 0 {
		h.w.mon.Troubled(r.Client)
		time.Sleep(slow)
		h.w.mon.Relieved(r.Client, 0)
	}
	return act
}

// untold says whether a follower has not yet told its leader of a request when it answers it. It tells within half a tick, and so
// there is a request in between of which it surely has.
func (h *hook) untold(session int64) bool {
	now := time.Now()
	win, known := h.windows[session]
	switch {
	case !known || win.over:
		// This one begins a window.
		h.windows[session] = window{began: now}
	case now.Sub(win.began) >= h.w.plan.Tick/2:
		h.windows[session] = window{over: true}
		return false
	}
	h.w.cov.hit("hook: no touch")
	return true
}

func (h *hook) set(f func(h *hook)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h)
}

func (h *hook) reset() {
	h.set(func(h *hook) {
		h.client, h.errors, h.ignore, h.cut, h.slow, h.touches = "", 0, 0, 0, 0, false
		h.refused = nil
		clear(h.windows)
	})
}
