package consumer

import (
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/topics"
	"github.com/kielgo/kiel/internal/topiclist"
)

// metadataOf returns the answer of the broker b, which leads t:0, of the cluster of id.
func metadataOf(b *sarama.MockBroker, id *string) *sarama.MetadataResponse {
	r := &sarama.MetadataResponse{Version: 6, ClusterID: id}
	r.AddBroker(b.Addr(), b.BrokerID())
	r.AddTopicPartition("t", 0, b.BrokerID(), []int32{b.BrokerID()}, []int32{b.BrokerID()}, nil, sarama.ErrNoError)
	return r
}

func TestClusterIDComesWithTheTopics(t *testing.T) {
	b := mock(t, nil)
	answer := func(id *string) {
		b.SetHandlerByMap(map[string]sarama.MockResponse{"MetadataRequest": sarama.NewMockWrapper(metadataOf(b, id))})
	}
	answer(nil)
	k := newTestKafka(t, b.Addr())
	m := &membership{kafka: k}
	for _, step := range []struct{ answers, want string }{
		{"", ""},
		{"has spaces", ""},
		{"bell\a", ""},
		{"ümlaut", ""},
		{strings.Repeat("x", 129), ""},
		{"MkU3OEVBNTcwNTJENDM2Qg", "MkU3OEVBNTcwNTJENDM2Qg"},
		{"", "MkU3OEVBNTcwNTJENDM2Qg"},
		{"has spaces", "MkU3OEVBNTcwNTJENDM2Qg"},
		{strings.Repeat("x", 128), strings.Repeat("x", 128)},
		{"ns.servicebus.windows.net", "ns.servicebus.windows.net"},
	} {
		answer(&step.answers)
		if _, err := k.describe([]string{"t"}); err != nil {
			t.Fatal(err)
		}
		if got := m.clusterID(); got != step.want {
			t.Errorf("after the answer %q the id is %q, want %q", step.answers, got, step.want)
		}
	}
	answer(nil)
	if _, err := k.describe([]string{"t"}); err != nil || m.clusterID() != "ns.servicebus.windows.net" {
		t.Errorf("after an answer without an id: %q, %v", m.clusterID(), err)
	}
	if got := (&membership{}).clusterID(); got != "" {
		t.Errorf("without Kafka the id is %q", got)
	}
}

// TestClusterIDWithoutTopics is red if a member whose patterns find no topic joins without the id, or if it asks when topics were
// described.
func TestClusterIDWithoutTopics(t *testing.T) {
	b := mock(t, nil)
	id := "MkU3OEVBNTcwNTJENDM2Qg"
	b.SetHandlerByMap(map[string]sarama.MockResponse{"MetadataRequest": sarama.NewMockWrapper(metadataOf(b, &id))})
	k := newTestKafka(t, b.Addr())
	list, err := topiclist.Parse([]string{"^nothing"})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, nil, nil)
	m := r.membership
	m.kafka, m.topics = k, list
	m.catalog = m.newCatalog(k)
	if err := m.firstLook(t.Context()); err != nil || m.clusterID() != id {
		t.Errorf("the id is %q: %v", m.clusterID(), err)
	}
	m.kafka = nil // the rig's end knows no Kafka

	b2 := mock(t, nil) // a Kafka without an id
	k2 := newTestKafka(t, b2.Addr())
	m2 := &membership{kafka: k2, catalog: topics.New(topics.Options{Names: []string{"t"}, Load: k2.describe, Calls: &k2.do})}
	if err := m2.catalog.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := len(b2.History())
	if err := m2.learnCluster(t.Context()); err != nil || m2.clusterID() != "" || len(b2.History()) != before {
		t.Errorf("id %q, %v, %d requests more", m2.clusterID(), err, len(b2.History())-before)
	}
}
