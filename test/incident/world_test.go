package incident_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
)

// look is how often what the members serve is kept, as Prometheus would.
const look = time.Second

// kept names the files in which it is kept, by the path.
var kept = map[string]string{"/metrics": ".metrics", "/status": ".status"}

// member is a consuming process, with what it serves.
type member struct {
	*members.Process

	addr  string
	stop  context.CancelFunc // ends keeping what it serves
	keeps sync.WaitGroup
	times map[string]*atomic.Int64 // how often it was kept, by the path
}

// world is a group, and the folder in which all is kept: NAME.log, NAME.metrics and NAME.status, the latter two line by line or
// page by page with the times at which they were taken.
type world struct {
	t      *testing.T
	dir    string
	bin    string
	zk     *servers.ZooKeeper
	kafka  *servers.Kafka
	flags  []string
	member map[string]*member
}

func newWorld(t *testing.T, dir string) *world {
	t.Helper()
	w := &world{
		t: t, dir: dir, member: map[string]*member{},
		zk:    servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: tick}),
		kafka: servers.StartKafka(t, servers.KafkaOptions{}),
	}
	var err error
	if w.bin, err = members.Build(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	w.flags = []string{
		"--zookeeper", w.zk.Addr(), "--kafka", strings.Join(w.kafka.Brokers(), ","), "--group", group,
		"--session-timeout", timeout.String(), "--hang-on", poison,
	}
	return w
}

// start starts a member and begins to keep what it serves.
func (w *world) start(name, topics string) *member {
	w.t.Helper()
	m := &member{times: map[string]*atomic.Int64{}, addr: fmt.Sprintf("127.0.0.1:%d", servers.FreePorts(w.t, 1)[0])}
	m.Process = members.Start(w.t, w.bin, name, filepath.Join(w.t.TempDir(), name), append(w.flags, "--topic", topics, "--metrics", m.addr)...)
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	for path, ending := range kept {
		times := &atomic.Int64{}
		m.times[path] = times
		m.keeps.Go(func() { w.keep(ctx, m, path, name+ending, times) })
	}
	w.t.Cleanup(m.end)
	w.member[name] = m
	return m
}

// end stops keeping what the member serves.
func (m *member) end() {
	m.stop()
	m.keeps.Wait()
}

// keep writes what the member serves to a file, until ctx ends. It counts how often.
func (w *world) keep(ctx context.Context, m *member, path, file string, times *atomic.Int64) {
	f, err := os.Create(filepath.Join(w.dir, file))
	if err != nil {
		w.t.Error(err)
		return
	}
	defer f.Close()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if body, err := m.get(ctx, path); err == nil {
			if path == "/metrics" {
				fmt.Fprintf(f, "# at %s\n", time.Now().UTC().Format(time.RFC3339Nano))
			}
			_, _ = f.WriteString(body)
			times.Add(1)
		}
	}
}

// awaitKept waits until all that the members serve now was kept: of two times, the second has begun after the first.
func (w *world) awaitKept() {
	w.t.Helper()
	before := map[*atomic.Int64]int64{}
	for _, m := range w.member {
		for _, times := range m.times {
			before[times] = times.Load()
		}
	}
	w.until("all is kept", func() bool {
		for times, n := range before {
			if times.Load() < n+2 {
				return false
			}
		}
		return true
	})
}

// get returns what the member serves now.
func (m *member) get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.addr+path, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("%s: %s", resp.Status, body))
	}
	return string(body), err
}

// ready says whether the member answers 200 to /readyz.
func (m *member) ready() bool {
	_, err := m.get(context.Background(), "/readyz")
	return err == nil
}

// status returns what /status says, nil when the member does not answer.
func (m *member) status(t *testing.T) *status.Group {
	t.Helper()
	body, err := m.get(t.Context(), "/status")
	if err != nil {
		return nil
	}
	var g status.Group
	if err := json.Unmarshal([]byte(body), &g); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return &g
}

// owner returns the member that owns a partition of topic, and its description of it; nil while nobody says that it does.
func (w *world) owner(partition int32) (*member, *status.Partition) {
	w.t.Helper()
	for name, m := range w.member {
		g := m.status(w.t)
		if g == nil {
			continue
		}
		for i := range g.Partitions {
			if p := &g.Partitions[i]; p.Topic == topic && p.Partition == partition && p.Owner == name && p.State == status.Owned {
				return m, p
			}
		}
	}
	return nil, nil
}

// feeder writes messages to each partition, and is held while Kafka is away.
type feeder struct {
	mu       sync.Mutex // held while one round is written
	producer sarama.SyncProducer
}

func feed(t *testing.T, brokers []string) *feeder {
	t.Helper()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	p, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		t.Fatal(err)
	}
	f := &feeder{producer: p}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				f.round(t)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = p.Close()
	})
	return f
}

// round writes three messages to each partition.
func (f *feeder) round(t *testing.T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var batch []*sarama.ProducerMessage
	for range 3 {
		for id := range int32(partitions) {
			batch = append(batch, &sarama.ProducerMessage{Topic: topic, Partition: id, Value: sarama.StringEncoder("order")})
		}
	}
	if err := f.producer.SendMessages(batch); err != nil {
		t.Log("some messages are not written, more will follow:", err) // leaders may be unknown for a while when Kafka is back
	}
}

// send writes messages to a partition.
func (f *feeder) send(t *testing.T, partition int32, values ...string) {
	t.Helper()
	var batch []*sarama.ProducerMessage
	for _, value := range values {
		batch = append(batch, &sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.StringEncoder(value)})
	}
	if err := f.producer.SendMessages(batch); err != nil {
		t.Fatal(err)
	}
}
