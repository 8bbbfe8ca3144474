package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/internal/plain"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// sarama's metrics library keeps one goroutine for the process.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
	)
}

// result is what a command did.
type result struct {
	code     int
	out, err string
}

// world is a ZooKeeper and a Kafka in this process.
type world struct {
	t     *testing.T
	zk    *zktest.Server
	flags []string
	kafka *kfake.Cluster
	hosts string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t}
	w.zk, w.hosts = zktest.Start(t, zktest.Options{})
	var err error
	w.kafka, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.kafka.Close)
	w.flags = []string{"--zookeeper", w.hosts, "--kafka", w.kafka.ListenAddrs()[0]}
	return w
}

// kiel runs a command on the world.
func (w *world) kiel(args ...string) result {
	w.t.Helper()
	r := command(w.t.Context(), append(args, w.flags...)...)
	if strings.Contains(r.out, "\x1b") {
		w.t.Errorf("kiel %s prints escapes: %q", strings.Join(args, " "), r.out)
	}
	return r
}

func command(ctx context.Context, args ...string) result {
	var out, errOut bytes.Buffer
	code := run(ctx, args, &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

// member consumes until the returned function is called.
func (w *world) member(name string) (leave func()) {
	w.t.Helper()
	config := connect.KafkaConfig("test")
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	g, err := consumer.NewGroup([]string{w.hosts}, w.kafka.ListenAddrs(), "demo", consumer.Options{Name: name, Config: config, Session: session.Options{Timeout: 6 * time.Second}})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- g.Run(ctx, []string{"orders"}, func(_ context.Context, p *consumer.Partition) error {
			for m := range p.Messages() {
				p.Mark(m)
			}
			return nil
		})
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("%s: %v", name, err)
		}
		if err := g.Close(); err != nil {
			w.t.Errorf("%s: %v", name, err)
		}
	}
}

// produce writes a message to each partition.
func (w *world) produce() {
	w.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	for p := range int32(4) {
		if err := c.ProduceSync(w.t.Context(), &kgo.Record{Topic: "orders", Partition: p, Value: []byte("x")}).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// until runs a command until its output has a text.
func (w *world) until(text string, args ...string) result {
	w.t.Helper()
	end := time.Now().Add(time.Minute)
	for {
		r := w.kiel(args...)
		if strings.Contains(r.out+r.err, text) {
			return r
		}
		if time.Now().After(end) {
			w.t.Fatalf("kiel %s never says %q: %+v", strings.Join(args, " "), text, r)
		}
	}
}

// wants checks the exit code and texts of the output.
func (r result) wants(t *testing.T, code int, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			t.Errorf("it does not say %q: %+v", text, r)
		}
	}
	if r.code != code {
		t.Errorf("exit code %d, want %d: %+v", r.code, code, r)
	}
}

