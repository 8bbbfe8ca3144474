package party_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

const records = "/kiel/groups/g/records"

// entryOf returns the path of an entry: what the wire has, written down a second time.
func entryOf(name, data string, session int64) string {
	sum := sha256.Sum256([]byte(data))
	return fmt.Sprintf("%s/%s.%x.%s", records, base64.RawURLEncoding.EncodeToString(sum[:20]), uint64(session), name)
}

// hashed runs a member with an entry.
func (w *world) hashed(name, data string) *member {
	w.Helper()
	s, end := w.stoppable(name, session.Options{})
	m := w.run(s, party.Options{Name: name, Data: []byte(data), Records: records, Info: []byte("info of " + name), Logger: logger(w)})
	m.endSession = end
	return m
}

// hashedMember is hashed, and waits until the member has joined.
func (w *world) hashedMember(name, data string) *member {
	w.Helper()
	m := w.hashed(name, data)
	m.joined()
	return m
}

// reader runs an observer that knows of the directory of records.
func (w *world) reader() *member {
	w.Helper()
	return w.run(w.session("reader"), party.Options{Records: records, Logger: logger(w)})
}

// persistent creates a member's znode, and an entry for each of the records that it is said to have.
func (w *world) persistent(name, data string, said ...string) {
	w.Helper()
	must(w, w.Srv.Create(node(name), []byte(data)))
	for _, record := range said {
		must(w, w.Srv.Create(entryOf(name, record, 7), nil))
	}
}

func (w *world) reads() int { return w.Srv.Stats().Requests[zktest.OpGetData] }

// looks counts what a reading of single members costs.
func (w *world) looks() int { return w.reads() + w.Srv.Stats().Requests[zktest.OpExists] }

// data waits until a member has that record in the view.
func (m *member) data(limit time.Duration, name, want string) party.Member {
	m.w.Helper()
	v, _ := m.await(limit, name+" with "+want, func(v *party.View) bool {
		got, ok := v.Member(name)
		return ok && got.Err == nil && string(got.Data) == want
	})
	got, _ := v.Member(name)
	return got
}

// TestOneReadForEachRecord is red if a member reads a record for each of the others.
func TestOneReadForEachRecord(t *testing.T) {
	inWorld(t, func(w *world) {
		const n = 30
		for i := range n {
			w.hashedMember(fmt.Sprintf("m%02d", i), fmt.Sprint("record ", i%3))
		}
		before := w.reads()
		o := w.reader()
		v, _ := o.await(time.Second, "all", func(v *party.View) bool { return len(v.Members) == n })
		if got := w.reads() - before; got != 3 {
			w.Errorf("%d reads of three records", got)
		}
		for i, m := range v.Members {
			_, stat, _ := w.Srv.Get(node(m.Name))
			if want := fmt.Sprint("record ", i%3); string(m.Data) != want || m.Session != stat.EphemeralOwner || m.Czxid != 0 || m.Err != nil {
				w.Errorf("%+v, want %s of %x", m, want, stat.EphemeralOwner)
			}
		}
		// One more with a record that is known costs a list, and one with a new record a read.
		before = w.looks()
		w.hashedMember("x", "record 1")
		o.data(time.Second, "x", "record 1")
		time.Sleep(time.Second)
		if got := w.reads() - before; got > 4*n { // each looks at the metadata of its own znode
			w.Errorf("%d looks", got)
		}
		o.calm()
	})
}

// TestCalmReadsNoOther is red if a member to which nothing happens looks at the others' znodes.
func TestCalmReadsNoOther(t *testing.T) {
	inWorld(t, func(w *world) {
		const n = 20
		for i := range n {
			w.hashedMember(fmt.Sprintf("m%02d", i), "record")
		}
		time.Sleep(timeout)
		before := w.looks()
		time.Sleep(8 * timeout)
		if got := w.looks() - before; got > 3*10*n {
			w.Errorf("%d looks of %d members in 8 session timeouts: more than both directories and its own znode each time", got, n)
		}
	})
}

