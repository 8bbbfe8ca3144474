package barrier

import "github.com/kielgo/kiel/session"

// signal is a watch on ready, set when ready did not exist. It shows an Enter that ready was created, though ready is gone again
// when Enter reads the directory: on a slow link the others enter and leave within one round trip.
type signal struct {
	watch  *session.Watch
	before *view // the view before our znode was created
}

// watchReady sets the watch, unless ready exists. It returns errAgain if ready is newer than the view now. before is the view
// before our znode was created.
func (e *entering) watchReady(inc *session.Incarnation, now, before *view) error {
	e.ready.stop()
	e.ready = nil
	exists, _, watch, err := inc.ExistsW(e.ctx, session.Join(e.d.path, readyName))
	if err != nil {
		return err
	}
	if !exists {
		e.ready = &signal{watch: watch, before: before}
		return nil
	}
	watch.Stop()
	if now.ready {
		return nil
	}
	return errAgain
}

// watchAgain sets the watch again if it has ended without news: after a lost connection, or once per session timeout.
func (e *entering) watchAgain(inc *session.Incarnation, now *view) error {
	if e.ready == nil || !e.ready.ended() {
		return nil
	}
	return e.watchReady(inc, now, e.ready.before)
}

// outcome is infer for a view that has our znode, with what the watch on ready has shown. known says that the watch had shown it
// before the view was read.
func (e *entering) outcome(inc *session.Incarnation, now *view, known bool) (readiness, error) {
	v, err := e.infer(inc, now)
	if err != nil || v == complete || !e.ready.created() {
		return v, err
	}
	switch lacks := e.ready.lacks(now, e.d.clients); {
	case lacks == 0:
		return complete, nil
	case lacks > 0 && !known:
		return v, errAgain // the view may be older than ready
	}
	return v, nil
}

// stop ends the watch. s may be nil.
func (s *signal) stop() {
	if s != nil {
		s.watch.Stop()
	}
}

// ended reports whether the watch shows nothing more.
func (s *signal) ended() bool {
	select {
	case <-s.watch.C():
		return true
	default:
		return false
	}
}

// created reports whether ready was created since the watch was set. s may be nil.
func (s *signal) created() bool {
	return s != nil && s.ended() && s.watch.Changed() && !s.watch.Deleted()
}

// lacks returns how many of the children that a round needs were not created yet, beside our znode, as of a view: the members
// that the view before lacked, and ready. If it is 0, a ready that was created is that of our round: for one of their own the
// others would have needed one member more. Below 0 it may be another's, and members of the next round may have come.
func (s *signal) lacks(now *view, n int) int {
	if s.before.dir != 0 && s.before.dir != now.dir {
		return -1
	}
	return n - len(s.before.members) - int(now.creates-s.before.creates) + int(s.before.own)
}
