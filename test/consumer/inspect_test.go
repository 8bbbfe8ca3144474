package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// window is that of the tests' looks.
const window = 10 * time.Second

// inspector makes one with connections of its own.
func (r *rig) inspector(chroot string) *inspect.Inspector {
	r.t.Helper()
	return r.inspectorBy(chroot, r.config())
}

func (r *rig) inspectorBy(chroot string, config *sarama.Config) *inspect.Inspector {
	r.t.Helper()
	in, err := inspect.Open(r.t.Context(), inspect.Sources{
		Servers: []string{zktest.VirtualAddress}, Session: session.Options{Dial: r.zknet.Client("operator").Dial, Chroot: chroot},
		Brokers: r.kafka.ListenAddrs(), Config: config,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := in.Close(context.WithoutCancel(r.t.Context())); err != nil {
			r.t.Errorf("Close: %v", err)
		}
	})
	return in
}

// doctor looks twice, while messages are written to these partitions, and returns what its JSON has.
func (r *rig) doctor(in *inspect.Inspector, partitions ...int32) *inspect.Report {
	r.t.Helper()
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Millisecond):
				r.produceTo(topic, 1, partitions...)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	if len(partitions) > 0 {
		time.Sleep(window)
	}
	began := time.Now()
	report, err := in.Look(r.t.Context(), group, inspect.Options{Window: window, Thorough: true})
	if err != nil {
		r.t.Fatal(err)
	}
	if took := time.Since(began); took > time.Minute {
		r.t.Errorf("it took %v", took)
	}
	data, err := json.Marshal(report)
	if err != nil {
		r.t.Fatal(err)
	}
	var read inspect.Report
	if err := json.Unmarshal(data, &read); err != nil {
		r.t.Fatal(err)
	}
	return &read
}

// wantFinding is what a finding must say.
type wantFinding struct {
	kind    inspect.Kind
	object  string
	member  string
	after   time.Time // Since is at this moment or up to 15 s later; zero: Since is not known
	waiting bool      // messages wait
	command string
	note    bool
	says    string
}

// finds looks for a finding in a report, which may have no other problem.
func finds(t *testing.T, report *inspect.Report, want wantFinding) {
	t.Helper()
	i := slices.IndexFunc(report.Findings, func(f inspect.Finding) bool {
		return f.Kind == want.kind && (want.object == "" || slices.Contains(f.Objects, want.object))
	})
	if i < 0 {
		t.Fatalf("no finding of %s about %q: %+v", want.kind, want.object, report.Findings)
	}
	f := report.Findings[i]
	if f.Member != want.member || f.Command != want.command || (f.Waiting > 0) != want.waiting || (f.Severity == inspect.Note) != want.note ||
		!strings.Contains(f.Text, want.says) {
		t.Errorf("got %+v, want %+v", f, want)
	}
	if f.Severity == inspect.Problem && (f.Do == "" || f.Runbook == "" && f.Command == "") {
		t.Errorf("it does not say what to do: %+v", f)
	}
	if want.after.IsZero() && f.Since != nil && want.kind != inspect.FallsBehind { // how old what waits was at the first look, is chance
		t.Errorf("since %v, which nobody knows", f.Since)
	}
	if !want.after.IsZero() && (f.Since == nil || f.Since.Before(want.after.Add(-time.Second)) || f.Since.After(want.after.Add(15*time.Second))) {
		t.Errorf("since %v, want %v", f.Since, want.after)
	}
	for _, other := range report.Findings {
		if other.Severity == inspect.Problem && other.Kind != want.kind {
			t.Errorf("besides: %+v", other)
		}
	}
}

// two makes two members, which own two of four partitions each, and commits.
func (r *rig) two(change func(*consumer.Options)) (a, b *member) {
	r.t.Helper()
	a, b = r.member("a", change), r.member("b", change)
	a.start()
	b.start()
	until(r.t, "each owns two", func() bool { return len(a.owns()) == 2 && len(b.owns()) == 2 })
	r.produce(3, 0, 1, 2, 3)
	until(r.t, "all is committed", func() bool { return r.committed(topic, 0) == 3 && r.committed(topic, 3) == 3 })
	return a, b
}

func TestInspectHealthyGroup(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b := r.two(nil)
		report := r.doctor(r.inspector(""), 0, 1, 2, 3)
		if len(report.Findings) > 0 {
			t.Errorf("findings: %+v", report.Findings)
		}
		for _, p := range report.Partitions {
			if p.Owner == "" || p.Since == nil || p.Token == 0 || p.Kafka == nil || p.Kafka.Committed < 3 || p.Kafka.Moved <= 0 || p.Kafka.Tree != report.Tree {
				t.Errorf("%+v %+v", p, p.Kafka)
			}
		}
		if report.ZooKeeper.State != inspect.OK || report.Kafka.State != inspect.OK || len(report.Members) != 2 || !report.Servers[0].OK {
			t.Errorf("%+v", report)
		}
		quit(a, b)
	})
}

