package realkafka_test

import (
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kielgo/kiel/test/servers"
)

// seen is what a handler got: at which offset each value, and what came twice.
type seen struct {
	mu     sync.Mutex
	values map[string]string
	twice  []string
	late   time.Duration // the slowest message
}

// add adds a message. before is the offset of the message before it while its partition has been open, or -1.
func (s *seen) add(m *sarama.ConsumerMessage, before int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before >= 0 && m.Offset != before+1 {
		s.twice = append(s.twice, fmt.Sprintf("offset %d:%d behind %d", m.Partition, m.Offset, before))
	}
	at, value := fmt.Sprintf("%d:%d", m.Partition, m.Offset), string(m.Value)
	if before := s.values[value]; before != "" && before != at {
		s.twice = append(s.twice, fmt.Sprintf("value %s at %s and at %s", value, before, at))
	}
	s.values[value] = at
	s.late = max(s.late, time.Since(m.Timestamp))
}

// seeing is a handler that compares the messages of a partition for as long as it is open. Where a session is not trusted because
// the process got no time, the partition is opened again, and what was not committed comes again.
type seeing struct {
	*member
	seen *seen
}

func (h seeing) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	before := int64(-1)
	for m := range c.Messages() {
		h.seen.add(m, before)
		before = m.Offset
		s.MarkMessage(m, "")
	}
	return nil
}

func (s *seen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.values)
}

// Connections that fetch authenticate again before their session ends (KIP-368): no message is lost, and none comes twice while
// its partition is open, also while the processors are busy. A message that is in the log twice is the producer's, so the
// producer is idempotent.
func TestReauthentication(t *testing.T) {
	const session = 4 * time.Second
	lasts := 3 * session
	if *full {
		lasts = 15 * session
	}
	ca := servers.NewTLS(t)
	r := newRig(t, servers.KafkaOptions{
		TLS: ca, Users: map[string]string{user: password}, Config: map[string]string{"connections.max.reauth.ms": fmt.Sprint(session.Milliseconds())},
	}, 2)
	producer, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(r.topic), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	brokers := r.kafka.SecureBrokers(servers.ListenerSASLTLS)
	members := map[string]*member{}
	got := map[string]*seen{}
	for _, mechanism := range []sarama.SASLMechanism{sarama.SASLTypePlaintext, sarama.SASLTypeSCRAMSHA512} {
		config := memberConfig()
		withSASL(config, mechanism, password)
		withTLS(config, ca.Client(""))
		s := &seen{values: map[string]string{}}
		secure := &rig{t: t, kafka: r.kafka, zk: r.zk, brokers: brokers, topic: r.topic, group: string(mechanism), config: config}
		secure.handler = func(m *member) sarama.ConsumerGroupHandler { return seeing{m, s} }
		members[string(mechanism)], got[string(mechanism)] = secure.member("a"), s
	}
	if *full { // the processors are busy
		for range 4 {
			busy := exec.Command("sh", "-c", "while :; do :; done")
			if err := busy.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = busy.Process.Kill()
				_ = busy.Wait()
			}()
		}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	written := 0
	for began := time.Now(); time.Since(began) < lasts; written++ {
		<-tick.C
		producer.Produce(t.Context(), &kgo.Record{Partition: int32(written % 2), Value: fmt.Append(nil, written)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, m := range members {
		s := got[name]
		until(t, name+" has all", func() bool { return s.count() == written })
		m.leave()
		t.Logf("%s: %d messages, the slowest after %v; errors %v", name, written, s.late, m.errors())
		for _, what := range s.twice {
			t.Errorf("%s: came twice, or others are missing: %s", name, what)
		}
	}
}
