package history_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

var flagReal = flag.Int("real", 10, "runs on real servers")

const (
	realTick    = 400 * time.Millisecond
	realTimeout = 4 * time.Second
	atOnce      = 5 // runs that share a wave of faults
	ofEach      = 3 // clients of a run
	workers     = 3 // goroutines of a client
	faultyFor   = 6 * time.Second
)

// realRun is one of the runs of a wave: clients that use all recipes.
type realRun struct {
	*run

	subjects []*subject
	links    []proxy.Links // by client
	faults   int           // of links
	busy     [][]sync.Mutex
}

func newRealRun(t *testing.T, e *proxy.Ensemble, seed uint64, over chan struct{}) *realRun {
	t.Helper()
	r := &realRun{run: &run{
		seed: seed, path: fmt.Sprintf("/history/%d", seed), shorter: 4, follows: true, timeout: realTimeout, over: over,
	}}
	for range ofEach {
		links := proxy.To(t, e.Addrs())
		r.links = append(r.links, links)
		r.sessions = append(r.sessions, startSession(t.Context(), t, links.Addrs(), session.Options{Timeout: realTimeout, MinSessionTimeout: realTimeout}))
	}
	for _, what := range recipes() {
		r.subjects = append(r.subjects, what.of(r.run))
		r.busy = append(r.busy, make([]sync.Mutex, ofEach))
	}
	return r
}

// work has a client use recipes, one after the other, until the faults are over.
func (r *realRun) work(ctx context.Context, client int, rng *rand.Rand) {
	for {
		select {
		case <-r.over:
			return
		default:
		}
		if n := rng.IntN(len(r.subjects)); r.busy[n][client].TryLock() {
			r.subjects[n].steps[client](ctx, rng)
			r.busy[n][client].Unlock()
		}
	}
}

// settle has all recipes work once more.
func (r *realRun) settle(ctx context.Context) {
	var wg sync.WaitGroup
	for _, s := range r.subjects {
		wg.Go(func() { s.settle(ctx) })
	}
	wg.Wait()
}

// Clients use all recipes at random on an ensemble of three, while its leader is killed or stopped, servers are cut off from each
// other, links break and hang, and replies are lost.
func TestReal(t *testing.T) {
	if *flagReal == 0 {
		return
	}
	began, total := time.Now(), newSum()
	e := proxy.StartEnsemble(t, servers.ZooKeeperOptions{
		Servers: 3, TickTime: realTick, MinSessionTimeout: realTimeout, MaxSessionTimeout: realTimeout,
		Config: map[string]string{"syncLimit": "5"},
	})
	for n := 0; n < *flagReal && !t.Failed(); n += atOnce {
		t.Run(fmt.Sprintf("wave %d", n/atOnce), func(t *testing.T) {
			wave(t, e, total, *flagFirst+uint64(n), min(atOnce, *flagReal-n))
		})
	}
	total.tell(t, time.Since(began))
	if *flagReal < 10 || t.Failed() {
		return
	}
	for _, what := range recipes() {
		switch what.name {
		case "queue with priorities":
			total.reached(t, what.name+": put", what.name+": got, seeing all")
		case "queue":
			total.reached(t, what.name+": put", what.name+": got")
		case "counter", "counter of ones":
			total.reached(t, what.name+": changed")
		default:
			total.reached(t, what.name+": acquired")
		}
	}
	uncertain := 0
	for _, what := range []string{"queue: uncertain put", "locking queue: uncertain put", "queue: uncertain get", "counter: uncertain change"} {
		uncertain += total.seen[what]
	}
	if uncertain == 0 {
		t.Error("no reply was lost")
	}
}

// wave makes some runs, which meet the same fault of the servers and each their own of links.
func wave(t *testing.T, e *proxy.Ensemble, total *sum, seed uint64, count int) {
	over := make(chan struct{})
	var runs []*realRun
	for i := range count {
		runs = append(runs, newRealRun(t, e, seed+uint64(i), over))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, r := range runs {
		for _, s := range r.sessions {
			if _, err := s.Incarnation(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	var wg sync.WaitGroup
	for _, r := range runs {
		for client := range ofEach {
			for worker := range uint64(workers) {
				wg.Go(func() { r.work(ctx, client, rand.New(rand.NewPCG(r.seed, 1+workers*uint64(client)+worker))) })
			}
		}
	}
	trouble(t, e, runs, seed)
	close(over)
	wg.Wait()
	for _, r := range runs {
		wg.Go(func() { r.settle(ctx) })
	}
	wg.Wait()
	for _, r := range runs {
		for _, s := range r.subjects {
			v := s.judge()
			total.add(s, v)
			if !v.ok() {
				s.report(t, v, fmt.Sprintf("go test ./test/history -run=Real -first=%d -real=%d", seed, count))
			}
		}
		if r.faults == 0 {
			t.Errorf("seed %d: no fault", r.seed)
		}
		total.faults += r.faults
		total.runs++
	}
}

// trouble makes trouble for a while, and then ends it.
func trouble(t *testing.T, e *proxy.Ensemble, runs []*realRun, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	ms := func(least, most int) time.Duration {
		return time.Duration(least+rng.IntN(most-least)) * time.Millisecond
	}
	began := time.Now()
	breaks, mends := ms(500, 1500), ms(3000, 5000)
	var mend func()
	for {
		wait.Pass(t, ms(20, 200))
		since := time.Since(began)
		if since > breaks && mend == nil {
			mend = breakServers(t, e, seed)
		}
		if since > faultyFor {
			break
		}
		if since > mends && mend != nil {
			mend()
			mends = 2 * faultyFor
		}
		r := runs[rng.IntN(len(runs))]
		breakLinks(r.links[rng.IntN(len(r.links))], rng)
		r.faults++
	}
	for _, r := range runs {
		for _, links := range r.links {
			links.Heal()
		}
	}
	if mends < 2*faultyFor {
		mend()
	}
	for _, n := range e.Nodes() {
		n.WaitReady()
	}
}

// breakLinks has something happen to a client's links.
func breakLinks(links proxy.Links, rng *rand.Rand) {
	switch rng.IntN(8) {
	case 0:
		links.Cut()
	case 1:
		links.BlackHole(proxy.Direction(1 + rng.IntN(3)))
	case 2:
		links.Slow(proxy.Both, proxy.Speed{Latency: time.Duration(rng.IntN(50)) * time.Millisecond})
	case 3, 4:
		links.Heal()
	default:
		links.LoseReply(func(r proxy.Request) bool {
			switch r.Op {
			case proxy.OpCreate, proxy.OpDelete, proxy.OpSetData:
				return true
			}
			return r.Op == proxy.OpMulti && r.First != proxy.OpCheck
		})
	}
}

// breakServers has something happen to the ensemble, and returns what ends it. A seed's wave has one such fault, the next wave
// has the next.
func breakServers(t *testing.T, e *proxy.Ensemble, seed uint64) (mend func()) {
	t.Helper()
	switch seed / atOnce % 5 {
	case 0:
		n := e.Nodes()[e.LeaderIndex()]
		n.Kill()
		return n.Start
	case 1:
		n := e.Nodes()[e.LeaderIndex()]
		n.Pause()
		return n.Resume
	case 2:
		e.CutLeaderOneSide()
		return e.Heal
	case 3:
		e.CutFollower(e.FollowerIndex())
		return e.Heal
	default:
		n := e.Nodes()[e.FollowerIndex()]
		n.Kill()
		return n.Start
	}
}
