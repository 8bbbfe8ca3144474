package ownership_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kielgo/kiel/zktest"
)

// TestClaimsFromABackup: a claim that was released after the backup stands again, in a session that lives on. Its member
// releases it again, so that the partition's owner need not wait for the end of that session.
func TestClaimsFromABackup(t *testing.T) {
	for _, opts := range []zktest.RestoreOptions{{}, {Elect: true}} {
		for _, down := range []time.Duration{0, 2 * time.Second, time.Minute} {
			t.Run(fmt.Sprintf("%+v/%v", opts, down), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					a := w.owning("a", "t:0 t:1 t:2", memberOptions{})
					backup := w.srv.Backup()
					b := w.join("b", memberOptions{})
					w.assign(map[string]string{"a": "t:0"})
					a.owns(5*time.Second, "t:0")
					time.Sleep(time.Minute) // until no sweep looks for the claims any more

					w.srv.Down()
					time.Sleep(down)
					session := a.sessionID()
					w.srv.Restore(backup, opts)
					w.assign(map[string]string{"a": "t:0", "b": "t:1 t:2"})
					b.owns(90*time.Second, "t:1 t:2") // servers may turn members away, until they ask anew whether their session lives
					a.owns(0, "t:0")
					if session != 0 && a.sessionID() != session {
						t.Error("a lost its session, and its claims with it")
					}
				})
			})
		}
	}
}

// TestClaimsFromTwoBackups: the servers go back to a backup from before elections, and later to another one, with an election
// in an epoch that a has seen before.
func TestClaimsFromTwoBackups(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0 t:1 t:2", memberOptions{})
		first := w.srv.Backup()
		for range 3 { // elections
			w.srv.Restore(w.srv.Backup(), zktest.RestoreOptions{Elect: true})
			time.Sleep(time.Minute)
		}
		w.srv.Restore(first, zktest.RestoreOptions{})
		b := w.join("b", memberOptions{})
		time.Sleep(2 * time.Minute)
		a.owns(0, "t:0 t:1 t:2")
		second := w.srv.Backup()
		w.assign(map[string]string{"a": "t:0"})
		a.owns(5*time.Second, "t:0")
		time.Sleep(time.Minute)

		session := a.sessionID()
		w.srv.Restore(second, zktest.RestoreOptions{Elect: true})
		w.assign(map[string]string{"a": "t:0", "b": "t:1 t:2"})
		b.owns(90*time.Second, "t:1 t:2")
		if a.sessionID() != session {
			t.Error("a lost its session, and its claims with it")
		}
	})
}

// After an ensemble went back to a backup, and accepted its clients as if nothing had happened, claims of this member stand again
// that are older than those that it holds: all are read once, and opened again under the tokens that the servers know.
func TestTokensAfterBackup(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const n = 60
		a := w.owning("a", items(n), memberOptions{unobserved: true}) // the tokens go back, which the journal is no judge of
		backup := w.srv.Backup()
		w.assign(map[string]string{"a": ""})
		a.owns(5*time.Second, "")
		w.assign(map[string]string{"a": items(n)})
		a.owns(5*time.Second, items(n))
		time.Sleep(time.Minute)
		session := a.sessionID()
		w.srv.Restore(backup, zktest.RestoreOptions{Elect: true})
		time.Sleep(time.Minute)
		if a.sessionID() != session {
			t.Error("the member has lost its session")
		}
		for _, info := range a.owner.Owned() {
			_, stat, ok := w.srv.Get(fmt.Sprintf("%s/%s:%d", owners, info.Topic, info.Partition))
			if !ok || stat.Czxid != info.Token {
				t.Errorf("%s:%d has token %d, its znode %d", info.Topic, info.Partition, info.Token, stat.Czxid)
			}
		}
	})
}
