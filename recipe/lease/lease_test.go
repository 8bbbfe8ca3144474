package lease_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestNewRefuses(t *testing.T) {
	s, err := session.New([]string{"zk:2181"}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	good := lease.Options{Identifier: "a", Duration: time.Minute}
	with := func(change func(*lease.Options)) lease.Options {
		o := good
		change(&o)
		return o
	}
	for want, tt := range map[string]struct {
		s    *session.Session
		path string
		opts lease.Options
	}{
		"session is nil":            {nil, path, good},
		"app/lease":                 {s, "app/lease", good},
		`Identifier: ""`:            {s, path, with(func(o *lease.Options) { o.Identifier = "" })},
		`Identifier: "\xff"`:        {s, path, with(func(o *lease.Options) { o.Identifier = "\xff" })},
		"Skew: -1ns is less than 0": {s, path, with(func(o *lease.Options) { o.Skew = -1 })},
		"less than 4s":              {s, path, with(func(o *lease.Options) { o.Duration = 4*time.Second - 1 })},
		"less than 1m2s":            {s, path, with(func(o *lease.Options) { o.Skew = time.Minute })},
		"Duration: 0s is less than": {s, path, with(func(o *lease.Options) { o.Duration = 0 })},
	} {
		if _, err := lease.New(tt.s, tt.path, tt.opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
		if _, err := lease.NewMulti(tt.s, tt.path, 2, tt.opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Multi: got %v, want an error with %q", err, want)
		}
	}
	if _, err := lease.NewMulti(s, path, 0, good); err == nil || err.Error() != "lease: argument count: 0 is less than 1" {
		t.Errorf("no slots: %v", err)
	}
}

// The znodes are kazoo's.
func TestZnodes(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lease("café")
		time.Sleep(1700 * time.Millisecond) // it is 2000-01-01 00:00:01.7
		if _, taken, err := l.Holder(w.Context()); taken || err != nil || len(w.Srv.Children("/")) != 1 {
			w.Errorf("before: %v, %v, %s", taken, err, w.Srv.Dump())
		}
		h := w.obtain(l)
		if r := w.record(); r != `{"version": 1, "holder": "caf\u00e9", "end": "2000-01-01T00:01:01"}` {
			w.Errorf("record %s", r)
		}
		_, stat, _ := w.Srv.Get(node)
		if stat.EphemeralOwner != 0 || stat.Mzxid != h.Token() || stat.Version == 0 || h.Node() != node || h.Path() != path {
			w.Errorf("%+v, token %d, node %s", stat, h.Token(), h.Node())
		}
		end := time.Date(2000, 1, 1, 0, 1, 1, 0, time.UTC)
		if r, taken, err := l.Holder(w.Context()); !taken || err != nil || r.Holder != "café" || r.End != end || h.End() != end {
			w.Errorf("holder %+v, %v, %v; end %v", r, taken, err, h.End())
		}
		if data, stat, ok := w.Srv.Get(path); !ok || data == nil || len(data) > 0 || stat.EphemeralOwner != 0 {
			w.Errorf("directory %q, %+v", data, stat)
		}
		w.release(h)
		w.ended(h, lease.ErrReleased)
		w.wantHolder("")
		if l.Held() {
			w.Error("it is still held")
		}
	})
}

// The inner lock's contender has the identifier as its data, as kazoo's.
func TestInnerContender(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lease("a")
		var name, data string
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpCreate && r.Flags == 3 {
				name, data = r.Path, string(r.Data)
			}
			return zktest.Action{}
		})
		w.obtain(l)
		if !strings.HasPrefix(name, path+"/") || !strings.HasSuffix(name, "__lock__") || data != "a" {
			w.Errorf("contender %s, data %q", name, data)
		}
	})
}

func TestTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.lease("a"), w.lease("b")
		h := w.obtain(a)
		_, err := b.Obtain(w.Context())
		taken, ok := errors.AsType[*lease.TakenError](err)
		if !errors.Is(err, lease.ErrNotObtained) || !ok || taken.Path != path || taken.Record.Holder != "a" || taken.Record.End != h.End() {
			w.Errorf("got %v", err)
		}
		w.wantHolder("a")
		w.release(h)
		next := w.obtain(b)
		if next.Token() <= h.Token() {
			w.Errorf("token %d after %d", next.Token(), h.Token())
		}
	})
}

// A hold ends by the skew before the end that is written, which has no fraction. A lease of kazoo's, 3 s long, was taken over
// after 2.09 s: its holder must have stopped.
func TestHoldEndsBeforeTheLease(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.by("a", 4*time.Second)
		time.Sleep(900 * time.Millisecond)
		h := w.obtain(l)
		if want := time.Date(2000, 1, 1, 0, 0, 4, 0, time.UTC); h.End() != want {
			w.Errorf("written end %v, want %v", h.End(), want)
		}
		w.ended(h, lease.ErrExpired)
		if left := time.Until(h.End()); left != 2*time.Second || h.Valid() {
			w.Errorf("ended %v before the end; valid: %v", left, h.Valid())
		}
		if err := h.Renew(w.Context()); !errors.Is(err, lease.ErrExpired) {
			w.Errorf("renew: %v", err)
		}
		w.obtain(l)
	})
}

