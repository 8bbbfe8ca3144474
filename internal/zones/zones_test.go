package zones_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/internal/zones"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

const (
	parent = "/kiel/groups/g"
	path   = parent + "/zones"
)

// world is a server on a virtual network, in a bubble.
type world struct{ *recipetest.World }

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	recipetest.InWorld(t, func(w *recipetest.World) { f(w.T, &world{w}) })
}

// zones returns a handle on a session of its own.
func (w *world) zones(name string) *zones.Zones {
	w.Helper()
	z, err := zones.New(w.Session(name), parent, "zones")
	noerr.Must(w, err)
	return z
}

// running returns a handle that watches, and has read.
func (w *world) running(name string) *zones.Zones {
	w.Helper()
	z := w.zones(name)
	recipetest.Run(w, z)
	w.wait(z, "first", func(*zones.View) bool { return true })
	return z
}

// wait returns the first view that is as wanted.
func (w *world) wait(z *zones.Zones, what string, ok func(*zones.View) bool) *zones.View {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	for v := range z.Updates(ctx) {
		if ok(v) {
			return v
		}
	}
	w.Fatalf("no view within a minute: %s; the last %+v", what, z.View())
	return nil
}

func (w *world) waitZones(z *zones.Zones, want map[kiel.Partition]string) *zones.View {
	w.Helper()
	return w.wait(z, "of these zones", func(v *zones.View) bool { return v.Err == nil && maps.Equal(v.Zones, want) })
}

func (w *world) remove() {
	w.Helper()
	noerr.Must(w, w.Srv.Delete(path))
}

func (w *world) data() string {
	data, _, _ := w.Srv.Get(path)
	return string(data)
}

// set is a change to these zones, whatever there is.
func set(zs map[kiel.Partition]string) zones.Change {
	return func(map[kiel.Partition]string) map[kiel.Partition]string { return zs }
}

// add is a change that keeps what there is.
func add(zs map[kiel.Partition]string) zones.Change {
	return func(now map[kiel.Partition]string) map[kiel.Partition]string {
		all := maps.Clone(zs)
		maps.Copy(all, now)
		return all
	}
}

// noting has all requests for the znode noted.
func (w *world) noting() *notes {
	n := new(notes)
	w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
		if r.Path == path {
			n.mu.Lock()
			n.ops = append(n.ops, r.Op)
			n.mu.Unlock()
		}
		return zktest.Action{}
	})
	return n
}

type notes struct {
	mu  sync.Mutex
	ops []zktest.Op
}

// take returns what was noted since it was called last.
func (n *notes) take() []zktest.Op {
	n.mu.Lock()
	defer n.mu.Unlock()
	ops := n.ops
	n.ops = nil
	return ops
}

func TestNewChecks(t *testing.T) {
	if _, err := zones.New(nil, parent, "zones"); err == nil {
		t.Error("no session: nil")
	}
	s, err := session.New([]string{"zk:2181"}, session.Options{})
	noerr.Must(t, err)
	if _, err := zones.New(s, "/kiel", "a\x00"); !errors.Is(err, session.ErrInvalidPath) {
		t.Errorf("bad path: %v", err)
	}
}

// A znode that is missing, or has been read, costs a read that carries no data; and so for ever.
func TestWhatItCosts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		notes := w.noting()
		z := w.zones("a")
		recipetest.Run(w, z)
		synctest.Wait()
		ops := notes.take()
		if v := z.View(); !slices.Equal(ops, []zktest.Op{zktest.OpSync, zktest.OpExists}) || v == nil || v.Err != nil || len(v.Zones) != 0 {
			t.Errorf("missing: sent %v, view %+v", ops, v)
		}
		if n := w.Srv.Stats().Watches; n != 1 {
			t.Errorf("%d watches", n)
		}
		if err := w.Srv.Create(path, []byte(`{"v":1,"zones":["a"],"topics":{"t":[0]}}`)); err != nil { // one change
			t.Fatal(err)
		}
		v := w.waitZones(z, of("a"))
		if ops := notes.take(); !slices.Equal(ops, []zktest.Op{zktest.OpExists, zktest.OpGetData}) {
			t.Errorf("made: sent %v", ops)
		}
		time.Sleep(10 * time.Minute)
		ops = notes.take()
		if n := len(ops); n < 60 || n > 80 || slices.ContainsFunc(ops, func(op zktest.Op) bool { return op != zktest.OpExists }) {
			t.Errorf("idle for 10 minutes: sent %v", ops)
		}
		if now := z.View(); now.Version != v.Version || !now.At.After(v.At) {
			t.Errorf("%+v, before %+v", now, v)
		}
	})
}

