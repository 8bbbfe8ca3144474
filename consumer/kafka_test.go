package consumer

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/topics"
	"github.com/kielgo/kiel/internal/testonly/conntest"
)

// mock is a broker that leads t:0 and coordinates g.
func mock(t *testing.T, more map[string]sarama.MockResponse) *sarama.MockBroker {
	t.Helper()
	b := sarama.NewMockBroker(t, 1)
	t.Cleanup(b.Close)
	handlers := map[string]sarama.MockResponse{
		"MetadataRequest":        sarama.NewMockMetadataResponse(t).SetBroker(b.Addr(), b.BrokerID()).SetLeader("t", 0, b.BrokerID()),
		"FindCoordinatorRequest": sarama.NewMockFindCoordinatorResponse(t).SetCoordinator(sarama.CoordinatorGroup, "g", b),
		"OffsetRequest":          sarama.NewMockOffsetResponse(t).SetOffset("t", 0, sarama.OffsetOldest, 3).SetOffset("t", 0, sarama.OffsetNewest, 9),
	}
	maps.Copy(handlers, more)
	b.SetHandlerByMap(handlers)
	return b
}

func newTestKafka(t *testing.T, addr string) *kafka {
	t.Helper()
	return newTestKafkaOf(t, addr, sarama.V2_0_0_0) // what the mocks speak
}

func newTestKafkaOf(t *testing.T, addr string, version sarama.KafkaVersion) *kafka {
	t.Helper()
	config := testConfig()
	config.Version = version
	config.RackID = "a"
	config.ApiVersionsRequest = false
	config.Metadata.Retry.Max = 0
	life, end := context.WithCancel(t.Context())
	k, err := newKafka(life, &bootstrap{addresses: []string{addr}}, "g", config, 4*time.Second, fetch.Options{}, &kafkaconn.Reach{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end()
		k.end()
	})
	return k
}

func TestKafkaClients(t *testing.T) {
	b := mock(t, map[string]sarama.MockResponse{
		"OffsetCommitRequest": sarama.NewMockOffsetCommitResponse(t),
		"OffsetFetchRequest":  sarama.NewMockOffsetFetchResponse(t).SetOffset("g", "t", 0, 7, "meta", sarama.ErrNoError).SetError(sarama.ErrNoError),
		"FetchRequest":        sarama.NewMockFetchResponse(t, 1).SetMessage("t", 0, 3, sarama.StringEncoder("v")),
	})
	k := newTestKafka(t, b.Addr())
	p := tp("t", 0)
	infos, err := k.describe([]string{"t"})
	if err != nil || len(infos["t"].Partitions) != 1 || infos["t"].Err != nil {
		t.Fatalf("describe: %v, %v", infos, err)
	}
	for from, want := range map[StartAt]int64{Earliest: 3, Latest: 9} {
		if got, err := k.logOffset(t.Context(), p, from); err != nil || got != want {
			t.Errorf("%v: %d, %v", from, got, err)
		}
	}
	found, err := k.offsets.Fetch(t.Context(), []kiel.Partition{p})
	if f := found[p]; err != nil || f.Offset != 7 || f.Text != "meta" {
		t.Errorf("fetch: %+v, %v", f, err)
	}
	if err := k.offsets.Commit(t.Context(), oneCommit())[p]; err != nil {
		t.Errorf("commit: %v", err)
	}
	k.abortCommits() // and again on a new connection
	if err := k.offsets.Commit(t.Context(), oneCommit())[p]; err != nil {
		t.Errorf("commit after the connections were thrown away: %v", err)
	}
	s, err := k.fetcher.open(t.Context(), p, 3, -1)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := s.Next(t.Context()); err != nil || b.Messages[0].Offset != 3 {
		t.Errorf("read %+v, %v", b, err)
	}
	s.Close()
	s, err = k.fetcher.open(t.Context(), p, 3, -1)
	if err != nil {
		t.Fatalf("open again: %v", err)
	}
	s.Close()
	outside := &sarama.FetchResponse{Version: 8}
	outside.AddError("t", 0, sarama.ErrOffsetOutOfRange)
	b.SetHandlerByMap(map[string]sarama.MockResponse{
		"MetadataRequest": sarama.NewMockMetadataResponse(t).SetBroker(b.Addr(), b.BrokerID()).SetLeader("t", 0, b.BrokerID()),
		"OffsetRequest":   sarama.NewMockOffsetResponse(t).SetOffset("t", 0, sarama.OffsetOldest, 3).SetOffset("t", 0, sarama.OffsetNewest, 9),
		"FetchRequest":    sarama.NewMockWrapper(outside),
	})
	if _, err := k.fetcher.open(t.Context(), p, 10, -1); !errors.Is(err, sarama.ErrOffsetOutOfRange) {
		t.Errorf("open beyond the end: %v", err)
	}
}

func oneCommit() []offsets.OffsetCommit {
	return []offsets.OffsetCommit{{Partition: tp("t", 0), Offset: 100, Authorize: func() error { return nil }}}
}

func TestUnknownTopicIsAnError(t *testing.T) {
	b := mock(t, map[string]sarama.MockResponse{
		"MetadataRequest": sarama.NewMockMetadataResponse(t).SetBroker("127.0.0.1:1", 1).SetError("t", sarama.ErrUnknownTopicOrPartition),
	})
	k := newTestKafka(t, b.Addr())
	cat := topics.New(topics.Options{Names: []string{"t"}, Load: k.describe, Calls: &k.do})
	if err := cat.Refresh(t.Context(), 0); err == nil {
		t.Error("an unknown topic was described")
	}
}

func TestCallsEndWithTheirContextThoughKafkaIsSilent(t *testing.T) {
	k := newTestKafka(t, conntest.Hole(t))
	start := time.Now()
	for name, call := range map[string]func(context.Context) error{
		"offsets": func(ctx context.Context) error {
			_, err := k.offsets.Fetch(ctx, []kiel.Partition{tp("t", 0)})
			return err
		},
		"commit": func(ctx context.Context) error { return k.offsets.Commit(ctx, oneCommit())[tp("t", 0)] },
		"logOffset": func(ctx context.Context) error {
			_, err := k.logOffset(ctx, tp("t", 0), Earliest)
			return err
		},
		"open": func(ctx context.Context) error {
			_, err := k.fetcher.open(ctx, tp("t", 0), 0, -1)
			return err
		},
		"describe": func(ctx context.Context) error {
			return topics.New(topics.Options{Names: []string{"t"}, Load: k.describe, Calls: &k.do}).Refresh(ctx, 0)
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	// the Cleanup of newTestKafka ends what is still under way
	t.Cleanup(func() {
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("it took %v until nothing was under way", d)
		}
	})
}
