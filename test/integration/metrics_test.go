package integration_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
	await "github.com/kielgo/kiel/test/wait"
)

// documented is what docs/metrics.md says about a metric.
type documented struct {
	kind   string
	labels map[string][]string // with all values, or none if it has any; but for group
	from   string              // when it is there
}

// readMetricsPage reads docs/metrics.md.
func readMetricsPage(t *testing.T) map[string]documented {
	t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]documented)
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| `kiel_") || len(cells) != 5 {
			continue
		}
		m := documented{kind: strings.ToUpper(cells[1]), labels: make(map[string][]string), from: strings.TrimSuffix(cells[4], " |\n")}
		for label := range strings.SplitSeq(cells[2], "; ") {
			if name, values, _ := strings.Cut(strings.ReplaceAll(label, "`", ""), ": "); name != "" {
				m.labels[name] = slices.DeleteFunc(strings.Split(values, ", "), func(v string) bool { return v == "" })
			}
		}
		all[strings.Trim(cells[0], "|` ")] = m
	}
	if len(all) < 50 {
		t.Fatalf("read %d metrics of the page", len(all))
	}
	return all
}

// series returns those that must be there from the beginning, as label=value,…; "" for a metric without labels.
func (m documented) series() []string {
	all := []string{""}
	for _, label := range slices.Sorted(maps.Keys(m.labels)) {
		var more []string
		for _, before := range all {
			for _, value := range m.labels[label] {
				more = append(more, strings.TrimPrefix(before+","+label+"="+value, ","))
			}
		}
		all = more
	}
	return all
}

// fits reports whether a series has the labels and values of the page.
func (m documented) fits(series string) bool {
	n := 0
	for pair := range strings.SplitSeq(series, ",") {
		label, value, found := strings.Cut(pair, "=")
		values, known := m.labels[label]
		if found && (!known || len(values) > 0 && !slices.Contains(values, value)) {
			return false
		}
		if found {
			n++
		}
	}
	return n == len(m.labels)
}

// timed are histograms that must have observed something.
var timed = []string{
	"kiel_rebalance_duration_seconds{stage=total}", "kiel_rebalance_duration_seconds{stage=coalesce}",
	"kiel_rebalance_duration_seconds{stage=revoke}", "kiel_rebalance_duration_seconds{stage=claim}",
	"kiel_claim_wait_seconds{}", "kiel_assignment_compute_seconds{}", "kiel_zk_proof_duration_seconds{}",
	"kiel_consumer_commit_duration_seconds{result=ok}", "kiel_consumer_message_age_seconds{topic=" + topic + "}",
}

// TestScrape asks a real process for its metrics, before and after another one joined and left.
func TestScrape(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	kafka := servers.StartKafka(t, servers.KafkaOptions{})
	kafka.CreateTopic(topic, partitions)
	addr := fmt.Sprintf("127.0.0.1:%d", servers.FreePorts(t, 1)[0])
	out, err := exec.CommandContext(t.Context(), demo, "produce", "--kafka", strings.Join(kafka.Brokers(), ","), "--topic", topic, "--rate", "0", "--count", "100").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	args := []string{"--zookeeper", zk.Addr(), "--kafka", strings.Join(kafka.Brokers(), ","), "--topic", topic}
	p := members.Start(t, demo, "m", filepath.Join(t.TempDir(), "log"), append(args, "--metrics", addr)...)
	// until waits until the series have these values, and returns the page.
	until := func(what string, want map[string]float64) (now page) {
		t.Helper()
		var off []string
		await.Until(t, 20*time.Second, func() bool {
			now, off = scrape(t, addr), nil
			for _, series := range slices.Sorted(maps.Keys(want)) {
				if got, ok := now.values[series]; !ok || got != want[series] {
					off = append(off, fmt.Sprintf("%s is %v, want %v", series, got, want[series]))
				}
			}
			return len(off) == 0 && now.values["kiel_consumer_commits_total{result=ok}"] > 0
		}, func() string { return fmt.Sprintf("%s: %s\n%v", what, strings.Join(off, "\n"), now.values) })
		return now
	}
	alone := until("all is owned, and something committed", map[string]float64{
		"kiel_members{}":                                 1,
		"kiel_set_items{}":                               partitions,
		"kiel_planned_partitions{topic=orders}":          partitions,
		"kiel_owned_partitions{topic=orders}":            partitions,
		"kiel_rebalances_total{cause=initial}":           1,
		"kiel_rebalances_total{cause=manual}":            0,
		"kiel_rebalances_total{cause=session}":           0,
		"kiel_rebalances_total{cause=zones}":             0,
		"kiel_zoned_partitions{}":                        0,
		"kiel_unwanted_partitions{}":                     0,
		"kiel_rebalance_errors_total{stage=compute}":     0,
		"kiel_rebalance_in_progress{}":                   0,
		"kiel_partitions_moved_total{direction=claimed}": partitions,
		"kiel_partitions_moved_total{direction=revoked}": 0,
		"kiel_partitions_moved_total{direction=lost}":    0,
		"kiel_claims_total{result=ok}":                   partitions,
		"kiel_claims_total{result=error}":                0,
		"kiel_claims_total{result=unknown}":              0,
		"kiel_claim_wait_seconds{}":                      partitions,
		"kiel_zk_session_expirations_total{}":            0,
		"kiel_zk_session_state{state=connected}":         1,
		"kiel_consumer_commits_total{result=fenced}":     0,
		"kiel_drain_timeouts_total{}":                    0,
		"kiel_consumer_kafka_reachable{}":                1,
	})
	// The member may see the set with its seed before it has the answer to the write, which it does not wait for then.
	if n := alone.values["kiel_sharedset_updates_total{op=add,result=ok}"] + alone.values["kiel_sharedset_updates_total{op=add,result=noop}"]; n != 1 {
		t.Errorf("the seed was added %v times", n)
	}
	joins := alone.values["kiel_rebalances_total{cause=members}"]

	other := members.Start(t, demo, "other", filepath.Join(t.TempDir(), "log"), args...)
	until("another joined and has half of it", map[string]float64{
		"kiel_members{}":                                 2,
		"kiel_planned_partitions{topic=orders}":          partitions / 2,
		"kiel_owned_partitions{topic=orders}":            partitions / 2,
		"kiel_rebalances_total{cause=members}":           joins + 1,
		"kiel_partitions_moved_total{direction=claimed}": partitions,
		"kiel_partitions_moved_total{direction=revoked}": partitions / 2,
		"kiel_claims_total{result=ok}":                   partitions,
	})
	other.Stop(t)
	until("it left", map[string]float64{
		"kiel_members{}":                                 1,
		"kiel_planned_partitions{topic=orders}":          partitions,
		"kiel_owned_partitions{topic=orders}":            partitions,
		"kiel_rebalances_total{cause=members}":           joins + 2,
		"kiel_partitions_moved_total{direction=claimed}": partitions + partitions/2,
		"kiel_partitions_moved_total{direction=revoked}": partitions / 2,
		"kiel_partitions_moved_total{direction=lost}":    0,
		"kiel_claims_total{result=ok}":                   partitions + partitions/2,
		"kiel_claim_wait_seconds{}":                      partitions + partitions/2,
	}).check(t)
	p.Stop(t)
}