// TestEntryIsInTheJoin is red if a member's znode is there without its entry, or the entry without the znode.
func TestEntryIsInTheJoin(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.hashedMember("a", "record")
		own, stat, ok := w.Srv.Get(node("a"))
		info, entry, there := w.Srv.Get(entryOf("a", "record", stat.EphemeralOwner))
		if !ok || !there || entry.Czxid != stat.Czxid || entry.EphemeralOwner != stat.EphemeralOwner || string(info) != "info of a" || string(own) != "record" {
			w.Errorf("znode %+v %v, entry %+v %v %q", stat, ok, entry, there, info)
		}
		var left int64
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpMulti && len(r.Ops) == 2 {
				left++
			}
			return zktest.Action{}
		})
		must(w, a.stop())
		w.unhook()
		w.wantGone("a")
		if names := w.Srv.Children(records); len(names) > 0 || left != 1 {
			w.Errorf("left %q in %d transactions", names, left)
		}
	})
}

// TestWhatEntriesSayIsChecked is red if what an entry says is believed without the record.
func TestWhatEntriesSayIsChecked(t *testing.T) {
	large := strings.Repeat("x", 64<<10+1)
	inWorld(t, func(w *world) {
		must(w, w.Srv.Create(directory, nil))
		w.persistent("right", "right", "right")
		w.persistent("wrong", "another", "said")
		w.persistent("two", "second", "first", "second")
		w.persistent("large", large, large)
		w.persistent("liar-1", "lie", "shared")
		w.persistent("liar-2", "shared", "shared")
		w.persistent("liar-3", "", "shared")
		w.persistent("python", "")
		must(w, w.Srv.Create(entryOf("gone", "gone", 7), nil))
		for _, garbage := range []string{"a", "right", "AAAA.7.python", "...", "é", strings.Repeat("z", 5000)} {
			must(w, w.Srv.Create(records+"/"+garbage, []byte("x")))
		}
		for range 5 { // from whom a record is read is chosen at random
			o := w.reader()
			v, _ := o.await(time.Second, "all", func(v *party.View) bool { return len(v.Members) == 8 })
			for name, want := range map[string]string{
				"right": "right", "wrong": "another", "two": "second", "liar-1": "shared", "liar-2": "shared", "liar-3": "shared", "python": "",
			} {
				if m, ok := v.Member(name); !ok || m.Err != nil || string(m.Data) != want {
					w.Errorf("%s is %+v, want %s", name, m, want)
				}
			}
			if m, _ := v.Member("large"); !errors.Is(m.Err, party.ErrRecordTooLarge) {
				w.Errorf("large: %v", m.Err)
			}
			o.calm()
			must(w, o.stop())
		}
	})
}

// TestEntryIsMended is red if a member does not put right what others have done to its entry.
func TestEntryIsMended(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.hashedMember("a", "record")
		o := w.reader()
		known := o.data(time.Second, "a", "record")
		own := entryOf("a", "record", known.Session)
		for _, harm := range []func(){
			func() { must(w, w.Srv.Delete(own)) },
			func() { must(w, w.Srv.Delete(records)) },
			func() { must(w, w.Srv.Create(entryOf("a", "another", known.Session), nil)) }, // two: the znode is read
			func() { must(w, w.Srv.Delete(own)); must(w, w.Srv.Create(entryOf("a", "another", known.Session), nil)) },
		} {
			harm()
			o.data(time.Second, "a", "record")
			time.Sleep(2 * timeout)
			if got := w.Srv.Children(records); len(got) != 1 || records+"/"+got[0] != own {
				w.Errorf("entries %q, want %s", got, own)
			}
			if m := o.data(time.Second, "a", "record"); m.Czxid != 0 {
				w.Errorf("%+v is read singly", m)
			}
		}
		if v := a.View(); !v.Joined {
			w.Error("not joined")
		}
	})
}

