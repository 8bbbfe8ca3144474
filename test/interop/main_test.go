// Package interop_test puts real members of Python's kiel and members of this library into one group.
package interop_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// goMember makes this test binary one member of a group instead of a test: see member.py, which does the same for Python.
const goMember = "KIEL_TEST_MEMBER"

func TestMain(m *testing.M) {
	logtest.Silence()
	if os.Getenv(goMember) != "" {
		os.Exit(beMember(os.Args[1:]))
	}
	goleak.VerifyTestMain(m,
		// sarama counts fetches by topic in go-metrics' own registry, whatever its configuration says; all its meters share one
		// goroutine that never ends.
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
	)
}
