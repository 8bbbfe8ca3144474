package party_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Members that do not change are not listed again: 24 s of calm cost a member of 1,000 no more than its proofs, a look at the
// directory's metadata and the audit of records.
func TestCalmCostsNoList(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 999 {
			must(w, w.Srv.Create(node(fmt.Sprintf("consumer-host-%03d.example", i)), []byte("record")))
		}
		traffic := &recipetest.Traffic{Connect: w.Net.Client("a").Dial}
		s, err := session.New([]string{zktest.VirtualAddress}, session.Options{Timeout: timeout, Dial: traffic.Dial})
		must(w, err)
		recipetest.Run(w, s)
		a := w.run(s, party.Options{Name: "a"})
		a.await(5*time.Second, "all", func(v *party.View) bool { return v.Joined && len(v.Members) == 1000 })
		time.Sleep(timeout)
		before, requests := traffic.Received(), w.Srv.Stats().Requests
		time.Sleep(24 * time.Second)
		received := traffic.Received() - before
		w.Attr("received_in_24s_of_1000_members", fmt.Sprint(received))
		if received > 15_000 {
			w.Errorf("%d bytes received in 24 s without a change", received)
		}
		after := w.Srv.Stats().Requests
		if looks := after[zktest.OpExists] - requests[zktest.OpExists]; looks < 4*(1+17) {
			w.Errorf("%d looks at metadata: the audit does not go on", looks)
		}
		if age := time.Since(a.View().At); age > timeout {
			w.Errorf("looked at %v ago", age)
		}
	})
}

// A member that joins at any moment around a look that found the directory unchanged is seen at once: the watch of the last
// listing still stands then.
func TestJoinAroundACalmLook(t *testing.T) {
	inWorld(t, func(w *world) {
		const delay = 50 * time.Millisecond // each way
		o := w.observe()
		o.await(time.Second, "none", func(v *party.View) bool { return len(v.Members) == 0 })
		w.Net.Client("observer").Delay(delay)
		for i, after := range []time.Duration{0, 1, delay / 2, delay - 1, delay, delay + 1, 2 * delay, time.Second} {
			name := fmt.Sprintf("m%d", i)
			var joined atomic.Pointer[time.Time]
			var once atomic.Bool
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
				if r.Op == zktest.OpExists && r.Path == directory && !once.Swap(true) {
					time.AfterFunc(after, func() {
						now := time.Now()
						joined.Store(&now)
						must(w, w.Srv.Create(node(name), nil))
					})
				}
				return zktest.Action{}
			})
			o.await(2*timeout, name, func(v *party.View) bool { return slices.Contains(names(v), name) })
			// The rest of the look, then the list and the record: four times through the network each.
			if took := time.Since(*joined.Load()); took > 8*delay+20*time.Millisecond {
				w.Errorf("a member that joined %v after the look was seen after %v", after, took)
			}
			w.Srv.SetHook(nil)
		}
	})
}

// The watch of a listing lasts while nothing happens: it is asked for once, and it is one.
func TestOneListing(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.member("a")
		time.Sleep(time.Second)
		lists := w.Srv.Stats().Requests[zktest.OpGetChildren2]
		time.Sleep(10 * timeout)
		if n := w.Srv.Stats().Requests[zktest.OpGetChildren2] - lists; n > 0 {
			w.Errorf("listed %d times in calm", n)
		}
		if n := w.Srv.Stats().Watches; n != 1 {
			w.Errorf("%d watches", n)
		}
		// A lost connection takes the watch along.
		w.Net.Client("a").Cut()
		time.Sleep(time.Second)
		must(w, w.Srv.Create(node("b"), nil))
		if _, took := a.await(timeout, "b", func(v *party.View) bool { return len(v.Members) == 2 }); took > 10*time.Millisecond {
			w.Errorf("b was seen after %v", took)
		}
	})
}

// A change of which the servers never told, as by a watch that got lost, is found by the directory's metadata.
func TestLostWatch(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpGetChildren2 {
				r.Watch = false
			}
			return zktest.Action{}
		})
		a := w.member("a")
		time.Sleep(3*timeout + time.Second)
		must(w, w.Srv.Create(node("b"), nil))
		a.awaitNames(timeout, "a", "b")
		must(w, w.Srv.Delete(node("b")))
		must(w, w.Srv.Create(node("c"), nil))
		a.awaitNames(timeout, "a", "c")
	})
}
