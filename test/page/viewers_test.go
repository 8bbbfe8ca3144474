package page_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

var viewers = flag.Int("viewers", 0, "measure a member's throughput with so many viewers of its page, and without, on a quiet machine")

const (
	topic    = "orders"
	many     = 200  // partitions, when it is measured
	messages = 6000 // in each
	rounds   = 4    // of each kind
)

// A member's throughput with 60 viewers of its page is within 5 % of that without (-viewers=60). Without the flag it asserts only
// that a member that is watched reads.
func TestViewersDoNotSlowAMember(t *testing.T) {
	n, many, tries, each := *viewers, int32(many), rounds, messages
	if n == 0 {
		n, many, tries, each = 5, 20, 1, 500
		t.Parallel()
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	kafka := servers.StartKafka(t, servers.KafkaOptions{})
	kafka.CreateTopic(topic, many)
	fill(t, kafka.Brokers(), many, each)
	bin, err := members.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	took := map[int][]float64{}
	for i := range tries {
		for _, watching := range []int{0, n} {
			name := fmt.Sprintf("%d-%d", i, watching)
			addr := fmt.Sprintf("127.0.0.1:%d", servers.FreePorts(t, 1)[0])
			began := time.Now()
			m := members.Start(t, bin, "m", filepath.Join(t.TempDir(), name), "--zookeeper", zk.Addr(), "--kafka", kafka.Brokers()[0], "--group", name, "--topic", topic, "--metrics", addr)
			stop := watch(t, "http://"+addr+"/page/events", watching)
			wait.Until(t, 5*time.Minute, func() bool { return read(addr) == float64(int(many)*each) }, m.Log)
			took[watching] = append(took[watching], float64(int(many)*each)/time.Since(began).Seconds())
			stop()
			m.Stop(t)
		}
	}
	slices.Sort(took[0])
	slices.Sort(took[n])
	alone, watched := took[0][len(took[0])/2], took[n][len(took[n])/2]
	t.Logf("%.0f messages a second alone, %.0f with %d viewers: %.1f %% (%v, %v)", alone, watched, n, 100*watched/alone, took[0], took[n])
	if *viewers > 0 && watched < 0.95*alone {
		t.Errorf("viewers cost more than 5 %%")
	}
}

// fill writes the same number of messages to each partition.
func fill(t *testing.T, brokers []string, many int32, each int) {
	t.Helper()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 300 // half a minute: a broker on a loaded machine begins to lead its partitions one after the other
	producer, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	value := sarama.StringEncoder(strings.Repeat("x", 100))
	for p := range many {
		batch := make([]*sarama.ProducerMessage, each)
		for i := range batch {
			batch[i] = &sarama.ProducerMessage{Topic: topic, Partition: p, Value: value}
		}
		var failed sarama.ProducerErrors
		if err := producer.SendMessages(batch); errors.As(err, &failed) {
			t.Fatalf("%v The first: %v", err, failed[0])
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// watch has so many watch, until stop is called. They come as soon as the member serves.
func watch(t *testing.T, url string, n int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	client := &http.Client{Transport: &http.Transport{}}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ; ctx.Err() == nil; wait.Pass(t, 50*time.Millisecond) {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := client.Do(req)
				if err != nil {
					continue
				}
				_, _ = io.Copy(io.Discard, bufio.NewReader(resp.Body))
				_ = resp.Body.Close()
			}
		})
	}
	return func() { cancel(); all.Wait(); client.CloseIdleConnections() }
}

// read returns how many messages the handlers of a member have received.
func read(addr string) (sum float64) {
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && strings.HasPrefix(name, "kiel_consumer_messages_total{") {
			n, err := strconv.ParseFloat(value, 64)
			if err == nil {
				sum += n
			}
		}
	}
	return sum
}
