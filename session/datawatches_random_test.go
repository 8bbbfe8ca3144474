package session_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

var (
	watchSeed  = flag.Uint64("watchseed", 0, "the first seed of TestDataWatchesAtRandom; 0 for one at random")
	watchSeeds = flag.Uint64("watchseeds", 5, "how many seeds TestDataWatchesAtRandom takes")
)

// Whatever happens to the connection, to the servers and to the znodes: when all is quiet again each change was told.
func TestDataWatchesAtRandom(t *testing.T) {
	if *watchSeed == 0 {
		*watchSeed = rand.Uint64N(1 << 32)
	}
	for seed := *watchSeed; seed < *watchSeed+*watchSeeds && !t.Failed(); seed++ {
		bubble(t, func(t *testing.T, w *world) {
			t.Log("-watchseeds=1 -watchseed", seed)
			newWatcher(t, w, rand.New(rand.NewPCG(seed, 1))).run()
		})
	}
}

// watcher watches znodes as the owner of claims does: it reads what was told to have changed, and watches that again.
type watcher struct {
	*world

	r      *rand.Rand
	m      *member
	paths  []string
	refuse atomic.Int64 // so many requests that set watches
	backup *zktest.Backup

	inc     *session.Incarnation
	watches *session.DataWatches
	known   map[string]int64 // the last transaction of each znode as the watcher knows it, 0 for one that is not there
}

var twoServers = []string{"zk:2181", "zk2:2181"}

func newWatcher(t *testing.T, w *world, r *rand.Rand) *watcher {
	t.Helper()
	second := must[net.Listener](t)(w.net.Listen(twoServers[1]))
	served := make(chan struct{})
	go func() { defer close(served); _ = w.srv.Serve(second) }()
	t.Cleanup(func() {
		_ = second.Close()
		<-served
	})
	link := w.net.Client("watcher")
	s := must[*session.Session](t)(session.New(twoServers, session.Options{
		Timeout: timeout, Dial: link.Dial, Logger: slog.New(slog.DiscardHandler),
	}))
	x := &watcher{world: w, r: r, m: run(t, s, link)}
	for i := range 30 {
		x.paths = append(x.paths, fmt.Sprintf("/%02d", i))
		_ = w.srv.Create(x.paths[i], nil)
	}
	w.srv.SetHook(func(r *zktest.Request) zktest.Action {
		if r.Op == zktest.OpSetWatches && x.refuse.Add(-1) >= 0 {
			return zktest.Action{Err: zktest.ErrUnimplemented}
		}
		return zktest.Action{}
	})
	return x
}

// run disturbs everything some times, and looks each time what the watcher knows when all is quiet.
func (x *watcher) run() {
	ctx, stop := context.WithCancel(x.t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		x.watch(ctx)
	}()
	for range 20 {
		if x.r.IntN(4) == 0 {
			x.backup = x.srv.Backup()
		}
		for range x.r.IntN(12) {
			x.disturb()
			time.Sleep(time.Duration(x.r.IntN(300)) * time.Millisecond)
		}
		if x.backup != nil && x.r.IntN(4) == 0 {
			x.srv.Restore(x.backup, zktest.RestoreOptions{}) // without changes after that it refuses the session, as long as that knows more
			x.backup = nil
		}
		x.net.Heal()
		x.m.link.Heal()
		x.srv.Thaw()
		for _, address := range twoServers {
			x.srv.CatchUp(address)
		}
		x.refuse.Store(0)
		time.Sleep(8 * timeout)
		synctest.Wait()
		x.compare()
	}
	stop()
	<-over
}

func (x *watcher) disturb() {
	server := twoServers[x.r.IntN(len(twoServers))]
	switch x.r.IntN(16) {
	case 0:
		x.m.link.Cut()
	case 1:
		x.m.link.BlackHole([]zktest.Direction{zktest.Both, zktest.ToServer, zktest.ToClient}[x.r.IntN(3)])
	case 2:
		x.m.link.Heal()
	case 3:
		x.m.link.Delay(time.Duration(x.r.IntN(200)) * time.Millisecond)
	case 4:
		x.srv.Lag(server)
	case 5:
		x.srv.CatchUp(server)
	case 6:
		x.refuse.Store(x.r.Int64N(3))
	case 7:
		x.srv.LoseReply(1, func(r zktest.Request) bool { return r.Op == zktest.OpSetWatches || r.Op == zktest.OpExists })
	case 8:
		x.srv.Restart(false)
	case 9:
		x.srv.Freeze()
	case 10:
		x.srv.Thaw()
	default:
		x.change()
	}
}

// change changes, deletes and creates some znodes.
func (x *watcher) change() {
	for range 1 + x.r.IntN(3) {
		path := x.paths[x.r.IntN(len(x.paths))]
		if x.r.IntN(3) == 0 {
			_ = x.srv.Delete(path)
		}
		if x.r.IntN(5) > 0 {
			_ = x.srv.Create(path, nil)
		}
		_ = x.srv.Set(path, nil)
	}
}

func (x *watcher) watch(ctx context.Context) {
	for ctx.Err() == nil {
		inc, err := x.m.Incarnation(ctx)
		if err != nil {
			return
		}
		x.inc, x.watches, x.known = inc, inc.DataWatches(), make(map[string]int64)
		x.read(x.paths)
		for inc.Context().Err() == nil && ctx.Err() == nil {
			select {
			case <-x.watches.C():
				x.read(x.watches.Changed())
			case <-inc.Context().Done():
			case <-ctx.Done():
			}
		}
		x.watches.End()
	}
}

// read reads some znodes, and watches those that are there.
func (x *watcher) read(paths []string) {
	for _, path := range paths {
		exists, stat, err := x.inc.Exists(x.inc.Context(), path)
		if err != nil && x.inc.Context().Err() == nil {
			x.t.Errorf("%s: %v", path, err)
		}
		if err != nil || !exists {
			x.known[path] = 0
			continue
		}
		x.known[path] = stat.Mzxid
		x.watches.Add(stat.Mzxid, path)
	}
}

// compare compares what the watcher knows of the znodes that it watches with the server, and has it read the others.
func (x *watcher) compare() {
	if x.inc.Context().Err() != nil {
		x.t.Fatal("the session is not trusted again")
	}
	var others []string
	for _, path := range x.paths {
		_, stat, exists := x.srv.Get(path)
		switch known := x.known[path]; {
		case known == 0:
			others = append(others, path)
		case !exists || stat.Mzxid != known:
			x.t.Fatalf("%s: the watcher knows of %x; exists %v, last changed by %x", path, known, exists, stat.Mzxid)
		}
	}
	x.read(others)
	synctest.Wait()
}
