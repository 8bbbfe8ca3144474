package history_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// secondAddress is another server of the ensemble that zktest plays.
const secondAddress = "zk2:2181"

// world is a run in a bubble.
type world struct {
	*testing.T
	*run

	srv       *zktest.Server
	nw        *zktest.Network
	clients   []*zktest.Client
	ephemeral bool         // see recipe
	leased    bool         // see recipe
	slow      atomic.Int64 // up to so long requests take
	late      atomic.Bool  // the next write of a lease's record comes late
	often     int          // a fault that comes more often than others
	faults    atomic.Int64
}

func newWorld(t *testing.T, seed uint64, what recipe, rng *rand.Rand, h harm) *world {
	t.Helper()
	srv, nw := zktest.StartVirtual(t, zktest.Options{})
	second, err := nw.Listen(secondAddress)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = srv.Serve(second) }()
	w := &world{
		T: t, srv: srv, nw: nw, ephemeral: what.ephemeral, leased: what.leased, often: h.often,
		run: &run{seed: seed, path: "/app", shorter: 1, timeout: 10 * time.Second, sabotaged: h.sabotaged},
	}
	for i := range 3 + rng.IntN(3) {
		client := nw.Client(fmt.Sprint(i))
		w.clients = append(w.clients, client)
		w.sessions = append(w.sessions, startSession(t.Context(), t, []string{zktest.VirtualAddress, secondAddress}, session.Options{Dial: client.Dial}))
	}
	srv.SetHook(func(r *zktest.Request) zktest.Action {
		if most := w.slow.Load(); most > 0 {
			time.Sleep(some(r, time.Duration(most)))
		}
		if writesRecord(*r) && w.late.CompareAndSwap(true, false) {
			w.overtake(r)
		}
		return zktest.Action{}
	})
	return w
}

// some returns a time up to most, which is a request's own.
func some(r *zktest.Request, most time.Duration) time.Duration {
	return time.Duration(uint32(r.Xid)*2654435761%8) * most / 8
}

// writesRecord reports whether a request would change, or remove, the record of a lease.
func writesRecord(r zktest.Request) bool {
	return len(r.Ops) > 0 && strings.HasSuffix(r.Ops[len(r.Ops)-1].Path, "/lease_holder")
}

// overtake has an operator remove all contenders of a lease, and the request of who had its inner lock come late.
func (w *world) overtake(r *zktest.Request) {
	dir := strings.TrimSuffix(r.Ops[len(r.Ops)-1].Path, "/lease_holder")
	for _, name := range w.srv.Children(dir) {
		if strings.Contains(name, "__lock__") {
			_ = w.srv.Delete(dir + "/" + name) // unless it has gone by itself
		}
	}
	time.Sleep(some(r, 8*time.Second))
}

// startSession runs a session until the test ends.
func startSession(ctx context.Context, t *testing.T, servers []string, opts session.Options) *session.Session {
	t.Helper()
	s, err := session.New(servers, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("session: %v", err)
		}
	})
	return s
}

// changes reports whether a request would change something that a recipe has to do with; proofs of life don't.
func changes(r zktest.Request) bool {
	for _, op := range append(r.Ops, r) {
		if op.Op == zktest.OpCreate || op.Op == zktest.OpDelete || op.Op == zktest.OpSetData {
			return true
		}
	}
	return false
}

// trouble makes trouble until ctx ends, and then ends it.
func (w *world) trouble(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		w.pauseIn(ctx, w.upTo(rng, 1500))
		w.faults.Add(1)
		w.fault(ctx, rng, w.clients[rng.IntN(len(w.clients))])
	}
	w.slow.Store(0)
	w.srv.LoseReply(0, nil)
	w.heal()
}

func (w *world) heal() {
	for _, client := range w.clients {
		client.Heal()
	}
}

const (
	kinds   = 13 // of faults
	expiry  = 9  // of a client's session, or nearly
	special = 12 // what not all recipes withstand
)

func (w *world) fault(ctx context.Context, rng *rand.Rand, client *zktest.Client) {
	kind := rng.IntN(kinds)
	if w.often > 0 && rng.IntN(3) == 0 {
		kind = w.often
	}
	switch kind {
	case 0:
		client.Cut()
	case 1:
		client.BlackHole(zktest.Direction(1 + rng.IntN(3)))
	case 2:
		client.Delay(w.upTo(rng, 400))
	case 3, 4, 5:
		w.srv.LoseReply(1+rng.IntN(3), changes)
	case 6:
		w.srv.LoseReply(1, nil)
	case 7:
		w.slow.Store(int64(w.upTo(rng, 300)))
	case 8:
		w.slow.Store(0)
		w.heal()
	case expiry:
		client.BlackHole(zktest.Both)
		w.pauseIn(ctx, 6*time.Second+w.upTo(rng, 9000))
		client.Heal()
	case 10:
		w.srv.Down()
		w.pauseIn(ctx, w.upTo(rng, 4000))
		w.srv.Restart(false)
	case 11:
		freeze := w.srv.Freeze
		if rng.IntN(2) == 0 {
			freeze = w.srv.FreezeClock
		}
		freeze()
		w.pauseIn(ctx, w.upTo(rng, 6000))
		w.srv.Thaw()
	default:
		w.special(ctx, rng)
	}
}

