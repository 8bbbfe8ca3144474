package servers_test

import (
	"testing"

	"github.com/kielgo/kiel/test/servers"
)

func TestKafkaServes(t *testing.T) {
	for _, version := range []string{servers.Kafka4, servers.Kafka3} {
		t.Run(version, func(t *testing.T) {
			kafka := servers.StartKafka(t, servers.KafkaOptions{Version: version})
			kafka.CreateTopic("t", 12)
		})
	}
}
