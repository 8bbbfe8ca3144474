package alerts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/kielgo/kiel/test/servers/software"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// sarama's metrics start it once per process and have no way to end it.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// An alert as it stands in rules.yml.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []alert
	}
}

// path returns where a file of the repository is.
func path(elements ...string) string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(here), "..", ".."}, elements...)...)
}

func read(t *testing.T, elements ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(path(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file ruleFile
	if err := yaml.Unmarshal(read(t, "deploy", "prometheus", "rules.yml"), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) == 0 {
		t.Fatalf("rules.yml has %d groups of alerts, want one", len(file.Groups))
	}
	return file.Groups[0].Rules
}

// promtool runs promtool in dir and returns what it prints.
func promtool(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	bin, err := software.Prometheus()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "promtool"), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestPromtool(t *testing.T) {
	for _, args := range [][]string{
		{"check", "config", "prometheus.yml"}, // and the rules that it names
		{"test", "rules", "rules_test.yml"},
	} {
		if out, err := promtool(t, path("deploy", "prometheus"), args...); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

var metricNames = regexp.MustCompile(`\bkiel_[a-z_]+`)

// Rules and board ask for metrics that there are.
func TestMetricsExist(t *testing.T) {
	known := map[string]bool{}
	for _, name := range metricNames.FindAllString(string(read(t, "docs", "metrics.md")), -1) {
		known[name] = true
	}
	exprs := map[string]string{}
	for _, a := range alerts(t) {
		exprs[a.Alert] = a.Expr
	}
	for _, p := range readBoard(t).Panels {
		for _, target := range p.Targets {
			exprs[p.Title+" "+target.RefID] = target.Expr
		}
	}
	for what, expr := range exprs {
		for _, name := range metricNames.FindAllString(expr, -1) {
			if name = strings.TrimSuffix(name, "_bucket"); !known[name] {
				t.Errorf("%s: there is no metric %s", what, name)
			}
		}
	}
}

// Each alert has its own test on series, and says what it means and where more about it stands.
func TestAlertsSayWhatToDo(t *testing.T) {
	tests := string(read(t, "deploy", "prometheus", "rules_test.yml"))
	runbooks := string(read(t, "docs", "operating.md"))
	for _, a := range alerts(t) {
		if !strings.Contains(tests, `alertname="`+a.Alert+`", alertstate="firing"`) {
			t.Errorf("%s: no test in rules_test.yml sees it fire", a.Alert)
		}
		if s := a.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q", a.Alert, s)
		}
		if !strings.Contains(a.Annotations["summary"], "{{ $labels.group }}") {
			t.Errorf("%s: the summary does not name the group: %q", a.Alert, a.Annotations["summary"])
		}
		if a.Annotations["description"] == "" {
			t.Errorf("%s: no description", a.Alert)
		}
		if !strings.Contains(runbooks, "\n### "+a.Alert+"\n") {
			t.Errorf("%s: docs/operating.md has no heading of that name", a.Alert)
		}
		const pages = "https://github.com/kielgo/kiel/blob/main/docs/operating.md#"
		if got, want := a.Annotations["runbook_url"], pages+strings.ToLower(a.Alert); got != want {
			t.Errorf("%s: the runbook is at %q, want %q", a.Alert, got, want)
		}
	}
}
