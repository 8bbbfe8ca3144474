package consumer_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// limitCommits has Kafka refuse commits as real brokers do: whole requests for which it would store more than a MiB, and offsets
// with more than 4,096 characters of metadata. Requests with such an offset have no other one.
func (r *rig) limitCommits() (requests, metadata *kfake.FaultHandle) {
	limit := func(err *kerr.Error, exceeds func(size, longest int) bool) *kfake.FaultHandle {
		return r.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: err, Count: -1, When: func(kreq kmsg.Request) bool {
			req, size, longest := kreq.(*kmsg.OffsetCommitRequest), 0, 0
			for _, of := range req.Topics {
				for _, p := range of.Partitions {
					size += 63 + len(req.Group) + len(topic) + len(*p.Metadata)
					longest = max(longest, len(*p.Metadata))
				}
			}
			return exceeds(size, longest)
		}})
	}
	return limit(kerr.UnknownServerError, func(size, _ int) bool { return size > 1<<20 }),
		limit(kerr.OffsetMetadataTooLarge, func(_, longest int) bool { return longest > 4096 })
}

// markWith has a member mark each message with a text.
func (m *member) markWith(text string) {
	m.h.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, msg *sarama.ConsumerMessage) error {
		s.MarkMessage(msg, text)
		return nil
	}
}

// TestLargeTextsInManyPartitions is red if all offsets of a member go into one request, which Kafka refuses whole for its size.
func TestLargeTextsInManyPartitions(t *testing.T) {
	const n = 300
	inRig(t, n, func(t *testing.T, r *rig) {
		r.produce(1)
		requests, metadata := r.limitCommits()
		a := r.member("a", nil)
		a.markWith(strings.Repeat("x", consumer.MaxMetadata))
		a.start()
		until(t, "all are handled", func() bool { return total(a) == n })
		time.Sleep(2 * time.Second)
		for p := range int32(n) {
			if at := r.committed(topic, p); at != 1 {
				t.Errorf("%d is stored for %d", at, p)
			}
		}
		quit(a)
		if text := r.kafka.GroupInfo(group).Commits[topic][n-1].Metadata; len(text) < consumer.MaxMetadata {
			t.Errorf("%d characters are stored", len(text))
		}
		if errs := a.errors(); requests.Hits()+metadata.Hits() > 0 || len(errs) > 0 {
			t.Errorf("refused: %d and %d, reported: %v", requests.Hits(), metadata.Hits(), errs)
		}
	})
}

// TestTextThatKafkaDoesNotTake is red if a text of 4,096 characters, which a group of sarama stores, costs the offset, an error
// each second, or ten seconds at the release.
func TestTextThatKafkaDoesNotTake(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		requests, metadata := r.limitCommits()
		said := &logtest.Log{}
		a := r.member("a", func(o *consumer.Options) { o.Logger = slog.New(slog.NewTextHandler(said, nil)) })
		a.markWith(strings.Repeat("x", 4096))
		a.start()
		for i := range 20 {
			r.produce(1, 0)
			time.Sleep(time.Second)
			if at := r.committed(topic, 0); at < int64(i) {
				t.Fatalf("%d is stored after %d messages", at, i+1)
			}
		}
		began := time.Now()
		a.leave()
		if took := time.Since(began); took > time.Second || r.committed(topic, 0) != 20 {
			t.Errorf("%d is stored after %v of leaving", r.committed(topic, 0), took)
		}
		a.close()
		errs := a.errors()
		if len(errs) != 1 || !errors.Is(errs[0], consumer.ErrMetadataLost) || !strings.Contains(errs[0].Error(), "4096 characters") || metadata.Hits() != 1 {
			t.Errorf("refused: %d and %d, reported: %v", requests.Hits(), metadata.Hits(), errs)
		}
		if n := said.Count("msg=failed", "kind=text", "t:0"); n != 1 || said.Count("level=ERROR") > 0 {
			t.Errorf("%d lines:\n%s", n, said)
		}
	})
}
