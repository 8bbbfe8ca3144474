package partitioner_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/zktest"
)

const leftBehind = "a contender stands when it is said to be gone"

// endings start a member, and return a function that ends it.
var endings = map[string]func(m *member) (end func()){
	"Finish": func(m *member) func() {
		m.start()
		return m.finish
	},
	"Run": func(m *member) func() {
		ctx, cancel := context.WithCancel(m.w.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx, func(context.Context, []string) error { return nil }) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				m.w.Errorf("run: %v", err)
			}
		}
	},
}

// wantOnlyBlocker checks that the server has none of the member's znodes.
func (w *world) wantOnlyBlocker() {
	w.Helper()
	for range 2 {
		if list := w.left(); len(list) != 1 {
			w.Errorf(leftBehind+": %q", list)
		}
		time.Sleep(10 * time.Second)
	}
}

// A member ends while its contender waits for a lock, and the servers refuse to delete the contender for a while.
func TestFinishWhileAllocating(t *testing.T) {
	for what, begin := range endings {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.Must(w.Srv.Create(blocker, nil))
				m := w.member("p0", []string{"0", "1"}, partitioner.Options{})
				end := begin(m)
				contender := w.waits(m)
				refused := 0
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					if r.Op == zktest.OpDelete && r.Path == contender && refused < 3 {
						refused++
						return zktest.Action{Err: zktest.ErrThrottled}
					}
					return zktest.Action{}
				})
				end()
				w.wantOnlyBlocker()
				if refused != 3 {
					w.Errorf("%d times refused", refused)
				}
			})
		})
	}
}

// A member ends while the outcome of its contender's create is unknown: the reply is lost, and for three seconds the servers
// refuse reads.
func TestFinishWhileItIsUnknown(t *testing.T) {
	for what, begin := range endings {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.Must(w.Srv.Create(blocker, nil))
				var made atomic.Bool
				var blind atomic.Bool
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					switch {
					case r.Op == zktest.OpCreate && strings.HasPrefix(r.Path, path+"/locks/1/") && !made.Swap(true):
						blind.Store(true)
						return zktest.Action{LoseReply: true}
					case blind.Load() && strings.HasPrefix(r.Path, path+"/locks/1"):
						return zktest.Action{Err: zktest.ErrThrottled}
					}
					return zktest.Action{}
				})
				end := begin(w.member("p0", []string{"0", "1"}, partitioner.Options{}))
				time.Sleep(time.Second)
				if !made.Load() || len(w.Srv.Children(path+"/locks/1")) != 2 {
					w.Fatalf("made: %v, %q", made.Load(), w.contenders())
				}
				time.AfterFunc(3*time.Second, func() { blind.Store(false) })
				end()
				w.wantOnlyBlocker()
			})
		})
	}
}

// While no server can be reached Finish waits, and returns when the session is over and the znodes are gone with it.
func TestFinishWithTheSession(t *testing.T) {
	inWorld(t, func(w *world) {
		m, _ := w.waiting()
		w.Net.Client("p0").BlackHole(zktest.Both)
		time.AfterFunc(30*time.Second, w.Net.Client("p0").Heal)
		start := time.Now()
		m.finish()
		if d := time.Since(start); d < 30*time.Second {
			w.Errorf("after %v", d)
		}
		if list := w.contenders(); len(list) != 1 {
			w.Errorf("left: %q", list)
		}
	})
}
