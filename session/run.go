package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/clocks"
	"github.com/kielgo/kiel/internal/operr"
)

const (
	// hopeless is how long a client that is not connected may go without an attempt to connect, if that is longer than two
	// session timeouts. After that it counts as hung and is replaced.
	hopeless = 15 * time.Second
	// closePatience is how long a session that is over may take to close before the next one is made.
	closePatience = time.Second
)

// errClosing is what serve returns when Run must return and nobody keeps the session open any more.
var errClosing = errors.New("closing")

// Run connects, keeps the session alive and proves that it is, and makes a new session whenever the servers end one. When ctx
// ends or Close is called, Run waits until nobody keeps the session open (KeepOpen), for at most Options.StopTimeout; then it
// closes the ZooKeeper session and returns nil. With a ctx that never ends, such as context.Background, only Close ends Run. Run
// returns an error when going on is of no use: the servers refuse the credentials, or the chroot is missing and the ACLs do not
// allow creating it. It leaves no goroutine behind. A second call, and one after [Start], returns [kiel.ErrRunTwice].
func (s *Session) Run(ctx context.Context) error {
	if s.running.Swap(true) {
		return operr.New(pkg, "", "", kiel.ErrRunTwice)
	}
	return s.live(ctx)
}

// live does the work of Run and of Start. Only one call of it does anything.
func (s *Session) live(ctx context.Context) error {
	if s.begun.Swap(true) {
		return nil // Close was called first
	}
	hide, err := s.shown.Show()
	if err != nil {
		s.failure = operr.New(pkg, "run", "", err)
		s.publish(nil, err)
		close(s.ended)
		return s.failure
	}
	if told := clocks.Of(ctx); told != nil { // replaced before anything reads the clock
		s.now = clock(func() instant {
			mono, wall := told()
			return instant{mono: mono, wall: wall}
		}).steady()
	}
	if s.open {
		s.log.WarnContext(ctx, "znodes will be open to everybody, since session.Options has neither Auth nor ACL")
	}
	if len(s.opts.Auth) > 0 && s.opts.TLS == nil {
		s.log.WarnContext(ctx, "credentials are sent in clear, since session.Options has no TLS")
	}
	r := &runner{s: s, life: context.WithoutCancel(ctx), end: ctx.Done(), closing: s.closing}
	if err := r.run(); err != nil {
		s.failure = operr.New(pkg, "run", "", err)
	}
	s.wg.Wait()
	hide()
	close(s.ended)
	return s.failure
}

// run makes one client after the other, until Run must return.
func (r *runner) run() error {
	s := r.s
	for short := 0; ; {
		r.backoffBeforeConnect(backoff(short))
		c, err := newClient(r.life, s, r.rejectedZxid)
		if err != nil {
			s.publish(nil, err)
			return err
		}
		s.client.Store(c)
		r.rejectedZxid = 0
		verdict := r.serve(c)
		r.rejectedZxid = max(r.rejectedZxid, c.rejectedZxid.Load())
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
		r.closeClient(c, verdict)
	}
}

// closeClient ends a client. If it is connected, closeClient waits up to closePatience until its session is closed, so that the
// servers hear of that before the next client connects.
func (r *runner) closeClient(c *client, verdict error) {
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
	life     context.Context //nolint:containedctx // Run's context without its end: parent of clients and incarnations
	end      <-chan struct{} // closed when Run's context ends; nil if it never ends, and once stopping
	closing  <-chan struct{} // closed by Close; nil once stopping
	stopping bool            // Run must return
	until    instant         // while stopping: when to stop waiting for users
	number   uint64          // of the newest incarnation, from 1; 0 before the first
	inc      *Incarnation    // the trusted incarnation, or nil
	proven   bool            // a proof was accepted, in any ZooKeeper session of this Session
	history  history         // of the newest incarnation

	// rejectedZxid is the last zxid of the client before, if servers kept refusing that client until it hid the zxid: they may
	// have lost that data. 0 otherwise.
	rejectedZxid int64
}

// history tells which incarnations have the same Incarnation.History: those of one client between two connections that it made
// without telling its last zxid.
type history struct {
	number           uint64
	c                *client
	linksWithoutZxid uint64
}

