package realkafka_test

import (
	"maps"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/test/servers"
)

// homes returns in which rack the preferred leader of each partition of the topic is.
func (r *rig) homes(racks []string) map[int32]string {
	r.t.Helper()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	admin, err := sarama.NewClusterAdmin(r.brokers, config)
	if err != nil {
		r.t.Fatal(err)
	}
	defer admin.Close()
	topics, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		r.t.Fatal(err)
	}
	homes := map[int32]string{}
	for _, p := range topics[0].Partitions {
		homes[p.ID] = racks[p.Replicas[0]-1] // the brokers' ids count from 1
	}
	return homes
}

// owns returns which partitions the member has open.
func (m *member) owns() map[int32]bool {
	all := map[int32]bool{}
	if s := m.sess.Load(); s != nil {
		for _, id := range (*s).Claims()[topic] {
			all[id] = true
		}
	}
	return all
}

// Members in the racks of the brokers have what is led there, and read it though they ask for replicas in their rack.
func TestZones(t *testing.T) {
	const n = 8
	racks := []string{"a", "b"}
	r := newRig(t, servers.KafkaOptions{Brokers: 2, Racks: racks, Config: map[string]string{
		"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
	}}, n)
	r.produce(100, ids(n)...)
	homes := r.homes(racks)
	want := map[string]map[int32]bool{"a": {}, "b": {}}
	for id, rack := range homes {
		want[rack][id] = true
	}
	if len(want["a"]) != n/2 { // Kafka spreads them over the racks in turn
		t.Fatalf("led in rack a: %v", want["a"])
	}
	// The names sort against the zones.
	a, b := r.memberIn("2", "a"), r.memberIn("1", "b")
	until(t, "each has what is led in its rack", func() bool {
		return maps.Equal(a.owns(), want["a"]) && maps.Equal(b.owns(), want["b"])
	})
	until(t, "all messages", func() bool { return a.count.Load()+b.count.Load() >= 100*n })
	a.leave()
	b.leave()
	if errs := append(a.errors(), b.errors()...); len(errs) > 0 {
		t.Errorf("errors: %v", errs)
	}
}
