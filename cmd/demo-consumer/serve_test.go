package main

import (
	"context"
	"encoding/json"
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

// Metrics, probes and the status are served where --metrics says, until the member has left.
func TestConsumeServes(t *testing.T) {
	zk, kafka := embedded(t)
	ctx, cancel := context.WithCancel(t.Context())
	var errOut buffer
	code := make(chan int, 1)
	go func() {
		args := []string{"consume", "--zookeeper", zk, "--kafka", kafka, "--session-timeout", "4s", "--name", "me", "--metrics", "127.0.0.1:0"}
		code <- run(ctx, args, nil, io.Discard, &errOut)
	}()
	defer func() {
		cancel()
		if c := <-code; c != exitOK {
			t.Errorf("consume ended with %d: %s", c, errOut.String())
		}
	}()
	said := regexp.MustCompile(`metrics=(http://\S+)/metrics`)
	deadline := time.Now().Add(20 * time.Second)
	var base string
	for ready := 0; ready != http.StatusOK; {
		if time.Now().After(deadline) {
			t.Fatalf("not ready: %s", errOut.String())
		}
		<-time.After(20 * time.Millisecond)
		if m := said.FindStringSubmatch(errOut.String()); m != nil {
			base = m[1]
			ready, _ = get(t, base+"/readyz")
		}
	}
	if code, body := get(t, base+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	if code, body := get(t, base+"/metrics"); code != http.StatusOK || !strings.Contains(body, "\nkiel_members{group=\"demo\"} 1\n") {
		t.Errorf("/metrics: %d %s", code, body)
	}
	until := func(path string, ok func(body string) bool) {
		for {
			code, body := get(t, base+path)
			if code == http.StatusOK && ok(body) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d %s", path, code, body)
			}
			<-time.After(20 * time.Millisecond)
		}
	}
	until("/status", func(body string) bool {
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
	until("/page/", func(body string) bool {
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
	ctx, cancel := context.WithCancel(t.Context())
	var out buffer
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"--keep"}, nil, &out, io.Discard) }()
	said := regexp.MustCompile(`as a page: (http://127\.0\.0\.1:\d+/)\n`)
	deadline := time.Now().Add(2 * time.Minute)
	for ; strings.Count(out.String(), "as a page: ") < 2; <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the scenario does not end: %s", out.String())
		}
	}
	address := said.FindStringSubmatch(out.String())
	if address == nil || !strings.HasSuffix(out.String(), "Ctrl-C ends it.\n") {
		t.Fatalf("its last lines do not point at the page: %s", out.String())
	}
	for ok := false; !ok; <-time.After(20 * time.Millisecond) {
		var body string
		_, body = get(t, address[1])
		ok = strings.Contains(body, "members <b>3</b>") && strings.Contains(body, "owned <b>18</b> of 18")
		if time.Now().After(deadline) {
			t.Fatalf("%s", body)
		}
	}
	cancel()
	if c := <-code; c != exitOK {
		t.Errorf("it ended with %d", c)
	}
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
	ctx, cancel := context.WithCancel(t.Context())
	var errOut buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"consume", "--zookeeper", zk, "--kafka", kafka, "--session-timeout", "4s", "--metrics", "127.0.0.1:0", "--hang-on", "x"}, nil, io.Discard, &errOut)
	}()
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(20 * time.Millisecond) {
		if m := regexp.MustCompile(`metrics=(http://\S+)/metrics`).FindStringSubmatch(errOut.String()); m != nil {
			if code, body := get(t, m[1]+"/debug/pprof/goroutine?debug=2"); code != http.StatusOK || !strings.Contains(body, "goroutine ") {
				t.Errorf("%d %s", code, body)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(errOut.String())
		}
	}
	cancel()
	if c := <-code; c != exitOK {
		t.Errorf("%d: %s", c, errOut.String())
	}
}
