// Package integration_test runs members against real servers of several versions and configurations: with TLS, credentials and
// ACLs, after a backup, and metrics of a whole process. Package chaos kills, stops and starts processes.
package integration_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/test/members"
)

var demo string // the built binary

func TestMain(m *testing.M) {
	logtest.Silence()
	dir, err := os.MkdirTemp("", "kiel-integration-")
	if err == nil {
		demo, err = members.Build(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	if code == 0 {
		// sarama's meters share a goroutine that never ends.
		err := goleak.Find(goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
		if err != nil {
			fmt.Fprintln(os.Stderr, "goleak:", err)
			code = 1
		}
	}
	os.Exit(code)
}

const (
	topic      = "orders"
	partitions = 12
)
