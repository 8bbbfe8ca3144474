package session

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// runPatience is how long a caller waits for a Run that was not called before it logs a warning.
const runPatience = 5 * time.Second

// errStillHeld is the error of a Close that ended a session which was still held.
var errStillHeld = errors.New("session: closed while it was still held")

// Start makes a Session as New does, runs it, and returns when its first incarnation is trusted. From then on the Session
// runs until Close is called: the end of ctx does not end it. ctx's values stay with it.
//
// Start returns an error when the arguments are not valid, the servers refuse the credentials, or the chroot is missing and the
// ACLs do not let us create it, at once, and when ctx ends first. By then everything is closed, and no goroutine is left. Without a limit in ctx it waits for the servers for
// ever.
func Start(ctx context.Context, servers []string, opts Options) (*Session, error) {
	s, err := New(servers, opts)
	if err != nil {
		return nil, err
	}
	life := context.WithoutCancel(ctx)
	s.running.Store(true)
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = s.live(life) // Close returns its error
	}()
	if _, err := s.Incarnation(ctx); err != nil {
		_ = s.Close(life) // nobody holds it, and what ended it is in err
		<-ran
		return nil, err
	}
	return s, nil
}

// Close ends the Session and returns when nothing of it is left. First it waits until nobody holds the session (Hold),
// for at most Options.StopTimeout and until ctx ends; then it closes the ZooKeeper session, which takes a few seconds at
// most, whatever the servers do, and is not cut short by the end of ctx. With a ctx that has ended Close does not wait
// for holders at all. Calls that come later return ErrClosed.
//
// Close returns the error that ended the Session, if it had ended by itself; an error with ctx's cause, if the Session was
// closed while it was still held; else nil. It may be called any number of times and from any goroutine: all calls wait for
// the same end. For a Session that is run by Run it does what the end of Run's context does. A Session closed before its Run
// was called never runs: Run returns nil at once.
func (s *Session) Close(ctx context.Context) error {
	s.toClose()
	if !s.begun.Swap(true) {
		s.publish(nil, ErrClosed)
		close(s.ended)
		return nil
	}
	var cause error
	select {
	case <-s.ended:
	case <-ctx.Done():
		cause = context.Cause(ctx)
		s.hurry.Store(true)
		s.nudge()
		<-s.ended
	}
	switch {
	case s.failure != nil:
		return s.failure
	case s.cutShort.Load() && cause != nil:
		return fmt.Errorf("%w: %w", errStillHeld, cause)
	case s.cutShort.Load():
		return errStillHeld
	}
	return nil
}
