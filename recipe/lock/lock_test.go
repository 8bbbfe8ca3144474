package lock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestNewRefuses(t *testing.T) {
	s, err := session.New([]string{"zk:2181"}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		s    *session.Session
		path string
		opts lock.Options
		want string
	}{
		"no session":          {nil, path, lock.Options{}, "session is nil"},
		"relative path":       {s, "app/lock", lock.Options{}, "app/lock"},
		"path that climbs":    {s, "/app/../lock", lock.Options{}, "/app/../lock"},
		"identifier":          {s, path, lock.Options{Identifier: "a\xff"}, `option Identifier: "a\xff"`},
		"empty pattern":       {s, path, lock.Options{ExtraPatterns: []string{""}}, "ExtraPatterns"},
		"regular expression":  {s, path, lock.Options{ExtraPatterns: []string{"-lock-", "l.ck"}}, `"l.ck"`},
		"pattern with slash":  {s, path, lock.Options{ExtraPatterns: []string{"a/b"}}, `"a/b"`},
		"more than one fault": {s, path, lock.Options{Identifier: "\xff", ExtraPatterns: []string{"("}}, `"("`},
	}
	for what, tt := range tests {
		if _, err := lock.New(tt.s, tt.path, tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", what, err, tt.want)
		}
	}
}

// The znodes are kazoo's.
func TestZnodes(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		h := w.acquire(w.lockIn(s, "café"))
		name := w.wantContenders(1)[0]
		if !contender.MatchString(name) {
			w.Errorf("contender %q", name)
		}
		if h.Node() != path+"/"+name {
			w.Errorf("node %q, want the child %q", h.Node(), name)
		}
		data, stat, _ := w.Srv.Get(h.Node())
		if string(data) != "café" || stat.EphemeralOwner != w.ID(s) || h.Token() != stat.Czxid {
			w.Errorf("data %q, stat %+v, token %d", data, stat, h.Token())
		}
		if data, stat, ok := w.Srv.Get(path); !ok || data == nil || len(data) != 0 || stat.EphemeralOwner != 0 {
			w.Errorf("directory: %q, %+v, %v", data, stat, ok)
		}
		w.Release(h)
		w.Ended(h, lock.ErrReleased)
		w.wantContenders(0)
		if _, _, ok := w.Srv.Get(path); !ok {
			w.Error("the directory was deleted")
		}
		// Without an identifier the data is empty, not null: kazoo can't decode null.
		h = w.acquire(w.lockIn(s, ""))
		if data, _, _ := w.Srv.Get(h.Node()); data == nil || len(data) != 0 {
			w.Errorf("data %#v", data)
		}
		w.Release(h)
		w.Release(h) // a second time
	})
}

// Five contenders wait and acquire the lock in the order in which they came. Each watches one znode, so a release wakes one
// waiter and costs a handful of requests.
func TestWaitersAreServedInOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.acquire(w.lock("holder"))
		var waiters []*acquiring
		for i := range 5 {
			waiters = append(waiters, w.acquireLater(w.Context(), w.lock("waiter "+string(rune('0'+i)))))
			time.Sleep(10 * time.Millisecond)
		}
		list := w.wantContenders(6)
		contenders, err := w.lock("observer").Contenders(w.Context())
		if err != nil || len(contenders) != 6 {
			w.Fatalf("Contenders: %v, %v", contenders, err)
		}
		for i, c := range contenders {
			_, stat, _ := w.Srv.Get(path + "/" + list[i])
			want := "holder"
			if i > 0 {
				want = "waiter " + string(rune('0'+i-1))
			}
			if c.Node != path+"/"+list[i] || c.Identifier != want || c.Token != stat.Czxid || c.Session != stat.EphemeralOwner {
				w.Errorf("contender %d: %+v, want %s, %q", i, c, list[i], want)
			}
		}
		if n := w.Srv.Stats().Watches; n != 6 {
			w.Errorf("%d watches, want one of each waiter and one of the holder", n)
		}
		token := holder.Token()
		for i, next := range waiters {
			for j, other := range waiters[i:] {
				if other.Ended() {
					w.Fatalf("waiter %d has the lock or gave up while %d others are in front: %v", i+j, j+1, other.Err)
				}
			}
			before := requests(w)
			w.Release(holder)
			next.Get(w)
			synctest.Wait()
			if n := requests(w) - before; n > 6 {
				w.Errorf("handing over took %d requests", n)
			}
			holder = next.Value
			if holder.Token() <= token {
				w.Errorf("token %d after %d", holder.Token(), token)
			}
			token = holder.Token()
			w.wantContenders(5 - i)
		}
		w.Release(holder)
		w.wantContenders(0)
	})
}

