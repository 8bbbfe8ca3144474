package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/latest"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/promreg"
)

const (
	keyBytes       = "bytes"
	keyChroot      = "chroot"
	keyError       = "error"
	keyHost        = "host"
	keyIncarnation = "incarnation"
	keyOperation   = "operation"
	keyPath        = "path"
	keyReason      = "reason"
	keyServer      = "server"
	keyServers     = "servers"
	keySession     = "session_id"
	keyText        = "text"
	keyTimeout     = "timeout"
	keyWas         = "was"
)

// Session keeps one ZooKeeper session after another and hands out incarnations. Start makes one that runs until Close; New makes
// one that does nothing before Run is called. Printing or logging a Session shows its servers, its state and the ZooKeeper
// session's id, and no secret.
type Session struct {
	servers []string // as host:port, without duplicates
	opts    *Options // behind a pointer, so that printing a copy of the Session shows no secret
	log     *slog.Logger
	now     clock // Run may replace it before anything reads it

	open    bool          // znodes are created open to the world, because Options has neither Auth nor ACL
	running atomic.Bool   // Run was called
	begun   atomic.Bool   // Run has begun its work, or Close was called before Run
	closing chan struct{} // closed by the first Close
	toClose func()        // closes closing
	hurry   atomic.Bool   // Run waits for users no longer: the context of a Close has ended
	ended   chan struct{} // closed when Run has ended, or when Close was called before Run
	failure error         // what Run returns; set before ended is closed, read only after
	wake    chan struct{} // has an element when Run's goroutine must reconcile
	wg      sync.WaitGroup
	metrics *metrics
	shown   *promreg.Set // metrics as registered with Options.Registerer
	state   *latest.Value[state]
	client  atomic.Pointer[client] // the present client; nil between clients

	oversized oversized // which large writes cost connections

	granted        atomic.Int64          // the newest negotiated timeout in nanoseconds, 0 before the first
	lastError      atomic.Pointer[error] // the newest error of a connection or proof, for callers that wait in vain
	expirations    atomic.Uint64         // this and the next six are the counters of Stats
	reconnects     atomic.Uint64
	replaced       atomic.Uint64
	trustLosses    atomic.Uint64
	timeoutChanges atomic.Uint64
	badFrames      atomic.Uint64
	abandoned      atomic.Uint64
	cutShort       atomic.Bool // the session was closed while it was still in use
	warned         atomic.Bool // the warning that Run was not called was logged

	mu    sync.Mutex
	users int // how many calls of KeepOpen are not released
}

// state is what Run publishes.
type state struct {
	inc   *Incarnation // trusted when published, or nil
	last  *Incarnation // the newest ever
	final error        // Run has ended, or is about to
}

// New returns a Session for servers given as "host", "host:port", an IPv6 address, or "[address]:port". It validates its
// arguments and does nothing else; Run connects.
func New(servers []string, opts Options) (*Session, error) {
	parsed, err := parseServers(servers)
	open := opts.ACL == nil && !opts.authenticates()
	opts = opts.withDefaults()
	if err := errors.Join(err, opts.validate()); err != nil {
		return nil, operr.New(pkg, "", "", err)
	}
	s := &Session{
		servers: parsed,
		opts:    &opts,
		open:    open,
		log:     opts.Logger.With("component", "session"),
		now:     newClock().steady(),
		closing: make(chan struct{}),
		ended:   make(chan struct{}),
		wake:    make(chan struct{}, 1),
		state:   latest.New(&state{}),
	}
	s.metrics = newMetrics(s.Stats)
	_, s.shown = promreg.New(opts.Registerer, "", func(set *promreg.Set) prometheus.Collector { return promreg.Add(set, s.Collector()) })
	if err := s.shown.Complete(); err != nil {
		return nil, operr.New(pkg, "", "", err)
	}
	s.toClose = sync.OnceFunc(func() { close(s.closing) })
	return s, nil
}

// KeepOpen declares that a part of the program still needs the session. When Run's context ends or Close is called, the session
// is kept open until all such parts have called release, Options.StopTimeout has passed, or the context of a Close has ended.
// release may be called any number of times.
func (s *Session) KeepOpen() (release func()) {
	s.mu.Lock()
	s.users++
	s.mu.Unlock()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.users--
		s.mu.Unlock()
		s.nudge()
	})
}

// inUse reports whether anybody keeps the session open.
func (s *Session) inUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users > 0
}

// Incarnation waits until there is a trusted incarnation, and returns it. When there will be none, it returns ErrClosed, or the
// error that Run returned. When ctx ends first, it returns an error with ctx's cause, which says that Run was never called, or
// else names the last connection error. If Run is not called while a caller waits for 5 s, a warning is logged, once in the life
// of a Session.
func (s *Session) Incarnation(ctx context.Context) (*Incarnation, error) {
	var patience *time.Timer
	var idle <-chan time.Time
	for {
		st, changed := s.state.Watch()
		switch {
		case st.final != nil:
			return nil, operr.New(pkg, "", "", st.final)
		case st.inc != nil && st.inc.Trusted():
			return st.inc, nil
		case patience == nil && !s.running.Load():
			patience = time.NewTimer(runPatience)
			defer patience.Stop()
			idle = patience.C
		}
		select {
		case <-changed:
		case <-idle:
			s.warnIdle(ctx)
		case <-ctx.Done():
			return nil, s.waited(context.Cause(ctx))
		}
	}
}

