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
	"github.com/chromedp/chromedp"

	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

const (
	group      = "billing"
	topic      = "orders"
	partitions = 9
	timeout    = 4 * time.Second
	poison     = "poison" // the handler hangs
	bad        = "bad"    // the handler fails
	soon       = 5 * time.Second
	comes      = 2 * time.Minute // for a source to know of an incident: a handler must hang for a minute
)

// world is a group on real servers, a page of it in a browser, and somebody who asks the sources all the time.
type world struct {
	t       *testing.T
	bin     string
	zk      *servers.ZooKeeper
	kafka   *servers.Kafka
	brokers []string
	flags   []string
	member  map[string]*members.Process
	page    map[string]string // where each member serves the page
	browser *browser
	audited bool // the topic audit is there

	mu    sync.Mutex
	known map[string]time.Time // when the sources first had each finding, by kind and object
}

func newWorld(t *testing.T, kafka servers.KafkaOptions, secure func(*world)) *world {
	t.Helper()
	w := &world{
		t: t, member: map[string]*members.Process{}, page: map[string]string{}, known: map[string]time.Time{}, browser: newBrowser(t),
		zk:    servers.StartZooKeeper(t, servers.ZooKeeperOptions{Servers: 3, TickTime: time.Second}),
		kafka: servers.StartKafka(t, kafka),
	}
	w.brokers = w.kafka.Brokers()
	var err error
	if w.bin, err = members.Build(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if secure != nil {
		secure(w)
	}
	w.flags = append(w.flags, "--zookeeper", strings.Join(w.zk.Addrs(), ","), "--kafka", strings.Join(w.brokers, ","), "--group", group,
		"--session-timeout", timeout.String(), "--hang-on", poison, "--fail-on", bad)
	w.browser.size(1280, false)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return w
}

// start starts a member and waits until it serves.
func (w *world) start(name string, flags ...string) {
	w.t.Helper()
	addr := fmt.Sprintf("127.0.0.1:%d", servers.FreePorts(w.t, 1)[0])
	all := append(slices.Clone(w.flags), "--metrics", addr)
	if !slices.Contains(flags, "--topic") {
		flags = append(flags, "--topic", topic)
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
	}, group, inspect.SeriesOptions{})
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
		if p.Owner == member && p.Topic == topic && !slices.Contains(not, p.Partition.Partition) {
			return p.Partition.Partition
		}
	}
	w.t.Fatalf("%s owns nothing", member)
	return -1
}

// feed writes to all partitions all the time; what it returns writes one message.
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
				batch = append(batch, &sarama.ProducerMessage{Topic: topic, Partition: p, Value: sarama.StringEncoder("order")})
			}
			if w.audited {
				batch = append(batch, &sarama.ProducerMessage{Topic: "audit", Partition: 0, Value: sarama.StringEncoder("order")})
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
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.StringEncoder(value)}); err != nil {
			w.t.Fatal(err)
		}
	}
}

func name(partition int32) string { return fmt.Sprintf("%s:%d", topic, partition) }

