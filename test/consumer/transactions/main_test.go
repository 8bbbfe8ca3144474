// Package transactions_test has groups of package consumer write what they make of messages in Kafka's transactions, with the
// offsets in them, and counts the results: each must be there exactly once for who reads what is committed. All tests run on
// kfake and on both versions of Kafka.
//
// A [program] does so in the manner of sarama's example of it. Tests let a former owner commit at any moment: one that is a
// process which was frozen in mid transaction, and one that a test drives by hand. Controls show that the tests see results that
// are there twice.
package transactions_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// asProcess is the environment's variable that makes the test binary run a [program] instead of tests.
const asProcess = "TRANSACTIONS_PROGRAM"

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "16") // tests wait most of the time
	flag.Parse()
	logtest.Silence()
	if settings := os.Getenv(asProcess); settings != "" {
		if err := runProcess(settings); err != nil {
			fmt.Println("failed:", err)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m,
		// sarama counts fetches by topic in go-metrics' own registry, whatever its configuration says; all its meters share one
		// goroutine that never ends.
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
	)
}
