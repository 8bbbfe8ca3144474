package programs_test

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
