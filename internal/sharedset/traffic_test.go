package sharedset_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// reads returns the requests for the set's znode that were made since it was called last.
func (w *world) reads() (take func() []zktest.Op) {
	var mu sync.Mutex
	var ops []zktest.Op
	w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
		mu.Lock()
		defer mu.Unlock()
		if r.Path == path {
			ops = append(ops, r.Op)
		}
		return zktest.Action{}
	})
	return func() []zktest.Op {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		taken := ops
		ops = nil
		return taken
	}
}

// A set that does not change is not read again: 24 s of calm cost a member no more than a few requests.
func TestCalmCostsNoData(t *testing.T) {
	inWorld(t, func(w *world) {
		items := make([]string, 100_000)
		for i := range items {
			items[i] = fmt.Sprintf("topic-%04d:%d", i/64, i%64)
		}
		slices.Sort(items)
		w.Write(path, string(sharedset.Encode(items)))
		traffic := &recipetest.Traffic{Connect: w.Net.Client("a").Dial}
		// The set is larger than what fits the default MaxPacket.
		ses, err := session.New([]string{zktest.VirtualAddress}, session.Options{Dial: traffic.Dial, MaxPacket: 4 << 20})
		noerr.Must(w, err)
		recipetest.Run(w, ses)
		s := w.runningIn(ses)
		first := w.waitItems(s, items...)
		before := traffic.Received()
		time.Sleep(24 * time.Second)
		received := traffic.Received() - before
		w.Attr("received_in_24s_of_100000_items", fmt.Sprint(received))
		if received > 20_000 {
			w.Errorf("%d bytes received in 24 s without a change", received)
		}
		if v := s.View(); time.Since(v.At) > first.Incarnation.Timeout() || v.Version != first.Version {
			w.Errorf("version %d, looked at %v ago", v.Version, time.Since(v.At))
		}
	})
}

// A change that a watch tells of is read at once; the metadata are asked for first only when nothing says that there is one.
func TestOneReadForAChange(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["t:0"]`)
		s := w.running()
		v := w.waitItems(s, "t:0")
		take := w.reads()
		w.Write(path, `["t:1"]`)
		w.waitItems(s, "t:1")
		if ops := take(); !slices.Equal(ops, []zktest.Op{zktest.OpGetData}) {
			w.Errorf("for a change %v", ops)
		}
		time.Sleep(v.Incarnation.Timeout())
		if ops := take(); !slices.Equal(ops, []zktest.Op{zktest.OpExists}) {
			w.Errorf("without a change %v", ops)
		}
		w.Write(path, `["t:2"]`)
		w.waitItems(s, "t:2")
		if ops := take(); !slices.Equal(ops, []zktest.Op{zktest.OpGetData}) {
			w.Errorf("for a change after calm %v", ops)
		}
	})
}

// A set that can't be parsed is not read again and again either; its error stays, and it is mended at once.
func TestGarbageIsReadOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["t:0"]`)
		s := w.running()
		w.waitItems(s, "t:0")
		w.Write(path, "garbage")
		v := w.wait(s, "with an error", func(v *sharedset.View) bool { return v.Err != nil })
		take := w.reads()
		time.Sleep(time.Minute)
		if ops := take(); len(ops) == 0 || slices.Contains(ops, zktest.OpGetData) {
			w.Errorf("requests %v", ops)
		}
		if now := s.View(); now.Version != v.Version || now.Err == nil || !slices.Equal(now.Items, []string{"t:0"}) {
			w.Errorf("%+v, before %+v", now, v)
		}
		w.Write(path, `["t:1"]`)
		w.waitItems(s, "t:1")
	})
}

// A change made while no watch was set, because the connection was gone, shows in the metadata.
func TestChangeWithoutAWatch(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, `["t:0"]`)
		s := w.running()
		first := w.waitItems(s, "t:0")
		take := w.reads()
		client := w.Net.Client("a")
		for _, c := range []struct {
			change func()
			want   string
			ops    []zktest.Op
		}{
			{func() {}, "t:0", []zktest.Op{zktest.OpExists}},
			{func() { w.Write(path, `["t:1"]`) }, "t:1", []zktest.Op{zktest.OpExists, zktest.OpGetData}},
		} {
			client.Refuse()
			client.Cut()
			time.Sleep(time.Second)
			c.change()
			client.Heal()
			time.Sleep(2 * time.Second)
			if v := s.View(); !slices.Equal(v.Items, []string{c.want}) || v.Incarnation != first.Incarnation {
				w.Errorf("%+v, want %s", v, c.want)
			}
			if ops := take(); !slices.Equal(ops, c.ops) {
				w.Errorf("requests %v, want %v", ops, c.ops)
			}
		}
	})
}

// Servers that lost what they held give other data the same numbers, and the same times: data that were read before say nothing
// about them.
func TestOtherServersSameMetadata(t *testing.T) {
	inWorld(t, func(w *world) {
		other := zktest.NewServer(zktest.Options{})
		w.Cleanup(func() { _ = other.Close() })
		noerr.Must(w, other.Create(path, nil))
		w.Write(path, `["t:0"]`)
		noerr.Must(w, other.Set(path, []byte(`["t:1"]`)))
		_, was, _ := w.Srv.Get(path)
		if _, is, _ := other.Get(path); is != was {
			w.Fatalf("%+v, on the other server %+v", was, is)
		}
		const address = "other:2181"
		ses, err := session.New([]string{zktest.VirtualAddress, address}, session.Options{Dial: w.Net.Client("a").Dial})
		noerr.Must(w, err)
		recipetest.Run(w, ses)
		s := w.runningIn(ses)
		w.waitItems(s, "t:0")
		w.Srv.Down()
		l, err := w.Net.Listen(address)
		noerr.Must(w, err)
		go func() { _ = other.Serve(l) }()
		w.waitItems(s, "t:1")
	})
}
