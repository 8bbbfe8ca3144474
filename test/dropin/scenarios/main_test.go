package scenarios_test

import (
	"flag"
	"testing"

	gometrics "github.com/rcrowley/go-metrics"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	// sarama's meters share a goroutine that never ends.
	gometrics.UseNilMetrics = true
	flag.Parse()
	_ = flag.Set("test.parallel", "20") // scenarios wait most of the time
	goleak.VerifyTestMain(m)
}
