package history_test

import (
	"flag"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
)

var (
	flagRuns  = flag.Uint64("runs", 200, "runs on zktest")
	flagOnly  = flag.String("only", "", "on zktest: this recipe alone")
	flagFirst = flag.Uint64("first", 1, "the first seed")
)

func TestMain(m *testing.M) {
	logtest.Silence()
	flag.Parse()
	// A bubble's garbage is small and comes fast.
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(1 << 30)
	goleak.VerifyTestMain(m)
}
