package suite

import (
	"testing"

	_ "github.com/stretchr/testify/assert" // the generated file imports it
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// sarama counts fetches by topic in go-metrics' own registry; all its meters share one goroutine that never ends.
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
	)
}
