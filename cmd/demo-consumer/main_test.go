package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/eventlog"
)

// asProcess makes the test binary the command itself, for what only a process can show.
const asProcess = "DEMO_CONSUMER_AS_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
	}
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

func command(ctx context.Context, in string, args ...string) result {
	var out, errOut bytes.Buffer
	code := run(ctx, args, strings.NewReader(in), &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

func wide(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

func TestDemo(t *testing.T) {
	r := command(t.Context(), "")
	if r.code != exitOK || !strings.Contains(r.out, "All well") {
		t.Errorf("exit code %d, %s\n%s", r.code, r.err, r.out)
	}
	wide(t, r.out)
	if strings.Contains(r.out, "\x1b") {
		t.Error("colour on what is no terminal")
	}
	for _, want := range []string{"alice starts", "bob and carol join", "carol crashes", "bob leaves", "6 partitions are added", "18 partitions in"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the demo does not say %q", want)
		}
	}
}

func TestHelpTeaches(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"consume", "--help"}, {"produce", "--help"}, {"servers", "--help"}} {
		r := command(t.Context(), "", args...)
		if r.code != exitOK || r.out == "" {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.err)
		}
		wide(t, r.out)
	}
	if r := command(t.Context(), "", "--help"); !strings.Contains(r.out, "Examples:") {
		t.Error("no examples in --help")
	}
	if r := command(t.Context(), "", "consume", "--help"); !strings.Contains(r.out, "$KIEL_ZOOKEEPER") {
		t.Errorf("the environment variables are not named:\n%s", r.out)
	}
}

func TestBadUsage(t *testing.T) {
	tests := map[string]struct {
		args []string
		says string
	}{
		"unknown flag":       {[]string{"consume", "--nope"}, "--nope"},
		"unknown command":    {[]string{"consume", "x"}, "unexpected argument x"},
		"bad function":       {[]string{"consume", "--function", "sticky"}, "sticky"},
		"no function":        {[]string{"consume", "--function", ""}, "--function"},
		"function twice":     {[]string{"consume", "--function", "range,range"}, "range/1 is given twice"},
		"bad weight":         {[]string{"consume", "--weight=-1"}, "Weight"},
		"bad print":          {[]string{"consume", "--print", "xml"}, "xml"},
		"bad duration":       {[]string{"consume", "--session-timeout", "10"}, "session-timeout"},
		"tiny timeout":       {[]string{"consume", "--session-timeout", "1ms"}, "1ms"},
		"no zookeeper":       {[]string{"consume", "--zookeeper", ","}, "names no server"},
		"bad zookeeper":      {[]string{"consume", "--zookeeper", "host:port"}, "port"},
		"bad group":          {[]string{"consume", "--group", strings.Repeat("/", 84)}, "more than 249"},
		"bad name":           {[]string{"consume", "--name", "a/b"}, "a/b"},
		"bad zone":           {[]string{"consume", "--zone", "a\tb"}, "zone"},
		"bad metrics":        {[]string{"consume", "--metrics", "here"}, "host:port"},
		"bad events":         {[]string{"consume", "--events", "/no/such/folder/x"}, "--events"},
		"another's events":   {[]string{"consume", "--events", "main_test.go"}, "a file of its own"},
		"missing file":       {[]string{"produce", "/no/such/file"}, "/no/such/file"},
		"keyed without file": {[]string{"produce", "--keyed"}, "--keyed"},
		"negative rate":      {[]string{"produce", "--rate=-1"}, "--rate"},
		"empty topic":        {[]string{"consume", "--topic", ""}, "--topic"},
		"bad topic":          {[]string{"produce", "--topic", "a/b"}, "a/b"},
		"bad served topic":   {[]string{"servers", "--topic", "a b"}, "a b"},
		"bad address":        {[]string{"servers", "--kafka", "9092"}, "host:port"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := command(t.Context(), "", tc.args...)
			if r.code != exitUsage {
				t.Errorf("exit code %d, want %d: %s", r.code, exitUsage, r.err)
			}
			if !strings.Contains(r.err, tc.says) || !strings.Contains(r.err, "demo-consumer: ") {
				t.Errorf("the error does not name %q: %s", tc.says, r.err)
			}
		})
	}
}

// Why a command has failed stands in its log, as all that it says before.
func TestKafkaAwayIsSaid(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"produce", "--count", "1"}, {"consume", "--zookeeper", "127.0.0.1:1"}} {
		r := command(t.Context(), "", append(args, "--kafka", "127.0.0.1:1", "--kafka-user", "u", "--kafka-mechanism", "PLAIN", "--kafka-password-file", password)...)
		if r.code != exitFailed || !strings.Contains(r.err, "127.0.0.1:1") || !strings.Contains(r.err, "servers") || !strings.Contains(r.err, `level=ERROR msg="command failed" command=`+args[0]) {
			t.Errorf("exit code %d: %s", r.code, r.err)
		}
		for line := range strings.Lines(r.err) {
			if !strings.HasPrefix(line, "time=") {
				t.Errorf("%s writes %q beside its log", args[0], line)
			}
		}
	}
}

