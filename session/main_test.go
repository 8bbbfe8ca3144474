package session_test

import (
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	runtime.MemProfileRate = 64 << 10 // so that no allocation of a megabyte is missed
	goleak.VerifyTestMain(m)
}
