// Package stack_test runs whole members, from the session to ownership, against the in-memory server: what one sick member
// does to the others, stopping at any moment, storms, and what a member costs.
package stack_test

import (
	"os"
	"testing"

	gometrics "github.com/rcrowley/go-metrics"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) != "" {
		serve()
		return
	}
	gometrics.UseNilMetrics = true // sarama's meters share a goroutine that never ends
	goleak.VerifyTestMain(m)
}
