package fetch

import (
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// opinion has sarama decode answers.
type opinion struct {
	broker *sarama.Broker
	body   []byte // the answer to the next request
}

func newOpinion(tb testing.TB) *opinion {
	tb.Helper()
	o := &opinion{broker: sarama.NewBroker("1")}
	config := testConfig()
	config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, o
	noerr.Must(tb, o.broker.Open(config))
	tb.Cleanup(func() { _ = o.broker.Close() })
	return o
}

// Dial connects to a broker that answers each request with body.
func (o *opinion) Dial(string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		head := make([]byte, 12)
		for {
			if _, err := io.ReadFull(server, head); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, server, int64(binary.BigEndian.Uint32(head))-8); err != nil {
				return
			}
			if _, err := server.Write(frame(head[8:], o.body)); err != nil {
				return
			}
		}
	}()
	return client, nil
}

// decode returns the messages of an answer of version 11, as sarama's PartitionConsumer makes them.
func (o *opinion) decode(body []byte) (map[key][]sarama.ConsumerMessage, error) {
	o.body = append(make([]byte, 4), body[4:]...) // not throttled, for sarama would wait
	answer, err := o.broker.Fetch(&sarama.FetchRequest{Version: 11})
	if err != nil {
		return nil, err
	}
	out := map[key][]sarama.ConsumerMessage{}
	for topic, blocks := range answer.Blocks {
		for id, block := range blocks {
			for _, records := range block.RecordsSet {
				if records.MsgSet != nil {
					for _, outer := range records.MsgSet.Messages {
						out[key{topic, id}] = append(out[key{topic, id}], oldMessages(topic, id, outer)...)
					}
				}
				b := records.RecordBatch
				if b == nil {
					continue
				}
				for _, r := range b.Records {
					m := sarama.ConsumerMessage{Topic: topic, Partition: id, Offset: b.FirstOffset + r.OffsetDelta, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: b.MaxTimestamp}
					if !b.LogAppendTime {
						m.Timestamp = b.FirstTimestamp.Add(r.TimestampDelta)
					}
					out[key{topic, id}] = append(out[key{topic, id}], m)
				}
			}
		}
	}
	return out, nil
}
