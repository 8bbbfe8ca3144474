// Package stack_test runs whole members, from the session to ownership, against the in-memory server: what one sick member does
// to the others, stopping at any moment, storms, and bad input. What is random prints its seed; -seed replays one.
package stack_test

import (
	"flag"
	"math/rand/v2"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
)

var replayed = flag.Uint64("seed", 0, "replay random tests with this seed alone; 0 draws new ones")

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

// drawSeed returns the seed to be replayed, or a new one, and prints it.
func drawSeed(t *testing.T) uint64 {
	t.Helper()
	seed := *replayed
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Attr("seed", strconv.FormatUint(seed, 10))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("replay with -run '^%s$' -seed=%d: the same draws, in whatever order goroutines run", t.Name(), seed)
		}
	})
	return seed
}

// random returns a generator of what a seed stands for.
func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
