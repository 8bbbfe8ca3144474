// Package realkafka_test runs the scenarios on real Kafka and a real ZooKeeper. The findings must be those of the fake ones.
package realkafka_test

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/test/dropin/scenarios"
	"github.com/kielgo/kiel/test/servers"
)

var full = flag.Bool("full", false, "all versions of Kafka")

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "32") // scenarios wait most of the time
	logtest.Silence()
	goleak.VerifyTestMain(m,
		// sarama counts fetches by topic in go-metrics' own registry, whatever its configuration says; all its meters share one
		// goroutine that never ends.
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
	)
}

// TestScenarios is that of package scenarios, with -full on both versions of Kafka.
func TestScenarios(t *testing.T) {
	t.Parallel()
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	versions := []string{servers.Kafka4}
	if *full {
		versions = append(versions, servers.Kafka3)
	}
	for _, version := range versions {
		t.Run("kafka "+version, func(t *testing.T) {
			t.Parallel()
			kafka := servers.StartKafka(t, servers.KafkaOptions{Version: version})
			scenarios.Run(t, &scenarios.Backend{
				Brokers: kafka.Brokers(), ZooKeeper: []string{zk.Addr()}, Real: true,
				Settle: time.Second, SessionTimeout: 4 * time.Second, Suffix: "-" + version,
			}, "../testdata/findings.txt", nil)
		})
	}
}
