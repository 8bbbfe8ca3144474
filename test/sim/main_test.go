package sim_test

import (
	"runtime/debug"
	"testing"

	gometrics "github.com/rcrowley/go-metrics"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	// A bubble's garbage is small and comes fast.
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(1 << 30)
	// sarama's meters share a goroutine that never ends, inside of a bubble too.
	gometrics.UseNilMetrics = true
	goleak.VerifyTestMain(m)
}
