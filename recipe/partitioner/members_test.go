package partitioner_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

const (
	guest   = path + "/party/514e5a831836450cb1a56c741e990fd8-a" // another member, the first by name
	blocker = path + "/locks/1/514e5a831836450cb1a56c741e990fd8__lock__0000000000"
)

// waiting returns a member that has the lock of one item and waits for that of the other, and the path of the contender that
// waits.
func (w *world) waiting() (m *member, contender string) {
	w.Helper()
	w.Must(w.Srv.Create(blocker, nil))
	m = w.join("p0", "0", "1")
	return m, w.waits(m)
}

// waits waits until a member has the lock of one item and waits for the other, and returns the path of the contender that does.
func (w *world) waits(m *member) (contender string) {
	w.Helper()
	time.Sleep(time.Second)
	for _, name := range w.Srv.Children(path + "/locks/1") {
		if p := path + "/locks/1/" + name; p != blocker {
			contender = p
		}
	}
	if len(w.contenders()) != 3 || contender == "" || !m.Allocating() {
		w.Fatalf("%v, %q", m.State(), w.contenders())
	}
	return contender
}

// The server forgets the watches on the party. A member that waits for locks still notices within its reaction time that another
// has come, and releases its locks.
func TestReactionTime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Path == path+"/party" {
				r.Watch = false
			}
			return zktest.Action{}
		})
		w.waiting()
		w.Must(w.Srv.Create(guest, nil))
		start := time.Now()
		for len(w.Srv.Children(path+"/locks/0")) > 0 {
			time.Sleep(time.Millisecond)
		}
		if d := time.Since(start); d > time.Second+10*time.Millisecond {
			w.Errorf("after %v", d)
		}
	})
}

// The members change while the wait for a lock ends for another reason: somebody has deleted the contender. Then the set is
// divided again; that is no FAILURE.
func TestMembersChangeWhenALockFails(t *testing.T) {
	inWorld(t, func(w *world) {
		m, contender := w.waiting()
		var looked atomic.Bool
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op != zktest.OpDelete || r.Path != contender || looked.Swap(true) { // the member checks that the contender is gone
				return zktest.Action{}
			}
			w.Check(w.Srv.Create(guest, nil))
			return zktest.Action{Ignore: true}
		})
		w.Must(errors.Join(w.Srv.Delete(contender), w.Srv.Set(blocker, []byte("look"))))
		time.Sleep(time.Second)
		if !m.Allocating() || !looked.Load() {
			w.Fatalf("%v, %v", m.State(), m.Snapshot().Err)
		}
		w.Net.Client("p0").Cut() // the answer will never come
		w.Must(w.Srv.Delete(guest))
		time.Sleep(time.Second)
		w.Must(w.Srv.Delete(blocker))
		m.wantItems("0", "1")
	})
}

// Trust ends during the time boundary, and then the session expires. That is FAILURE as soon as there is another session; it does
// not take the boundary.
func TestSessionExpiresWithoutTrust(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.member("p0", []string{"0"}, partitioner.Options{TimeBoundary: time.Hour})
		m.start()
		inc := w.Incarnation(m.session)
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			return zktest.Action{Ignore: r.Op == zktest.OpMulti} // the proofs of life
		})
		<-inc.Context().Done()
		time.Sleep(time.Second)
		w.Srv.KillSession(inc.SessionID())
		w.Srv.SetHook(nil)
		m.failed(session.ErrSessionExpired)
	})
}
