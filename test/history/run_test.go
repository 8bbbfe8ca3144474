package history_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/kielgo/kiel/session"
)

// run is some clients that use some recipes, on servers that are in trouble.
type run struct {
	seed      uint64
	path      string
	sessions  []*session.Session
	shorter   int  // by what pauses and patience are divided
	follows   bool // it is on real servers: reads may be answered by one that is behind
	sabotaged bool // the recipe is used, or works, as it should not
	timeout   time.Duration
	over      chan struct{} // nil, or closed when there will be no more faults: nobody pauses any more
}

// subject is one thing that clients use, and what they did with it.
type subject struct {
	name   string
	hist   *history
	model  porcupine.Model
	steps  []func(ctx context.Context, rng *rand.Rand) // one of each client: it does something with it
	shared []func(ctx context.Context, rng *rand.Rand) // some of them once more: a second goroutine of the client takes it
	settle func(ctx context.Context)                   // when all is well again: all must work, and what is left is fetched

	// resolve says what became of operations whose outcome was not known; see the package's documentation.
	resolve func(ops []porcupine.Operation) []porcupine.Operation
	// narrow returns a history that has an order only if the one it was made of has, and is sooner checked. Or nil.
	narrow func(ops []porcupine.Operation) []porcupine.Operation
}

// recipe makes a subject.
type recipe struct {
	name string
	make func(r *run) *subject

	// What is held ends with its session: nobody may end that before its time, as an operator can. What is not so relies on
	// reads, which a server that is cut off from the others answers as it knows no better.
	ephemeral bool
	// What is held is so by a record that is written under an inner lock, of which contenders may be removed.
	leased bool
	// Nothing is left from the moment on at which all clients have acquired it once more: they were behind whatever was there.
	clean bool
}

// recipes are all there are.
func recipes() []recipe {
	return []recipe{
		{name: "lock", make: newLocks, ephemeral: true, clean: true},
		{name: "read/write lock", make: newReadWriteLocks, ephemeral: true, clean: true},
		{name: "election", make: newElections, ephemeral: true},
		{name: "semaphore", make: newSemaphores, ephemeral: true},
		{name: "queue", make: newQueues},
		{name: "queue with priorities", make: newPriorityQueues},
		{name: "locking queue", make: newLockingQueues, ephemeral: true},
		{name: "counter", make: newCounters},
		{name: "counter of ones", make: newOnes},
		{name: "lease", make: newLeases, leased: true},
		{name: "multi lease", make: newMultiLeases, leased: true},
	}
}

func recipeOf(name string) recipe {
	all := recipes()
	return all[slices.IndexFunc(all, func(r recipe) bool { return r.name == name })]
}

func (r recipe) of(run *run) *subject {
	s := r.make(run)
	s.name = r.name
	return s
}

// upTo returns some time less than so many milliseconds.
func (r *run) upTo(rng *rand.Rand, ms int) time.Duration {
	return time.Duration(rng.IntN(ms)) * time.Millisecond / time.Duration(r.shorter)
}

// work returns for how long something is held: sometimes longer than a session lives without its servers.
func (r *run) work(rng *rand.Rand) time.Duration {
	if rng.IntN(6) == 0 {
		return time.Duration(rng.Int64N(int64(r.timeout * 3 / 2)))
	}
	return r.upTo(rng, 600)
}

// pause lets some time pass.
func (r *run) pause(d time.Duration) { r.wait(nil, d) }

// pauseIn is pause, until ctx ends.
func (r *run) pauseIn(ctx context.Context, d time.Duration) { r.wait(ctx.Done(), d) }

func (r *run) wait(done <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	case <-r.over:
	}
}

// quiet lets all that is on its way arrive.
func (r *run) quiet() {
	if !r.follows {
		r.pause(2 * r.timeout)
	}
}

// must is for what can't fail, because its arguments are always the same.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
