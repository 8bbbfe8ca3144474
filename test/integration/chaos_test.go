// Package integration_test runs whole processes against real servers: what a team gets when it embeds the consumer, with members
// that are killed, stopped and started, and the verdict from their event logs.
package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
)

var demo string // the built binary

func TestMain(m *testing.M) {
	logtest.Silence()
	dir, err := os.MkdirTemp("", "kiel-integration-")
	if err == nil {
		demo, err = members.Build(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	if code == 0 {
		// sarama's meters share a goroutine that never ends.
		err := goleak.Find(goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
		if err != nil {
			fmt.Fprintln(os.Stderr, "goleak:", err)
			code = 1
		}
	}
	os.Exit(code)
}

const (
	topic      = "orders"
	partitions = 12
	messages   = 100_000
	feedTime   = 40 * time.Second
	timeout    = 4 * time.Second
)

// fleet is the processes of one group, the dead included.
type fleet struct {
	t         *testing.T
	dir       string
	zk, kafka string
	flags     []string
	live      []*members.Process
	all       []*members.Process
	seen      map[eventlog.Partition]map[int64]bool
}

func newFleet(t *testing.T, zk string, kafka []string) *fleet {
	t.Helper()
	return &fleet{
		t: t, dir: t.ArtifactDir(), zk: zk, kafka: strings.Join(kafka, ","),
		flags: []string{"--topic", topic, "--session-timeout", timeout.String()},
		seen:  map[eventlog.Partition]map[int64]bool{},
	}
}

func (f *fleet) start(name string) *members.Process {
	f.t.Helper()
	log := filepath.Join(f.dir, fmt.Sprintf("%02d-%s.jsonl", len(f.all), name))
	p := members.Start(f.t, demo, name, log, append([]string{"--zookeeper", f.zk, "--kafka", f.kafka}, f.flags...)...)
	f.live, f.all = append(f.live, p), append(f.all, p)
	return p
}

func (f *fleet) take(i int) *members.Process {
	p := f.live[i]
	f.live = append(f.live[:i:i], f.live[i+1:]...)
	return p
}

// distinct reads what the logs have gained and returns the number of different messages that anybody has done with.
func (f *fleet) distinct() int {
	for _, p := range f.all {
		for _, e := range p.Read(f.t) {
			if e.Event != eventlog.Done {
				continue
			}
			tp := eventlog.Partition{Topic: e.Topic, ID: *e.Partition}
			if f.seen[tp] == nil {
				f.seen[tp] = map[int64]bool{}
			}
			f.seen[tp][*e.Offset] = true
		}
	}
	n := 0
	for _, offsets := range f.seen {
		n += len(offsets)
	}
	return n
}

// TestProcessesKilledStoppedAndStarted is the main job: three consumer processes, 100,000 keyed messages on a real Kafka, while
// members are killed -9, stopped and started.
func TestProcessesKilledStoppedAndStarted(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: time.Second})
	kafka := servers.StartKafka(t, servers.KafkaOptions{})
	kafka.CreateTopic(topic, partitions)
	seed := uint64(time.Now().UnixNano())
	t.Attr("seed", fmt.Sprint(seed))
	rng := rand.New(rand.NewPCG(seed, 0))

	f := newFleet(t, zk.Addr(), kafka.Brokers())
	for i := range 3 {
		f.start(fmt.Sprintf("m%d", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fed := make(chan error, 1)
	go func() { fed <- feed(ctx, kafka.Brokers()) }()

	// Random steps; whatever has not been drawn by the end is done then.
	kills, stops, starts := 0, 0, 0
	kill := func() { f.take(rng.IntN(len(f.live))).Kill(); kills++ }
	stop := func() { f.take(rng.IntN(len(f.live))).Stop(t); stops++ }
	join := func() { f.start(fmt.Sprintf("m%d", len(f.all))); starts++ }
	for begin := time.Now(); time.Since(begin) < feedTime; {
		wait(t, time.Duration(1500+rng.IntN(2000))*time.Millisecond)
		switch n := rng.IntN(3); {
		case n == 0 && len(f.live) > 1:
			kill()
		case n == 1 && len(f.live) > 1:
			stop()
		case len(f.live) < 4:
			join()
		}
	}
	join()
	if kills == 0 {
		kill()
	}
	join()
	if stops == 0 {
		stop()
	}
	if err := <-fed; err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(60 * time.Second); ; wait(t, 200*time.Millisecond) {
		n := f.distinct()
		if n >= messages {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("only %d of %d messages were seen", n, messages)
			break
		}
	}
	for len(f.live) > 0 {
		f.take(0).Stop(t)
	}

	report := f.check(endOffsets(t, kafka.Brokers(), topic))
	t.Attr("steps", fmt.Sprintf("%d kill -9, %d orderly stops, %d starts", kills, stops, starts))
	t.Attr("verdict", strings.ReplaceAll(report.String(), "\n", ";"))
	t.Log(report)
	if !report.OK() {
		t.Error("the promise was broken; the logs are in", f.dir)
	}
	for cause, n := range report.Repeated {
		if cause != "killed" {
			t.Errorf("%d messages were read again after a term that ended with %q", n, cause)
		}
	}
	if report.Distinct != messages {
		t.Errorf("%d different messages seen, %d produced", report.Distinct, messages)
	}
	if report.Tenures <= partitions {
		t.Error("no partition ever moved; the test did not bite")
	}
}

func (f *fleet) check(ends map[eventlog.Partition]int64) *eventlog.Report {
	var logs []eventlog.Log
	for _, p := range f.all {
		logs = append(logs, p.History(f.t))
	}
	return eventlog.Check(logs, eventlog.Expect{End: ends})
}

// feed pipes keyed lines into the produce command, evenly over feedTime.
func feed(ctx context.Context, brokers []string) error {
	cmd := exec.CommandContext(ctx, demo, "produce", "--kafka", strings.Join(brokers, ","), "--topic", topic, "--keyed", "-")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	w := bufio.NewWriter(in)
	const steps = 200
	tick := time.NewTicker(feedTime / steps)
	defer tick.Stop()
	for n := range messages {
		if n%(messages/steps) == 0 {
			if err := w.Flush(); err != nil {
				return fmt.Errorf("%w: %s", err, out.String())
			}
			<-tick.C
		}
		fmt.Fprintf(w, "key-%d\tvalue-%d\n", n%977, n)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("%w: %s", err, out.String())
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("produce: %w: %s", err, out.String())
	}
	return nil
}

// wait passes real time between events that are meant to be apart; no result depends on its length.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

func endOffsets(t *testing.T, brokers []string, topic string) map[eventlog.Partition]int64 {
	t.Helper()
	client, err := sarama.NewClient(brokers, saramaConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ids, err := client.Partitions(topic)
	if err != nil {
		t.Fatal(err)
	}
	ends := map[eventlog.Partition]int64{}
	for _, id := range ids {
		end, err := client.GetOffset(topic, id, sarama.OffsetNewest)
		if err != nil {
			t.Fatal(err)
		}
		ends[eventlog.Partition{Topic: topic, ID: id}] = end
	}
	return ends
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	return config
}
