package realkafka_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/test/servers"
)

// copyOffsets stores the group's offsets in another cluster, with their metadata, as a mirror does. change changes the metadata.
func (r *rig) copyOffsets(to *rig, n int32, change func(string) string) {
	r.t.Helper()
	stored, err := r.admin().ListConsumerGroupOffsets(r.group, map[string][]int32{r.topic: ids(n)})
	if err != nil {
		r.t.Fatal(err)
	}
	client, err := sarama.NewClient(to.brokers, memberConfig())
	if err != nil {
		r.t.Fatal(err)
	}
	defer client.Close()
	coordinator, err := client.Coordinator(to.group)
	if err != nil {
		r.t.Fatal(err)
	}
	req := sarama.NewOffsetCommitRequest(client.Config(), to.group)
	for p := range n {
		b := stored.GetBlock(r.topic, p)
		req.AddBlockWithLeaderEpoch(to.topic, p, b.Offset, b.LeaderEpoch, 0, change(b.Metadata))
	}
	until(r.t, "the coordinator has loaded", func() bool {
		resp, err := coordinator.CommitOffset(req)
		if err != nil {
			r.t.Fatal(err)
		}
		for p, kerr := range resp.Errors[to.topic] {
			if !slices.Contains([]sarama.KError{sarama.ErrNoError, sarama.ErrOffsetsLoadInProgress, sarama.ErrNotCoordinatorForConsumer}, kerr) {
				r.t.Fatalf("%s:%d: %v", to.topic, p, kerr)
			}
		}
		return resp.Errors[to.topic][0] == sarama.ErrNoError
	})
}

// earlier returns metadata as members of earlier versions write them, whose ids are the topic's alone.
func earlier(metadata string) string {
	parts := strings.SplitN(metadata, ";", 3)
	parts[1] = parts[1][:20] + "AQ" // 16 bytes
	return strings.Join(parts, ";")
}

// TestCopiedOffsets has a group move to a second Kafka, which has the same messages and the group's offsets. Then Kafka's tool
// stores the offsets of an earlier version's members again, as docs/moving-to-another-cluster.md says.
func TestCopiedOffsets(t *testing.T) {
	const n = 4
	r, other := sharedRig(t, servers.Kafka4, n), newRig(t, servers.KafkaOptions{}, n)
	other.kafka.CreateTopic(r.topic, n)
	other.zk, other.topic, other.group = r.zk, r.topic, r.group
	r.produce(100, ids(n)...)
	other.produce(100, ids(n)...)
	a := r.member("a")
	until(t, "all messages", func() bool { return a.count.Load() == 100*n })
	a.leave()
	r.copyOffsets(other, n, func(metadata string) string { return metadata })

	b := other.member("b")
	until(t, "all partitions are open", func() bool { return b.open.Load() == n })
	other.produce(5, ids(n)...)
	until(t, "all that is new", func() bool { return b.count.Load() >= 5*n })
	b.leave()
	if errs := b.errors(); b.count.Load() != 5*n || len(errs) > 0 {
		t.Errorf("%d messages were read, want %d that are new; reported %v", b.count.Load(), 5*n, errs)
	}

	if err := other.admin().DeleteConsumerGroup(other.group); err != nil {
		t.Fatal(err)
	}
	r.copyOffsets(other, n, earlier)
	other.kafka.ConsumerGroups("--group", r.group, "--topic", r.topic, "--reset-offsets", "--to-current", "--execute")
	c := other.member("c")
	until(t, "what came after the copy", func() bool { return c.count.Load() >= 5*n })
	until(t, "it is stored", func() bool { return other.committed(n-1) == 105 })
	c.leave()
	if errs := c.errors(); c.count.Load() != 5*n || len(errs) > 0 {
		t.Errorf("%d messages were read, want %d; reported %v", c.count.Load(), 5*n, errs)
	}
}
