package integration_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
)

// metrics that a consuming process must show.
var metrics = []string{
	"kiel_rebalances_total", "kiel_rebalances_failed_total", "kiel_rebalance_events_coalesced_total",
	"kiel_rebalance_duration_seconds", "kiel_rebalance_in_progress", "kiel_last_rebalance_timestamp_seconds",
	"kiel_members", "kiel_partitions", "kiel_assigned_partitions", "kiel_owned_partitions",
	"kiel_partitions_moved_total", "kiel_claim_wait_seconds", "kiel_claims_total",
	"kiel_assignment_compute_seconds", "kiel_assignment_divergence_total",
	"kiel_zk_session_state", "kiel_zk_session_expirations_total", "kiel_zk_reconnects_total",
	"kiel_view_age_seconds", "kiel_sharedset_updates_total",
	"kiel_consumer_commits_total", "kiel_consumer_commit_duration_seconds", "kiel_consumer_drain_timeouts_total",
}

// TestScrape asks a real process for its metrics.
func TestScrape(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	kafka := servers.StartKafka(t, servers.KafkaOptions{})
	kafka.CreateTopic(topic, partitions)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), demo, "produce", "--kafka", strings.Join(kafka.Brokers(), ","), "--topic", topic, "--rate", "0", "--count", "100").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := members.Start(t, demo, "m", filepath.Join(t.TempDir(), "log"),
		"--zookeeper", zk.Addr(), "--kafka", strings.Join(kafka.Brokers(), ","), "--topic", topic, "--metrics", addr)
	owned := fmt.Sprintf(`kiel_owned_partitions{group="demo",topic=%q} %d`, topic, partitions)
	var page string
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(page, owned) || !strings.Contains(page, "kiel_consumer_commit_duration_seconds_count{"); wait(t, 50*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the metrics never showed %s:\n%s", owned, page)
		}
		page = scrape(t, addr)
	}
	for _, name := range metrics {
		series := regexp.MustCompile(`(?m)^`+name+`(_bucket|_sum|_count)?\{.*$`).FindAllString(page, -1)
		if len(series) == 0 {
			t.Errorf("no %s", name)
		}
		if i := slices.IndexFunc(series, func(s string) bool { return !strings.Contains(s, `group="demo"`) }); i >= 0 {
			t.Errorf("a series without the group: %s", series[i])
		}
	}
	p.Stop(t)
}

// scrape returns the page, or nothing while it is not served yet.
func scrape(t *testing.T, addr string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
