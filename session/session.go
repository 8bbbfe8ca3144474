package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	keyError       = "error"
	keyHost        = "host"
	keyIncarnation = "incarnation"
	keyPath        = "path"
	keyReason      = "reason"
	keyServer      = "server"
	keyServers     = "servers"
	keySession     = "session_id"
	keyText        = "text"
	keyTimeout     = "timeout"
	keyWas         = "was"
)

// Session keeps one ZooKeeper session after another and hands out incarnations. Start makes one that runs until Close;
// New makes one that does nothing before Run is called. Printing or logging a Session shows its servers, its state and the
// ZooKeeper session's id, no secret.
type Session struct {
	servers []string
	opts    *Options // behind a pointer, so that printing a copy of the Session shows no secret
	log     *slog.Logger
	now     clock

	open    bool          // what we create is open to the world, because nothing else was said
	running atomic.Bool   // Run was called
	begun   atomic.Bool   // Run has begun its work, or Close was called before Run
	closing chan struct{} // closed by the first Close
	toClose func()        // closes closing
	hurry   atomic.Bool   // no more waiting for holders: the context of a Close has ended
	ended   chan struct{} // closed when Run has ended, or Close was called before Run
	failure error         // what Run returns; to be read when ended is closed
	wake    chan struct{} // something happened that Run's loop must look at
	wg      sync.WaitGroup
	state   atomic.Pointer[state]
	client  atomic.Pointer[client]

	granted        atomic.Int64 // the newest negotiated timeout, 0 before the first
	lastError      atomic.Pointer[error]
	expirations    atomic.Uint64
	reconnects     atomic.Uint64
	replaced       atomic.Uint64
	trustLosses    atomic.Uint64
	timeoutChanges atomic.Uint64
	badFrames      atomic.Uint64
	abandoned      atomic.Uint64
	cutShort       atomic.Bool // closed though it was still held
	warned         atomic.Bool // the warning that Run was not called was logged

	mu      sync.Mutex
	holders int
}

// state is what Run publishes. It never changes; changed is closed when there is a newer one.
type state struct {
	inc     *Incarnation // trusted when published, or nil
	last    *Incarnation // the newest ever
	final   error        // Run has ended, or is about to
	changed chan struct{}
}

// New returns a Session for servers given as "host", "host:port", an IPv6 address, or "[address]:port". It validates
// what it is given and does nothing else; Run connects.
func New(servers []string, opts Options) (*Session, error) {
	parsed, err := parseServers(servers)
	open := opts.ACL == nil && !opts.authenticates()
	opts = opts.withDefaults()
	if err := errors.Join(err, opts.validate()); err != nil {
		return nil, err
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
	}
	s.toClose = sync.OnceFunc(func() { close(s.closing) })
	s.state.Store(&state{changed: make(chan struct{})})
	return s, nil
}

// Hold says that a part of the program still needs the session: when Run's context ends or Close is called, the session
// is kept until all that was held is released, Options.StopTimeout has passed, or the context of a Close has ended.
// release may be called any number of times.
func (s *Session) Hold() (release func()) {
	s.mu.Lock()
	s.holders++
	s.mu.Unlock()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.holders--
		s.mu.Unlock()
		s.nudge()
	})
}

func (s *Session) held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holders > 0
}

// Incarnation waits for an incarnation that is trusted, and returns the newest. It returns ErrClosed, or the error that
// Run returned, when there will be none, and an error with ctx's cause when ctx ends first; that error says so if Run was
// never called, and otherwise names the last connection error. Once in the life of a Session, a caller that has waited for
// 5 s for a Run that nobody called logs a warning.
func (s *Session) Incarnation(ctx context.Context) (*Incarnation, error) {
	var patience *time.Timer
	var idle <-chan time.Time
	for {
		st := s.state.Load()
		switch {
		case st.final != nil:
			return nil, st.final
		case st.inc != nil && st.inc.Trusted():
			return st.inc, nil
		case patience == nil && !s.running.Load():
			patience = time.NewTimer(runPatience)
			defer patience.Stop()
			idle = patience.C
		}
		select {
		case <-st.changed:
		case <-idle:
			s.warnIdle(ctx)
		case <-ctx.Done():
			return nil, s.waited(context.Cause(ctx))
		}
	}
}

// waited is the error of who waited for an incarnation in vain.
func (s *Session) waited(cause error) error {
	if !s.running.Load() {
		return fmt.Errorf("session: wait for zookeeper at %v: Run was not called: %w", s.servers, cause)
	}
	err := fmt.Errorf("session: wait for zookeeper at %v: %w", s.servers, cause)
	if last := s.lastError.Load(); last != nil {
		err = fmt.Errorf("%w (last connection error: %v)", err, *last) //nolint:errorlint // not this call's error
	}
	return err
}

// warnIdle logs, once in the life of a Session, that somebody waits for a session that nobody runs.
func (s *Session) warnIdle(ctx context.Context) {
	if !s.running.Load() && !s.warned.Swap(true) {
		s.log.WarnContext(ctx, "session is waited for, but its Run was not called", keyServers, s.servers)
	}
}

// Current returns the newest incarnation if it is trusted, else nil. It never blocks.
func (s *Session) Current() *Incarnation {
	if inc := s.state.Load().inc; inc != nil && inc.Trusted() {
		return inc
	}
	return nil
}

// GiveUp closes the present ZooKeeper session, and with it goes all that is ephemeral; the next incarnation is in a new
// session. Of several calls for one session the first counts. It does not wait.
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

// Timeout returns the negotiated session timeout, or the asked one before the first connection.
func (s *Session) Timeout() time.Duration {
	if granted := s.granted.Load(); granted > 0 {
		return time.Duration(granted)
	}
	return s.opts.Timeout
}

// MaxExpiry returns how long the ephemeral znodes of a process that has died stand at most, if the servers do not elect
// another leader meanwhile. That is the greater of Options.MaxSessionTimeout and Timeout, one tick of the servers, taken for
// a third of Timeout, and half a second for the news to arrive.
func (s *Session) MaxExpiry() time.Duration {
	granted := s.Timeout()
	return max(granted, s.opts.MaxSessionTimeout) + granted/3 + 500*time.Millisecond
}

// ACL returns the access control list that what we create is given. It must not be changed.
func (s *Session) ACL() []ACL { return s.opts.ACL }

// nudge makes Run's loop look around.
func (s *Session) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// note keeps an error for whoever waits in vain.
func (s *Session) note(err error) {
	if err != nil {
		s.lastError.Store(&err)
	}
}

// grant takes over a negotiated timeout.
func (s *Session) grant(timeout time.Duration) {
	was := time.Duration(s.granted.Swap(int64(timeout)))
	switch {
	case was == 0 && timeout != s.opts.Timeout:
		s.log.Info("servers granted another session timeout", keyTimeout, timeout, keyWas, s.opts.Timeout)
	case was != 0 && was != timeout:
		s.timeoutChanges.Add(1)
		s.log.Warn("session timeout changed, servers disagree about its limits", keyTimeout, timeout, keyWas, was)
	}
}

// publish makes a new state known and wakes who waits for one.
func (s *Session) publish(inc *Incarnation, final error) {
	old := s.state.Load()
	next := &state{inc: inc, last: old.last, final: final, changed: make(chan struct{})}
	if inc != nil {
		next.last = inc
	}
	s.state.Store(next)
	close(old.changed)
}

func sessionID(id int64) string { return fmt.Sprintf("0x%x", uint64(id)) }