// requests counts the requests of clients, without pings and proofs of life.
func requests(w *world) int {
	n := 0
	for op, count := range w.Srv.Stats().Requests {
		if op != zktest.OpPing && op != zktest.OpMulti {
			n += count
		}
	}
	return n
}

// When the holder has gone, the next one lists the directory and watches its own contender. A third request would cost one more
// round trip in each hand-over.
func TestHandOverIsQuick(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.acquire(w.lock("first"))
		next := w.acquireLater(w.Context(), w.lock("next"))
		synctest.Wait()
		var asked []zktest.Op
		gone := false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case r.Op == zktest.OpDelete:
				gone = true
			case gone && r.Op != zktest.OpPing:
				asked = append(asked, r.Op)
			}
			return zktest.Action{}
		})
		w.Release(first)
		<-next.Done
		w.Srv.SetHook(nil)
		if next.Err != nil || !slices.Equal(asked, []zktest.Op{zktest.OpGetChildren2, zktest.OpExists}) {
			w.Errorf("%v after %v", next.Err, asked)
		}
	})
}

// Children that are not contenders of this lock block nobody.
func TestForeignChildrenAreIgnored(t *testing.T) {
	const goNode = "_c_8eb60557ba51e0da67eefc47467d3f34-lock-0000000000"
	inWorld(t, func(w *world) {
		for _, name := range []string{
			"lease_holder", "514e5a831836450cb1a56c741e990fd8__rlock__0000000000", goNode,
			"__lock__", "x__lock__1", "__lock__0000000000x", "0000000000", "_c_x", "a b", "ключ",
		} {
			w.Must(w.Srv.Create(path+"/"+name, nil))
		}
		s := w.Session("a")
		h, err := w.lockIn(s, "").TryAcquire(w.Context())
		w.Must(err)
		w.Release(h)
		l, err := lock.New(s, path, lock.Options{ExtraPatterns: []string{"-lock-"}})
		w.Must(err)
		_, err = l.TryAcquire(w.Context())
		if w.Blocked(err, lock.ErrNotAcquired).Blocker != path+"/"+goNode {
			w.Errorf("with -lock-: %v", err)
		}
	})
}

func TestTryAcquire(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.lock("a"), w.lock("b")
		h, err := a.TryAcquire(w.Context())
		w.Must(err)
		_, err = b.TryAcquire(w.Context())
		blocked, ok := errors.AsType[*recipe.BlockedError](err)
		if !errors.Is(err, lock.ErrNotAcquired) || !ok || blocked.Blocker != h.Node() || blocked.Identifier != "a" || blocked.Detail != "1 ahead" || blocked.Path != path {
			w.Errorf("got %v (%+v)", err, blocked)
		}
		w.wantContenders(1) // nothing is left behind
		w.Release(h)
		if h, err = b.TryAcquire(w.Context()); err != nil {
			w.Fatal(err)
		}
		w.Release(h)
	})
}

