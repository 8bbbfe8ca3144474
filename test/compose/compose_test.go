// Package compose_test checks docker-compose.yml without Docker: Compose itself reads it, and the commands and environments of
// its services run as plain processes against real servers. With -full, on Linux and as root, it runs on a Docker Engine.
package compose_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
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

var full = flag.Bool("full", false, "on Linux: docker-compose.yml on a Docker Engine, which needs root, for some minutes")

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
	Deploy      struct{ Replicas int }
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

// shape is what versions of Docker Compose print differently, as docker-compose.yml has it.
type shape struct {
	ContainerName  string `yaml:"container_name"`
	Volumes, Ports []string
}

func written(t *testing.T) map[string]shape {
	t.Helper()
	var config struct{ Services map[string]shape }
	if err := yaml.Unmarshal(read(t, "docker-compose.yml"), &config); err != nil {
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

var pinned = regexp.MustCompile(`^[a-z/-]+:v?\d+\.\d+|^debian:[a-z]+-\d{8}`)

func TestServices(t *testing.T) {
	all := services(t)
	want := []string{"consumer", "grafana", "kafka", "page", "producer", "prometheus", "zookeeper"}
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

// Any number of containers of the service consumer can run, and Prometheus finds them all.
func TestConsumersCanBeScaled(t *testing.T) {
	consumer, own := services(t)["consumer"], written(t)["consumer"]
	if consumer.Deploy.Replicas != 3 || own.ContainerName != "" || len(own.Ports) > 0 || consumer.Environment["KIEL_NAME"] != "" {
		t.Errorf("the consumers can't be scaled: %+v", own)
	}
	type names struct {
		Names []string
		Type  string
		Port  int
	}
	var config struct {
		Rules  []string `yaml:"rule_files"`
		Scrape []struct {
			DNS []names `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal(read(t, "deploy/prometheus/prometheus.yml"), &config); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(config.Rules, []string{"rules.yml"}) || len(config.Scrape) != 1 || len(config.Scrape[0].DNS) != 1 {
		t.Fatalf("Prometheus is configured by %+v", config)
	}
	got := config.Scrape[0].DNS[0]
	if !slices.Equal(got.Names, []string{"consumer"}) || got.Type != "A" || fmt.Sprintf(":%d", got.Port) != consumer.Environment["KIEL_METRICS"] {
		t.Errorf("Prometheus scrapes %+v, but the consumers serve metrics at %s", got, consumer.Environment["KIEL_METRICS"])
	}
}

// Grafana gets its data source and its board from files that are there, and its data source is the service prometheus.
func TestGrafanaIsProvisioned(t *testing.T) {
	all := services(t)
	mounted := map[string]string{} // folders of the repository, by where the container has them
	for _, name := range []string{"prometheus", "grafana"} {
		for _, volume := range written(t)[name].Volumes {
			from, to, _ := strings.Cut(strings.TrimSuffix(volume, ":ro"), ":")
			from = filepath.Join(top(), from)
			if _, err := os.Stat(from); err != nil || !strings.HasSuffix(volume, ":ro") {
				t.Errorf("%s: the volume %s: %v", name, volume, err)
			}
			mounted[to] = from
		}
	}
	in := func(path string) string { // the repository's file behind a container's path
		return filepath.Join(mounted[filepath.Dir(path)], filepath.Base(path))
	}
	if _, err := os.Stat(in("/etc/prometheus/prometheus.yml")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(in(all["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])); err != nil {
		t.Error(err)
	}
	var boards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	if err := yaml.Unmarshal(read(t, "deploy/grafana/provisioning/dashboards/kiel.yml"), &boards); err != nil {
		t.Fatal(err)
	}
	if mounted[boards.Providers[0].Options.Path] == "" {
		t.Errorf("boards are read from %s, where nothing is mounted", boards.Providers[0].Options.Path)
	}
	var sources struct {
		Datasources []struct{ Type, URL string }
	}
	if err := yaml.Unmarshal(read(t, "deploy/grafana/provisioning/datasources/prometheus.yml"), &sources); err != nil {
		t.Fatal(err)
	}
	if s := sources.Datasources[0]; s.Type != "prometheus" || s.URL != "http://prometheus:9090" {
		t.Errorf("the data source is %+v", s)
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

// The producer and as many consumers as docker-compose.yml says, started as it says, share the topic's partitions and read.
func TestServicesAsProcesses(t *testing.T) {
	all := services(t)
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	kafka := servers.StartKafka(t, servers.KafkaOptions{Config: brokerConfig(all["kafka"])})
	bin, err := members.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	start := func(service, metrics string) *servers.Process {
		s := all[service]
		env := maps.Clone(s.Environment)
		for key, value := range env {
			switch value {
			case "zookeeper:2181":
				env[key] = zk.Addr()
			case "kafka:19092":
				env[key] = kafka.Brokers()[0]
			case ":9400": // of each container
				env[key] = metrics
			}
		}
		cmd := exec.Command(bin, s.Command...)
		cmd.Env = append(os.Environ(), environ(env)...)
		return servers.Start(t, service, cmd)
	}
	// In the order of depends_on: nothing waits for the topic, so the consumers have to.
	producer := start("producer", "")
	const partitions = 12 // what the producer creates
	consumers := map[string]*servers.Process{}
	for _, port := range servers.FreePorts(t, all["consumer"].Deploy.Replicas) {
		metrics := fmt.Sprintf("127.0.0.1:%d", port)
		consumers[metrics] = start("consumer", metrics)
	}
	address := fmt.Sprintf("127.0.0.1:%d", servers.FreePorts(t, 1)[0])
	page := start("page", address)
	eventually(t, page, "its health check passes", func() bool { return healthy(t, all["page"], address) })
	eventually(t, page, "it shows the group", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(text), fmt.Sprintf("owned <b>%d</b> of %d", partitions, partitions))
	})
	for metrics, p := range consumers {
		eventually(t, p, "it owns its share of the partitions", func() bool {
			return scrape(t, metrics, "kiel_owned_partitions") == float64(partitions/len(consumers))
		})
		eventually(t, p, "it has read messages", func() bool {
			return scrape(t, metrics, "kiel_consumer_messages_total") > 0
		})
		eventually(t, p, "its health check passes", func() bool { return healthy(t, all["consumer"], metrics) })
	}
	zk.Kill()
	for metrics, p := range consumers {
		eventually(t, p, "its health check fails without ZooKeeper", func() bool { return !healthy(t, all["consumer"], metrics) })
	}
	zk.Start()
	for metrics, p := range consumers {
		eventually(t, p, "its health check passes again", func() bool { return healthy(t, all["consumer"], metrics) })
	}
	for _, p := range consumers {
		p.Stop()
		if err := p.Wait(); err != nil {
			t.Errorf("a consumer ended with %v\n%s", err, p.Log())
		}
	}
	producer.Stop()
	page.Stop()
	if err := page.Wait(); err != nil {
		t.Errorf("the page ended with %v\n%s", err, page.Log())
	}
}

// healthy runs the health check of a consumer that serves at address.
func healthy(t *testing.T, s service, address string) bool {
	t.Helper()
	const in = "127.0.0.1/9400" // of the container
	command := slices.Clone(s.Healthcheck.Test)
	script := &command[len(command)-1]
	if command[0] != "CMD" || !strings.Contains(*script, in) {
		t.Fatalf("the health check is %q", command)
	}
	*script = strings.ReplaceAll(*script, in, strings.ReplaceAll(address, ":", "/"))
	return exec.CommandContext(t.Context(), command[1], command[2:]...).Run() == nil
}

// brokerConfig turns the environment of Kafka's image into the lines of server.properties that it stands for, but for those that
// name containers.
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
