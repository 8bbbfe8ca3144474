package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/health"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// speaking is a member that answers /status.
type speaking struct {
	change atomic.Pointer[func(*status.Group)] // what it says otherwise than the library; nil for nothing
}

// voice is a group that says what a test wants.
type voice struct {
	*consumer.Group

	of *speaking
}

// Status returns what the member says.
func (v voice) Status() *status.Group {
	g := v.Group.Status()
	if change := v.of.change.Load(); change != nil {
		(*change)(g)
	}
	return g
}

// speaker starts a member that answers /status, with a handler that returns what handle returns.
func (w *world) speaker(name string, handle func() error) *speaking {
	w.t.Helper()
	s := &speaking{}
	var source atomic.Pointer[consumer.Group]
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		health.Handler(voice{source.Load(), s}).ServeHTTP(rw, r)
	}))
	g, err := consumer.NewGroup([]string{w.hosts}, w.kafka.ListenAddrs(), "demo", consumer.Options{
		Name: name, Config: connect.KafkaConfig("test"), StartAt: consumer.Earliest, ReopenPartition: true, StatusAddr: server.URL, Session: session.Options{Timeout: 6 * time.Second},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	source.Store(g)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- g.Run(ctx, []string{"orders"}, func(_ context.Context, p *consumer.Partition) error {
			for m := range p.Messages() {
				if err := handle(); err != nil {
					return err
				}
				p.Mark(m)
			}
			return nil
		})
	}()
	w.t.Cleanup(func() {
		cancel()
		<-done
		if err := g.Close(); err != nil {
			w.t.Error(err)
		}
		server.Close()
	})
	return s
}

// doctor returns what doctor says, in JSON.
func (w *world) doctor() *inspect.Report {
	w.t.Helper()
	r := w.kiel("doctor", "demo", "--window", "100ms", "--local-members", "-o", "json")
	var report inspect.Report
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		w.t.Fatalf("%v: %+v", err, r)
	}
	return &report
}

// only returns the finding of a kind, which must be the only problem.
func only(t *testing.T, r *inspect.Report, kind inspect.Kind) inspect.Finding {
	t.Helper()
	problems := slices.DeleteFunc(slices.Clone(r.Findings), func(f inspect.Finding) bool { return f.Severity != inspect.Problem })
	if len(problems) != 1 || problems[0].Kind != kind {
		t.Fatalf("want %s alone: %+v", kind, problems)
	}
	return problems[0]
}

// Members are asked at the addresses that they give, and say what their handlers do; loopback addresses need a flag.
func TestMembersAnswer(t *testing.T) {
	w := newWorld(t)
	w.speaker("c1", func() error { return errors.New("poison") })
	w.produce()
	w.until("handler-failing", "doctor", "demo", "--window", "100ms", "--local-members", "-o", "json")
	report := w.doctor()
	f := only(t, report, inspect.HandlerFailing)
	if len(report.Answers) != 1 || report.Answers[0].State != inspect.OK || f.Member != "c1" || f.Since == nil || f.Do == "" ||
		!strings.HasPrefix(f.Objects[0], "orders:") || !strings.Contains(f.Text, "poison") || !strings.HasPrefix(f.Command, "kiel why demo orders:") {
		t.Errorf("%+v, %+v", f, report.Answers)
	}
	w.kiel("doctor", "demo", "--window", "100ms", "--local-members").wants(t, exitFailed, "1 of 1 members answered", "poison", "#kielhandlerfailing")
	w.kiel("doctor", "demo", "--window", "100ms").wants(t, exitOK, "0 of 1 members answered", "c1 did not answer", "not all could be seen")
}

