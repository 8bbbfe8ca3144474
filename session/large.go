package session

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A server that gets a request longer than its jute.maxbuffer closes the connection and says nothing. To the client that looks
// like any other loss of a connection: the outcome is unknown, the caller looks, finds nothing done, and sends the request again.
// So a Session notes which of its large writes cost connections, and after the third loss refuses to send such a write for a
// while. A link that is merely bad must not have the same effect: see oversized.lose.

const (
	largeWrite    = 4 << 10                // smaller writes are never suspected; no server has such a small jute.maxbuffer
	costlyLosses  = 3                      // so many connections make a suspicion certain …
	moreLosses    = 6                      // … and so many if lately connections were lost for another reason
	badFor        = time.Minute            // how long such a loss counts
	promptClose   = 500 * time.Millisecond // so soon a server closes the connection, or in four round trips
	firstRefusal  = 10 * time.Second       // how long writes are refused after a third loss
	longRefusal   = 5 * time.Minute        // … at most, however often the same is tried again
	forgotten     = 2 * longRefusal        // so long after the end of a refusal it is forgotten, if nobody has tried again
	mostSuspected = 64                     // writes that are remembered
)

// sending identifies a write that is sent again.
type sending struct {
	op   string // as in errors
	path string // of the largest operation
	size int    // of the request, in bytes, without the four of the frame's length
}

// large reports whether w is a write, and large.
func (w *sending) large() bool { return w != nil && w.size >= largeWrite }

// oversized knows which large writes cost connections. It belongs to a Session: the servers' limit outlives a ZooKeeper session.
type oversized struct {
	mu       sync.Mutex
	inFlight map[sending]int // writes that were begun and have no outcome yet, also those whose caller gave up
	lost     map[sending]int // how many connections each write has cost, while none of its size was answered
	limit    int             // writes of this size, or more, are refused; 0 for none
	until    instant         // while limit is not 0: until when they are refused; after that one is tried
	refusal  time.Duration   // how long writes were refused last
	bad      instant         // until when the link counts as bad; zero if it never did
}

// begin records that a large write is about to be sent.
func (o *oversized) begin(w sending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inFlight == nil {
		o.inFlight, o.lost = map[sending]int{}, map[sending]int{}
	}
	o.inFlight[w]++
}

// end records the outcome of a large write: answered, or not. A limit that let a write through is none, for that size and below.
func (o *oversized) end(w sending, answered bool, now instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inFlight[w]--; o.inFlight[w] <= 0 {
		delete(o.inFlight, w)
	}
	if !answered {
		return
	}
	for other := range o.lost {
		if other.size <= w.size { // so it was not its size that cost connections
			o.bad = now.add(badFor)
			delete(o.lost, other)
		}
	}
	if o.limit <= w.size {
		o.limit, o.refusal = 0, 0
	}
}

// loss is what a connection that was lost tells.
type loss struct {
	size     int           // of the largest large write that was sent and not answered; 0 for none
	age      time.Duration // how long ago that write was begun
	rtt      time.Duration // of the newest round trip
	byPeer   bool          // the other side ended the connection, not this one
	answered bool          // a request was answered on the connection
}

