package kafkaconn

import (
	"sync"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
)

// Listed is what the leader of a partition has answered about one of its offsets.
type Listed struct {
	Offset int64 // -1 if there is none
	Millis int64 // the timestamp of the message at Offset; not positive if it is not known
	Err    error
}

// ListOffsets asks for an offset of each partition: that of the first message from a time on, in milliseconds, or
// sarama.OffsetOldest or sarama.OffsetNewest, which with ReadCommitted is where the first transaction begins that is not over. It
// sends one request to each leader that the client knows, and returns when all have answered or failed. A partition is missing if
// its leader is not known, or has not answered.
func ListOffsets(client sarama.Client, level sarama.IsolationLevel, at map[kiel.Partition]int64) map[kiel.Partition]Listed {
	var (
		all sync.WaitGroup
		mu  sync.Mutex
		out = map[kiel.Partition]Listed{}
	)
	for leader, request := range listRequests(client, level, at) {
		all.Go(func() {
			answer, err := leader.GetAvailableOffsets(request)
			if err != nil {
				_ = leader.Close() // the client opens it again
				return
			}
			mu.Lock()
			defer mu.Unlock()
			addListed(out, answer)
		})
	}
	all.Wait()
	return out
}

// listRequests returns a request for each leader, as the client knows them.
func listRequests(client sarama.Client, level sarama.IsolationLevel, at map[kiel.Partition]int64) map[*sarama.Broker]*sarama.OffsetRequest {
	config := client.Config()
	requests := map[*sarama.Broker]*sarama.OffsetRequest{}
	for p, t := range at {
		leader, err := client.Leader(p.Topic, p.ID)
		if err != nil {
			continue
		}
		if requests[leader] == nil {
			requests[leader] = sarama.NewOffsetRequest(config.Version)
			requests[leader].IsolationLevel = level
		}
		requests[leader].AddBlock(p.Topic, p.ID, t, 1)
	}
	return requests
}

// addListed adds an answer to out.
func addListed(out map[kiel.Partition]Listed, answer *sarama.OffsetResponse) {
	for topic, blocks := range answer.Blocks {
		for id, b := range blocks {
			l := Listed{Offset: -1, Millis: -1}
			switch {
			case b.Err != sarama.ErrNoError:
				l.Err = b.Err
			case len(b.Offsets) > 0:
				l.Offset, l.Millis = b.Offsets[0], b.Timestamp
			}
			out[kiel.Partition{Topic: topic, ID: id}] = l
		}
	}
}
