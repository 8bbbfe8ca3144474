package party_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestRead(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.session("reader")
		inc := incarnation(w, s)
		if _, err := party.Read(w.Context(), inc, directory); !errors.Is(err, session.ErrNoNode) || !strings.Contains(err.Error(), directory) {
			w.Error(err)
		}
		b := w.join("b")
		time.Sleep(time.Second)
		start := time.Now().UnixMilli()
		must(w, w.Srv.Create(node("a"), []byte("record")))
		must(w, w.Srv.Create(node("large"), make([]byte, 64<<10+1)))
		must(w, w.Srv.Create(node("secret"), nil))
		must(w, w.Srv.Create(node("short"), nil))
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case r.Op == zktest.OpGetData && r.Path == node("secret"):
				return zktest.Action{Err: zktest.ErrNoAuth}
			case r.Op == zktest.OpGetData && r.Path == node("short"): // gone since the list was read
				return zktest.Action{Err: zktest.ErrNoNode}
			}
			return zktest.Action{}
		})
		members, err := party.Read(w.Context(), inc, directory)
		must(w, err)
		if len(members) != 4 {
			w.Fatalf("%+v", members)
		}
		for i, m := range members {
			stat, _ := w.stands(m.Name)
			if want := []string{"a", "b", "large", "secret"}[i]; m.Name != want || m.Czxid != stat.Czxid || m.Ctime != stat.Ctime || m.Session != stat.EphemeralOwner {
				w.Errorf("%+v, want %s of %+v", m, want, stat)
			}
		}
		if a := members[0]; string(a.Data) != "record" || a.Err != nil || a.Ctime != start {
			w.Errorf("%+v", a)
		}
		wantErr(w, members[2].Err, party.ErrRecordTooLarge)
		wantErr(w, members[3].Err, session.ErrNoAuth)
		// A view has the same.
		if m, _ := b.View().Member("b"); m.Ctime == 0 || m.Ctime != members[1].Ctime {
			w.Errorf("%+v", m)
		}

		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		w.Net.Client("reader").BlackHole(zktest.Both)
		_, err = party.Read(ctx, inc, directory)
		wantErr(w, err, context.DeadlineExceeded)
	})
}
