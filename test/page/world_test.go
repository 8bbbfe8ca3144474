package page_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

const (
	partitions = 9
	timeout    = 4 * time.Second
	poison     = "poison" // the handler hangs
	bad        = "bad"    // the handler fails
	soon       = 5 * time.Second
	comes      = 2 * time.Minute // for a source to know of an incident: a handler must hang for a minute
)

// site is real servers, with users or without, that several groups share.
type site struct {
	t       *testing.T
	bin     string
	zk      *servers.ZooKeeper
	kafka   *servers.Kafka
	brokers []string
	flags   []string
}

func newSite(t *testing.T, kafka servers.KafkaOptions) *site {
	t.Helper()
	s := &site{t: t}
	dir, built := t.TempDir(), make(chan error, 1)
	go func() {
		var err error
		s.bin, err = members.Build(t.Context(), dir)
		built <- err
	}()
	s.zk = servers.StartZooKeeper(t, servers.ZooKeeperOptions{Servers: 3, TickTime: time.Second})
	s.kafka = servers.StartKafka(t, kafka)
	s.brokers = s.kafka.Brokers()
	if err := <-built; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s
}

// world is a group, a page of it in a browser, and somebody who asks the sources all the time.
type world struct {
	*site

	t       *testing.T
	group   string
	topic   string
	flags   []string
	member  map[string]*members.Process
	page    map[string]string // where each member serves the page
	browser *browser
	beside  []string // topics with messages besides

	mu    sync.Mutex
	known map[string]time.Time // when the sources first had each finding, by kind and object
}

// newWorld makes a group with a topic of its own, until t ends.
func (s *site) newWorld(t *testing.T, group string) *world {
	t.Helper()
	w := &world{
		site: s, t: t, group: group, topic: group + "-orders", member: map[string]*members.Process{}, page: map[string]string{}, known: map[string]time.Time{}, browser: newBrowser(t),
	}
	w.flags = append(slices.Clone(s.flags), "--zookeeper", strings.Join(s.zk.Addrs(), ","), "--kafka", strings.Join(s.brokers, ","), "--group", group,
		"--session-timeout", timeout.String(), "--hang-on", poison, "--fail-on", bad)
	w.browser.size(1280, false)
	s.kafka.CreateTopic(w.topic, partitions)
	return w
}

