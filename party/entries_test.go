package party_test

import (
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// TestLoneMemberAsksOfNoEntries is red if a member without others looks at the directory of records, or does not when another one
// has come.
func TestLoneMemberAsksOfNoEntries(t *testing.T) {
	inWorld(t, func(w *world) {
		w.hashedMember("a", "record")
		time.Sleep(timeout)
		var asked atomic.Int32
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Path == records && r.Client == "a" {
				asked.Add(1)
			}
			return zktest.Action{}
		})
		time.Sleep(8 * timeout)
		if n := asked.Swap(0); n > 0 {
			w.Errorf("%d requests in 8 session timeouts", n)
		}
		w.member("b") // without an entry, so that no watch of the directory fires
		time.Sleep(timeout)
		if asked.Load() == 0 {
			w.Error("no request after another member has come")
		}
	})
}

// TestMisfitIsReadOnce is red if a hash that no member's record has is looked for again while nothing changes, or not when
// something has.
func TestMisfitIsReadOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		must(w, w.Srv.Create(directory, nil))
		for i := range 10 {
			w.persistent(fmt.Sprint("m", i), "another", "said")
		}
		o := w.reader()
		o.data(time.Second, "m0", "another")
		before := w.reads()
		time.Sleep(5 * timeout)
		if n := w.reads() - before; n > 0 {
			w.Errorf("%d reads while nothing changed", n)
		}
		must(w, w.Srv.Delete(node("m0"))) // only the members change
		must(w, w.Srv.Create(node("m0"), []byte("said")))
		time.Sleep(timeout)
		if m := o.data(time.Second, "m0", "said"); m.Czxid != 0 {
			w.Errorf("%+v is read singly", m)
		}
	})
}

// TestReadEntries reads what members say of themselves.
func TestReadEntries(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.hashedMember("a", "record")
		must(w, w.Srv.Create(records+"/garbage", nil))
		must(w, w.Srv.Create(entryOf("b", "large", 7), make([]byte, 64<<10+1)))
		inc := incarnation(w, a.session)
		forged := []string{entryOf("a", "another", inc.SessionID()), entryOf("a", "record", 9), entryOf("nobody", "record", inc.SessionID())}
		for _, path := range forged {
			must(w, w.Srv.Create(path, []byte("forged")))
		}
		members, err := party.Read(w.Context(), inc, directory)
		must(w, err)
		members = append(members,
			party.Member{Name: "b", Session: 7, Data: []byte("large")},
			party.Member{Name: "c", Session: 8, Err: session.ErrNoAuth},
			party.Member{Name: "python", Session: 5})
		for _, record := range []string{"1", "2", "3"} {
			must(w, w.Srv.Create(entryOf("c", record, 8), []byte("info of c")))
		}
		before := w.reads()
		got, err := party.ReadEntries(w.Context(), inc, records, members)
		must(w, err)
		if len(got) != 3 {
			w.Fatalf("got %+v", got)
		}
		if n := w.reads() - before; n != 3 {
			w.Errorf("%d reads of three entries", n)
		}
		want := map[string]party.Entry{
			"a": {Member: "a", Session: inc.SessionID(), Info: []byte("info of a")},
			"b": {Member: "b", Session: 7},
			"c": {Member: "c", Session: 8, Info: []byte("info of c")},
		}
		for _, e := range got {
			if !reflect.DeepEqual(e, want[e.Member]) {
				w.Errorf("got %+v", e)
			}
		}
		_, err = party.ReadEntries(w.Context(), inc, "/none", members)
		wantErr(w, err, session.ErrNoNode)
	})
}
