package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/internal/clocks"
)

const (
	// A client that attempts no connection for so long, and for at least twice the timeout, hangs, and is replaced.
	hopeless = 15 * time.Second
	// How long a session that is given up may take to close before the next is made.
	closePatience = time.Second
)

// errClosing is why serve returns when Run is to return and nobody holds the session.
var errClosing = errors.New("session: closing")

// Run connects and holds the session, makes a new one whenever the servers end it, and proves it alive. When ctx ends
// or Close is called it waits until nobody holds the session (Hold), for at most Options.StopTimeout, closes the
// ZooKeeper session and returns nil. A ctx that never ends, such as context.Background, leaves that to Close. Run returns
// an error when going on is of no use: credentials refused, or a chroot that is missing and that the ACLs do not let us create.
// It can be called once, and leaves no goroutine behind.
func (s *Session) Run(ctx context.Context) error {
	if s.running.Swap(true) {
		return errors.New("session: Run was called before")
	}
	return s.live(ctx)
}

// live is Run, called once.
func (s *Session) live(ctx context.Context) error {
	if s.begun.Swap(true) {
		return nil // Close came first
	}
	if told := clocks.Of(ctx); told != nil { // before there is anything that asks for the time
		s.now = clock(func() instant {
			mono, wall := told()
			return instant{mono: mono, wall: wall}
		}).steady()
	}
	if s.open {
		s.log.WarnContext(ctx, "znodes will be open to everybody, since neither credentials nor an acl are given")
	}
	if len(s.opts.Auth) > 0 && s.opts.TLS == nil {
		s.log.WarnContext(ctx, "credentials are sent in clear, since there is no tls")
	}
	r := &runner{s: s, life: context.WithoutCancel(ctx), end: ctx.Done(), closing: s.closing}
	s.failure = r.run()
	s.wg.Wait()
	close(s.ended)
	return s.failure
}

// run makes one client after the other, until Run is to return.
func (r *runner) run() error {
	s := r.s
	for short := 0; ; {
		r.rest(backoff(short))
		c, err := newClient(r.life, s, r.doubted)
		if err != nil {
			s.publish(nil, err)
			return err
		}
		s.client.Store(c)
		r.doubted = 0
		verdict := r.serve(c)
		r.doubted = max(r.doubted, c.doubted.Load())
		s.client.Store(nil)
		switch {
		case errors.Is(verdict, errClosing):
			r.retire(ErrClosed)
			s.publish(nil, ErrClosed)
			c.end(ErrClosed)
			return nil
		case !errors.Is(verdict, ErrSessionExpired):
			r.retire(verdict)
			s.publish(nil, verdict)
			c.end(verdict)
			return verdict
		}
		r.retire(verdict)
		if short++; s.now().mono-c.made.mono >= goodConnection {
			short = 0
		}
		r.part(c, verdict)
	}
}

