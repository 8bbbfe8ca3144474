package session_test

import (
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	runtime.MemProfileRate = 64 << 10 // so that no allocation of a megabyte is missed
	goleak.VerifyTestMain(m)
}
