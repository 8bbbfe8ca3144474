package scenarios_test

import (
	"flag"
	"os"
	"testing"

	gometrics "github.com/rcrowley/go-metrics"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/defaultlog/logtest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	// sarama's meters share a goroutine that never ends.
	gometrics.UseNilMetrics = true
	flag.Parse()
	_ = flag.Set("test.parallel", "64") // scenarios wait most of the time
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString("goleak: " + err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}
