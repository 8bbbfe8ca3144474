package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

const serversLimit = 64 << 10 // jute.maxbuffer of the servers here

// sendAgain creates a znode of that size as callers do: after an unknown outcome it looks, and creates again. It returns the
// first other error, and how many tries had an unknown outcome.
func sendAgain(ctx context.Context, inc *session.Incarnation, path string, size int) (uncertain int, err error) {
	for {
		_, err = inc.Create(ctx, path, make([]byte, size), session.Persistent)
		if !errors.Is(err, session.ErrUncertain) || ctx.Err() != nil {
			return uncertain, err
		}
		uncertain++
		if err := inc.Sync(ctx, "/"); err != nil {
			return uncertain, err
		}
		if found, _, err := inc.Exists(ctx, path); found || err != nil {
			return uncertain, err
		}
	}
}

// A write that the servers end the connection at is sent three times, and then refused with all that a reader needs.
func TestWriteOverTheServersLimit(t *testing.T) {
	bubbleOpts(t, zktest.Options{TickTime: tick, JuteMaxBuffer: serversLimit}, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		n, err := sendAgain(ctx, inc, "/large", 100_000)
		wantErr(t, "Create", err, session.ErrCostsConnection)
		wantErr(t, "Create", err, session.ErrTooLarge)
		if session.Classify(err) != session.ClassBackoff || n != 3 {
			t.Errorf("class %v after %d tries", session.Classify(err), n)
		}
		for _, part := range []string{"create /large", "100053 bytes", "jute.maxbuffer", "Options.MaxPacket"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v does not say %q", err, part)
			}
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("the error came after %v", took)
		}
		// Nothing of that size is sent for a while, by any operation; smaller requests are.
		for range 50 {
			_, err := inc.Multi(t.Context(), session.CreateOp("/other", nil, session.Persistent), session.SetOp("/other", make([]byte, 100_000), -1))
			wantErr(t, "Multi", err, session.ErrCostsConnection)
			if !strings.Contains(err.Error(), "multi /other") {
				t.Error(err)
			}
		}
		must[string](t)(inc.Create(t.Context(), "/fits", make([]byte, 60_000), session.Persistent))
		if got := m.Stats(); got.Reconnects != 3 || !inc.Trusted() {
			t.Errorf("%d reconnects, trusted %t", got.Reconnects, inc.Trusted())
		}
		// Callers that come again and again cost a connection after 10 s, 20 s, and so on up to five minutes.
		for range 600 {
			time.Sleep(time.Second)
			if _, err := sendAgain(t.Context(), inc, "/large", 100_000); !errors.Is(err, session.ErrCostsConnection) {
				t.Fatal(err)
			}
		}
		if got := m.Stats(); got.Reconnects > 3+7 || got.Reconnects < 3+4 || !inc.Trusted() {
			t.Errorf("%d reconnects in 10 minutes, trusted %t", got.Reconnects, inc.Trusted())
		}
	})
}

// Several writes over the limit in one process, and a caller that does not look in between, do not hide each other.
func TestManyWritesOverTheServersLimit(t *testing.T) {
	bubbleOpts(t, zktest.Options{TickTime: tick, JuteMaxBuffer: serversLimit}, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				if _, err := sendAgain(t.Context(), inc, fmt.Sprintf("/large-%d", i), 80_000+1000*i); !errors.Is(err, session.ErrCostsConnection) {
					t.Error(err)
				}
			})
			wg.Go(func() {
				for {
					_, err := inc.Set(t.Context(), "/", make([]byte, 70_000+1000*i), -1)
					if errors.Is(err, session.ErrCostsConnection) {
						return
					}
					if !errors.Is(err, session.ErrUncertain) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if got := m.Stats(); got.Reconnects > 60 || !inc.Trusted() {
			t.Errorf("%d reconnects, trusted %t", got.Reconnects, inc.Trusted())
		}
	})
}

// When the servers' limit is raised, such writes are done again as soon as one is tried, and none is refused after that.
func TestServersLimitRaised(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.srv.SetHook(func(r *zktest.Request) zktest.Action { return zktest.Action{Cut: len(r.Data) > serversLimit} })
		m := w.start("a", nil)
		inc := m.incarnation()
		_, err := sendAgain(t.Context(), inc, "/large", 100_000)
		wantErr(t, "Create", err, session.ErrCostsConnection)
		w.srv.SetHook(nil)
		start := time.Now()
		for err != nil {
			time.Sleep(100 * time.Millisecond)
			_, err = sendAgain(t.Context(), inc, "/large", 100_000)
		}
		if took := time.Since(start); took > 11*time.Second {
			t.Errorf("done after %v", took)
		}
		for range 20 {
			must[session.Stat](t)(inc.Set(t.Context(), "/large", make([]byte, 200_000), -1))
		}
	})
}

