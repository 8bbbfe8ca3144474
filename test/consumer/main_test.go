// Package consumer_test runs groups of package consumer against kfake and zktest, both in this process, in virtual time.
package consumer_test

import (
	"testing"

	gometrics "github.com/rcrowley/go-metrics"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	// sarama's meters share a goroutine that never ends, inside of a bubble too.
	gometrics.UseNilMetrics = true
	goleak.VerifyTestMain(m)
}