func TestEveryoneSeesWhatIsWritten(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.running("a"), w.running("b")
		steps := []struct {
			do   func() error
			want map[kiel.Partition]string
		}{
			{func() error { return a.Update(t.Context(), set(of("x", "", "y"))) }, of("x", "", "y")},
			{func() error { return b.Update(t.Context(), set(of("x"))) }, of("x")},
			{func() error { w.remove(); return nil }, of()},
			{func() error { return b.Update(t.Context(), set(of("y"))) }, of("y")},
			{func() error { w.Write(path, ""); return nil }, of()},
			{func() error { return a.Update(t.Context(), set(of("z"))) }, of("z")},
			{func() error { return a.Update(t.Context(), set(nil)) }, of()},
			// "" is no zone.
			{func() error {
				return a.Update(t.Context(), set(map[kiel.Partition]string{{Topic: "t"}: "", {Topic: "u"}: "x"}))
			}, map[kiel.Partition]string{{Topic: "u"}: "x"}},
		}
		for i, step := range steps {
			if err := step.do(); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
			w.waitZones(a, step.want)
			w.waitZones(b, step.want)
		}
	})
}

// What changes nothing writes nothing.
func TestNoWriteWhenEqual(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		z := w.zones("a")
		for _, tt := range []struct {
			data string
			want map[kiel.Partition]string
		}{{"", nil}, {`{ "v": 1, "zones": ["b", "a"], "topics": {"t": [1, -1]} }`, of("a")}} {
			if tt.data != "" {
				w.Write(path, tt.data)
			}
			notes := w.noting()
			noerr.Want(t, z.Update(t.Context(), set(tt.want)))
			w.Srv.SetHook(nil)
			if ops := notes.take(); !slices.Equal(ops, []zktest.Op{zktest.OpSync, zktest.OpGetData}) || w.data() != tt.data {
				t.Errorf("sent %v, written %s", ops, w.data())
			}
		}
	})
}

// What can't be read counts as no zones, is never written over, and is forgotten when it is repaired.
func TestUnreadable(t *testing.T) {
	for name, data := range map[string]string{
		"garbage": `zone a`,
		"newer":   `{"v":2,"zones":{"a":["t:0"]}}`,
		"large":   `{"v":1}` + strings.Repeat(" ", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				z := w.running("a")
				noerr.Must(t, z.Update(t.Context(), set(of("a"))))
				w.waitZones(z, of("a"))
				notes := w.noting()
				w.Write(path, data)
				v := w.wait(z, "of the error", func(v *zones.View) bool { return v.Err != nil })
				if !errors.Is(v.Err, zones.ErrUnreadable) || !strings.Contains(v.Err.Error(), path) || len(v.Zones) != 0 {
					t.Errorf("%+v", v)
				}
				if got := slices.Contains(notes.take(), zktest.OpGetData); got != (name != "large") {
					t.Errorf("data read: %v", got)
				}
				if name != "large" { // which this session could not even be sent
					if err := z.Update(t.Context(), set(of("b"))); !errors.Is(err, zones.ErrUnreadable) || !strings.Contains(err.Error(), path) {
						t.Errorf("Update: %v", err)
					}
				}
				time.Sleep(time.Minute)
				if w.data() != data {
					t.Errorf("written over: %.100s", w.data())
				}
				if now := z.View(); now.Version != v.Version {
					t.Errorf("version %d, was %d", now.Version, v.Version)
				}
				w.Write(path, `{"v":1,"zones":["b"],"topics":{"t":[0]}}`)
				w.waitZones(z, of("b"))
			})
		})
	}
}

func TestUpdateChecks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		z := w.zones("a")
		for name, tt := range map[string]struct {
			p    kiel.Partition
			zone string
			want error
		}{
			"topic":    {kiel.Partition{Topic: "a:b"}, "a", zones.ErrInvalid},
			"negative": {kiel.Partition{Topic: "t", ID: -1}, "a", zones.ErrInvalid},
			"zone":     {kiel.Partition{Topic: "t"}, "a\n", zones.ErrInvalid},
			"large":    {kiel.Partition{Topic: "t", ID: 1 << 30}, "a", zones.ErrTooLarge},
		} {
			if err := z.Update(t.Context(), set(map[kiel.Partition]string{tt.p: tt.zone})); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, _, ok := w.Srv.Get(path); ok {
			t.Error("written")
		}
	})
}

