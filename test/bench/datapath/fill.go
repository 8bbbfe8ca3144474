package datapath

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// batchBytes is the size of batches before compression, the default of Kafka's own producer.
const batchBytes = 16 << 10

// Fill produces messages to each partition of an empty topic. Values are text of the cell's size, but for the first 8 bytes,
// which are the message's offset.
func Fill(ctx context.Context, brokers []string, topic string, cell Cell, perPartition int) error {
	codec, err := codec(cell.Compression)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec),
		kgo.ProducerBatchMaxBytes(batchBytes), kgo.MaxBufferedRecords(100_000), kgo.DisableClientMetrics(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	var once sync.Once
	var failed error
	text := prose(1 << 20)
	for offset := range perPartition {
		for partition := range cell.Partitions {
			value := make([]byte, cell.Size)
			copy(value, text[rand.IntN(len(text)-cell.Size):])
			binary.BigEndian.PutUint64(value, uint64(offset))
			client.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(partition), Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					once.Do(func() { failed = err })
				}
			})
		}
	}
	return errors.Join(client.Flush(ctx), failed)
}

func codec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "none":
		return kgo.NoCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	default:
		return kgo.NoCompression(), fmt.Errorf("no codec %q", name)
	}
}

// prose returns n bytes of random fields and numbers, which compress about as well as records of programs do.
func prose(n int) string {
	fields := []string{"customer", "order", "amount", "currency", "street", "created", "status", "warehouse", "quantity", "reference"}
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%q:%d,", fields[rand.IntN(len(fields))], rand.IntN(1_000_000))
	}
	return b.String()[:n]
}
