// Package quickstart_test runs the programs of the documentation as they stand there.
package quickstart_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// sarama's metrics start it once per process and have no way to end it.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

func produce(t *testing.T, brokers []string, values ...string) {
	t.Helper()
	produceTo(t, brokers, "orders", values...)
}

func produceTo(t *testing.T, brokers []string, topic string, values ...string) {
	t.Helper()
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	p, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, v := range values {
		if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(v)}); err != nil {
			t.Fatal(err)
		}
	}
}

// readCommitted returns the values in partition 0 of a topic that are committed, up to the value end.
func readCommitted(t *testing.T, brokers []string, topic, end string) (values []string) {
	t.Helper()
	config := sarama.NewConfig()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	c, err := sarama.NewConsumer(brokers, config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := c.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	late := time.After(time.Minute)
	for {
		select {
		case m := <-p.Messages():
			if string(m.Value) == end {
				return values
			}
			values = append(values, string(m.Value))
		case <-late:
			t.Fatalf("read %q, and not %q", values, end)
		}
	}
}

// between returns what stands between two markers, without the empty lines around it.
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

// The only Go code of the README is a whole program: that of the example of Run, which TestConsumerProgram runs.
func TestReadmeShowsTheExampleThatRuns(t *testing.T) {
	readme := filepath.Join(root, "README.md")
	shown := between(t, readme, "```go\n", "```")
	if runs := strings.TrimSpace(programs(t)["consumer/ExampleGroup_Run"]); shown != runs {
		t.Errorf("README shows\n%s\n\nbut what runs is\n%s", shown, runs)
	}
	for _, file := range []string{readme, filepath.Join(root, readmeOfRecipes)} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("```go\n")); n != 1 {
			t.Errorf("%s has %d blocks of Go code, of which one is tested", file, n)
		}
	}
}
