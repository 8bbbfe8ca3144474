package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/status"
)

// get returns what is served at an address, "" and 0 while nobody serves.
func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// served waits until a member says where it serves, and returns the address.
func (r *running) served(t *testing.T, deadline time.Time) (base string) {
	t.Helper()
	said := regexp.MustCompile(`metrics=(http://\S+)/metrics`)
	until(t, deadline, func() bool { return said.MatchString(r.err.String()) }, r.err.String)
	return said.FindStringSubmatch(r.err.String())[1]
}

// Metrics, probes and the status are served where --metrics says, until the member has left.
func TestConsumeServes(t *testing.T) {
	zk, kafka := embedded(t)
	c := start(t, "consume", "--zookeeper", zk, "--kafka", kafka, "--session-timeout", "4s", "--name", "me", "--metrics", "127.0.0.1:0")
	defer c.end()
	deadline := soon()
	base := c.served(t, deadline)
	until(t, deadline, func() bool {
		ready, _ := get(t, base+"/readyz")
		return ready == http.StatusOK
	}, func() string { return "not ready: " + c.err.String() })
	if code, body := get(t, base+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	if code, body := get(t, base+"/metrics"); code != http.StatusOK || !strings.Contains(body, "\nkiel_members{group=\"demo\"} 1\n") {
		t.Errorf("/metrics: %d %s", code, body)
	}
	shows := func(path string, ok func(body string) bool) {
		t.Helper()
		var code int
		var body string
		until(t, deadline, func() bool {
			code, body = get(t, base+path)
			return code == http.StatusOK && ok(body)
		}, func() string { return fmt.Sprintf("%s: %d %s", path, code, body) })
	}
	shows("/status", func(body string) bool {
		var g status.Group
		if err := json.Unmarshal([]byte(body), &g); err != nil {
			t.Fatal(err)
		}
		owned := 0
		for _, p := range g.Partitions {
			if p.Owner == "me" {
				owned++
			}
		}
		return g.Group == "demo" && g.Self != nil && g.Self.Ready && g.Self.Kafka != nil && g.Self.Kafka.Reachable && owned == 4
	})
	shows("/page/", func(body string) bool {
		return strings.Contains(body, "members <b>1</b>") && strings.Contains(body, "owned <b>4</b> of 4")
	})
	for path, want := range map[string]int{"/": http.StatusNotFound, "/debug/pprof/": http.StatusNotFound} { // profiles are for --hang-on
		if code, _ := get(t, base+path); code != want {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// The address that others ask is the one that the member serves, on a host that they can reach.
func TestStatusAddr(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for metrics, want := range map[string]string{
		"10.0.0.7:9400": "http://10.0.0.7:9400", ":9400": "http://" + host + ":9400", "0.0.0.0:9400": "http://" + host + ":9400",
		"[::]:9400": "http://" + host + ":9400", "": "", "9400": "", "host:0": "", strings.Repeat("h", 64) + ":9400": "",
	} {
		if got := statusAddr(metrics); got != want {
			t.Errorf("%q: got %q, want %q", metrics, got, want)
		}
	}
}

// With --keep the scenario's group is served as a page, and goes on after it until told to stop.
func TestDemoKeeps(t *testing.T) {
	c := start(t, "--keep")
	deadline := time.Now().Add(2 * time.Minute)
	until(t, deadline, func() bool { return strings.Count(c.out.String(), "as a page: ") >= 2 }, func() string {
		return "the scenario does not end: " + c.out.String()
	})
	address := regexp.MustCompile(`as a page: (http://127\.0\.0\.1:\d+/)\n`).FindStringSubmatch(c.out.String())
	if address == nil || !strings.HasSuffix(c.out.String(), "Ctrl-C ends it.\n") {
		t.Fatalf("its last lines do not point at the page: %s", c.out.String())
	}
	var body string
	until(t, deadline, func() bool {
		_, body = get(t, address[1])
		return strings.Contains(body, "members <b>3</b>") && strings.Contains(body, "owned <b>18</b> of 18")
	}, func() string { return body })
	c.end()
}

// A port that is taken is explained, and profiles are served beside a handler that hangs.
func TestServing(t *testing.T) {
	zk, kafka := embedded(t)
	r := command(t.Context(), "", "consume", "--zookeeper", zk, "--kafka", kafka, "--metrics", zk)
	if r.code != exitUsage || !strings.Contains(r.err, zk+" is taken by another process (give each member a port of its own") {
		t.Errorf("%+v", r)
	}
	for _, command := range [][]string{{"produce"}, {"consume", "--zookeeper", zk}} {
		var out, errOut buffer
		if c := run(t.Context(), append(command, "--kafka", "127.0.0.1:1"), strings.NewReader(""), &out, &errOut); c != exitFailed ||
			!strings.Contains(errOut.String(), "can't reach Kafka at 127.0.0.1:1 (is it running? try 'demo-consumer servers' in another terminal)") {
			t.Errorf("%v: %d %s", command, c, errOut.String())
		}
	}
	c := start(t, "consume", "--zookeeper", zk, "--kafka", kafka, "--session-timeout", "4s", "--metrics", "127.0.0.1:0", "--hang-on", "x")
	if code, body := get(t, c.served(t, soon())+"/debug/pprof/goroutine?debug=2"); code != http.StatusOK || !strings.Contains(body, "goroutine ") {
		t.Errorf("%d %s", code, body)
	}
	c.end()
}
