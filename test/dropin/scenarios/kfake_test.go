package scenarios_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kielgo/kiel/test/dropin/scenarios"
	"github.com/kielgo/kiel/zktest"
)

// newBackend returns a fake Kafka and a fake ZooKeeper, on TCP and in real time: a group of sarama waits for others under
// mutexes, and virtual time stands still while a goroutine waits for a mutex.
func newBackend(t *testing.T) *scenarios.Backend {
	t.Helper()
	zk, address := zktest.Start(t, zktest.Options{TickTime: 500 * time.Millisecond})
	kafka, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	return &scenarios.Backend{
		Brokers: kafka.ListenAddrs(), ZooKeeper: []string{address},
		Settle: time.Second, SessionTimeout: 10 * time.Second,
		Expire: func(group, member string) {
			_, stat, _ := zk.Get("/kiel/groups/" + group + "/members/" + member)
			zk.KillSession(stat.EphemeralOwner)
		},
	}
}

// TestScenarios runs all cases on all groups and compares what was observed with the rows of consumer's page.
func TestScenarios(t *testing.T) {
	scenarios.Run(t, newBackend(t), "testdata/findings.txt", observeInChild)
}
