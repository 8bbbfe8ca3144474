package zktest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/zktest"
)

// TestRestore: a restored server holds what it held at the backup, numbers included, and the sessions of that time.
func TestRestore(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, _ *zktest.Network, a, b *zk.Conn) {
		create(t, a, "/kept", 0)
		create(t, a, "/e", zk.FlagEphemeral)
		create(t, b, "/f", zk.FlagEphemeral)
		must(t, srv.Set("/kept", []byte("old")))
		_, before, _ := srv.Get("/kept")
		backup := srv.Backup()
		zxid := srv.Stats().Zxid

		must(t, srv.Set("/kept", []byte("new")))
		must(t, srv.Delete("/e"))
		create(t, a, "/later", 0)
		srv.KillSession(b.SessionID())
		time.Sleep(2 * time.Second) // b has another session now
		restored := func(opts zktest.RestoreOptions) []string {
			srv.Down()
			srv.Restore(backup, opts)
			data, stat, _ := srv.Get("/kept")
			if string(data) != "old" || stat != before {
				t.Errorf("%q, %+v, want %+v", data, stat, before)
			}
			return srv.Children("/")
		}
		if got := restored(zktest.RestoreOptions{ForgetSessions: true}); !slices.Equal(got, []string{"kept", "zookeeper"}) {
			t.Error(got)
		}
		// The backup has not changed by that.
		if got := restored(zktest.RestoreOptions{}); !slices.Equal(got, []string{"e", "f", "kept", "zookeeper"}) {
			t.Error(got)
		}
		if got := srv.Stats().Zxid; got != zxid || len(srv.Sessions()) != 2 {
			t.Errorf("zxid %d, want %d; sessions %v", got, zxid, srv.Sessions())
		}

		// The client has seen more than a single server has, but not more than an ensemble after its next election.
		time.Sleep(timeout / 2)
		id := a.SessionID()
		if a.State() == zk.StateHasSession {
			t.Error("a server let in a client that has seen a higher zxid")
		}
		restored(zktest.RestoreOptions{Elect: true})
		time.Sleep(timeout / 2)
		if got := srv.Stats().Zxid; a.State() != zk.StateHasSession || a.SessionID() != id || got>>32 != zxid>>32+1 {
			t.Errorf("state %v, session %#x, was %#x, zxid %#x", a.State(), a.SessionID(), id, got)
		}
		// A session whose client does not come back expires, and its znodes go.
		time.Sleep(2 * timeout)
		if got := srv.Children("/"); !slices.Equal(got, []string{"e", "kept", "zookeeper"}) {
			t.Error(got)
		}
	})
}