// TestOwnRecordIsMendedWithEntry is red if members go by what somebody has written into a member's znode.
func TestOwnRecordIsMendedWithEntry(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.hashedMember("a", "record")
		before := a.View()
		must(w, w.Srv.Set(node("a"), []byte("changed")))
		o := w.reader() // it finds nobody with that record
		o.data(time.Second, "a", "changed")
		a.await(2*timeout, "itself again", func(v *party.View) bool { return v.Joined && v.Version > before.Version })
		if m := o.data(time.Second, "a", "record"); m.Czxid != 0 {
			w.Errorf("%+v is read singly", m)
		}
		if data, _, _ := w.Srv.Get(node("a")); string(data) != "record" || len(w.Srv.Children(records)) != 1 {
			w.Errorf("the znode has %q, entries %q", data, w.Srv.Children(records))
		}
	})
}

// TestNamesakeHasItsOwnRecord: a member of Python that takes the place of one with an entry is read, as soon as that has noticed.
func TestNamesakeHasItsOwnRecord(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.hashedMember("a", "record")
		o := w.reader()
		o.data(time.Second, "a", "record")
		w.namesake("a")
		<-a.done
		wantErr(w, a.err, party.ErrNameTaken)
		o.data(time.Second, "a", "")
		if names := w.Srv.Children(records); len(names) > 0 {
			w.Errorf("entries %q", names)
		}
	})
}

// TestAnotherVersionUnderTheName is red if a member that comes back under its name with an entry or without one counts with what
// was known.
func TestAnotherVersionUnderTheName(t *testing.T) {
	inWorld(t, func(w *world) {
		o := w.reader()
		w.hashedMember("other", "x")
		next := func(entry bool, data string) {
			w.Helper()
			w.Net.Client("reader").Delay(200 * time.Millisecond)
			var m *member
			if entry {
				m = w.hashedMember("a", data)
			} else {
				m = w.run(w.session("plain"), party.Options{Name: "a", Data: []byte(data)})
				m.joined()
			}
			o.data(4*time.Second, "a", data)
			w.Net.Client("reader").Delay(0)
			time.Sleep(time.Second)
			w.Net.Client("reader").Delay(200 * time.Millisecond)
			must(w, m.stop())
		}
		next(true, "1")
		next(false, "2")
		next(false, "3")
		next(true, "4")
		next(true, "5")
		next(true, "5")
		next(false, "5")
	})
}

// TestKnownInTheNextSession is red if records that were read are read again because the session was lost.
func TestKnownInTheNextSession(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 10 {
			w.hashedMember(fmt.Sprint("m", i), fmt.Sprint(i))
		}
		a := w.hashedMember("a", "a")
		before, _ := a.await(time.Second, "all", func(v *party.View) bool { return len(v.Members) == 11 })
		var reads atomic.Int32
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpGetData && r.Client == "a" {
				reads.Add(1)
			}
			return zktest.Action{}
		})
		w.Srv.KillSession(w.sessionOf("a"))
		a.await(5*time.Second, "all again", func(v *party.View) bool {
			return v.Joined && v.Incarnation.SessionID() != before.Incarnation.SessionID() && len(v.Members) == 11
		})
		if got := reads.Load(); got > 1 { // its own
			w.Errorf("%d reads", got)
		}
	})
}

