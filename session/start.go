package session

import (
	"context"
	"errors"
	"time"

	"github.com/kielgo/kiel/internal/operr"
)

// runPatience is how long a caller waits for an incarnation before it logs a warning that Run was not called.
const runPatience = 5 * time.Second

// errStillUsed is the error of a Close that closed the session while it was still in use.
var errStillUsed = errors.New("closed while it was still in use")

// Start makes a Session as New does, runs it, and returns when its first incarnation is trusted. From then on the Session runs
// until Close is called: the end of ctx does not end it. The values of ctx stay with it.
//
// Start returns an error at once when the arguments are not valid, the metrics can't be registered, the servers refuse the
// credentials, or the chroot is missing and the ACLs do not allow creating it. It also returns an error when ctx ends first, and
// does not connect when ctx has ended already; with a ctx that never ends it waits for the servers for ever. When Start returns
// an error, everything is closed and no goroutine is left.
func Start(ctx context.Context, servers []string, opts Options) (*Session, error) {
	s, err := New(servers, opts)
	if err != nil {
		return nil, err
	}
	if cause := context.Cause(ctx); cause != nil { // the servers may answer before the end of ctx is noticed below
		return nil, operr.New(pkg, "start", "", cause)
	}
	life := context.WithoutCancel(ctx)
	s.running.Store(true)
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = s.live(life) // Close returns this error
	}()
	if _, err := s.Incarnation(ctx); err != nil {
		_ = s.Close(life) // nobody uses the session, and err says why it ended
		<-ran
		return nil, err
	}
	return s, nil
}

// Close ends the Session and returns when nothing of it is left. First Close waits until nobody keeps the session open
// (KeepOpen), for at most Options.StopTimeout and until ctx ends; with a ctx that has ended it does not wait at all. Then it
// closes the ZooKeeper session. That takes a few seconds at most, whatever the servers do, and the end of ctx does not cut it
// short. Later calls of the Session's methods return ErrClosed.
//
// Close returns the error that ended the Session, if it ended by itself; an error with ctx's cause, if the session was closed
// while it was still in use; otherwise nil. It may be called any number of times and from any goroutine: all calls wait for the
// same end. If the program called Run, Close does what the end of Run's context does. If Run is called after Close, it returns
// nil at once, and the Session never runs.
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
		return operr.New(pkg, "", "", operr.Because(errStillUsed, cause))
	case s.cutShort.Load():
		return operr.New(pkg, "", "", errStillUsed)
	}
	return nil
}