// A partition whose handler hangs, and one whose handler is slow, beside those that go on.
func TestInspectHandlers(t *testing.T) {
	for name, tc := range map[string]struct {
		work func(stop <-chan struct{})
		kind inspect.Kind
		says string
	}{
		"stuck": {func(stop <-chan struct{}) { <-stop }, inspect.StandsStill, "stands still in "},
		"slow": {func(stop <-chan struct{}) {
			select {
			case <-stop:
			case <-time.After(time.Second):
			}
		}, inspect.FallsBehind, "falls behind in "},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 4, func(t *testing.T, r *rig) {
				a, b := r.two(nil)
				stop := make(chan struct{})
				var bad atomic.Bool
				work := func(c sarama.ConsumerGroupClaim, _ *sarama.ConsumerMessage) {
					if bad.Load() && c.Partition() == 0 {
						tc.work(stop)
					}
				}
				a.h.before(work)
				b.h.before(work)
				bad.Store(true)
				in := r.inspector("")
				began := time.Now()
				for range 80 { // for two windows
					r.produce(1, 0, 1, 2, 3)
					time.Sleep(300 * time.Millisecond)
				}
				report := r.doctor(in, 0, 1, 2, 3)
				owner := ownerOf(report, 0)
				want := wantFinding{kind: tc.kind, object: "t:0", member: owner, waiting: true, command: "kiel why g t:0", says: tc.says + owner}
				if name == "stuck" {
					want.after = began
				}
				finds(t, report, want)
				close(stop)
				quit(a, b)
			})
		})
	}
}

func ownerOf(report *inspect.Report, p int32) string {
	for _, one := range report.Partitions {
		if one.Topic == topic && one.Partition.Partition == p {
			return one.Owner
		}
	}
	return ""
}

// A handler that fails again and again at one message, in a program that consumes again.
func TestInspectFailingHandler(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		a := r.member("a", func(o *consumer.Options) { o.ReopenPartition = true })
		var poison atomic.Bool
		a.h.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) error {
			if poison.Load() {
				return errPoison
			}
			s.MarkMessage(m, "")
			return nil
		}
		a.start()
		r.produce(3, 0)
		until(t, "committed", func() bool { return r.committed(topic, 0) == 3 })
		poison.Store(true)
		began := time.Now()
		report := r.doctor(r.inspector(""), 0)
		finds(t, report, wantFinding{
			kind: inspect.StandsStill, object: "t:0", member: "a", after: began, waiting: true, command: "kiel why g t:0", says: "at offset 3",
		})
		a.leave()
		a.close()
	})
}

var errPoison = errors.New("poison")

// A member that is stopped or killed: its partitions stand still until its session ends, and then others have them.
func TestInspectLostMember(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b := r.two(nil)
		in := r.inspector("")
		killed := time.Now()
		r.zk.KillSession(a.sessionID())
		a.net.Freeze()
		until(t, "b owns all", func() bool { return len(b.owns()) == 4 })
		report := r.doctor(in, 0, 1, 2, 3)
		finds(t, report, wantFinding{kind: inspect.MemberWent, object: "a", member: "a", after: killed, note: true, says: "2 of its partitions"})
		a.net.Heal()
		quit(a, b)
	})
}

func TestInspectKafkaAway(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b := r.two(nil)
		net, config := &outage{dialer: dialer{r.knet}}, r.config()
		config.Net.Proxy.Dialer = net
		in := r.inspectorBy("", config)
		net.begin()
		report := r.doctor(in)
		finds(t, report, wantFinding{kind: inspect.KafkaUnreachable, object: r.kafka.ListenAddrs()[0], says: "no member has said"})
		if len(report.Members) != 2 || report.ZooKeeper.State != inspect.OK || report.Kafka.State != inspect.Failed {
			t.Errorf("%+v", report)
		}
		quit(a, b)
	})
}

func TestInspectQuorumLost(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b := r.two(nil)
		in := r.inspector("")
		r.zk.Freeze()
		began := time.Now()
		report := r.doctor(in)
		lastProof := began.Add(-2 * time.Second) // a sixth of the session timeout before, at most
		finds(t, report, wantFinding{kind: inspect.ZooKeeperUnreachable, object: zktest.VirtualAddress, after: lastProof})
		r.zk.Thaw()
		until(t, "all is owned again", func() bool { return len(a.owns())+len(b.owns()) == 4 })
		quit(a, b)
	})
}

// ZooKeeper that is away from the start is a finding, too. Since when, and what waits, Kafka alone can say.
func TestInspectWithoutZooKeeper(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		report := r.doctor(func() *inspect.Inspector { r.zk.Down(); return r.inspector("/tree") }())
		finds(t, report, wantFinding{kind: inspect.ZooKeeperUnreachable, object: zktest.VirtualAddress})
		r.zk.Restart(false)
		r.used()
		r.zk.Down()
		began := time.Now()
		r.produce(3, 0, 1)
		report = r.doctor(r.inspector(""))
		finds(t, report, wantFinding{kind: inspect.ZooKeeperUnreachable, object: zktest.VirtualAddress, after: began, waiting: true})
		if f := report.Findings[0]; f.Waiting != 6 {
			t.Errorf("%d wait", f.Waiting)
		}
	})
}