// waited returns the error of a caller whose ctx ended before there was a trusted incarnation.
func (s *Session) waited(cause error) error {
	why := cause
	if !s.running.Load() {
		why = operr.Because(errNotRun, cause)
	} else if last := s.lastError.Load(); last != nil {
		why = fmt.Errorf("%w (last connection error: %v)", cause, *last) //nolint:errorlint // it is not the error of this call
	}
	return operr.New(pkg, "wait for ZooKeeper at", fmt.Sprint(s.servers), why)
}

// warnIdle logs, once in the life of a Session, that a caller waits although Run was not called.
func (s *Session) warnIdle(ctx context.Context) {
	if !s.running.Load() && !s.warned.Swap(true) {
		s.log.WarnContext(ctx, "waiting for a session whose Run was not called", keyServers, s.servers)
	}
}

// Current returns the newest incarnation if it is trusted, else nil. It never blocks.
func (s *Session) Current() *Incarnation {
	if inc := s.state.Load().inc; inc != nil && inc.Trusted() {
		return inc
	}
	return nil
}

// GiveUp closes the present ZooKeeper session, which deletes all its ephemeral znodes; the next incarnation is in a new session.
// When GiveUp is called several times for one session, the first call counts. GiveUp does not wait.
func (s *Session) GiveUp(reason error) {
	c := s.client.Load()
	if c == nil {
		return
	}
	c.mu.Lock()
	if c.giveUp == nil {
		if reason == nil {
			reason = errors.New("no reason given")
		}
		c.giveUp = reason
	}
	c.mu.Unlock()
	s.nudge()
}

// LetExpire ends the connection of the present ZooKeeper session and does not close the session: its ephemeral znodes stay until
// the servers have waited for its timeout in vain. The next incarnation is in a new session. A Close that follows closes that one
// alone. A request that was sent and not answered may have been carried out or not, as after GiveUp; so call LetExpire when
// nothing is under way. A LetExpire after GiveUp has no effect: the session is closed. LetExpire does not wait.
func (s *Session) LetExpire() {
	c := s.client.Load()
	if c == nil {
		return
	}
	c.mu.Lock()
	if c.giveUp == nil {
		c.giveUp, c.left = errLeft, true
	}
	c.mu.Unlock()
	s.nudge()
}

// Timeout returns the negotiated session timeout; before the first connection, the one to ask for.
func (s *Session) Timeout() time.Duration {
	if granted := s.granted.Load(); granted > 0 {
		return time.Duration(granted)
	}
	return s.opts.Timeout
}

// MaxExpiry returns how long the ephemeral znodes of a dead process stay at most: the greater of Options.MaxSessionTimeout and
// Timeout, and one tick of the servers, which is taken for a third of Timeout, and half a second for the news to arrive. That
// holds if meanwhile the servers elect no other leader, and no server comes back that was down when the process's session began.
// Either gives that session its whole timeout again.
func (s *Session) MaxExpiry() time.Duration {
	granted := s.Timeout()
	return max(granted, s.opts.MaxSessionTimeout) + granted/3 + 500*time.Millisecond
}

// Servers returns the servers as host:port, without duplicates.
func (s *Session) Servers() []string { return slices.Clone(s.servers) }

// Chroot returns Options.Chroot, "" if there is none.
func (s *Session) Chroot() string { return s.opts.Chroot }

// ACL returns the access control list that created znodes get. The caller must not change its elements.
func (s *Session) ACL() []ACL { return slices.Clip(s.opts.ACL) }

// nudge makes Run's goroutine reconcile soon. It never blocks.
func (s *Session) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// recordError keeps err, unless it is nil, for the errors of callers that wait for an incarnation in vain.
func (s *Session) recordError(err error) {
	if err != nil {
		s.lastError.Store(&err)
	}
}

// grant records the session timeout that a server has granted, and logs when it is not the expected one.
func (s *Session) grant(timeout time.Duration) {
	was := time.Duration(s.granted.Swap(int64(timeout)))
	switch {
	case was == 0 && timeout != s.opts.Timeout:
		s.log.Info("servers granted another session timeout", keyTimeout, timeout, keyWas, s.opts.Timeout)
	case was != 0 && was != timeout:
		s.timeoutChanges.Add(1)
		s.log.Warn("session timeout changed; servers disagree about its limits", keyTimeout, timeout, keyWas, was)
	}
}

// publish makes a new state known and wakes all callers that wait for one.
func (s *Session) publish(inc *Incarnation, final error) {
	next := &state{inc: inc, last: s.state.Load().last, final: final}
	if inc != nil {
		next.last = inc
	}
	s.state.Store(next)
}

// sessionID returns a session's id as ZooKeeper's own logs write it.
func sessionID(id int64) string { return fmt.Sprintf("0x%x", uint64(id)) }
