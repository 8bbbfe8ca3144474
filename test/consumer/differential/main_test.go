// Package differential_test reads the same topics of a real Kafka with sarama's PartitionConsumer and with groups of package
// consumer, and compares every message: topic, partition, offset, key, value, headers and timestamp, in order, none missing, none
// twice.
//
// A test writes topics, see topics_test.go. The last message of each partition is an end marker, so a reader knows when it has
// all. Then every [reader] reads, and what it got is compared with what PartitionConsumer got. A test also knows how many
// messages must be visible, so that two empty readings don't pass for equal ones.
//
// With -full, both versions of Kafka are read with longer topics, from more positions, and with faults that take minutes; `make
// soak` does so. A run prints its seed; -seed takes the same records and positions again.
package differential_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/test/servers"
)

var (
	full = flag.Bool("full", false, "all versions of Kafka, longer topics, more positions, longer faults")
	seed = flag.Uint64("seed", 0, "of the records and positions; 0 is a random one")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	logtest.Silence()
	goleak.VerifyTestMain(m,
		// sarama counts fetches by topic in go-metrics' own registry, whatever its configuration says; all its meters share one
		// goroutine that never ends.
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
	)
}

// random returns numbers that are the same for the same seed and name.
func random(name string) *rand.Rand {
	salt := uint64(14695981039346656037)
	for _, b := range []byte(name) {
		salt = (salt ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(*seed, salt))
}

// versions are those of Kafka that a run reads.
func versions() []string {
	if *full {
		return []string{servers.Kafka4, servers.Kafka3}
	}
	return []string{servers.Kafka4}
}

// more returns few, or many with -full.
func more(few, many int) int {
	if *full {
		return many
	}
	return few
}
