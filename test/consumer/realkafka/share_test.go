package realkafka_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/test/servers"
)

// TestShareGroupOfTheSameName shows the answers of a real broker to a group whose name a share group has (KIP-932).
func TestShareGroupOfTheSameName(t *testing.T) {
	t.Parallel()
	r := sharedRig(t, servers.Kafka4, 1)
	theirs, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.ShareGroup(r.group), kgo.ConsumeTopics(r.topic))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	until(t, "the share group is there", func() bool {
		resp, err := kmsg.NewPtrListGroupsRequest().RequestWith(t.Context(), theirs)
		return err == nil && slices.ContainsFunc(resp.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return g.Group == r.group })
	})
	r.produce(10, 0)
	a := r.member("a")
	until(t, "ours says so", func() bool {
		return slices.ContainsFunc(a.errors(), func(err error) bool {
			return errors.Is(err, consumer.ErrGroupInUse) && strings.Contains(err.Error(), "share group of this name")
		})
	})
	if a.count.Load() != 0 {
		t.Error("consumed beside a share group")
	}
	theirs.Close()
	until(t, "the share group is deleted", func() bool {
		client, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{r.group}
		resp, err := req.RequestWith(t.Context(), client)
		return err == nil && resp.Groups[0].ErrorCode == 0
	})
	until(t, "ours consumes", func() bool { return a.count.Load() == 10 })
	a.leave()
}
