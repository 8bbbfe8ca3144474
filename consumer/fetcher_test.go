package consumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// A leader that names a follower to fetch from (KIP-392) sends no messages itself. So the follower must be found even if it
// started, or moved to another address, after the fetcher had connected. Otherwise the partition is not read any more.
func TestFollowerThatComesLater(t *testing.T) {
	for _, name := range []string{"new", "moved"} {
		t.Run(name, func(t *testing.T) {
			named := &sarama.FetchResponse{Version: 11, Blocks: map[string]map[int32]*sarama.FetchResponseBlock{
				"t": {0: {PreferredReadReplica: 2, HighWaterMarkOffset: 9}},
			}}
			nothing := &sarama.FetchResponse{Version: 11, Blocks: map[string]map[int32]*sarama.FetchResponseBlock{
				"t": {0: {PreferredReadReplica: -1, HighWaterMarkOffset: 9}},
			}}
			metadata := func(leader *sarama.MockBroker) *sarama.MockMetadataResponse {
				return sarama.NewMockMetadataResponse(t).SetBroker(leader.Addr(), 1).SetLeader("t", 0, 1)
			}
			leader := mock(t, nil)
			old := metadata(leader)
			elsewhere := sarama.NewMockBroker(t, 2)
			if name == "moved" {
				old.SetBroker(elsewhere.Addr(), 2)
			}
			elsewhere.SetHandlerByMap(map[string]sarama.MockResponse{"MetadataRequest": old})
			offsets := sarama.NewMockOffsetResponse(t).SetOffset("t", 0, sarama.OffsetOldest, 3).SetOffset("t", 0, sarama.OffsetNewest, 9)
			leader.SetHandlerByMap(map[string]sarama.MockResponse{
				"MetadataRequest": old, "OffsetRequest": offsets, "FetchRequest": sarama.NewMockWrapper(nothing),
			})
			k := newTestKafkaOf(t, leader.Addr(), sarama.V2_3_0_0)
			if _, err := k.describe([]string{"t"}); err != nil {
				t.Fatal(err)
			}
			s, err := k.fetcher.open(t.Context(), tp("t", 0), 3, -1)
			if err != nil {
				t.Fatal(err)
			}
			elsewhere.Close()
			follower := sarama.NewMockBroker(t, 2)
			defer follower.Close()
			now := metadata(leader).SetBroker(follower.Addr(), 2)
			follower.SetHandlerByMap(map[string]sarama.MockResponse{
				"MetadataRequest": now, "OffsetRequest": offsets,
				"FetchRequest": sarama.NewMockFetchResponse(t, 1).SetMessage("t", 0, 3, sarama.StringEncoder("v")),
			})
			leader.SetHandlerByMap(map[string]sarama.MockResponse{
				"MetadataRequest": now, "OffsetRequest": offsets, "FetchRequest": sarama.NewMockWrapper(named),
			})
			ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("the follower is not found"))
			defer cancel()
			if b, err := s.Next(ctx); err != nil || b.Messages[0].Offset != 3 {
				t.Errorf("read %+v, %v", b, err)
			}
			s.Close()
		})
	}
}