// clientState is what Run's goroutine knows of one client, for as long as serve looks after it.
type clientState struct {
	c             *client
	links         uint64     // value of client.links at the last look
	due           instant    // when the next proof is to be sent
	inFlight      int        // proofs
	chrootExists  bool       // the chroot exists, or there is none
	chrootPending bool       // a goroutine is creating it
	chrootCreated chan error // the outcome of that goroutine

	refused      error   // why the newest proof was refused; nil when none was since the last accepted one
	refusedSince instant // when the first proof of this series was refused
	refusedLast  instant // when the newest proof was refused
}

// serve looks after a client until the client is of no more use, and returns why.
func (r *runner) serve(c *client) error {
	cs := &clientState{c: c, chrootExists: c.opts.Chroot == "", chrootCreated: make(chan error, 1)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, err := r.reconcile(cs)
		if err != nil {
			return err
		}
		timer.Reset(max(next, 0))
		select {
		case <-timer.C:
		case <-r.s.wake:
		case p := <-c.proofs:
			cs.inFlight--
			if err := r.handleProof(cs, p); err != nil {
				return err
			}
		case err := <-cs.chrootCreated:
			if err := r.handleChroot(cs, err); err != nil {
				return err
			}
		case <-r.end:
			r.stop()
		case <-r.closing:
			r.stop()
		}
	}
}

// stop records that Run must return, because its context has ended or Close was called.
func (r *runner) stop() {
	r.end, r.closing = nil, nil
	r.stopping = true
	r.until = r.s.now().add(r.s.opts.StopTimeout)
}

