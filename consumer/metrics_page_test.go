package consumer

import (
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/internal/testonly/noerr"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

const metricsPage = "../docs/metrics.md"

// metricsIntro is the beginning of the page.
const metricsIntro = `# Metrics

Every metric, as the code registers it. ` + "`go test ./consumer -run MetricsPage -update`" + ` writes this page, and a test compares
it.

All have the label ` + "`group`" + `. The label is empty for a session with ` + "`session.Options.Registerer`" + `, as in a program that has a
lock and no group. The metrics of a group show those of its session too. The Registerer of a consumer's ` + "`Options`" + ` takes all
of them; those of ` + "`allocator`, `ownership`, `party` and `session`" + ` take the ones of their package, ` + "`allocator`" + `'s
also those of the members, the set and the session.

- They are there from ` + "`New` to `Close`" + ` of a consumer group, and while ` + "`Run`" + ` runs with the other packages. A consumer's
  counters go on from one ` + "`Consume`" + ` to the next. When the member has ended its series go, and another can take the
  Registerer. A ` + "`party.Party`" + ` without an allocator has its metrics from ` + "`New`" + ` on, and shares them with
  others that have the same Registerer.
- They stay, at 0, when trust in the session ends.
- A topic is gone when patterns had found it, Kafka does not have it any more, and somebody has removed it from the group's
  set. Series of a topic that is asked for by name stay as long as the group's.
- A Registerer refuses the metrics of a second living member of the same group, or of a second session, with an error. Give
  each a Registerer of its own: ` + "`prometheus.WrapRegistererWith(prometheus.Labels{\"client\": name}, registerer)`" + ` puts a label
  on.
- Histograms have native buckets beside the classic ones, for servers that scrape native histograms.
`

// metricsPackages are the sections of the page.
var metricsPackages = []struct{ dir, name, about string }{
	{"consumer", "consumer", "what is read from Kafka, handled and committed"},
	{"ownership", "ownership", "the claims of partitions"},
	{"allocator", "allocator", "the mapping of partitions to members"},
	{"internal/promreg", "allocator and ownership", "stages of rebalances, in both packages"},
	{"party", "party", "the members of the group"},
	{"internal/sharedset", "set", "the items that the group divides, in package allocator"},
	{"session", "session", "the ZooKeeper session"},
}

// These texts say from when on a metric exists that does not exist from the beginning.
const (
	fromOpening = "the first opening of a partition of the topic, until the topic is gone"
	whileOwned  = "the opening of the partition, or two minutes after its claim, until the member gives it up"
	fromEvent   = "the first such event, until the topic is gone"
	fromMapping = "the first mapping of a member that has joined"
	fromPlan    = "a mapping that gives the member some of the topic, until one gives it none"
)

// laterMetrics has the metrics that do not exist from the beginning, from when on they exist, and the values of labels that have
// few.
var laterMetrics = map[string]struct {
	from   string
	values map[string][]string
}{
	"kiel_planned_partitions":                {from: fromPlan},
	"kiel_mapping_hash":                      {from: fromMapping},
	"kiel_mapping_inputs_hash":               {from: fromMapping},
	"kiel_owned_partitions":                  {from: fromPlan + " and all are released"},
	"kiel_consumer_messages_total":           {from: fromOpening},
	"kiel_consumer_bytes_total":              {from: fromOpening},
	"kiel_consumer_held_back_partitions":     {from: fromOpening},
	"kiel_consumer_handler_duration_seconds": {from: fromOpening},
	"kiel_consumer_message_age_seconds":      {from: fromOpening},
	"kiel_consumer_handler_errors_total": {
		from: fromOpening, values: map[string][]string{"action": {actionSession, actionReopen, actionReport}},
	},
	"kiel_consumer_paused_partitions":       {from: fromOpening},
	"kiel_consumer_handler_stalled_seconds": {from: fromOpening},
	"kiel_consumer_lag_messages":            {from: whileOwned},
	"kiel_consumer_lag_seconds":             {from: whileOwned},
	"kiel_consumer_uncommitted_messages":    {from: whileOwned},
	"kiel_consumer_offset_resets_total": {
		from: fromEvent, values: map[string][]string{"reason": {reasonNone, reasonOutOfRange, reasonTruncated, reasonRecreated}},
	},
	"kiel_consumer_fetch_resets_total": {from: fromEvent},
	"kiel_consumer_missing_topics":     {from: fromEvent},
}

// metric is one line of the page.
type metric struct {
	name, kind, help, from string
	labels                 []string                   // but for group
	values                 map[string]map[string]bool // of labels, where all are known
}

// gathered returns what a registry shows.
func gathered(t *testing.T, reg *prometheus.Registry) map[string]*metric {
	t.Helper()
	families, err := reg.Gather()
	noerr.Must(t, err)
	all := make(map[string]*metric)
	for _, f := range families {
		m := &metric{name: f.GetName(), kind: strings.ToLower(f.GetType().String()), help: f.GetHelp(), values: make(map[string]map[string]bool)}
		all[m.name] = m
		for _, s := range f.GetMetric() {
			if h := s.GetHistogram(); h != nil && (h.Schema == nil || len(h.GetBucket()) == 0) {
				t.Errorf("%s has not both sorts of buckets", m.name)
			}
			for _, l := range s.GetLabel() {
				if l.GetName() == "group" {
					continue
				}
				if m.values[l.GetName()] == nil {
					m.values[l.GetName()] = make(map[string]bool)
					m.labels = append(m.labels, l.GetName())
				}
				m.values[l.GetName()][l.GetValue()] = true
			}
		}
	}
	return all
}

// described returns the metrics that a collector describes. It parses the text of the descriptions, which have no other access.
func described(t *testing.T, c prometheus.Collector) (all []*metric) {
	t.Helper()
	parts := regexp.MustCompile(`^Desc\{fqName: ("[^"]+"), help: (".*"), unit: "", constLabels: .*, variableLabels: \{(.*)\}\}$`)
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	for desc := range descs {
		found := parts.FindStringSubmatch(desc.String())
		if found == nil {
			t.Fatal(desc)
		}
		m := &metric{}
		var err error
		if m.name, err = strconv.Unquote(found[1]); err == nil {
			m.help, err = strconv.Unquote(found[2])
		}
		if err != nil {
			t.Fatal(desc, err)
		}
		if found[3] != "" {
			m.labels = strings.Split(found[3], ",")
		}
		all = append(all, m)
	}
	return all
}

// touch makes a series of a vector that has none yet. It returns the gauges of a collector of several that show nothing yet.
func touch(t *testing.T, c prometheus.Collector, seen map[string]*metric) (gauges []*metric) {
	t.Helper()
	for _, m := range described(t, c) {
		if seen[m.name] != nil {
			continue
		}
		var err error
		switch v := c.(type) {
		case *prometheus.CounterVec:
			_, err = v.GetMetricWithLabelValues(m.labels...)
		case receivedVec:
			_, err = v.GetMetricWithLabelValues(m.labels...)
		case *prometheus.GaugeVec:
			_, err = v.GetMetricWithLabelValues(m.labels...)
		case *prometheus.HistogramVec:
			_, err = v.GetMetricWithLabelValues(m.labels...)
		default:
			if strings.HasSuffix(m.name, "_total") {
				t.Errorf("%s is no gauge", m.name)
			}
			m.kind = "gauge"
			gauges = append(gauges, m)
		}
		noerr.Want(t, err)
	}
	return gauges
}

// allMetrics returns every metric of a group, by name.
func allMetrics(t *testing.T) map[string]*metric {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	g, err := groupOn(t, reg, "g")
	noerr.Must(t, err)
	first := gathered(t, reg)
	var silent []*metric
	for _, set := range g.registerer.Sets() {
		for _, c := range set.Collectors() {
			silent = append(silent, touch(t, c, first)...)
		}
	}
	all := gathered(t, reg)
	for _, m := range silent {
		all[m.name] = m
	}
	for name, m := range all {
		later, known := laterMetrics[name]
		m.from, m.values = cmp.Or(later.from, "the beginning"), make(map[string]map[string]bool)
		if first[name] != nil {
			m.values = first[name].values
			delete(m.values, "member")
			delete(m.values, "version")
		}
		if known == (first[name] != nil) {
			t.Errorf("%s is there from the beginning: %v; laterMetrics says the opposite", name, first[name] != nil)
		}
		for label, values := range later.values {
			m.values[label] = make(map[string]bool)
			for _, v := range values {
				m.values[label][v] = true
			}
		}
	}
	for name := range laterMetrics {
		if all[name] == nil {
			t.Errorf("laterMetrics has %s, which does not exist", name)
		}
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	noerr.Want(t, g.Close())
	return all
}

// metricsInCode returns the sections with the packages whose code has each name of a metric.
func metricsInCode(t *testing.T) map[string]string {
	t.Helper()
	quoted := regexp.MustCompile(`"(kiel_[a-z_]+)"`)
	found := make(map[string]string)
	for _, pkg := range metricsPackages {
		err := filepath.WalkDir(filepath.Join("..", pkg.dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			code, err := os.ReadFile(path)
			for _, name := range quoted.FindAllStringSubmatch(string(code), -1) {
				found[name[1]] = pkg.name
			}
			return err
		})
		noerr.Must(t, err)
	}
	return found
}

// line is the metric's line in a table.
func (m *metric) line() string {
	var labels []string
	for _, label := range m.labels {
		cell := "`" + label + "`"
		if values := slices.Sorted(maps.Keys(m.values[label])); len(values) > 0 {
			cell += ": " + strings.Join(values, ", ")
		}
		labels = append(labels, cell)
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", m.name, m.kind, strings.Join(labels, "; "), m.help, m.from)
}

// The page has every metric that the code can register, and no others; all are as promlint wants them.
func TestMetricsPage(t *testing.T) {
	all, code := allMetrics(t), metricsInCode(t)
	for name := range code {
		if all[name] == nil {
			t.Errorf("%s stands in the code, and a group does not register it", name)
		}
	}
	var page strings.Builder
	page.WriteString(metricsIntro)
	for _, pkg := range metricsPackages {
		fmt.Fprintf(&page, "\n## %s: %s\n\n| metric | type | labels | what it shows | there from |\n|---|---|---|---|---|\n", pkg.name, pkg.about)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if code[name] == pkg.name {
				page.WriteString(all[name].line())
			}
		}
	}
	for name := range all {
		if code[name] == "" {
			t.Errorf("%s is registered and stands in no package of the page", name)
		}
	}
	if *update {
		noerr.Must(t, os.WriteFile(metricsPage, []byte(page.String()), 0o644))
	}
	written, err := os.ReadFile(metricsPage)
	noerr.Must(t, err)
	want, got := strings.Split(page.String(), "\n"), strings.Split(string(written), "\n")
	for i := range max(len(want), len(got)) {
		line := func(lines []string) string {
			if i < len(lines) {
				return lines[i]
			}
			return ""
		}
		if line(want) != line(got) {
			t.Fatalf("%s:%s is\n%s\nand must be\n%s\n(go test ./consumer -run MetricsPage -update)", metricsPage, strconv.Itoa(i+1), line(got), line(want))
		}
	}
}