// start starts a member and waits until it serves.
func (w *world) start(name string, flags ...string) {
	w.t.Helper()
	addr := fmt.Sprintf("127.0.0.1:%d", servers.FreePorts(w.t, 1)[0])
	all := append(slices.Clone(w.flags), "--metrics", addr)
	if !slices.Contains(flags, "--topic") {
		flags = append(flags, "--topic", w.topic)
	}
	m := members.Start(w.t, w.bin, name, filepath.Join(w.t.TempDir(), name), append(all, flags...)...)
	w.member[name], w.page[name] = m, "http://"+addr+"/page/"
	wait.Until(w.t, patience, func() bool {
		resp, err := http.Get("http://" + addr + "/healthz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, m.Log)
}

// ask asks the sources all the time, as somebody who has nothing else to do, until the test ends.
func (w *world) ask(config *sarama.Config) {
	series, err := inspect.NewSeries(inspect.Sources{
		Servers: w.zk.Addrs(), Session: session.Options{Timeout: 6 * time.Second}, Brokers: w.brokers, Config: config, Members: true, Local: true, Wait: time.Second,
	}, w.group, inspect.SeriesOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if report, err := series.Look(ctx); err == nil {
				w.note(report)
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
		_ = series.Close(context.Background())
	}()
	w.t.Cleanup(func() { cancel(); <-done })
}

func (w *world) note(r *inspect.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range r.Findings {
		for _, o := range f.Objects {
			if key := string(f.Kind) + " " + o; w.known[key].IsZero() {
				w.known[key] = time.Now()
			}
		}
	}
}

// forget has what the sources know begin anew, before an incident: on a busy machine a source may have been late once.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.known)
}

// shown is a finding as the page shows it.
type shown struct {
	About, What, Effect, All, Do, Command, Runbook string
}

// cards are the findings of a kind that the page shows.
func (w *world) cards(kind inspect.Kind) (all []shown) {
	w.t.Helper()
	text := eval[string](w.browser, fmt.Sprintf(`JSON.stringify([...document.querySelectorAll("article[data-kind='%s']")].map(a => {
		const text = (s) => a.querySelector(s) ? a.querySelector(s).innerText.trim() : "";
		const does = [...a.querySelectorAll("p")].find(p => p.innerText.startsWith("Do:"));
		return {About: text("h3"), What: text(".what"), Effect: text(".effect"), All: text(".all"), Do: does ? does.innerText : "", Command: text("pre"), Runbook: a.querySelector("a") ? a.querySelector("a").href : ""};
	}))`, kind))
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		w.t.Fatal(err)
	}
	return all
}

// expect says what the page must show of an incident: cause, since, effect and remedy.
type expect struct {
	kind    inspect.Kind
	object  string
	what    string // in the sentence
	waits   bool   // the sentence says how many messages wait
	command string
	runbook string
}

// shows waits until the page shows a finding, and asserts that it did so soon after the sources knew.
func (w *world) shows(want expect) {
	w.t.Helper()
	began := time.Now()
	var card shown
	var at time.Time
	for at.IsZero() {
		for _, c := range w.cards(want.kind) {
			if strings.Contains(c.About+" "+c.All, want.object) && strings.Contains(c.What, want.what) && (!want.waits || strings.Contains(c.Effect, " wait")) {
				card, at = c, time.Now()
			}
		}
		if time.Since(began) > comes {
			w.t.Fatalf("the page does not show %+v: %s", want, w.browser.text())
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.mu.Lock()
	known := w.known[string(want.kind)+" "+want.object]
	w.mu.Unlock()
	switch late := at.Sub(known); {
	case known.IsZero():
		w.t.Logf("%s %s: shown before somebody else knew", want.kind, want.object)
	case late > soon:
		w.t.Errorf("%s %s: shown %v after the source knew", want.kind, want.object, late)
	default:
		w.t.Logf("%s %s: shown %v after the source knew", want.kind, want.object, late.Round(10*time.Millisecond))
	}
	if !strings.HasPrefix(card.Effect, "since ") && !strings.HasPrefix(card.Effect, "at ") || strings.Contains(card.Effect, "not known") {
		w.t.Errorf("since when is not said: %+v", card)
	}
	if !strings.HasPrefix(card.Do, "Do: ") || !strings.HasPrefix(card.Command, want.command) || !strings.HasSuffix(card.Runbook, want.runbook) {
		w.t.Errorf("%+v, want command %q, runbook %q", card, want.command, want.runbook)
	}
}

// gone waits until the page shows no finding of a kind any more.
func (w *world) gone(kind inspect.Kind) {
	w.t.Helper()
	wait.Until(w.t, comes, func() bool { return len(w.cards(kind)) == 0 }, w.browser.text)
}

// report returns what a member's page knows.
func (w *world) report(name string) *inspect.Report {
	w.t.Helper()
	resp, err := http.Get(w.page[name] + "report.json")
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var r inspect.Report
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		w.t.Fatal(err)
	}
	return &r
}

// owned waits until members own so many partitions.
func (w *world) owned(n int) {
	w.t.Helper()
	wait.Until(w.t, patience, func() bool {
		owned := 0
		for _, p := range w.report("m1").Partitions {
			if p.State == status.Owned {
				owned++
			}
		}
		return owned == n
	}, w.browser.text)
}

// owns waits until a member owns partitions.
func (w *world) owns(member string) {
	w.t.Helper()
	wait.Until(w.t, patience, func() bool {
		return slices.ContainsFunc(w.report("m1").Members, func(m status.Member) bool { return m.Name == member && m.Owned != nil && *m.Owned > 1 })
	}, w.browser.text)
}

// of returns a partition of a member that is none of those.
func (w *world) of(member string, not ...int32) int32 {
	w.t.Helper()
	for _, p := range w.report("m1").Partitions {
		if p.Owner == member && p.Topic == w.topic && !slices.Contains(not, p.Partition.Partition) {
			return p.Partition.Partition
		}
	}
	w.t.Fatalf("%s owns nothing", member)
	return -1
}

// feed writes to all partitions, and to the topics beside, all the time; what it returns writes one message.
func (w *world) feed() (send func(partition int32, value string)) {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(w.kafka.Brokers(), config)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			var batch []*sarama.ProducerMessage
			for p := range int32(partitions) {
				batch = append(batch, &sarama.ProducerMessage{Topic: w.topic, Partition: p, Value: sarama.StringEncoder("order")})
			}
			for _, topic := range w.beside {
				batch = append(batch, &sarama.ProducerMessage{Topic: topic, Partition: 0, Value: sarama.StringEncoder("order")})
			}
			_ = producer.SendMessages(batch) // Kafka is away for a while
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		<-done
		_ = producer.Close()
	})
	return func(partition int32, value string) {
		w.t.Helper()
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: w.topic, Partition: partition, Value: sarama.StringEncoder(value)}); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) name(partition int32) string { return fmt.Sprintf("%s:%d", w.topic, partition) }

// log logs what comes next, and when.
func (w *world) log(what string) {
	w.t.Helper()
	w.t.Logf("%s %s", time.Now().Format("15:04:05"), what)
}

// replaceClaim puts a znode without a session in the place of a claim, as fast as it can: its member claims the partition again.
func (w *world) replaceClaim(partition int32) {
	t := w.t
	s, err := session.Start(t.Context(), w.zk.Addrs(), session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	path := "/kiel/groups/" + w.group + "/owners/" + w.name(partition)
	for {
		inc, err := s.Incarnation(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = inc.Multi(t.Context(), session.DeleteOp(path, -1), session.CreateOp(path, []byte(`{"owner":"nobody"}`), session.Persistent))
		if err == nil {
			return
		}
		if !errors.Is(err, session.ErrNoNode) && !session.Retryable(err) {
			t.Fatal(err)
		}
	}
}