// page is what a process shows: the values of counters and gauges, how often histograms observed something, by name and labels,
// "name{label=value,…}", without the group.
type page struct {
	kinds     map[string]string // by name
	values    map[string]float64
	groupless []string
}

// scrape returns the page, an empty one while it is not served yet.
func scrape(t *testing.T, addr string) page {
	t.Helper()
	p := page{kinds: map[string]string{}, values: map[string]float64{}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return p
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	for name, family := range families {
		if !strings.HasPrefix(name, "kiel_") {
			continue
		}
		p.kinds[name] = family.GetType().String()
		for _, m := range family.GetMetric() {
			var labels []string
			group := ""
			for _, l := range m.GetLabel() {
				if l.GetName() == "group" {
					group = l.GetValue()
				} else {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			series := fmt.Sprintf("%s{%s}", name, strings.Join(labels, ","))
			if group != "demo" {
				p.groupless = append(p.groupless, series)
			}
			p.values[series] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return p
}

// series returns those of a metric, sorted, as "label=value,…".
func (p page) series(name string) []string {
	var list []string
	for series := range p.values {
		if labels, ok := strings.CutPrefix(series, name+"{"); ok {
			list = append(list, strings.TrimSuffix(labels, "}"))
		}
	}
	slices.Sort(list)
	return list
}

// check compares types, labels and their values with what is documented. All is there: the process has read its topic.
func (p page) check(t *testing.T) {
	t.Helper()
	if len(p.groupless) > 0 {
		t.Errorf("series without the group: %v", p.groupless)
	}
	all := readMetricsPage(t)
	for name, kind := range p.kinds {
		m, known := all[name]
		if !known || m.kind != kind {
			t.Errorf("%s is a %s, documented: %v, as %s", name, kind, known, m.kind)
		}
		for _, series := range p.series(name) {
			if !m.fits(series) {
				t.Errorf("%s{%s} is not as documented", name, series)
			}
		}
	}
	for name, m := range all {
		got := p.series(name)
		if len(got) == 0 && (strings.Contains(m.from, "opening") || strings.Contains(m.from, "mapping") || m.from == "the beginning") {
			t.Errorf("no %s", name)
		}
		for _, series := range m.series() {
			if m.from == "the beginning" && !slices.Contains(got, series) {
				t.Errorf("no %s{%s}", name, series)
			}
		}
	}
	for _, series := range timed {
		if p.values[series] == 0 {
			t.Errorf("%s never observed anything", series)
		}
	}
	var states float64
	for _, state := range p.series("kiel_zk_session_state") {
		states += p.values["kiel_zk_session_state{"+state+"}"]
	}
	if connected := p.values["kiel_zk_session_state{state=connected}"]; states != 1 || connected != 1 {
		t.Errorf("%v session states at once, connected is %v", states, connected)
	}
	if info := p.series("kiel_member_info"); len(info) != 1 || !strings.HasPrefix(info[0], "member=m,module_version=") {
		t.Errorf("kiel_member_info%v", info)
	}
	if at := p.values["kiel_last_rebalance_timestamp_seconds{}"]; time.Since(time.Unix(int64(at), 0)).Abs() > time.Minute {
		t.Errorf("the last rebalance was at %v", at)
	}
}
