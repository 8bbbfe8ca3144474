package topics

import (
	"errors"
	"slices"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/testonly/conntest"
)

// The finder names all topics, again and again, also when the first broker that it knows can't be reached.
func TestFinder(t *testing.T) {
	b := sarama.NewMockBroker(t, 1)
	defer b.Close()
	metadata := sarama.NewMockMetadataResponse(t).SetBroker(b.Addr(), b.BrokerID()).SetLeader("t", 0, 1).SetLeader("u", 0, 1)
	b.SetHandlerByMap(map[string]sarama.MockResponse{"MetadataRequest": metadata})
	config := conntest.Config()
	config.Version, config.ApiVersionsRequest, config.Metadata.Retry.Max = sarama.V2_0_0_0, false, 0
	d := kafkaconn.NewDialer(t.Context(), config, 0)
	finder := func(brokers ...string) *Finder {
		connect := func(c *sarama.Config) (sarama.Client, error) { return sarama.NewClient(brokers, c) }
		return NewFinder(connect, kafkaconn.ControlConfig(*config, d))
	}
	f := finder("127.0.0.1:1", b.Addr())
	for _, want := range [][]string{{"t", "u"}, {"t", "u", "v"}} {
		got, err := f.Topics()
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v", got, err)
		}
		metadata.SetLeader("v", 0, 1)
	}
	f.Close()
	unreachable := finder("127.0.0.1:1")
	if got, err := unreachable.Topics(); !errors.Is(err, sarama.ErrOutOfBrokers) {
		t.Errorf("%q, %v", got, err)
	}
	unreachable.Close()
	d.Abort()
	d.Wait()
}