func TestRenewExtends(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lease("a")
		h := w.obtain(l)
		for range 5 {
			time.Sleep(50 * time.Second)
			token := h.Token()
			w.Must(h.Renew(w.Context()))
			if left := time.Until(h.End()); left != time.Minute || h.Token() != token {
				w.Errorf("%v left, token %d, was %d", left, h.Token(), token)
			}
		}
		time.Sleep(50 * time.Second)
		if again := w.obtain(l); again != h {
			w.Error("Obtain on a handle that has the lease made another hold")
		}
		time.Sleep(50 * time.Second)
		if !h.Valid() {
			w.Error("Obtain did not renew")
		}
		w.ended(h, lease.ErrExpired)
	})
}

// What is left behind holds others off until its end.
func TestDetach(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.obtain(w.lease("a"))
		h.Detach()
		w.ended(h, lease.ErrReleased)
		w.release(h)
		w.wantHolder("a")
		b := w.lease("b")
		if w.try(b) != nil {
			w.Error("another has it")
		}
		time.Sleep(time.Minute)
		w.obtain(b)
	})
}

// Nobody can look after a lease when Run has ended.
func TestSessionClosed(t *testing.T) {
	inWorld(t, func(w *world) {
		s, stop := w.stoppable("a")
		l := w.leaseIn(s, lease.Options{Identifier: "a", Duration: time.Minute})
		h := w.obtain(l)
		start := time.Now()
		stop()
		if d := time.Since(start); d < 5*time.Second {
			w.Errorf("the session waited %v for the holder", d)
		}
		w.ended(h, session.ErrClosed)
		w.ended(h, lease.ErrLost)
		if err := h.Release(w.Context()); !errors.Is(err, session.ErrClosed) {
			w.Errorf("release: %v", err)
		}
		if _, err := l.Obtain(w.Context()); !errors.Is(err, session.ErrClosed) {
			w.Errorf("obtain: %v", err)
		}
		if _, _, err := l.Holder(w.Context()); !errors.Is(err, session.ErrClosed) {
			w.Errorf("holder: %v", err)
		}
	})
}

// What is not a record stays as it is.
func TestBadRecord(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Must(w.Srv.Create(node, []byte("x")))
		l := w.lease("a")
		if _, err := l.Obtain(w.Context()); !errors.Is(err, lease.ErrBadRecord) {
			w.Errorf("obtain: %v", err)
		}
		if _, _, err := l.Holder(w.Context()); !errors.Is(err, lease.ErrBadRecord) {
			w.Errorf("holder: %v", err)
		}
		if r := w.record(); r != "x" {
			w.Errorf("record %s", r)
		}
	})
}

// A contender of a Python process whose removal was lost is in the way: Obtain says so.
func TestStuckInnerContender(t *testing.T) {
	inWorld(t, func(w *world) {
		stale := path + "/514e5a831836450cb1a56c741e990fd8__lock__0000000000"
		w.Must(w.Srv.Create(stale, []byte("host-7")))
		_, err := w.lease("a").Obtain(w.Within(time.Minute))
		blocked, ok := errors.AsType[*recipe.BlockedError](err)
		if !errors.Is(err, context.DeadlineExceeded) || !ok || blocked.Recipe != "lease" || blocked.Path != path ||
			blocked.Blocker != stale || blocked.Identifier != "host-7" {
			w.Errorf("got %v", err)
		}
		if r := w.record(); r != "" {
			w.Errorf("record %s", r)
		}
	})
}

// The sequence numbers of the inner lock have come to their end.
func TestNumbersAtTheirEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Must(errors.Join(w.Srv.Create(path, nil), w.Srv.SetCreates(path, math.MaxInt32)))
		if _, err := w.lease("a").Obtain(w.Context()); !errors.Is(err, lock.ErrSequenceExhausted) {
			w.Errorf("got %v", err)
		}
		w.wantHolder("")
	})
}

// Other children of the lease's path are in nobody's way, nor are those of its slots, nor slots that it does not have.
func TestForeignChildren(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, name := range []string{"0", "0/hello", "2/lease_holder", "x__rlock__0000000000", "_c_x-lock-0000000000"} {
			w.Must(w.Srv.Create(path+"/"+name, nil))
		}
		w.release(w.obtain(w.lease("a")))
		if n := len(w.all(w.multi("b", 2))); n != 2 {
			w.Errorf("%d slots of two", n)
		}
	})
}

// A hold that has ended is not renewed: nobody works under it, and the record would keep others waiting.
func TestRenewAfterTheEnd(t *testing.T) {
	for what, tt := range map[string]struct {
		end  func(h *lease.Held)
		want error
	}{
		"detached": {(*lease.Held).Detach, lease.ErrReleased},
		"expired":  {func(*lease.Held) { time.Sleep(time.Minute) }, lease.ErrExpired},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				h := w.obtain(w.lease("a"))
				tt.end(h)
				time.Sleep(30 * time.Second)
				before := w.record()
				if err := h.Renew(w.Context()); !errors.Is(err, tt.want) {
					w.Errorf("Renew: %v, want %v", err, tt.want)
				}
				if r := w.record(); r != before {
					w.Errorf("an ended hold keeps others waiting: record %s, was %s", r, before)
				}
			})
		})
	}
}

// The longest lease that there can be is released, too.
func TestReleaseOfTheLongestLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.release(w.obtain(w.by("a", math.MaxInt64)))
		w.wantHolder("")
	})
}
