package page_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/IBM/sarama"
	"github.com/chromedp/chromedp"

	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// The page alone says of each incident what is wrong, with what, since when, what it costs and what to do, soon after the sources
// know it. Two groups have them side by side, on the same servers, which go away at last.
func TestIncidents(t *testing.T) {
	t.Parallel()
	s := newSite(t, servers.KafkaOptions{})
	var beside sync.WaitGroup
	beside.Go(func() {
		t.Run("handlers", func(t *testing.T) { s.newWorld(t, "billing").handlers() })
	})
	defer beside.Wait()
	w := s.newWorld(t, "shipping")
	w.comeAndGo()
	beside.Wait()
	w.serversAway()
	for _, m := range w.member {
		m.Kill()
	}
}

// handlers has handlers hang and fail, and a znode in the place of a claim.
func (w *world) handlers() {
	w.start("m1", "--ask-members", "local")
	run(w.browser, chromedp.Navigate(w.page["m1"]))
	w.start("m2")
	w.owned(partitions)
	w.owns("m2")
	send := w.feed()
	w.ask(nil)

	w.log("a handler that hangs, and one that fails")
	hung := w.of("m2")
	send(hung, poison)
	failing := w.of("m1")
	send(failing, bad)
	w.shows(expect{kind: inspect.HandlerFailing, object: w.name(failing), what: "--fail-on", waits: true, command: "kiel why billing " + w.name(failing), runbook: "#kielhandlerfailing"})
	w.shows(expect{
		kind: inspect.StandsStill, object: w.name(hung), what: "stands still in m2 at offset", waits: true, command: "kiel why billing " + w.topic, runbook: "#kielhandlerstuck",
	})

	w.log("a znode without a session in a claim's place")
	w.forget()
	blocked := w.of("m1", failing)
	w.replaceClaim(blocked)
	w.shows(expect{
		kind: inspect.Kind(status.PersistentClaim), object: w.name(blocked), what: "a znode without a session is in the claim's place", waits: true,
		command: "kiel release billing " + w.name(blocked), runbook: "#kielpersistentclaim",
	})

	w.log("the handler still hangs")
	run(w.browser, chromedp.Navigate(w.page["m2"]))
	w.browser.until(patience, shows("of 2 members were not asked what their handlers do")) // m1 has the option, m2 has not
	run(w.browser, chromedp.Navigate(w.page["m1"]))
	w.forget()
	w.shows(expect{kind: inspect.HandlerStuck, object: w.name(hung), what: "m2 says that its handler stands at offset", waits: true, command: "kiel why billing " + w.topic, runbook: "#kielhandlerstuck"})
	w.log("all was shown")
	for _, m := range w.member {
		m.Kill() // the handler that hangs would keep its member for long
	}
}

// comeAndGo has members come and go.
func (w *world) comeAndGo() {
	w.kafka.CreateTopic("audit", 2)
	w.beside = []string{"audit"}
	w.start("m1", "--ask-members", "local")
	w.start("other", "--topic", "audit")
	run(w.browser, chromedp.Navigate(w.page["m1"]))
	for _, name := range []string{"m2", "m3"} {
		w.start(name)
	}
	w.owned(partitions + 2)
	w.feed()
	w.ask(nil)

	w.log("a topic that nobody asks for")
	w.member["other"].Stop(w.t)
	w.shows(expect{kind: inspect.Kind(status.UnwantedTopic), object: "audit", waits: true, command: "kiel remove-topic shipping audit", runbook: "#kielunwantedtopic"})

	w.log("a member that is killed")
	w.forget()
	w.member["m3"].Kill()
	w.shows(expect{kind: inspect.MemberWent, object: "m3", what: "handled twice"})

	w.log("a member that is stopped")
	w.start("m4")
	w.owns("m4")
	w.forget()
	w.member["m4"].Pause()
	w.shows(expect{kind: inspect.MemberWent, object: "m4", what: "handled twice"})
	w.member["m4"].Kill()

	w.log("a slow partition")
	w.forget()
	w.start("slow", "--work", "250ms")
	w.owns("slow")
	slow := w.of("slow")
	w.shows(expect{kind: inspect.FallsBehind, object: w.name(slow), what: "falls behind in slow", waits: true, command: "kiel why shipping " + w.topic, runbook: "#kielfallingbehind"})
	w.member["slow"].Kill()

	w.log("another function")
	w.forget()
	w.start("odd", "--function", "range")
	w.shows(expect{kind: inspect.Kind(status.NoCommonFunction), object: "odd", runbook: "#kielmembersdisagree"})
	w.member["odd"].Stop(w.t)
	w.gone(inspect.Kind(status.NoCommonFunction))
	w.log("all was shown")
}