// A blocked caller learns which znode is in the way: the first contender, not one that waits, too.
func TestBlockedErrorNamesTheZnodeInTheWay(t *testing.T) {
	inWorld(t, func(w *world) {
		stale := path + "/514e5a831836450cb1a56c741e990fd8__lock__0000000000"
		w.Must(w.Srv.Create(stale, []byte("host-7\n\xff")))
		w.acquireLater(w.Context(), w.lock("another"))
		time.Sleep(time.Second)
		l := w.lock("a")
		why := errors.New("no patience")
		ctx, cancel := context.WithTimeoutCause(w.Context(), 40*time.Second, why)
		defer cancel()
		start := time.Now()
		_, err := l.Acquire(ctx)
		if d := time.Since(start); d != 40*time.Second {
			w.Errorf("returned after %v", d)
		}
		blocked, ok := errors.AsType[*recipe.BlockedError](err)
		if !ok || blocked.Blocker != stale || blocked.Identifier != "host-7\n" || blocked.Detail != "2 ahead" || !errors.Is(err, why) {
			w.Errorf("got %v (%+v)", err, blocked)
		}
		if err == nil || !strings.Contains(err.Error(), stale) || !strings.Contains(err.Error(), `"host-7\n"`) {
			w.Errorf("message: %v", err)
		}
		synctest.Wait()
		w.wantContenders(2)
	})
}

// A contender with an equal number, which no server assigns, stands in front if it is older.
func TestEqualNumbers(t *testing.T) {
	inWorld(t, func(w *world) {
		older := path + "/older__lock__0000000001"
		w.Must(w.Srv.Create(older, nil))
		a := w.waiter("a")
		if a.Ended() {
			w.Fatalf("acquired beside %s: %v, %q", older, a.Err, w.contenders())
		}
		w.Must(w.Srv.Create(path+"/00newer__lock__0000000001", nil))
		w.Must(w.Srv.Delete(older))
		time.Sleep(time.Second)
		if !a.Ended() || a.Err != nil {
			w.Fatalf("not acquired: %v", a.Err)
		}
		w.Release(a.Value)
	})
}

// Acquire refuses the last sequence numbers.
func TestSequenceExhausted(t *testing.T) {
	for seq, ok := range map[string]bool{"2146435071": true, "2146435072": false, "2147483647": false, "-2147483648": false, "-000000001": false} {
		inWorld(t, func(w *world) {
			l := w.lock("a")
			w.acquireAndRelease(l)
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
				if r.Op == zktest.OpCreate && r.Flags == 3 {
					r.Flags, r.Path = 1, r.Path+seq
				}
				return zktest.Action{}
			})
			h, err := l.Acquire(w.Context())
			if ok {
				if err != nil {
					w.Fatalf("%s: %v", seq, err)
				}
				w.Release(h)
				return
			}
			if !errors.Is(err, lock.ErrSequenceExhausted) || !strings.Contains(err.Error(), path) {
				w.Errorf("%s: got %v", seq, err)
			}
			w.wantContenders(0)
		})
	}
}

func (w *world) acquireAndRelease(l *lock.Lock) {
	w.Helper()
	w.Release(w.acquire(l))
}

func TestContendersOfNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		list, err := w.lock("a").Contenders(w.Context())
		if err != nil || len(list) != 0 {
			w.Errorf("got %v, %v", list, err)
		}
		if _, _, ok := w.Srv.Get("/app"); ok {
			w.Error("looking created something")
		}
	})
}

// A hold keeps the session open until it is released.
func TestSessionWaitsForTheHolder(t *testing.T) {
	inWorld(t, func(w *world) {
		s, stop := w.Stoppable("a")
		h := w.acquire(w.lockIn(s, "a"))
		stopped := recipetest.Background(stop)
		time.Sleep(5 * time.Second)
		if h.Context().Err() != nil || len(w.contenders()) != 1 {
			w.Fatalf("the hold has ended: %v", context.Cause(h.Context()))
		}
		w.Release(h)
		released := time.Now()
		<-stopped
		if d := time.Since(released); d > time.Second {
			w.Errorf("the session ended %v after the release", d)
		}
		w.wantContenders(0)
	})
}
