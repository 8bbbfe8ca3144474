// Package quickstart_test runs the README's quick start as it stands there.
package quickstart_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/exampletest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// sarama's metrics start it once per process and have no way to end it.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// Example runs the quick start against embedded servers.
func Example() {
	zk := exampletest.StartZooKeeper()
	defer zk.Stop()
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		panic(err)
	}
	defer kafka.Close()
	produce(kafka.ListenAddrs(), "one", "two", "three")

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stopAfter(cancel, kafka, 3)
	if err := consume(ctx, zk.Addrs, kafka.ListenAddrs()); err != nil {
		panic(err)
	}
	// Output:
	// one
	// two
	// three
}

// stopAfter cancels when the group has committed offset n.
func stopAfter(cancel context.CancelFunc, kafka *kfake.Cluster, n int64) {
	go func() {
		defer cancel()
		_, err := kafka.WaitGroupInfo(context.Background(), "billing", func(info *kfake.GroupInfo) bool {
			if info == nil {
				return false
			}
			c, ok := info.Commits["orders"][0]
			return ok && c.Offset >= n
		})
		if err != nil {
			panic(err)
		}
	}()
}

func produce(brokers []string, values ...string) {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	p, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		panic(err)
	}
	defer p.Close()
	for _, v := range values {
		if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: "orders", Value: sarama.StringEncoder(v)}); err != nil {
			panic(err)
		}
	}
}

// between returns what stands between two markers, without the empty lines and
// imports around it.
func between(t *testing.T, file, begin, end string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := bytes.Cut(text, []byte(begin))
	inner, _, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		t.Fatalf("%s has no %q … %q", file, begin, end)
	}
	return strings.TrimSpace(string(inner))
}

func TestReadmeShowsTheExampleThatRuns(t *testing.T) {
	shown := between(t, "../../README.md", "```go\n", "```")
	runs := between(t, "example_test.go", "// quickstart:begin", "// quickstart:end")
	if shown != runs {
		t.Errorf("README shows\n%s\n\nbut what runs is\n%s", shown, runs)
	}
	lines := 0
	for line := range strings.Lines(shown) {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	if lines > 25 {
		t.Errorf("the quick start has %d lines, more than 25", lines)
	}
}