// embedded runs the servers command and returns its addresses.
func embedded(t *testing.T) (zk, kafka string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	var done sync.WaitGroup
	done.Go(func() {
		code := run(ctx, []string{"servers", "--zookeeper", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--partitions", "4", "--tick", "500ms"}, nil, w, io.Discard)
		if code != exitOK {
			t.Errorf("servers ended with %d", code)
		}
		_ = w.Close()
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	lines := bufio.NewReader(r)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	m := regexp.MustCompile(`ZooKeeper at (\S+), Kafka at (\S+):`).FindStringSubmatch(first)
	if m == nil {
		t.Fatalf("no addresses in %q", first)
	}
	return m[1], m[2]
}

// buffer is what a running command has printed so far.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// running is a command at work.
type running struct {
	out, err buffer
	end      func() // ends the command, which must end in order
}

// start runs a command beside the test.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{}
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- run(ctx, args, nil, &r.out, &r.err) }()
	r.end = sync.OnceFunc(func() {
		cancel()
		if c := <-code; c != exitOK {
			t.Errorf("%s ended with %d: %s", args[0], c, r.err.String())
		}
	})
	t.Cleanup(r.end)
	return r
}

// soon is the moment until which a member must have done what it is asked for now.
func soon() time.Time { return time.Now().Add(20 * time.Second) }

// until waits until something is so; says tells what has happened if it is not so by the deadline.
func until(t *testing.T, deadline time.Time, ok func() bool, says func() string) {
	t.Helper()
	for ; !ok(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(says())
		}
	}
}

func TestProduceAndConsume(t *testing.T) {
	zk, kafka := embedded(t)
	r := command(t.Context(), "a\t1\nb\t2\nc\t3\n", "produce", "--kafka", kafka, "--keyed", "-")
	if r.code != exitOK || !strings.Contains(r.err, "messages=3") {
		t.Fatalf("produce: %d, %s", r.code, r.err)
	}
	events := filepath.Join(t.TempDir(), "events.jsonl")
	c := start(t, "consume", "--zookeeper", zk+"/apps", "--kafka", kafka, "--session-timeout", "4s",
		"--name", "me", "--print", "json", "--events", events, "--verbose", "--zone", "krack") // which kfake's brokers are in
	until(t, soon(), func() bool {
		return strings.Count(c.out.String(), "\n") >= 3 && strings.Contains(c.err.String(), "zoned=4")
	}, func() string {
		return "not all was printed, or is known to be in a zone: " + c.out.String() + "\n" + c.err.String()
	})
	c.end()
	got := map[string]string{}
	for line := range strings.Lines(c.out.String()) {
		var m printed
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		got[*m.Key] = *m.Value
	}
	if got["a"] != "1" || got["b"] != "2" || got["c"] != "3" {
		t.Errorf("printed %v", got)
	}

	f, err := os.Open(events)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log, err := eventlog.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, e := range log {
		kinds[e.Event]++
		if e.Member != "me" || e.T == 0 {
			t.Errorf("an event without member or time: %+v", e)
		}
	}
	for kind, n := range map[string]int{"joined": 1, "claimed": 4, "opened": 4, "message": 3, "revoking": 4, "releasing": 4, "left": 1} {
		if kinds[kind] != n {
			t.Errorf("%d events %q, want %d", kinds[kind], kind, n)
		}
	}
	if kinds["snapshot"] == 0 || kinds["committed"] == 0 {
		t.Errorf("no snapshot or commit among %v", kinds)
	}
	if report := eventlog.Check([]eventlog.Log{{Name: "me", Events: log}}, eventlog.Expect{}); !report.OK() {
		t.Error(report)
	}
}

func TestProduceNamesTheBadLine(t *testing.T) {
	_, kafka := embedded(t)
	r := command(t.Context(), "a\t1\nno tab here\n", "produce", "--kafka", kafka, "--keyed", "-")
	if r.code != exitFailed || !strings.Contains(r.err, "line 2") || !strings.Contains(r.err, "messages=1") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

func TestOrdersStopAtCount(t *testing.T) {
	_, kafka := embedded(t)
	r := command(t.Context(), "", "produce", "--kafka", kafka, "--topic", "made", "--rate", "0", "--count", "500")
	if r.code != exitOK || !strings.Contains(r.err, "messages=500 topics=made") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

func TestSignals(t *testing.T) {
	for name, tc := range map[string]struct {
		signals []os.Signal
		want    string // of the process's state
	}{
		"SIGTERM leaves in order":      {[]os.Signal{syscall.SIGTERM}, "exit status 0"},
		"SIGINT leaves in order":       {[]os.Signal{os.Interrupt}, "exit status 0"},
		"a second one ends it at once": {[]os.Signal{syscall.SIGTERM, syscall.SIGTERM}, "signal: terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			zk, kafka := embedded(t)
			if r := command(t.Context(), "x\n", "produce", "--kafka", kafka, "-"); r.code != exitOK {
				t.Fatal(r.err)
			}
			args := []string{"consume", "--zookeeper", zk, "--kafka", kafka, "--session-timeout", "4s", "--print", "value"}
			if len(tc.signals) > 1 {
				args = append(args, "--work", "1h") // the handler won't return
			}
			events := filepath.Join(t.TempDir(), "events")
			cmd := exec.CommandContext(t.Context(), os.Args[0], append(args, "--events", events)...)
			cmd.Env = append(os.Environ(), asProcess+"=1")
			var out buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			logged := func(event string) {
				t.Helper()
				until(t, soon(), func() bool {
					b, err := os.ReadFile(events)
					return err == nil && bytes.Contains(b, []byte(`"event":"`+event+`"`))
				}, func() string { return "no event " + event + ": " + out.String() })
			}
			logged("message")
			for i, s := range tc.signals {
				if i > 0 {
					logged("revoking") // the first signal has arrived
				}
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			_ = cmd.Wait()
			if got := cmd.ProcessState.String(); got != tc.want {
				t.Errorf("ended with %q, want %q: %s", got, tc.want, out.String())
			}
		})
	}
}

// As in `consume --print value | head -1`.
func TestConsumeLeavesWhenItsReaderHasGone(t *testing.T) {
	zk, kafka := embedded(t)
	events := filepath.Join(t.TempDir(), "events")
	cmd := exec.CommandContext(t.Context(), os.Args[0],
		"consume", "--zookeeper", zk, "--kafka", kafka, "--session-timeout", "4s", "--print", "value", "--events", events)
	cmd.Env = append(os.Environ(), asProcess+"=1")
	var out buffer
	cmd.Stderr = &out
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if r := command(t.Context(), "one\ntwo\n", "produce", "--kafka", kafka, "-"); r.code != exitOK {
		t.Fatal(r.err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(pipe, make([]byte, 4)); err != nil {
		t.Fatal(err, out.String())
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	if r := command(t.Context(), strings.Repeat("more\n", 50), "produce", "--kafka", kafka, "-"); r.code != exitOK {
		t.Fatal(r.err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v: %s", err, out.String())
	}
	log, err := os.ReadFile(events)
	if err != nil || !bytes.Contains(log, []byte(`"event":"left"`)) {
		t.Errorf("did not leave in order (%v): %s", err, out.String())
	}
	if strings.Contains(out.String(), "demo-consumer:") {
		t.Errorf("complained: %s", out.String())
	}
}

func TestConsumeWaitsForItsTopic(t *testing.T) {
	zk, kafka := embedded(t)
	c := start(t, "consume", "--zookeeper", zk, "--kafka", kafka, "--session-timeout", "4s", "--topic", "later", "--print", "value")
	says := func(b *buffer, what string) {
		t.Helper()
		until(t, soon(), func() bool { return strings.Contains(b.String(), what) }, func() string {
			return fmt.Sprintf("never said %q: %s", what, c.err.String())
		})
	}
	says(&c.err, "waiting for topics")
	// The flags of consume are accepted, and several topics are served in turn.
	r := command(t.Context(), "one\ntwo\n", "produce", "--zookeeper", zk, "--group", "demo", "--kafka", kafka, "--topic", "later", "--topic", "orders", "-")
	if r.code != exitOK || !strings.Contains(r.err, "later, orders") {
		t.Fatalf("produce: %d, %s", r.code, r.err)
	}
	says(&c.out, "one\n")
	c.end()
	if strings.Contains(c.out.String(), "two") {
		t.Error("the second line went to the first topic too")
	}
}

func TestProduceStopsWhenTold(t *testing.T) {
	// An address that takes connections and never answers: the client would try for long.
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "produce", "--kafka", l.Addr().String(), "--count", "1")
	cmd.Env = append(os.Environ(), asProcess+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept() // it waits for an answer now
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("produce did not end within 5 s of SIGTERM")
		_ = cmd.Process.Kill()
		<-done
	}
}

// TestFewMessagesAreNotLost: sarama drops what it has to send again while it is closing, and the first messages of a connection
// often are.
func TestFewMessagesAreNotLost(t *testing.T) {
	_, kafka := embedded(t)
	for range 30 {
		r := command(t.Context(), "1\n2\n3\n4\n5\n", "produce", "--kafka", kafka, "-")
		if r.code != exitOK || !strings.Contains(r.err, "messages=5") {
			t.Fatalf("exit code %d: %s", r.code, r.err)
		}
	}
}