// A group's life, by all commands.
func TestCommands(t *testing.T) {
	w := newWorld(t)
	w.kiel("groups").wants(t, exitOK, "GROUP")
	w.kiel("describe", "demo").wants(t, exitFailed, "no group of this name")
	leave := w.member("c1")
	w.produce()
	w.watches()
	w.until("4/4", "groups").wants(t, exitOK, "demo   1")
	w.until("committed 1 of 1", "why", "demo", "orders:2").wants(t, exitOK, "owner c1 since", "because topic-added orders", "planned for c1")
	w.kiel("describe", "demo").wants(t, exitOK, "demo at", "no problem found at one look", "c1", "orders:3", "balanced/1")
	w.kiel("describe", "demo", "--section", "members").wants(t, exitOK, "c1")
	w.kiel("describe", "demo", "--topic", "payments").wants(t, exitOK, "PARTITION", "1 problem")
	w.countsOfTopics()
	w.kiel("doctor", "demo", "--window", "1s").wants(t, exitOK, "demo at", "all well", "ZooKeeper 1/1, Kafka ok")
	w.kiel("why", "demo", "orders:9").wants(t, exitFailed, "not in the group's set")
	w.kiel("offsets", "reset", "demo", "--topic", "orders", "--to", "start", "--yes").wants(t, exitFailed, "refused", "members c1 run")
	w.kiel("release", "demo", "orders:1", "--yes").wants(t, exitFailed, "belongs to session 0x")
	w.kiel("remove-topic", "demo", "orders", "--yes").wants(t, exitFailed, "asks for it")
	leave()
	w.kiel("doctor", "demo", "--window", "1s").wants(t, exitFailed, "1 problem", "no members", "do: start members")
	w.kiel("offsets", "reset", "demo", "--topic", "orders", "--to", "start").wants(t, exitOK, "orders:0   0      1    1       0", "repeat with --yes")
	w.kiel("offsets", "reset", "demo", "--topic", "orders", "--to", "start", "--yes").wants(t, exitOK, "stored", "minutes late")
	w.kiel("offsets", "show", "demo").wants(t, exitOK, "orders:0   0          1    1", "a reset")
	if err := w.zk.Create("/kiel/groups/demo/owners/orders:2", []byte(`{"owner":"c1"}`)); err != nil {
		t.Fatal(err)
	}
	w.kiel("doctor", "demo", "--window", "1s").wants(t, exitFailed, "! orders:2", "run: kiel release demo orders:2 --zookeeper "+w.hosts+" --kafka ", "#kielpersistentclaim", "since ", ", 1 message waits\n")
	w.kiel("release", "demo", "orders:2").wants(t, exitOK, "would delete", "--yes")
	w.kiel("release", "demo", "orders:2", "--yes").wants(t, exitOK, "deleted /kiel/groups/demo/owners/orders:2")
	w.kiel("release", "demo", "orders:2").wants(t, exitFailed, "nothing is in the place")
	w.kiel("remove-topic", "demo", "orders").wants(t, exitOK, "would remove 4 partitions", "--yes")
	w.kiel("remove-topic", "demo", "orders", "--yes").wants(t, exitOK, "removed orders")
}

// countsOfTopics checks that describe shows the partitions of the topics that are named, and of no others.
func (w *world) countsOfTopics() {
	w.t.Helper()
	for args, want := range map[string]int{"": 4, "--topic=orders": 4, "--topic=payments": 0, "--topic=orders,payments": 4} {
		r := w.kiel(append([]string{"describe", "demo", "--section", "partitions"}, strings.Fields(args)...)...)
		if n := strings.Count(r.out, "\norders:"); n != want || r.code != exitOK {
			w.t.Errorf("%s: %d partitions, want %d: %+v", args, n, want, r)
		}
	}
}

// watches checks that watch ends without an error when it is told to stop.
func (w *world) watches() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Second)
	defer cancel()
	r := command(ctx, append([]string{"watch", "demo", "--every", "10ms"}, w.flags...)...)
	r.wants(w.t, exitOK, "watching")
}

// The JSON is alone on standard output, says its version, and shows what texts show.
func TestJSON(t *testing.T) {
	w := newWorld(t)
	leave := w.member("c1")
	w.until("4/4", "groups")
	for _, args := range [][]string{
		{"groups"}, {"describe", "demo"}, {"doctor", "demo", "--window", "1s"}, {"why", "demo", "orders:0"}, {"offsets", "show", "demo"},
	} {
		r := w.kiel(append(args, "-o", "json")...)
		var read struct {
			Version int `json:"version"`
		}
		if err := json.Unmarshal([]byte(r.out), &read); err != nil || read.Version != inspect.Version || r.code != exitOK {
			t.Errorf("%v: %v, %+v", args, err, r)
		}
	}
	leave()
}

