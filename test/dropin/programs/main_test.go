package programs_test

import (
	"os"
	"testing"

	gometrics "github.com/rcrowley/go-metrics"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/defaultlog/logtest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	// sarama's meters share a goroutine that never ends, inside of a bubble too.
	gometrics.UseNilMetrics = true
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString("goleak: " + err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}