func TestInspectZnodesInTheClaimsPlace(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b := r.two(nil)
		in := r.inspector("")
		began := time.Now()
		const path = "/kiel/groups/g/owners/t:0"
		if err := r.zk.Delete(path); err != nil {
			t.Fatal(err)
		}
		if err := r.zk.Create(path, []byte(`{"owner":"x"}`)); err != nil {
			t.Fatal(err)
		}
		report := r.doctor(in, 0, 1, 2, 3)
		finds(t, report, wantFinding{
			kind: "persistent-claim", object: "t:0", after: began, waiting: true, command: "kiel release g t:0", says: "a znode without a session",
		})
		if err := r.zk.Delete(path); err != nil {
			t.Fatal(err)
		}
		quit(a, b)
	})
}

func TestInspectUnwantedTopic(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		r.createTopic("old", 2)
		a, b := r.two(nil)
		c := r.member("c", nil).start("old")
		until(t, "c owns them", func() bool { return len(c.owns()) == 2 })
		c.leave()
		began := time.Now()
		r.produceTo("old", 3, 0, 1)
		time.Sleep(window)
		report := r.doctor(r.inspector(""), 0, 1, 2, 3)
		finds(t, report, wantFinding{kind: "unwanted-topic", object: "old", after: began, waiting: true, command: "kiel remove-topic g old"})
		quit(a, b)
		c.close()
	})
}

func TestInspectOtherFunction(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b := r.two(nil)
		began := time.Now()
		c := r.member("c", func(o *consumer.Options) {
			o.Func = allocfn.Func{Name: "other", Version: 1, Assign: allocfn.RoundRobin().Assign}
		}).start()
		until(t, "c has joined", func() bool { return len(r.zk.Children("/kiel/groups/g/members")) == 3 })
		report := r.doctor(r.inspector(""), 0, 1, 2, 3)
		finds(t, report, wantFinding{kind: "no-common-function", object: "c", after: began, command: "kiel describe g --section members"})
		c.stop()
		<-c.done
		quit(a, b)
		c.close()
	})
}

func TestInspectRefusedTopic(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b := r.two(nil)
		defer r.refuseTopic([]kmsg.Key{kmsg.Metadata}).Remove()
		report := r.doctor(r.inspector(""))
		finds(t, report, wantFinding{kind: inspect.TopicRefused, object: topic, says: "Members that ask for it: a, b"})
		quit(a, b)
	})
}

// A chroot that does not exist is an error, and is not created.
func TestInspectCreatesNothing(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		before := r.zk.Dump()
		sources := inspect.Sources{Servers: []string{zktest.VirtualAddress}, Session: session.Options{Dial: r.zknet.Client("operator").Dial, Chroot: "/none"}}
		if in, err := inspect.Open(t.Context(), sources); err == nil || !strings.Contains(err.Error(), "/none") {
			t.Errorf("Open: %v, %v", in, err)
		}
		report := r.doctor(r.inspector(""))
		finds(t, report, wantFinding{kind: inspect.NoGroup, object: group, command: "kiel groups", says: "no group"})
		if after := r.zk.Dump(); after != before {
			t.Errorf("before\n%s\nafter\n%s", before, after)
		}
	})
}

// Follow shows who comes and goes, and which partitions move, and costs two requests a second while nothing does.
func TestFollow(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a, b := r.two(nil)
		in := r.inspector("")
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var changes []inspect.Change
		done := make(chan error, 1)
		go func() {
			done <- in.Follow(ctx, group, 0, func(c inspect.Change) {
				mu.Lock()
				defer mu.Unlock()
				changes = append(changes, c)
			})
		}()
		has := func(kind inspect.ChangeKind, member, from, to string) func() bool {
			return func() bool {
				mu.Lock()
				defer mu.Unlock()
				return slices.ContainsFunc(changes, func(c inspect.Change) bool {
					return c.Kind == kind && c.Member == member && (from == "" || c.From == from) && c.To == to && !c.At.IsZero()
				})
			}
		}
		time.Sleep(time.Minute)
		var requests atomic.Int32
		r.zk.SetHook(func(q *zktest.Request) zktest.Action {
			if q.Client == "operator" && q.Op != zktest.OpPing && q.Op != zktest.OpMulti {
				requests.Add(1)
			}
			return zktest.Action{}
		})
		time.Sleep(time.Minute)
		if n := requests.Load(); n > 130 {
			t.Errorf("%d requests a minute", n)
		}
		c := r.member("c", nil).start()
		until(t, "c has joined", has(inspect.MemberJoined, "c", "", ""))
		until(t, "c has claimed", func() bool { return has(inspect.Claimed, "", "a", "c")() || has(inspect.Claimed, "", "b", "c")() })
		c.leave()
		until(t, "c is gone", has(inspect.MemberGone, "c", "", ""))
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		quit(a, b)
		c.close()
	})
}