// backoffBeforeConnect waits for d before the next client is made. Once Run must return, it waits only while somebody holds the
// session and no Close has run out of time.
func (r *runner) backoffBeforeConnect(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for !r.stopping || r.s.inUse() && !r.s.hurry.Load() {
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

// reconcile does all that is due for a client: it ends trust, sends proofs, and drops connections without proofs. It returns
// after how long the next thing is due, or why the client is of no more use.
func (r *runner) reconcile(cs *clientState) (time.Duration, error) {
	now, at := r.s.now(), cs.c.reading()
	next := hopeless
	if r.stopping {
		if r.mayClose(now) {
			return 0, errClosing
		}
		next = min(next, r.until.until(now))
	}
	if err := r.checkOver(cs, at); err != nil {
		return 0, err
	}
	r.checkTrust()
	if r.inc != nil {
		next = min(next, r.inc.window.Load().end.until(now))
	}
	if at.isUp {
		return min(next, r.proveLife(cs, at, now)), nil
	}
	wait, err := r.checkReconnect(cs.c, at, now)
	return min(next, wait), err
}

// mayClose reports whether Run, which must return, may close the session: nobody keeps it open, or the time for that is over.
func (r *runner) mayClose(now instant) bool {
	if !r.s.inUse() {
		return true
	}
	if !r.s.hurry.Load() && !r.until.reached(now) {
		return false
	}
	r.s.cutShort.Store(true)
	r.s.log.Error("session closed while it was still in use")
	return true
}

// checkOver returns an error if the client's session is over, because it has expired, was given up, or was refused for good.
func (r *runner) checkOver(cs *clientState, at reading) error {
	c := cs.c
	switch {
	case at.expired:
		r.s.expirations.Add(1)
		if at.hideLastZxid { // servers refused the client while it told its zxid; the first answer in the next session shows why
			r.rejectedZxid = c.lastZxid.Load()
		}
		r.s.log.Warn("session expired", keySession, sessionID(c.id.Load()))
		return ErrSessionExpired
	case at.left:
		r.s.log.Info("session left to its timeout", keySession, sessionID(c.id.Load()))
		return operr.Because(ErrSessionExpired, errLeft)
	case at.giveUp != nil:
		r.s.log.Warn("session given up", keySession, sessionID(c.id.Load()), keyReason, at.giveUp)
		return operr.Because(ErrSessionExpired, operr.New("", "given up", "", at.giveUp))
	case at.refusal != nil:
		return r.refuse(cs, at.refusal)
	default:
		return nil
	}
}

// checkReconnect looks after a client that is not connected. It returns after how long to check again, or an error if the client
// is hung.
func (r *runner) checkReconnect(c *client, at reading, now instant) (time.Duration, error) {
	limit := max(2*at.timeout, hopeless)
	switch {
	case c.id.Load() == 0:
		return hopeless, nil // there is no session yet to reconnect to
	case now.mono-at.tried.mono >= limit:
		r.s.replaced.Add(1)
		r.s.log.Error("replacing hung ZooKeeper client", keySession, sessionID(c.id.Load()))
		return 0, fmt.Errorf("%w: given up, no connection was attempted for %v", ErrSessionExpired, limit)
	case now.mono-at.reachableSince.mono >= at.timeout:
		c.hideZxid(now)
		return at.tried.mono + limit - now.mono, nil
	default:
		return min(at.tried.mono+limit, at.reachableSince.mono+at.timeout) - now.mono, nil
	}
}

// proveLife sends a proof of life if one is due, and drops a connection that does not carry proofs. It returns after how long the
// next proof is due.
func (r *runner) proveLife(cs *clientState, at reading, now instant) time.Duration {
	if at.links != cs.links {
		cs.links, cs.due = at.links, now
	}
	if cs.due.reached(now) {
		cs.due = now.add(at.timeout / 6)
		if cs.inFlight < maxProofs {
			cs.inFlight++
			cs.c.prove(now)
		}
	}
	// Without accepted proofs, try another server: this one may be cut off from the quorum and answer everything but proofs, or
	// be the only one that refuses them. While trust lasts a server gets T/3 for that, afterwards T.
	patience := at.timeout
	if r.inc != nil {
		patience = at.timeout / 3
	}
	if at.proven && now.mono-at.newest.mono >= at.timeout/2 && now.mono-at.upSince.mono >= patience {
		cs.c.drop(cmp.Or(cs.refused, errStale))
	}
	return cs.due.until(now)
}

// handleProof handles the outcome of a proof. It returns an error when the client is of no more use.
func (r *runner) handleProof(cs *clientState, p proof) error {
	c := cs.c
	err := serverError(p.err)
	switch {
	case errors.Is(err, ErrNoNode):
		// The quorum has answered, so this counts as a proof; but the chroot, or the check path in it, is missing.
		if c.opts.Chroot != "" {
			r.createChroot(cs)
		}
	case errors.Is(err, ErrNoAuth), errors.Is(err, ErrAuthFailed):
		return r.refuse(cs, c.noAuth(err))
	case errors.Is(err, ErrSessionExpired):
		c.expire()
		return nil
	case err != nil:
		if c.ctx.Err() == nil { // otherwise the client itself has ended the connection, for a reason that is recorded
			r.s.recordError(err)
		}
		return nil
	default:
		cs.chrootExists = true
	}
	if cs.chrootExists { // before, creating the chroot may still be refused
		r.proven, cs.refused = true, nil
	}
	r.s.metrics.proofs.Observe((r.s.now().mono - p.sent.mono).Seconds())
	end, lasting := c.proved(p.sent)
	r.checkTrust()
	// Trust must last until the next answer, which is due T/6 after this one. After an outage the first proof gives less than
	// that, because trust then counts from a sign of life before the outage. An incarnation that began now would end before the
	// next answer, and partitions would be opened, lost and opened again.
	if r.inc == nil && cs.chrootExists && lasting {
		r.begin(c, end)
	}
	return nil
}

// checkTrust retires the incarnation if trust in it has ended.
func (r *runner) checkTrust() {
	if r.inc == nil || r.inc.Trusted() {
		return
	}
	r.s.trustLosses.Add(1)
	r.s.log.Warn("trust lost", keyIncarnation, r.inc.number, keySession, sessionID(r.inc.SessionID()))
	r.retire(ErrTrustLost)
}

// refuse handles an answer that rejects the session's credentials: to authenticate, to read the check path, or to create the
// chroot. Before any proof was accepted that is fatal. Later it does not end Run, because an operator may have made a mistake, or
// be changing the credentials everywhere. But pings and connect requests keep the session, and all that it holds, alive without a
// proof. So when proofs have been refused for two session timeouts, with none accepted in between, refuse gives the session up,
// and the next session tries again. A proof without an answer is no refusal.
func (r *runner) refuse(cs *clientState, err error) error {
	if !r.proven {
		return err
	}
	cs.c.mu.Lock()
	cs.c.refusal = nil
	cs.c.mu.Unlock()
	r.s.recordError(err)
	now := r.s.now()
	if cs.refused == nil {
		r.s.log.Error("proof of life refused", keyError, err)
	}
	if cs.refused == nil || now.mono-cs.refusedLast.mono > cs.c.timeout() { // without an answer for so long a new row of refusals begins
		cs.refusedSince = now
	}
	cs.refused, cs.refusedLast = err, now
	if limit := 2 * cs.c.timeout(); now.mono-cs.refusedSince.mono >= limit {
		// The reason is not wrapped: callers get ErrSessionExpired, and must not find ErrAuthFailed in it, which is final.
		r.s.GiveUp(fmt.Errorf("proofs of life were refused for %v: %v", limit, err)) //nolint:errorlint // see above
	}
	return nil
}

// begin makes a new incarnation, trusted until end, and publishes it.
func (r *runner) begin(c *client, end instant) {
	r.number++
	c.mu.Lock()
	linksWithoutZxid := c.linksWithoutZxid
	c.mu.Unlock()
	again := r.history.c == c
	if r.history.c != c || r.history.linksWithoutZxid != linksWithoutZxid {
		r.history = history{number: r.history.number + 1, c: c, linksWithoutZxid: linksWithoutZxid}
	}
	r.inc = newIncarnation(r.life, c, r.number, r.history.number, end)
	c.attach(r.inc)
	log := r.s.log.With(keyIncarnation, r.number, keySession, sessionID(c.id.Load()), keyTimeout, c.timeout())
	if again {
		log.Info("ZooKeeper session trusted again")
	} else {
		log.Info("ZooKeeper session established", keyServers, r.s.servers, keyChroot, c.full("/"))
	}
	r.s.publish(r.inc, nil)
}

// retire ends the incarnation, if there is one, and publishes that.
func (r *runner) retire(cause error) {
	if r.inc == nil {
		return
	}
	c := r.inc.c
	c.attach(nil)
	r.inc.finish(cause)
	c.watches.wakeAll()
	r.inc = nil
	r.s.publish(nil, nil)
}

// createChroot starts a goroutine of the client's that creates the chroot, unless one is at it.
func (r *runner) createChroot(cs *clientState) {
	if cs.chrootPending {
		return
	}
	cs.chrootPending = cs.c.start(func() { cs.chrootCreated <- cs.c.ensureChroot() })
}

// handleChroot handles the outcome of createChroot.
func (r *runner) handleChroot(cs *clientState, err error) error {
	cs.chrootPending = false
	if err == nil {
		cs.chrootExists = true
		cs.due = r.s.now()
		return nil
	}
	if errors.Is(err, ErrNoAuth) || errors.Is(err, ErrInvalidACL) {
		return r.refuse(cs, err)
	}
	r.s.recordError(err)
	return nil
}

// ensureChroot creates the chroot and its parents, as far as they are missing. It warns when it has created the chroot: that is
// right once in the life of an ensemble, and otherwise a sign of a wrong chroot, or of other servers than those that were meant.
func (c *client) ensureChroot() error {
	path := c.opts.Chroot
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		_, err := c.zk.Create(path[:i], []byte{}, zk.FlagPersistent, c.opts.ACL)
		if err = serverError(err); err == nil && i == len(path) {
			c.log.Warn("the chroot did not exist and was created: members of a group need the same servers and chroot",
				keyChroot, path, keyServers, c.s.servers)
		}
		if err == nil || errors.Is(err, ErrNodeExists) {
			continue
		}
		if errors.Is(err, ErrNoAuth) { // we may not create it, but need not if it exists
			found, _, failed := c.zk.Exists(path[:i])
			switch {
			case found && failed == nil:
				continue
			case failed != nil:
				err = serverError(failed) // it may exist
			}
		}
		return operr.New("", "create chroot", path[:i], err)
	}
	return nil
}