// Texts that others have written to ZooKeeper never reach the terminal as they are.
func TestHostileNames(t *testing.T) {
	w := newWorld(t)
	const evil = "\\u001b[2J\\u009b31m\\u202e"
	name := "m\u202ex"
	for path, data := range map[string]string{
		"/kiel/groups/demo/members/" + name:    `{"functions":["` + evil + `"],"zone":"` + evil + `"}`,
		"/kiel/groups/demo/owners/orders:0":    `{"owner":"` + evil + strings.Repeat("x", 2000) + `","previous":"` + evil + `"}`,
		"/kiel/groups/demo/partitions":         `["orders:0","` + evil + `:1","` + evil + `"]`,
		"/kiel/groups/" + name + "/partitions": `{`,
	} {
		create(t, w.zk, path, data)
	}
	for _, args := range [][]string{{"groups"}, {"describe", "demo"}, {"doctor", "demo", "--window", "1ms"}, {"why", "demo", "orders:0"}, {"release", "demo", "orders:0"}} {
		for _, format := range []string{"text", "json"} {
			r := w.kiel(append(args, "-o", format)...)
			for _, c := range r.out + r.err {
				if c != '\n' && plain.Hidden(c) && c != '…' {
					t.Errorf("%v -o %s prints %q", args, format, c)
					break
				}
			}
			if format == "json" && r.out != "" && !json.Valid([]byte(r.out)) {
				t.Errorf("%v: no JSON: %s", args, r.out)
			}
		}
	}
}

// create creates a znode and those above it.
func create(t *testing.T, zk *zktest.Server, path, data string) {
	t.Helper()
	for i, c := range path {
		if c == '/' && i > 0 {
			_ = zk.Create(path[:i], nil) // it may exist
		}
	}
	if err := zk.Create(path, []byte(data)); err != nil {
		t.Fatal(path, err)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"nothing"},
		{"describe"},
		{"why", "demo"},
		{"why", "demo", "orders"},
		{"doctor", "demo", "--window", "0s"},
		{"groups", "-o", "yaml"},
		{"groups", "--zookeeper", ","},
		{"describe", "demo", "--topic", "a b"},
		{"groups", "--kafka-user", "me"},
		{"release", "demo", "x"},
		{"offsets", "reset", "demo", "--topic", "orders", "--to", "middle"},
		{"offsets", "reset", "demo", "--to", "end"},
		{"doctor", ""},
	} {
		if r := command(t.Context(), args...); r.code != exitUsage || r.out != "" || !strings.Contains(r.err, "kiel: ") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// A server that is away is a finding for doctor, and an error for the others; a chroot that is missing is an error.
func TestServersAway(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--zookeeper", away, "--kafka", away, "--wait", "2s"}
	command(t.Context(), append([]string{"doctor", "demo"}, flags...)...).wants(t, exitFailed, "2 problems", "no quorum of ZooKeeper answers", "no broker of Kafka answers")
	command(t.Context(), append([]string{"groups"}, flags...)...).wants(t, exitFailed, "kiel: ")
	w := newWorld(t)
	command(t.Context(), "groups", "--zookeeper", w.hosts+"/none", "--no-kafka").wants(t, exitFailed, "no such chroot: /none")
	if strings.Contains(w.zk.Dump(), "none") {
		t.Error("the chroot was created")
	}
}

func TestHelpTeaches(t *testing.T) {
	r := command(t.Context(), "--help")
	r.wants(t, exitOK, "doctor", "Exit codes", "KIEL_ZOOKEEPER", "kiel why demo orders:7")
	for line := range strings.Lines(r.out) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > helpWidth {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
	command(t.Context(), "--version").wants(t, exitOK, "kiel ")
}

// A command is copied from the terminal: it stays in one line, with its spaces.
func TestCommandIsOneLine(t *testing.T) {
	var out bytes.Buffer
	group := strings.Repeat("long", 20) + "  two"
	f := inspect.Finding{Objects: []string{"orders:2"}, Text: "x", Do: strings.Repeat("do it ", 30), Command: "kiel release '" + group + "' orders:2", Runbook: strings.Repeat("r", 100)}
	newPrinter(&out).finding(f, &inspect.Report{}, 8)
	if text := out.String(); !strings.Contains(text, "            run: "+f.Command+"\n") || !strings.Contains(text, "            runbook: "+f.Runbook+"\n") || !strings.Contains(text, "            do: do it") {
		t.Errorf("%s", text)
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	if got := oneLine(errors.Join(errors.New("a"), errors.New("b\x1b"))); got != `a; b\u001b` {
		t.Errorf("%q", got)
	}
}
