package realkafka_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/test/servers"
)

// stored returns how many partitions have an offset of 1, and the lengths of the shortest and the longest metadata.
func (r *rig) stored(n int32) (count, shortest, longest int) {
	r.t.Helper()
	resp, err := r.admin().ListConsumerGroupOffsets(r.group, map[string][]int32{r.topic: ids(n)})
	if err != nil {
		r.t.Fatal(err)
	}
	shortest = 1 << 20
	for p := range n {
		if b := resp.GetBlock(r.topic, p); b != nil && b.Offset == 1 {
			count++
			shortest, longest = min(shortest, len(b.Metadata)), max(longest, len(b.Metadata))
		}
	}
	return count, shortest, longest
}

// otherwiseRig makes a rig on a shared broker that takes less at once, and longer metadata, and that creates topics.
func otherwiseRig(t *testing.T, version string, partitions int32) *rig {
	t.Helper()
	opts := servers.KafkaOptions{Version: version, Config: map[string]string{
		"message.max.bytes": "100000", "offset.metadata.max.bytes": "10000", "auto.create.topics.enable": "true", "num.partitions": "3",
	}}
	return rigOn(t, all.Kafka(t, "configured otherwise "+version, opts), partitions)
}

// TestLargeCommits marks a message in each of many partitions with a long text, on brokers as they are, on brokers that take less
// at once and longer metadata, and on brokers that take shorter metadata.
func TestLargeCommits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		n    int32
		rig  func(t *testing.T, version string, partitions int32) *rig
		text int
		lost bool
	}{
		"many":                    {300, sharedRig, consumer.MaxMetadata, false},
		"brokers that take less":  {40, otherwiseRig, 9000, false},
		"too long for this Kafka": {8, secureRig, 1000, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			longer(t, func(t *testing.T, version string) {
				n := c.n
				r := c.rig(t, version, n)
				r.text = strings.Repeat("x", c.text)
				r.produce(1, ids(n)...)
				a := r.member("a")
				until(t, "all messages", func() bool { return a.count.Load() == int64(n) })
				until(t, "all offsets are stored", func() bool {
					count, _, _ := r.stored(n)
					return count == int(n)
				})
				_, shortest, longest := r.stored(n)
				if long := shortest > c.text; long == c.lost || longest > c.text+96 {
					t.Errorf("metadata have %d to %d characters", shortest, longest)
				}
				began := time.Now()
				a.leave()
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("leaving took %v", took)
				}
				lost := 0
				for _, err := range a.errors() {
					if !errors.Is(err, consumer.ErrMetadataLost) {
						t.Errorf("reported: %v", err)
					}
					lost++
				}
				if want := map[bool]int{true: int(n)}[c.lost]; lost != want {
					t.Errorf("%d texts are reported as lost, want %d", lost, want)
				}
			})
		})
	}
}
