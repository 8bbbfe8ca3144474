package consumer

import (
	"testing"

	"go.uber.org/goleak"
)

// No exceptions: the meters of go-metrics, whose goroutine never ends, are not
// started with the default configuration, and the tests use no other.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