// TestLateReadsAreNotRepeated is red if members that were read before trust was lost are read a second time.
func TestLateReadsAreNotRepeated(t *testing.T) {
	for _, entries := range []bool{false, true} {
		inWorld(t, func(w *world) {
			const n = 64
			for i := range n {
				name, data := fmt.Sprintf("m%02d", i), fmt.Sprint("record ", i)
				if entries {
					w.persistent(name, data, data)
				} else {
					w.persistent(name, data)
				}
			}
			read := map[string]int{}
			lost := false
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
				if r.Op != zktest.OpGetData || !strings.HasPrefix(r.Path, directory+"/") {
					return zktest.Action{}
				}
				read[r.Path]++
				if len(read) == n/2 && !lost {
					lost = true
					w.Srv.FreezeClock()
					time.AfterFunc(timeout, w.Srv.Thaw)
				}
				return zktest.Action{}
			})
			o := w.reader()
			o.await(time.Minute, "all", func(v *party.View) bool { return len(v.Members) == n })
			w.unhook()
			twice := 0
			for _, n := range read {
				twice += n - 1
			}
			// 16 are under way when trust is lost, and on a busy machine the answers to some before them are, too.
			if losses := o.session.Stats().TrustLosses; losses != 1 || twice > 24 {
				w.Errorf("entries %v: %d of %d were read a second time, after %d losses of trust", entries, twice, n, losses)
			}
		})
	}
}

// TestSingly is red if members that have to be read singly are known by their hash, or are read again and again.
func TestSingly(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 5 {
			w.hashedMember(fmt.Sprint("m", i), fmt.Sprint("record ", i%2))
		}
		o := w.run(w.session("reader"), party.Options{Records: records, Singly: func(members []party.Member) bool { return len(members) > 4 }})
		v, _ := o.await(time.Second, "all", func(v *party.View) bool { return len(v.Members) == 5 })
		for _, m := range v.Members {
			if m.Czxid == 0 {
				w.Errorf("%+v is not known", m)
			}
		}
		o.calm()
		before := w.reads()
		time.Sleep(3 * timeout)
		if got := w.reads() - before; got > 0 {
			w.Errorf("%d reads in calm", got)
		}
		must(w, w.Srv.Delete(node("m0"))) // it joins again, but for a moment there are four
		time.Sleep(time.Second)
		o.await(time.Second, "all", func(v *party.View) bool { return len(v.Members) == 5 && v.Members[4].Czxid != 0 })
	})
}

// TestLostReplyOfTheJoin is red if a member whose transaction was executed without an answer stays out, or without its entry.
func TestLostReplyOfTheJoin(t *testing.T) {
	for _, executed := range []bool{true, false} {
		inWorld(t, func(w *world) {
			w.hashedMember("first", "x")
			var once atomic.Bool
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
				if r.Op == zktest.OpMulti && len(r.Ops) == 2 && !once.Swap(true) {
					return zktest.Action{LoseReply: executed, Cut: !executed}
				}
				return zktest.Action{}
			})
			a := w.hashed("a", "record")
			a.awaitNames(10*time.Second, "a", "first")
			a.joined()
			time.Sleep(timeout)
			if names := w.Srv.Children(records); len(names) != 2 {
				w.Errorf("entries %q", names)
			}
		})
	}
}

// TestEntryAloneIsSeen is red if a change of the directory of records is noticed only when the members are looked at again.
func TestEntryAloneIsSeen(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(40, "") // more than are audited at a time
		w.persistent("a", "record", "record")
		w.persistent("z", "another")
		o := w.reader()
		o.data(time.Second, "z", "another")
		time.Sleep(timeout / 4)
		must(w, w.Srv.Create(entryOf("z", "record", 7), nil))
		o.data(100*time.Millisecond, "z", "record")
		must(w, w.Srv.Delete(entryOf("z", "record", 7)))
		o.data(100*time.Millisecond, "z", "another")
	})
}

// TestEntryOfAMemberAlone is red if a Party without a record, or one that only observes, gets an entry that harms.
func TestEntryOfAMemberAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.run(w.session("a"), party.Options{Name: "a", Records: records})
		a.joined()
		o := w.reader()
		if m := o.data(time.Second, "a", ""); m.Session != w.sessionOf("a") {
			w.Errorf("got %+v", m)
		}
		must(w, o.stop())
		must(w, a.stop())
		if names := w.Srv.Children(records); len(names) > 0 {
			w.Errorf("entries %q", names)
		}
	})
}
