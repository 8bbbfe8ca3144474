package party_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.session("reader")
		inc := incarnation(c, s)
		if _, err := party.Read(t.Context(), inc, directory); !errors.Is(err, session.ErrNoNode) || !strings.Contains(err.Error(), directory) {
			t.Error(err)
		}
		b := c.join("b")
		time.Sleep(time.Second)
		start := time.Now().UnixMilli()
		must(t, c.srv.Create(node("a"), []byte("record")))
		must(t, c.srv.Create(node("large"), make([]byte, 64<<10+1)))
		must(t, c.srv.Create(node("secret"), nil))
		must(t, c.srv.Create(node("short"), nil))
		c.srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case r.Op == zktest.OpGetData && r.Path == node("secret"):
				return zktest.Action{Err: zktest.ErrNoAuth}
			case r.Op == zktest.OpGetData && r.Path == node("short"): // gone since the list was read
				return zktest.Action{Err: zktest.ErrNoNode}
			}
			return zktest.Action{}
		})
		members, err := party.Read(t.Context(), inc, directory)
		must(t, err)
		if len(members) != 4 {
			t.Fatalf("%+v", members)
		}
		for i, m := range members {
			stat, _ := c.stands(m.Name)
			if want := []string{"a", "b", "large", "secret"}[i]; m.Name != want || m.Czxid != stat.Czxid || m.Ctime != stat.Ctime || m.Session != stat.EphemeralOwner {
				t.Errorf("%+v, want %s of %+v", m, want, stat)
			}
		}
		if a := members[0]; string(a.Data) != "record" || a.Err != nil || a.Ctime != start {
			t.Errorf("%+v", a)
		}
		wantErr(t, members[2].Err, party.ErrRecordTooLarge)
		wantErr(t, members[3].Err, session.ErrNoAuth)
		// A view has the same.
		if m, _ := b.View().Member("b"); m.Ctime == 0 || m.Ctime != members[1].Ctime {
			t.Errorf("%+v", m)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c.net.Client("reader").BlackHole(zktest.Both)
		_, err = party.Read(ctx, inc, directory)
		wantErr(t, err, context.DeadlineExceeded)
	})
}
