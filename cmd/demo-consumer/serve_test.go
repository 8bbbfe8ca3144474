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
	said := regexp.MustCompile(`metrics at (http://\S+)/metrics`)
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
	_, body := get(t, base+"/status")
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
	if g.Group != "demo" || g.Self == nil || !g.Self.Ready || g.Self.Kafka == nil || !g.Self.Kafka.Reachable || owned != 4 {
		t.Errorf("/status: %s", body)
	}
	if code, _ := get(t, base+"/"); code != http.StatusNotFound {
		t.Errorf("/: %d", code)
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