// Of each incident the page alone says what is wrong, with what, since when, what it costs and what to do, soon after the sources know it.
func TestIncidents(t *testing.T) {
	w := newWorld(t, servers.KafkaOptions{}, nil)
	w.kafka.CreateTopic(topic, partitions)
	w.kafka.CreateTopic("audit", 2)
	w.start("m1", "--ask-members", "local")
	w.start("other", "--topic", "audit")
	run(w.browser, chromedp.Navigate(w.page["m1"]))
	for _, name := range []string{"m2", "m3"} {
		w.start(name)
	}
	w.owned(partitions + 2)
	w.audited = true
	send := w.feed()
	w.ask(nil)

	t.Log("a topic that nobody asks for")
	w.member["other"].Stop(t)
	w.shows(expect{kind: inspect.Kind(status.UnwantedTopic), object: "audit", waits: true, command: "kiel remove-topic billing audit", runbook: "#kielunwantedtopic"})

	t.Log("a member that is killed")
	w.forget()
	w.member["m3"].Kill()
	w.shows(expect{kind: inspect.MemberWent, object: "m3", what: "handled twice"})

	t.Log("a member that is stopped")
	w.start("m4")
	w.owns("m4")
	w.forget()
	w.member["m4"].Pause()
	w.shows(expect{kind: inspect.MemberWent, object: "m4", what: "handled twice"})
	w.member["m4"].Kill()

	t.Log("a handler that hangs, and one that fails")
	w.forget()
	hung := w.of("m2")
	send(hung, poison)
	failing := w.of("m1")
	send(failing, bad)
	w.shows(expect{kind: inspect.HandlerFailing, object: name(failing), what: "--fail-on", waits: true, command: "kiel why billing " + name(failing), runbook: "#kielhandlerfailing"})
	w.shows(expect{
		kind: inspect.StandsStill, object: name(hung), what: "stands still in m2 at offset", waits: true, command: "kiel why billing " + topic, runbook: "#kielhandlerstuck",
	})
	w.shows(expect{kind: inspect.HandlerStuck, object: name(hung), what: "m2 says that its handler stands at offset", waits: true, command: "kiel why billing " + topic, runbook: "#kielhandlerstuck"})
	run(w.browser, chromedp.Navigate(w.page["m2"]))
	w.browser.until(patience, shows("of 2 members were not asked what their handlers do")) // m1 has the option, m2 has not
	run(w.browser, chromedp.Navigate(w.page["m1"]))

	t.Log("a znode without a session in a claim's place")
	w.forget()
	blocked := w.of("m1", failing)
	w.replaceClaim(blocked)
	w.shows(expect{
		kind: inspect.Kind(status.PersistentClaim), object: name(blocked), what: "a znode without a session is in the claim's place", waits: true,
		command: "kiel release billing " + name(blocked), runbook: "#kielpersistentclaim",
	})

	t.Log("a slow partition")
	w.forget()
	w.start("slow", "--work", "250ms")
	w.owns("slow")
	slow := w.of("slow")
	w.shows(expect{kind: inspect.FallsBehind, object: name(slow), what: "falls behind in slow", waits: true, command: "kiel why billing " + topic, runbook: "#kielfallingbehind"})
	w.member["slow"].Kill()

	t.Log("another function")
	w.forget()
	w.start("odd", "--function", "range")
	w.shows(expect{kind: inspect.Kind(status.NoCommonFunction), object: "odd", runbook: "#kielmembersdisagree"})
	w.member["odd"].Stop(t)
	w.gone(inspect.Kind(status.NoCommonFunction))

	t.Log("Kafka away")
	w.forget()
	w.kafka.Stop()
	w.shows(expect{kind: inspect.KafkaUnreachable, object: w.brokers[0], what: "no broker of Kafka answers", runbook: "#kielkafkaunreachable"})
	w.kafka.Start()
	w.gone(inspect.KafkaUnreachable)

	t.Log("ZooKeeper without a quorum")
	w.forget()
	nodes := w.zk.Nodes()
	for _, n := range nodes[:2] {
		n.Stop()
	}
	w.shows(expect{kind: inspect.ZooKeeperUnreachable, object: w.zk.Addrs()[0], what: "no quorum of ZooKeeper answers", runbook: "#kielzookeeperunreachable"})
	if text := w.browser.text(); !strings.Contains(text, "as of ") || !strings.Contains(text, "m2") {
		t.Errorf("the members as they were are not shown: %s", text)
	}
	for _, n := range nodes[:2] {
		n.Start()
	}
	w.gone(inspect.ZooKeeperUnreachable)
	for _, m := range w.member {
		m.Kill() // the handler that hangs would keep its member for long
	}
}

// replaceClaim puts a znode without a session in the place of a claim, as fast as it can: its member claims the partition again.
func (w *world) replaceClaim(partition int32) {
	t := w.t
	s, err := session.Start(t.Context(), w.zk.Addrs(), session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	path := "/kiel/groups/" + group + "/owners/" + name(partition)
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

const (
	user     = "kiel"
	password = "of the user"
)

// A topic that Kafka refuses to the members: the page, which asks with their credentials, says so.
func TestTopicRefused(t *testing.T) {
	w := newWorld(t, servers.KafkaOptions{Users: map[string]string{user: password}, Config: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS",
	}}, func(w *world) {
		w.brokers = w.kafka.SecureBrokers(servers.ListenerSASL)
		t.Setenv("KIEL_KAFKA_PASSWORD", password)
		w.flags = []string{"--kafka-user", user}
	})
	w.kafka.CreateTopic(topic, partitions)
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	admin, err := sarama.NewClusterAdmin(w.kafka.Brokers(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for what, object := range map[sarama.AclResourceType]string{sarama.AclResourceTopic: topic, sarama.AclResourceGroup: group} {
		err := admin.CreateACLs([]*sarama.ResourceAcls{{
			Resource: sarama.Resource{ResourceType: what, ResourceName: object, ResourcePatternType: sarama.AclPatternLiteral},
			Acls:     []*sarama.Acl{{Principal: "User:" + user, Host: "*", Operation: sarama.AclOperationRead, PermissionType: sarama.AclPermissionAllow}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.start("m1")
	run(w.browser, chromedp.Navigate(w.page["m1"]))
	w.owned(partitions)
	saslConfig := *config
	saslConfig.Net.SASL.Enable, saslConfig.Net.SASL.User, saslConfig.Net.SASL.Password = true, user, password
	w.ask(&saslConfig)
	_, err = admin.DeleteACL(sarama.AclFilter{
		ResourceType: sarama.AclResourceTopic, ResourceName: new(topic), ResourcePatternTypeFilter: sarama.AclPatternLiteral,
		Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny,
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	w.shows(expect{kind: inspect.TopicRefused, object: topic, what: "Kafka refuses the topic to this user", runbook: "#security"})
	w.member["m1"].Kill()
}
