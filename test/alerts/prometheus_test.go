package alerts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/servers/software"
	"github.com/kielgo/kiel/test/wait"
)

// A point is a series at one time, a line one over time.
type (
	point struct {
		Labels map[string]string `json:"metric"`
		Value  value
	}
	line struct {
		Labels map[string]string `json:"metric"`
		Values []value
	}
)

// A value is what Prometheus sends as [seconds since 1970, "number"].
type value struct{ At, V float64 }

func (v *value) UnmarshalJSON(text []byte) error {
	var number string
	if err := json.Unmarshal(text, &[]any{&v.At, &number}); err != nil {
		return err
	}
	var err error
	v.V, err = strconv.ParseFloat(number, 64)
	return err
}

// shows reports whether the line has a number at any time. Prometheus has NaN where it divides by zero, and for quantiles of
// nothing.
func (l line) shows() bool {
	return slices.ContainsFunc(l.Values, func(v value) bool { return !math.IsNaN(v.V) })
}

// A scraper is a Prometheus.
type scraper struct {
	t       *testing.T
	dir     string
	address string
	process *servers.Process
}

// hurried returns the alerts of rules.yml as they are but for their times: what takes minutes takes seconds. Each of these has to
// be there.
func hurried(t *testing.T) []byte {
	t.Helper()
	text := string(read(t, "deploy", "prometheus", "rules.yml"))
	for _, change := range [][2]string{
		{`for: 3m`, "for: 10s"},
		{`for: \d+m`, "for: 2s"},
		{`\[10m\]`, "[30s]"},
		{`\[1h\]`, "[1m]"},
		{`offset 10m`, "offset 10s"},
		{`> 60\b`, "> 5"},
		{`> 120\b`, "> 5"},
		{`> 300\b`, "> 10"},
		{`> 600\b`, "> 10"},
	} {
		pattern := regexp.MustCompile(change[0])
		if !pattern.MatchString(text) {
			t.Fatalf("rules.yml has no %s", change[0])
		}
		text = pattern.ReplaceAllString(text, change[1])
	}
	return []byte(text)
}

// startPrometheus starts a Prometheus that scrapes what it is told by aim, once a second.
func startPrometheus(t *testing.T) *scraper {
	t.Helper()
	bin, err := software.Prometheus()
	if err != nil {
		t.Fatal(err)
	}
	s := &scraper{t: t, dir: t.TempDir(), address: fmt.Sprintf("127.0.0.1:%d", servers.FreePorts(t, 1)[0])}
	s.write("rules.yml", hurried(t))
	s.write("prometheus.yml", []byte(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs: [{job_name: kiel, file_sd_configs: [{files: [targets.json], refresh_interval: 1s}]}]
`))
	s.aim(nil)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(bin, "prometheus"), "--config.file=prometheus.yml",
		"--storage.tsdb.path=data", "--web.listen-address="+s.address)
	cmd.Dir = s.dir
	s.process = servers.Start(t, "prometheus", cmd)
	wait.Until(t, time.Minute, func() bool {
		res, err := s.get("/-/ready", nil)
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	}, func() string { return "Prometheus is ready" + s.process.Log() })
	return s
}

// write replaces a file of Prometheus, which never sees half of it.
func (s *scraper) write(name string, text []byte) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.t.Fatal(err)
	}
}

// aim says who is scraped: addresses by the names that take the place of the label instance.
func (s *scraper) aim(targets map[string]string) {
	s.t.Helper()
	type target struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	list := []target{}
	for name, address := range targets {
		list = append(list, target{[]string{address}, map[string]string{"instance": name}})
	}
	text, err := json.Marshal(list)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("targets.json", text)
}

func (s *scraper) get(path string, form url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.address+path+"?"+form.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	return http.DefaultClient.Do(req)
}

// ask makes one call of Prometheus's API, whose result has to be of the kind of into.
func (s *scraper) ask(path string, form url.Values, into any) {
	s.t.Helper()
	res, err := s.get("/api/v1/"+path, form)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.process.Log())
	}
	defer res.Body.Close()
	answer := struct {
		Status, Error string
		Data          struct{ Result any }
	}{Data: struct{ Result any }{into}}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Status != "success" {
		s.t.Fatalf("%s %v: %v %s", path, form, err, answer.Error)
	}
}

// now returns the series of an expression.
func (s *scraper) now(expr string) []point {
	s.t.Helper()
	var points []point
	s.ask("query", url.Values{"query": {expr}}, &points)
	return points
}

// since returns the series of an expression from a time on until now, each second.
func (s *scraper) since(start time.Time, expr string) []line {
	s.t.Helper()
	var lines []line
	s.ask("query_range", url.Values{
		"query": {expr}, "step": {"1"}, "start": {strconv.FormatInt(start.Unix(), 10)}, "end": {strconv.FormatInt(time.Now().Unix(), 10)},
	}, &lines)
	return lines
}

// firing returns the names of the alerts that fire, with their topics, sorted.
func (s *scraper) firing() []string {
	s.t.Helper()
	names := map[string]bool{}
	for _, p := range s.now(`ALERTS{alertstate="firing"}`) {
		names[strings.TrimSpace(p.Labels["alertname"]+" "+p.Labels["topic"])] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// fires waits until the alert fires, and checks that no other does but these, which the same fault may set off.
func (s *scraper) fires(alert string, also ...string) {
	s.t.Helper()
	began := time.Now()
	wait.Until(s.t, time.Minute, func() bool { return slices.Contains(s.firing(), alert) },
		func() string { return fmt.Sprintf("%s fires; what does is %v", alert, s.firing()) })
	s.t.Logf("%s fires after %v", alert, time.Since(began).Round(time.Second))
	for _, other := range s.firing() {
		if other != alert && !slices.Contains(also, other) {
			s.t.Errorf("%s fires, too", other)
		}
	}
}

// quiet waits until no alert fires.
func (s *scraper) quiet() {
	s.t.Helper()
	began := time.Now()
	wait.Until(s.t, 2*time.Minute, func() bool { return len(s.firing()) == 0 },
		func() string { return fmt.Sprintf("no alert fires; %v do", s.firing()) })
	s.t.Logf("quiet after %v", time.Since(began).Round(time.Second))
}
