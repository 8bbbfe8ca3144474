// Package realkafka_test lets the programs of package programs live on real servers.
package realkafka_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/test/dropin/programs"
	"github.com/kielgo/kiel/test/servers"
)

var full = flag.Bool("full", false, "on all versions of Kafka, and on sarama's own groups")

func TestMain(m *testing.M) {
	flag.Parse()
	logtest.Silence()
	goleak.VerifyTestMain(m,
		// sarama counts fetches by topic in go-metrics' own registry; all its meters share one goroutine that never ends.
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
	)
}

// TestLive lets each program live on each version of Kafka.
func TestLive(t *testing.T) {
	t.Parallel()
	versions, kinds := []string{servers.Kafka4}, []programs.Kind{programs.Ours}
	if *full {
		versions = append(versions, servers.Kafka3)
		kinds = append(kinds, programs.Eager, programs.Cooperative)
	}
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: 500 * time.Millisecond})
	for _, version := range versions {
		kafka := servers.StartKafka(t, servers.KafkaOptions{
			Version: version, Config: map[string]string{"group.min.session.timeout.ms": "1000"},
		})
		for name, program := range programs.Programs() {
			for _, kind := range kinds {
				t.Run(version+"/"+string(kind)+"/"+name, func(t *testing.T) {
					t.Parallel()
					programs.Live(t, &programs.Backend{
						Brokers: kafka.Brokers(), ZooKeeper: []string{zk.Addr()},
						SessionTimeout: 2 * time.Second, Pause: 200 * time.Millisecond,
					}, kind, fmt.Sprintf("%s-%s-%s", kind, name, version), program)
				})
			}
		}
	}
}
