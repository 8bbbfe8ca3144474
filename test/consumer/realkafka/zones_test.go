package realkafka_test

import (
	"maps"
	"testing"

	"github.com/kielgo/kiel/test/servers"
)

// owns returns which partitions the member has open.
func (m *member) owns() map[int32]bool {
	all := map[int32]bool{}
	if s := m.sess.Load(); s != nil {
		for _, id := range (*s).Claims()[m.topic] {
			all[id] = true
		}
	}
	return all
}

// inRacks returns three brokers in racks, which tests share.
func inRacks(t *testing.T) *servers.Kafka {
	t.Helper()
	return all.Kafka(t, "Kafka in racks", servers.KafkaOptions{Brokers: 3, Racks: []string{"a", "b", "c"}, Config: map[string]string{
		"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
	}})
}

// homes returns in which rack the preferred leader of each partition of the topic is.
func (r *rig) homes() map[string]map[int32]bool {
	r.t.Helper()
	topics, err := r.admin().DescribeTopics([]string{r.topic})
	if err != nil {
		r.t.Fatal(err)
	}
	homes := map[string]map[int32]bool{"a": {}, "b": {}, "c": {}}
	for _, p := range topics[0].Partitions {
		homes[string('a'+p.Replicas[0]-1)][p.ID] = true // the brokers' ids count from 1
	}
	return homes
}

// Members in the racks of the brokers have what is led there, and read it though they ask for replicas in their rack.
func TestZones(t *testing.T) {
	const n = 9
	r := rigOn(t, inRacks(t), n)
	r.produce(100, ids(n)...)
	want := r.homes()
	if len(want["a"]) != n/3 || len(want["b"]) != n/3 { // Kafka spreads them over the racks in turn
		t.Fatalf("led in the racks: %v", want)
	}
	// The names sort against the zones.
	a, b, c := r.memberIn("3", "a"), r.memberIn("2", "b"), r.memberIn("1", "c")
	until(t, "each has what is led in its rack", func() bool {
		return maps.Equal(a.owns(), want["a"]) && maps.Equal(b.owns(), want["b"]) && maps.Equal(c.owns(), want["c"])
	})
	until(t, "all messages", func() bool { return total(a, b, c) >= 100*n })
	leave(a, b, c)
}