// A link that is merely bad fails no write, however large, and whether one is under way or many. The link is cut at random, so
// often that most large writes get no answer at once.
func TestBadLinkRefusesNoWrite(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for at, link := range []struct {
		cut, delay time.Duration // mean time between cuts; one way
		writers    int
		every      time.Duration // pause of a writer
	}{
		{100 * time.Millisecond, time.Millisecond, 1, 0},
		{300 * time.Millisecond, 10 * time.Millisecond, 1, 0},
		{time.Second, 30 * time.Millisecond, 1, 0},
		{time.Second, 30 * time.Millisecond, 8, 200 * time.Millisecond},
		{5 * time.Second, 200 * time.Millisecond, 3, time.Second},
		{10 * time.Second, 400 * time.Millisecond, 3, 0},
	} {
		t.Run(fmt.Sprint(link), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				m := w.start("a", nil)
				m.incarnation()
				m.link.Delay(link.delay)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				random := rand.New(rand.NewPCG(seed, uint64(at)))
				var wg sync.WaitGroup
				wg.Go(func() {
					defer cancel()
					for range 150 {
						_ = pause.Sleep(ctx, time.Duration(random.ExpFloat64()*float64(link.cut)))
						m.link.Cut()
					}
				})
				uncertain, done := make([]int, link.writers), 0
				var mu sync.Mutex
				for i := range link.writers {
					wg.Go(func() {
						for n := 0; ctx.Err() == nil; n++ {
							inc, err := m.Incarnation(ctx)
							if err != nil {
								return
							}
							again, err := sendAgain(ctx, inc, fmt.Sprintf("/large-%d-%d", i, n), 5000+10*n)
							if errors.Is(err, session.ErrTooLarge) {
								t.Errorf("writer %d, write %d: %v", i, n, err)
								return
							}
							mu.Lock()
							if uncertain[i] = max(uncertain[i], again); err == nil {
								done++
							}
							mu.Unlock()
							_ = pause.Sleep(ctx, link.every)
						}
					})
				}
				wg.Wait()
				t.Logf("%d writes, %d reconnects, at most %d unknown outcomes of one", done, m.Stats().Reconnects, slices.Max(uncertain))
				if done < 20 {
					t.Errorf("%d writes were done", done)
				}
			})
		})
	}
}

// An answer that is too large fails its read at once, and nothing else: no connection ends, no watch wakes, and what others asked
// for is answered.
func TestAnswerTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const most = 128 << 10
		noerr.Must(t, w.srv.Create("/data", make([]byte, 200_000)))
		for i := range 200 {
			noerr.Must(t, w.srv.Create(fmt.Sprintf("/children/%s%d", strings.Repeat("n", 800), i), nil))
		}
		m := w.start("a", func(o *session.Options) { o.MaxAnswer = most })
		inc := m.incarnation()
		_, _, watch, err := inc.GetW(t.Context(), "/")
		noerr.Must(t, err)
		defer watch.Stop()
		for name, read := range map[string]func() error{
			"get /data":             func() error { _, _, err := inc.Get(t.Context(), "/data"); return err },
			"children of /children": func() error { _, _, err := inc.Children(t.Context(), "/children"); return err },
		} {
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					start := time.Now()
					err := read()
					if !errors.Is(err, session.ErrAnswerTooLarge) || session.Classify(err) != session.ClassFatal || time.Since(start) > time.Second {
						t.Errorf("%v after %v", err, time.Since(start))
						return
					}
					for _, part := range []string{name, " bytes", fmt.Sprintf("Options.MaxAnswer is %d", most), "jute.maxbuffer"} {
						if !strings.Contains(err.Error(), part) {
							t.Errorf("%v does not say %q", err, part)
						}
					}
				})
				wg.Go(func() {
					if _, _, err := inc.Get(t.Context(), "/"); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		time.Sleep(4 * time.Second) // a watch wakes by itself after 4/5 T
		if got := m.Stats(); got.Reconnects != 0 || got.BadFrames != 0 || !inc.Trusted() || !open(watch.C()) {
			t.Errorf("reconnects %d, bad frames %d, trusted %t, watch waits %t", got.Reconnects, got.BadFrames, inc.Trusted(), open(watch.C()))
		}
	})
}

// MaxAnswer is for what reads return: the answer to a Multi, which the servers have done then, may be larger.
func TestAnswerToALargeMulti(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", func(o *session.Options) { o.MaxAnswer = 64 << 10 })
		ops := make([]session.Op, 1500)
		for i := range ops {
			ops[i] = session.CreateOp(fmt.Sprintf("/%s%d", strings.Repeat("n", 60), i), nil, session.Persistent)
		}
		if _, err := m.incarnation().Multi(t.Context(), ops...); err != nil {
			t.Error(err)
		}
		if n := m.Stats().Reconnects; n != 0 {
			t.Errorf("%d reconnects", n)
		}
	})
}

// An answer that is too large, and does not come to its end, costs the connection, but no longer than other silence does.
func TestAnswerTooLargeAndNotSent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		e := &evil{hello: grant(6000, 16), answer: func(xid, op int32) []byte {
			switch op {
			case 14:
				return proven(xid)
			case 4:
				return be(1<<30, xid, 0, 1, 0)
			default:
				return frame(be(xid, 0, 0, 0))
			}
		}}
		m := w.against(e)
		inc := m.incarnation()
		start := time.Now()
		_, _, err := inc.Get(t.Context(), "/a")
		if wantErr(t, "Get", err, session.ErrAnswerTooLarge); time.Since(start) > time.Second {
			t.Errorf("after %v", time.Since(start))
		}
		time.Sleep(5 * time.Second)
		if e.accepted.Load() < 2 {
			t.Error("the connection is kept")
		}
	})
}

// A server can't pass an error code off as the size of an answer.
func TestErrorCodeLikeASize(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.against(&evil{hello: grant(6000, 16), answer: func(xid, op int32) []byte {
			if op == 4 {
				return frame(be(xid, 0, 1, 1<<20))
			}
			return proven(xid)
		}})
		inc := m.incarnation()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := inc.Get(ctx, "/a"); !errors.Is(err, context.DeadlineExceeded) || m.Stats().BadFrames == 0 {
			t.Errorf("%v, %d bad frames", err, m.Stats().BadFrames)
		}
	})
}