// serversAway has Kafka and ZooKeeper go away and come back.
func (w *world) serversAway() {
	w.log("Kafka away")
	w.forget()
	w.kafka.Stop()
	w.shows(expect{kind: inspect.KafkaUnreachable, object: w.brokers[0], what: "no broker of Kafka answers", runbook: "#kielkafkaunreachable"})
	w.kafka.Start()
	w.gone(inspect.KafkaUnreachable)

	w.log("ZooKeeper without a quorum")
	w.forget()
	nodes := w.zk.Nodes()
	for _, n := range nodes[:2] {
		n.Stop()
	}
	w.shows(expect{kind: inspect.ZooKeeperUnreachable, object: w.zk.Addrs()[0], what: "no quorum of ZooKeeper answers", runbook: "#kielzookeeperunreachable"})
	if text := w.browser.text(); !strings.Contains(text, "as of ") || !strings.Contains(text, "m2") {
		w.t.Errorf("the members as they were are not shown: %s", text)
	}
	for _, n := range nodes[:2] {
		n.Start()
	}
	w.gone(inspect.ZooKeeperUnreachable)
	w.log("all was shown")
}

const (
	user     = "kiel"
	password = "of the user"
)

// A topic that Kafka refuses to the members: the page, which asks with their credentials, says so.
func TestTopicRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, servers.KafkaOptions{Users: map[string]string{user: password}, Config: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS",
	}})
	s.brokers = s.kafka.SecureBrokers(servers.ListenerSASL)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	s.flags = []string{"--kafka-user", user, "--kafka-password-file", file}
	w := s.newWorld(t, "refused")
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	admin, err := sarama.NewClusterAdmin(w.kafka.Brokers(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for what, object := range map[sarama.AclResourceType]string{sarama.AclResourceTopic: w.topic, sarama.AclResourceGroup: w.group} {
		err := admin.CreateACLs([]*sarama.ResourceAcls{{
			Resource: sarama.Resource{ResourceType: what, ResourceName: object, ResourcePatternType: sarama.AclPatternLiteral},
			Acls:     []*sarama.Acl{{Principal: "User:" + user, Host: "*", Operation: sarama.AclOperationRead, PermissionType: sarama.AclPermissionAllow}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	saslConfig := *config
	saslConfig.Net.SASL.Enable, saslConfig.Net.SASL.User, saslConfig.Net.SASL.Password = true, user, password
	allowed(t, w, &saslConfig)
	w.start("m1")
	run(w.browser, chromedp.Navigate(w.page["m1"]))
	w.owned(partitions)
	started(t, w)
	w.ask(&saslConfig)
	_, err = admin.DeleteACL(sarama.AclFilter{
		ResourceType: sarama.AclResourceTopic, ResourceName: new(w.topic), ResourcePatternTypeFilter: sarama.AclPatternLiteral,
		Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny,
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	w.shows(expect{kind: inspect.TopicRefused, object: w.topic, what: "Kafka refuses the topic to this user", runbook: "#security"})
	w.member["m1"].Kill()
}

// allowed waits until the broker knows the ACLs that the controller has stored: a member that comes before would be refused.
func allowed(t *testing.T, w *world, config *sarama.Config) {
	t.Helper()
	var err error
	wait.Until(t, patience, func() bool {
		err = try(w, config)
		return err == nil
	}, func() string { return err.Error() })
}

// started waits until m1 has opened all partitions: a refusal while it starts would end it at once.
func started(t *testing.T, w *world) {
	t.Helper()
	wait.Until(t, patience, func() bool { return strings.Count(w.member["m1"].Log(), "msg=opened ") == partitions }, w.member["m1"].Log)
}

// try asks Kafka, as a member does, for the topic and for the group.
func try(w *world, config *sarama.Config) error {
	client, err := sarama.NewClient(w.brokers, config)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.GetOffset(w.topic, 0, sarama.OffsetNewest)
	return errors.Join(err, client.RefreshCoordinator(w.group))
}
