// Package idle_test measures what a member costs that has nothing to do. It is a package of its own because what other tests
// leave in memory would count.
package idle_test

import (
	"os"
	"testing"

	gometrics "github.com/rcrowley/go-metrics"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	if os.Getenv(serverEnv) != "" {
		serve()
		return
	}
	gometrics.UseNilMetrics = true // sarama's meters share a goroutine that never ends
	goleak.VerifyTestMain(m)
}