// part ends a client, and if the servers can be reached lets them know before there is another.
func (r *runner) part(c *client, verdict error) {
	c.mu.Lock()
	up := c.isUp
	c.mu.Unlock()
	done := c.end(verdict)
	if !up {
		return
	}
	timer := time.NewTimer(closePatience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// runner is the state of Run's goroutine.
type runner struct {
	s        *Session
	life     context.Context //nolint:containedctx // Run's own, without its end
	end      <-chan struct{} // closed when Run's context ends; nil if it never does, and once stopping
	closing  <-chan struct{} // closed by Close; nil once stopping
	stopping bool            // Run is to return
	until    instant         // when stopping: how long to wait for holders
	number   uint64
	inc      *Incarnation // the live one
	proven   bool         // a proof was answered, in this Session
	past     past         // of the newest incarnation

	doubted int64 // what the last client had seen, if it ended with doubts whether the servers still have it
}

// past is what incarnations with the same history have in common.
type past struct {
	number uint64
	c      *client
	forgot uint64
}

// round is what serve keeps about one client.
type round struct {
	c        *client
	links    uint64  // connections seen
	due      instant // when to send the next proof
	inFlight int     // proofs
	rooted   bool    // the chroot exists
	rooting  bool    // it is being made
	roots    chan error

	refused      error   // why the last proof was refused; nil when one was accepted since
	refusedSince instant // when the first of them was refused
	refusedLast  instant // when the last one was
}

// serve looks after a client until it is of no more use, and says why.
func (r *runner) serve(c *client) error {
	n := &round{c: c, rooted: c.opts.Chroot == "", roots: make(chan error, 1)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, err := r.look(n)
		if err != nil {
			return err
		}
		timer.Reset(max(next, 0))
		select {
		case <-timer.C:
		case <-r.s.wake:
		case p := <-c.proofs:
			n.inFlight--
			if err := r.answer(n, p); err != nil {
				return err
			}
		case err := <-n.roots:
			if err := r.rooted(n, err); err != nil {
				return err
			}
		case <-r.end:
			r.stop()
		case <-r.closing:
			r.stop()
		}
	}
}

// stop notes that Run is to return, because its context has ended or Close was called.
func (r *runner) stop() {
	r.end, r.closing = nil, nil
	r.stopping = true
	r.until = r.s.now().add(r.s.opts.StopTimeout)
}

// rest waits before the next client, when the last ones did not live long.
func (r *runner) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for !r.stopping || r.s.held() && !r.s.hurry.Load() {
		select {
		case <-timer.C:
			return
		case <-r.s.wake:
		case <-r.end:
			r.stop()
		case <-r.closing:
			r.stop()
		}
	}
}

// look does what is due and returns how long nothing else will be.
func (r *runner) look(n *round) (time.Duration, error) {
	c := n.c
	now := r.s.now()
	c.mu.Lock()
	expired, giveUp, refusal, renewed := c.expired, c.giveUp, c.refusal, c.renewed
	c.renewed = false
	up, upSince, links, timeout := c.isUp, c.upSince, c.links, c.trust.timeout
	hopeSince, tried, forgetful := c.hopeSince, c.tried, c.forgetful
	newest, proven := c.trust.newest()
	c.mu.Unlock()

	next := hopeless
	if r.stopping {
		if !r.s.held() {
			return 0, errClosing
		}
		if r.s.hurry.Load() || r.until.reached(now) {
			r.s.cutShort.Store(true)
			r.s.log.Error("session closed though it is still in use", keyTimeout, c.opts.StopTimeout)
			return 0, errClosing
		}
		next = min(next, r.until.until(now))
	}
	if renewed {
		r.retire(ErrSessionExpired)
	}
	switch {
	case expired:
		r.s.expirations.Add(1)
		if forgetful { // it was turned away, and the next session tells why
			r.doubted = c.seen.Load()
		}
		r.s.log.Warn("session expired", keySession, sessionID(c.id.Load()))
		return 0, ErrSessionExpired
	case giveUp != nil:
		r.s.log.Warn("session given up", keySession, sessionID(c.id.Load()), keyReason, giveUp)
		return 0, fmt.Errorf("%w: given up: %w", ErrSessionExpired, giveUp)
	case refusal != nil:
		if err := r.refuse(n, refusal); err != nil {
			return 0, err
		}
	}

	r.checkTrust()
	if r.inc != nil {
		next = min(next, r.inc.window.Load().end.until(now))
	}

	switch limit := max(2*timeout, hopeless); {
	case up:
	case c.id.Load() == 0:
		return next, nil // there is no session yet to come back to
	case now.mono-tried.mono >= limit:
		r.s.replaced.Add(1)
		r.s.log.Error("client replaced, it hangs", keySession, sessionID(c.id.Load()))
		return 0, fmt.Errorf("%w: given up, no connection was attempted for %v", ErrSessionExpired, limit)
	case now.mono-hopeSince.mono >= timeout:
		c.forget()
		return min(next, tried.mono+limit-now.mono), nil
	default:
		return min(next, tried.mono+limit-now.mono, hopeSince.mono+timeout-now.mono), nil
	}
	if links != n.links {
		n.links, n.due = links, now
	}
	if n.due.reached(now) {
		n.due = now.add(timeout / 6)
		if n.inFlight < maxProofs {
			n.inFlight++
			c.prove(now)
		}
	}
	// A server may be cut off from the others and go on answering all but proofs, or refuse them as no other does. Try
	// another one while trust lasts; and after that, now and then.
	patience := timeout
	if r.inc != nil {
		patience = timeout / 3
	}
	if proven && now.mono-newest.mono >= timeout/2 && now.mono-upSince.mono >= patience {
		c.drop(cmp.Or(n.refused, errStale))
	}
	return min(next, n.due.until(now)), nil
}

// answer handles a proof's outcome.
func (r *runner) answer(n *round, p proof) error {
	c := n.c
	err := serverError(p.err)
	switch {
	case errors.Is(err, ErrNoNode):
		// The quorum has answered, so it is a proof; but something is to be made.
		if c.opts.Chroot != "" {
			r.makeRoot(n)
		}
	case errors.Is(err, ErrNoAuth), errors.Is(err, ErrAuthFailed):
		return r.refuse(n, c.noAuth(err))
	case errors.Is(err, ErrSessionExpired):
		c.expire()
		return nil
	case err != nil:
		r.s.note(err)
		return nil
	default:
		n.rooted = true
	}
	if n.rooted { // else the creation of the chroot may be refused yet
		r.proven, n.refused = true, nil
	}
	end, lasting := c.proved(p.sent)
	r.checkTrust()
	// The next answer is due T/6 after this one. After an outage the first proof leaves less time than that, because it
	// counts from the last sign of life before: what would be opened then would be lost and opened again.
	if r.inc == nil && n.rooted && lasting {
		r.begin(c, end)
	}
	return nil
}

// checkTrust ends an incarnation whose window has run out.
func (r *runner) checkTrust() {
	if r.inc == nil || r.inc.Trusted() {
		return
	}
	r.s.trustLosses.Add(1)
	r.s.log.Warn("trust lost", keyIncarnation, r.inc.number, keySession, sessionID(r.inc.SessionID()))
	r.retire(ErrTrustLost)
}

// refuse handles credentials that do not open what they should, or do not let us create the chroot. That is fatal before
// any proof was accepted. Later an operator may have slipped, or be about to change the credentials everywhere, so it is no
// reason to end. But pings, and connect requests, keep the session and all that it holds alive: when proofs have been
// refused for two session timeouts, with none accepted in between, the session is given up, and the next one tries again.
// A proof without an answer is no refusal.
func (r *runner) refuse(n *round, err error) error {
	if !r.proven {
		return err
	}
	n.c.mu.Lock()
	n.c.refusal = nil
	n.c.mu.Unlock()
	r.s.note(err)
	now := r.s.now()
	if n.refused == nil {
		r.s.log.Error("no proof of life", keyError, err)
	}
	if n.refused == nil || now.mono-n.refusedLast.mono > n.c.timeout() { // no answer for so long is no refusal
		n.refusedSince = now
	}
	n.refused, n.refusedLast = err, now
	if limit := 2 * n.c.timeout(); now.mono-n.refusedSince.mono >= limit {
		// The reason is given as text: it must not make callers take ErrSessionExpired for ErrAuthFailed, which is final.
		r.s.GiveUp(fmt.Errorf("proofs of life were refused for %v: %v", limit, err)) //nolint:errorlint // see above
	}
	return nil
}

// begin makes a new incarnation.
func (r *runner) begin(c *client, end instant) {
	r.number++
	c.mu.Lock()
	forgot := c.forgot
	c.mu.Unlock()
	if r.past.c != c || r.past.forgot != forgot {
		r.past = past{number: r.past.number + 1, c: c, forgot: forgot}
	}
	r.inc = newIncarnation(r.life, c, r.number, r.past.number, end)
	c.lead(r.inc)
	r.s.log.Info("trusted", keyIncarnation, r.number, keySession, sessionID(c.id.Load()), keyTimeout, c.timeout())
	r.s.publish(r.inc, nil)
}

// retire ends the incarnation, if there is one.
func (r *runner) retire(cause error) {
	if r.inc == nil {
		return
	}
	c := r.inc.c
	c.lead(nil)
	r.inc.finish(cause)
	c.watches.wakeAll()
	r.inc = nil
	r.s.publish(nil, nil)
}

// makeRoot creates the chroot on a goroutine of the client's.
func (r *runner) makeRoot(n *round) {
	if n.rooting {
		return
	}
	n.rooting = n.c.start(func() { n.roots <- n.c.ensureRoot() })
}

// rooted handles the outcome of makeRoot.
func (r *runner) rooted(n *round, err error) error {
	n.rooting = false
	if err == nil {
		n.rooted = true
		n.due = r.s.now()
		return nil
	}
	if errors.Is(err, ErrNoAuth) || errors.Is(err, ErrInvalidACL) {
		return r.refuse(n, err)
	}
	r.s.note(err)
	return nil
}

// noAuth explains why the check path can't be read.
func (c *client) noAuth(err error) error {
	path := c.opts.CheckPath
	if len(c.opts.Auth) == 0 {
		return fmt.Errorf("%w: %s can't be read, and no credentials are given: %w", ErrAuthFailed, c.full(path), err)
	}
	return fmt.Errorf("%w: %s can't be read as %v: %w", ErrAuthFailed, c.full(path), c.opts.Auth, err)
}

// ensureRoot creates the chroot.
func (c *client) ensureRoot() error {
	path := c.opts.Chroot
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		_, err := c.zk.Create(path[:i], []byte{}, zk.FlagPersistent, c.opts.ACL)
		if err = serverError(err); err == nil || errors.Is(err, ErrNodeExists) {
			continue
		}
		if errors.Is(err, ErrNoAuth) { // to create; that it is there is all we need
			found, _, failed := c.zk.Exists(path[:i])
			switch {
			case found && failed == nil:
				continue
			case failed != nil:
				err = serverError(failed) // it may be there
			}
		}
		return fmt.Errorf("session: create chroot %s: %w", path[:i], err)
	}
	return nil
}