// The since of a finding that comes from a member is that of the member's trouble, not the moment of the look.
func TestSinceWhenMembersKnow(t *testing.T) {
	w := newWorld(t)
	c1 := w.speaker("c1", func() error { return nil })
	w.produce()
	w.until("4/4", "groups")
	w.until("committed 1 of 1", "why", "demo", "orders:3")
	since := time.Now().Add(-17 * time.Minute).UTC().Truncate(time.Second)
	says := func(change func(*status.Group)) { c1.change.Store(&change) }
	trouble := func(kind string, about ...string) func(*status.Group) {
		return func(g *status.Group) {
			g.Troubles = append(g.Troubles, status.Trouble{Kind: kind, Since: since, Count: 9, Last: "it is so", About: about})
		}
	}
	check := func(f inspect.Finding, member, object string) {
		t.Helper()
		if f.Member != member || f.Since == nil || f.Since.Sub(since).Abs() > 2*time.Second || !slices.Contains(f.Objects, object) || f.Do == "" || f.Runbook == "" {
			t.Errorf("%+v", f)
		}
	}

	says(func(g *status.Group) {
		for i := range g.Partitions {
			if p := &g.Partitions[i]; p.Partition == 2 && p.Offsets != nil {
				p.Offsets.Stalled, p.Offsets.Lag = time.Since(since).Seconds(), 5
			}
		}
		trouble("stands", "orders:2")(g)
	})
	f := only(t, w.doctor(), inspect.HandlerStuck)
	check(f, "c1", "orders:2")
	if !strings.HasPrefix(f.Command, "kiel why demo orders:2 --local-members --zookeeper ") || strings.Contains(f.Command, "json") {
		t.Errorf("command %s", f.Command)
	}

	says(trouble("commit", "orders:1"))
	check(only(t, w.doctor(), inspect.MemberTrouble), "c1", "orders:1")

	says(func(g *status.Group) { g.Self.Kafka = &status.Kafka{Since: &since}; trouble("kafka")(g) })
	w.flags = []string{"--zookeeper", w.hosts, "--kafka", "127.0.0.1:1"}
	away := only(t, w.doctor(), inspect.KafkaUnreachable)
	if check(away, "", "127.0.0.1:1"); !strings.Contains(away.Text, "1 members that answered reach it as little") {
		t.Errorf("%s", away.Text)
	}
	says(func(*status.Group) {})
	if here := only(t, w.doctor(), inspect.KafkaUnreachable); here.Since != nil || !strings.Contains(here.Do, "network between here") {
		t.Errorf("members reach it: %+v", here)
	}
	w.kiel("doctor", "demo", "--window", "100ms").wants(t, exitFailed, "since when is not known")
}

// Commands that are printed work when they are copied: with the flags of the call, quoted, and without those of the output.
func TestCommandsHaveTheFlags(t *testing.T) {
	w := newWorld(t)
	t.Setenv("KIEL_KAFKA", w.kafka.ListenAddrs()[0])
	create(t, w.zk, "/a b/kiel/groups/demo/members/c1", "")
	create(t, w.zk, "/other/kiel/groups/demo/members/c1", "")
	r := command(t.Context(), "doctor", "demo", "--window", "1ms", "-v", "--wait=7s", "--zookeeper", w.hosts+"/a b", "-ojson")
	var report inspect.Report
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(report.Findings, func(f inspect.Finding) bool { return f.Kind == inspect.SiblingChroot })
	if want := "kiel describe demo --wait 7s --zookeeper " + w.hosts + "/other"; i < 0 || report.Findings[i].Command != want {
		t.Errorf("want %s: %+v", want, report.Findings)
	}
	r = command(t.Context(), "doctor", "none", "--window", "1ms", "--no-members=false", "--no-kafka", "--zookeeper", w.hosts+"/a b")
	r.wants(t, exitFailed, "run: kiel groups --no-members=false --no-kafka --zookeeper '"+w.hosts+"/a b'\n")
}

// A group whose first member joins between the looks is there.
func TestGroupThatComesBetweenLooks(t *testing.T) {
	w := newWorld(t)
	done := make(chan result)
	go func() { done <- w.kiel("doctor", "demo", "--window", "3s") }()
	time.Sleep(time.Second)
	create(t, w.zk, "/kiel/groups/demo/members/c1", "")
	if r := <-done; strings.Contains(r.out, "no group of this name") {
		t.Errorf("%s", r.out)
	}
}