// Two that write at once both get what they asked for: the second begins again with what the first has written. Without the
// znode's version the first one's would be lost.
func TestWritersAtOnce(t *testing.T) {
	for name, start := range map[string]string{"set": `{"v":1}`, "create": ""} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				if start != "" {
					w.Write(path, start)
				}
				a, b := w.zones("a"), w.zones("b")
				once := false
				between := func(now map[kiel.Partition]string) map[kiel.Partition]string {
					if !once { // a has read, and not written
						once = true
						noerr.Want(t, b.Update(t.Context(), add(of("", "b"))))
					}
					return add(of("a"))(now)
				}
				noerr.Must(t, a.Update(t.Context(), between))
				if want := `{"v":1,"zones":["a","b"],"topics":{"t":[0,1]}}`; w.data() != want {
					t.Errorf("got %s, want %s", w.data(), want)
				}
			})
		})
	}
}

func writes(r zktest.Request) bool {
	return r.Path == path && slices.Contains([]zktest.Op{zktest.OpSetData, zktest.OpCreate, zktest.OpCreate2}, r.Op)
}

// A write whose reply was lost is looked at, and not made again.
func TestLostReply(t *testing.T) {
	for name, start := range map[string]string{"set": `{"v":1}`, "create": ""} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				if start != "" {
					w.Write(path, start)
				}
				z := w.zones("a")
				written := 0
				w.Srv.LoseReply(1, writes)
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					if writes(*r) {
						written++
					}
					return zktest.Action{}
				})
				noerr.Must(t, z.Update(t.Context(), set(of("a"))))
				if written != 1 {
					t.Errorf("%d writes", written)
				}
			})
		})
	}
}

// A caller that gives up is told that its zones may have been written; without a connection, that they have not.
func TestGivingUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		z := w.zones("a")
		noerr.Must(t, z.Update(t.Context(), set(of("a"))))
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action { return zktest.Action{Ignore: writes(*r)} })
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		if err := z.Update(ctx, set(of("b"))); !errors.Is(err, why) || !errors.Is(err, session.ErrUncertain) {
			t.Errorf("given up: %v", err)
		}
		w.Srv.SetHook(nil)
		w.Net.Client("a").BlackHole(zktest.Both)
		recipetest.EndWithTheirContext(t, path, map[string]func(context.Context) error{
			"Update":  func(ctx context.Context) error { return z.Update(ctx, set(of("c"))) },
			"Refresh": z.Refresh,
		})
	})
}

// Views are of one incarnation each, and come anew with the next one, though nothing has changed.
func TestSessionExpires(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Write(path, `{"v":1,"zones":["a"],"topics":{"t":[0]}}`)
		z := w.running("a")
		old := w.waitZones(z, of("a"))
		w.Srv.KillSession(old.Incarnation.SessionID())
		v := w.wait(z, "of the next incarnation", func(v *zones.View) bool { return v.Incarnation != old.Incarnation })
		if v.Version != old.Version || !maps.Equal(v.Zones, old.Zones) {
			t.Errorf("%+v, before %+v", v, old)
		}
		noerr.Must(t, z.Update(t.Context(), set(of("b"))))
		w.waitZones(z, of("b"))
	})
}

// Servers that lost their data may give a new znode the number of the old one.
func TestMadeAnewWithTheSameNumber(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for range 20 {
			w.Write(path, `{"v":1}`)
		}
		w.Write(path, `{"v":1,"zones":["a"],"topics":{"t":[0]}}`)
		z := w.running("a")
		w.waitZones(z, of("a"))
		_, old, _ := w.Srv.Get(path)
		client := w.Net.Client("a")
		client.Refuse()
		w.Srv.Restart(true)
		time.Sleep(time.Second)
		w.Write(path, `{"v":1}`)
		for {
			w.Write(path, `{"v":1,"zones":["b"],"topics":{"t":[0]}}`)
			if _, stat, _ := w.Srv.Get(path); stat.Mzxid >= old.Mzxid {
				break
			}
		}
		if _, stat, _ := w.Srv.Get(path); stat.Mzxid != old.Mzxid {
			t.Fatalf("number %d, was %d", stat.Mzxid, old.Mzxid)
		}
		client.Heal()
		w.waitZones(z, of("b"))
	})
}

// A znode that may not be read is no zones and an error, and is tried again; the watch is of no use then.
func TestRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Write(path, `{"v":1,"zones":["a"],"topics":{"t":[0]}}`)
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Path == path && r.Op == zktest.OpGetData {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		z := w.running("a")
		if v := z.View(); !errors.Is(v.Err, session.ErrNoAuth) || !strings.Contains(v.Err.Error(), path) || len(v.Zones) != 0 {
			t.Errorf("%+v", v)
		}
		if err := z.Update(t.Context(), set(of("b"))); !errors.Is(err, session.ErrNoAuth) {
			t.Errorf("Update: %v", err)
		}
		w.Srv.SetHook(nil)
		start := time.Now()
		v := w.waitZones(z, of("a"))
		if d := time.Since(start); d > v.Incarnation.Timeout() {
			t.Errorf("read after %v", d)
		}
	})
}