// lose records the loss of a connection, and returns the write that is refused from now on because of it, if there is one.
//
// A server that refuses a request differs from a bad link: the server closes the connection each time, as soon as it has read the
// request's length, and no connection is lost meanwhile without that request. So a loss without a large write under way makes the
// count begin anew, and so does the answer to any write of that size. Both also show that the link is bad; then more losses are
// needed for a while. Before the third attempt and later ones the connection must have been good for a moment (client.steady). Of
// several writes the largest is to blame: a server that refuses another refuses it, too.
func (o *oversized) lose(l loss, now instant) (refused sending, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.limit != 0 && o.until.add(forgotten).reached(now) {
		o.limit, o.refusal = 0, 0
		clear(o.lost)
	}
	switch {
	case l.size == 0:
		o.bad = now.add(badFor)
		clear(o.lost)
		return sending{}, false
	case !l.byPeer || l.age > max(promptClose, 4*l.rtt):
		return sending{}, false // this may be the link
	}
	for w := range o.inFlight {
		if w.size == l.size && (refused.size == 0 || o.lost[w] > o.lost[refused]) {
			refused = w
		}
	}
	if refused.size == 0 {
		return sending{}, false
	}
	if len(o.lost) >= mostSuspected {
		clear(o.lost)
	}
	if !l.answered {
		o.lost[refused] += 0 // from now on it waits for an answer to another request: see client.steady
		return sending{}, false
	}
	o.lost[refused]++
	needed := costlyLosses
	if !o.bad.reached(now) {
		needed = moreLosses
	}
	if again := o.limit != 0 && l.size >= o.limit; !again && o.lost[refused] < needed {
		return sending{}, false
	}
	if o.limit == 0 || l.size < o.limit {
		o.limit = l.size
	}
	o.refusal = min(max(2*o.refusal, firstRefusal), longRefusal)
	o.until = now.add(o.refusal)
	return refused, true
}

// refuse returns an error if w is not to be sent, because writes of its size cost connections a short while ago.
func (o *oversized) refuse(w sending, now instant) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.limit == 0 || w.size < o.limit || o.until.reached(now) {
		return nil
	}
	return &TooLargeError{Bytes: w.size, Limit: o.limit, CostsConnection: true}
}

// losses returns how many connections w has cost, and whether it is suspected at all.
func (o *oversized) losses(w sending) (n int, suspected bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, suspected = o.lost[w]
	return n, suspected
}

// admit returns an error if w is a large write that is not to be sent. A write that has cost connections waits for a better one.
func (c *client) admit(ctx context.Context, w *sending) error {
	if !w.large() {
		return nil
	}
	if err := c.s.oversized.refuse(*w, c.s.now()); err != nil {
		return err
	}
	return c.steady(ctx, *w)
}

// steady waits, if w has cost a connection before, until the present one has answered another request, and before the third
// attempt until it has been up for T/6: a bad link is lost meanwhile without w.
func (c *client) steady(ctx context.Context, w sending) error {
	n, suspected := c.s.oversized.losses(w)
	if !suspected {
		return nil
	}
	for {
		c.mu.Lock()
		conn, up, isUp, since, timeout := c.conn, c.up, c.isUp, c.upSince, c.trust.timeout
		c.mu.Unlock()
		wait := time.Duration(0)
		if n >= costlyLosses-1 {
			wait = since.add(timeout / 6).until(c.s.now())
		}
		select {
		case <-up:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
		if !isUp {
			continue
		}
		select {
		case <-conn.answered:
			if wait <= 0 {
				return nil
			}
			if err := c.wait(ctx, wait); err != nil {
				return err
			}
		case <-conn.down:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
}

// judge records that a connection was lost because of err, and what that tells of the writes that were under way.
func (c *client) judge(n *netConn, err error) {
	now := c.s.now()
	refused, ok := c.s.oversized.lose(c.lossOf(n, err, now), now)
	if ok {
		c.log.Error("servers end the connection at requests of that size; refusing them for a while",
			keyOperation, refused.op, keyPath, refused.path, keyBytes, refused.size, keyServer, n.address)
	}
}

// lossOf returns what the loss of a connection because of err tells.
func (c *client) lossOf(n *netConn, err error, now instant) loss {
	l := loss{byPeer: !n.dropped.Load() && !isTimeout(err) && !errors.Is(err, errFrame)}
	n.mu.Lock()
	for _, r := range n.pending {
		if r.size >= largeWrite && r.size > l.size {
			l.size, l.age = r.size, now.mono-r.begun.mono
		}
	}
	n.mu.Unlock()
	select {
	case <-n.answered:
		l.answered = true
	default:
	}
	c.mu.Lock()
	l.rtt = c.rtt
	c.mu.Unlock()
	return l
}