// special is what not all recipes withstand.
func (w *world) special(ctx context.Context, rng *rand.Rand) {
	switch all := w.srv.Sessions(); {
	case w.ephemeral:
		address := []string{zktest.VirtualAddress, secondAddress}[rng.IntN(2)]
		w.srv.Isolate(address)
		w.pauseIn(ctx, w.upTo(rng, 15_000))
		w.srv.Rejoin(address)
	case w.leased && rng.IntN(2) == 0:
		w.late.Store(true)
	case len(all) > 0:
		w.srv.KillSession(all[rng.IntN(len(all))].ID)
	}
}

// left returns what nobody needs any more: contenders, and what sessions own.
func (w *world) left() (left []string) {
	for line := range strings.Lines(w.srv.Dump()) {
		if strings.Contains(line, "lock__") && !strings.Contains(line, "-__lock__ ") || strings.Contains(line, " owner=") {
			left = append(left, line)
		}
	}
	return left
}

// leastFaults is how many a run has.
const leastFaults = 8

// harm is what is wrong with a run on purpose.
type harm struct {
	sabotaged bool // see run
	often     int  // the fault that shows it
}

// inMemory lets clients use a recipe on zktest, in a bubble, and returns what they did and how many faults they met.
func inMemory(t *testing.T, seed uint64, what recipe, h harm) (*subject, int) {
	var s *subject
	faults := 0
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(t, seed, what, rng, h)
		s = what.of(w.run)
		const longest = 10 * time.Minute
		least := 100 + rng.IntN(150)
		faulty, stop := context.WithTimeout(t.Context(), longest)
		defer stop()
		var wg sync.WaitGroup
		for i, step := range slices.Concat(s.steps, s.shared) {
			random := rand.New(rand.NewPCG(seed, uint64(1+i)))
			wg.Go(func() {
				for faulty.Err() == nil && (s.hist.len() < least || w.faults.Load() < leastFaults) {
					step(t.Context(), random)
				}
				stop()
			})
		}
		w.trouble(faulty, rng)
		wg.Wait()
		within, cancel := context.WithTimeout(t.Context(), longest)
		defer cancel()
		s.settle(within)
		if !what.clean {
			time.Sleep(30 * time.Second) // what is left is being removed
		}
		if left := w.left(); len(left) > 0 && !h.sabotaged {
			s.hist.fault("left when all is over: %q", left)
		}
		faults = int(w.faults.Load())
	})
	return s, faults
}

// often is how often something happens at least in each 200 runs. It happens at least twice as often: a recipe that nearly always
// refuses, or hardly gets anywhere, falls short of it.
var often = map[string]int{
	"lock: acquired":                         300,
	"read/write lock: acquired":              300,
	"read/write lock: beside another":        20,
	"election: acquired":                     300,
	"semaphore: acquired":                    250,
	"semaphore: beside another":              100,
	"queue: put":                             400,
	"queue: got":                             400,
	"queue with priorities: put":             400,
	"queue with priorities: got, seeing all": 400,
	"locking queue: put":                     150,
	"locking queue: acquired":                200,
	"locking queue: consumed":                120,
	"counter: changed":                       900,
	"counter of ones: changed":               900,
	"lease: acquired":                        100,
	"lease: renewed":                         50,
	"multi lease: acquired":                  150,
	"multi lease: renewed":                   40,
}

// Clients use a recipe at random while links break and hang, replies are lost, sessions expire and servers restart, stand still
// and are slow: what they did has an order in which the recipe's model can do it. A run is a seed, and one recipe's.
func TestHistories(t *testing.T) {
	began, total := time.Now(), newSum()
	all := recipes()
	if *flagOnly != "" {
		all = []recipe{recipeOf(*flagOnly)}
	}
	var next atomic.Uint64
	t.Run("runs", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				for !t.Failed() {
					n := next.Add(1) - 1
					if n >= *flagRuns {
						return
					}
					seed := *flagFirst + n
					s, met := inMemory(t, seed, all[seed%uint64(len(all))], harm{})
					if met < leastFaults {
						t.Errorf("seed %d: only %d faults", seed, met)
					}
					v := s.judge()
					total.add(s, v)
					if !v.ok() {
						s.report(t, v, fmt.Sprintf("go test ./test/history -run=Histories -only=%q -first=%d -runs=1 -count=20", s.name, seed))
					}
					total.mu.Lock()
					total.runs++
					total.faults += met
					total.mu.Unlock()
				}
			})
		}
	})
	total.tell(t, time.Since(began))
	if *flagRuns < 200 || *flagOnly != "" || t.Failed() {
		return
	}
	total.often(t, often)
	for _, name := range []string{"lock", "read/write lock", "election", "semaphore", "locking queue", "lease", "multi lease"} {
		total.reached(t, name+": ended by itself")
	}
	total.reached(t, "queue: uncertain put", "queue: uncertain get", "queue: empty", "queue with priorities: uncertain get",
		"locking queue: uncertain put", "locking queue: uncertain consume",
		"counter: uncertain change", "counter of ones: uncertain change", "lease: attempt", "lease: refused", "lease: renewed",
		"multi lease: attempt", "multi lease: refused any", "multi lease: obtained another", "multi lease: renewed",
		"multi lease: obtained all", "multi lease: given back", "multi lease: renewed by obtaining", "multi lease: looked")
}
