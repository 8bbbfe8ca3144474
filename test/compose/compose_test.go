// Package compose_test checks docker-compose.yml without Docker: Compose itself reads it, and the commands and environments
// of its services run as plain processes against real servers.
package compose_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/servers/software"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// sarama's metrics start it once per process and have no way to end it.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

type service struct {
	Image       string
	Build       any
	Command     []string
	Environment map[string]string
	Healthcheck struct{ Test []string }
}

// services returns what Docker Compose makes of docker-compose.yml.
func services(t *testing.T) map[string]service {
	t.Helper()
	compose, err := software.Compose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	args := append(compose[1:], "-f", filepath.Join(top(), "docker-compose.yml"), "config")
	var stderr bytes.Buffer
	cmd := exec.Command(compose[0], args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, &stderr)
	}
	var config struct{ Services map[string]service }
	if err := yaml.Unmarshal(out, &config); err != nil {
		t.Fatal(err)
	}
	return config.Services
}

// top is the top folder of the tree.
func top() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "..", "..")
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top(), path))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var pinned = regexp.MustCompile(`^[a-z/]+:v?\d+\.\d+|^debian:[a-z]+-\d{8}`)

func TestServices(t *testing.T) {
	all := services(t)
	want := []string{"consumer-1", "consumer-2", "consumer-3", "kafka", "producer", "prometheus", "zookeeper"}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Errorf("services are %v, want %v", got, want)
	}
	for name, s := range all {
		if len(s.Healthcheck.Test) == 0 {
			t.Errorf("%s has no health check", name)
		}
		if s.Build == nil && !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q has no version", name, s.Image)
		}
	}
}

// Prometheus has to scrape where the consumers serve their metrics.
func TestPrometheusScrapesAllConsumers(t *testing.T) {
	var config struct {
		Scrape []struct {
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal(read(t, "deploy/prometheus.yml"), &config); err != nil {
		t.Fatal(err)
	}
	var want []string
	for name, s := range services(t) {
		if address := s.Environment["KIEL_METRICS"]; address != "" {
			want = append(want, name+address)
		}
	}
	slices.Sort(want)
	if got := config.Scrape[0].Static[0].Targets; !slices.Equal(got, want) || len(got) == 0 {
		t.Errorf("Prometheus scrapes %v, but the consumers serve metrics at %v", got, want)
	}
}

// The image is built outside of the workspace, from the modules that the Dockerfile names.
func TestDockerfile(t *testing.T) {
	for line := range strings.Lines(string(read(t, "Dockerfile"))) {
		if image, ok := strings.CutPrefix(line, "FROM "); ok && !pinned.MatchString(image) {
			t.Errorf("%s: no version", strings.TrimSpace(line))
		}
	}
	cmd := exec.Command("go", "list", "-mod=readonly", "-deps", "./demo-consumer")
	cmd.Dir = filepath.Join(top(), "cmd")
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", cmd, err, out)
	}
}

// The producer and the three consumers, started as docker-compose.yml says, share the topic's partitions and read.
func TestServicesAsProcesses(t *testing.T) {
	all := services(t)
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	kafka := servers.StartKafka(t, servers.KafkaOptions{Config: brokerConfig(all["kafka"])})
	bin, err := members.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	metrics := make(map[string]string)
	start := func(name string) *servers.Process {
		s := all[name]
		env := maps.Clone(s.Environment)
		for key, value := range env {
			switch value {
			case "zookeeper:2181":
				env[key] = zk.Addr()
			case "kafka:19092":
				env[key] = kafka.Brokers()[0]
			}
		}
		if env["KIEL_METRICS"] != "" { // in containers all may have the same
			metrics[name] = fmt.Sprintf("127.0.0.1:%d", servers.FreePorts(t, 1)[0])
			env["KIEL_METRICS"] = metrics[name]
		}
		cmd := exec.Command(bin, s.Command...)
		cmd.Env = append(os.Environ(), environ(env)...)
		return servers.Start(t, name, cmd)
	}
	// In the order of depends_on: nothing waits for the topic, so the consumers have to.
	producer := start("producer")
	const partitions = 12 // what the producer creates
	consumers := map[string]*servers.Process{}
	for _, name := range []string{"consumer-1", "consumer-2", "consumer-3"} {
		consumers[name] = start(name)
	}
	for name, p := range consumers {
		eventually(t, p, "it owns a third of the partitions", func() bool {
			return scrape(t, metrics[name], "kiel_owned_partitions") == partitions/3
		})
		eventually(t, p, "it has read messages", func() bool {
			return scrape(t, metrics[name], "kiel_consumer_messages_total") > 0
		})
	}
	for name, p := range consumers {
		p.Stop()
		if err := p.Wait(); err != nil {
			t.Errorf("%s ended with %v\n%s", name, err, p.Log())
		}
	}
	producer.Stop()
}

// brokerConfig turns the environment of Kafka's image into the lines of server.properties that it stands for, but for those
// that name containers.
func brokerConfig(s service) map[string]string {
	config := make(map[string]string)
	for key, value := range s.Environment {
		name, ok := strings.CutPrefix(key, "KAFKA_")
		if ok && !strings.Contains(name, "LISTENER") && !strings.Contains(name, "QUORUM") {
			config[strings.ToLower(strings.ReplaceAll(name, "_", "."))] = value
		}
	}
	return config
}

func environ(env map[string]string) []string {
	var list []string
	for key, value := range env {
		list = append(list, key+"="+value)
	}
	return list
}

// scrape returns the sum of a metric's values, 0 while nobody answers.
func scrape(t *testing.T, address, metric string) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("%s: %v", address, err)
	}
	var sum float64
	for _, m := range families[metric].GetMetric() {
		sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return sum
}

func eventually(t *testing.T, p *servers.Process, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(90 * time.Second)
	defer deadline.Stop()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for !is() {
		select {
		case <-deadline.C:
			t.Fatalf("not within 90 s: %s\n%s", what, p.Log())
		case <-p.Done():
			t.Fatalf("the process has ended: %v\n%s", p.Wait(), p.Log())
		case <-ticker.C:
		}
	}
}
