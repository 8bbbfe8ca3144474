package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer"
)

// membersPath is the directory of the group's members.
const membersPath = "/kiel/groups/" + group + "/members"

// memberNodes returns the members' znodes: who created them when, and whether they were written since.
func (r *rig) memberNodes() string {
	var all []string
	for _, name := range r.zk.Children(membersPath) {
		data, stat, _ := r.zk.Get(membersPath + "/" + name)
		all = append(all, fmt.Sprintf("%s %d %d %d %s", name, stat.Czxid, stat.Mzxid, stat.EphemeralOwner, data))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// setWrites returns how often the group's set was written.
func (r *rig) setWrites() int32 {
	_, stat, _ := r.zk.Get(setPath)
	return stat.Version
}

// produceAs creates a topic with n messages in each of its partitions.
func (r *rig) produceAs(name string, partitions int32, n int) {
	r.t.Helper()
	r.createTopic(name, partitions)
	for p := range partitions {
		r.produceTo(name, n, p)
	}
}

// setups returns how often a member's Setup was called.
func (m *member) setups() (n int) {
	for _, call := range m.h.called() {
		if call == "setup" {
			n++
		}
	}
	return n
}

// A topic that comes into Kafka and matches is found by the members' next look, and added in one write; no record changes and no
// member joins anew. What patterns exclude or don't match is consumed only by who names it.
func TestPatternsFindNewTopics(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produceAs("orders-eu", 2, 10)
		r.produceAs("orders-test-1", 1, 10)
		r.produceAs("audit", 1, 10)
		r.produceAs("other", 1, 10)
		patterns := []string{"^orders-.*", "!^orders-test-.*", "audit"}
		a, b := r.member("a", nil).start(patterns...), r.member("b", nil).run(patterns...)
		until(t, "30 messages", func() bool { return total(a, b) == 30 })
		time.Sleep(2 * time.Minute)
		if got := r.set(); got != `["audit:0", "orders-eu:0", "orders-eu:1"]` {
			t.Error(got)
		}
		nodes, writes := r.memberNodes(), r.setWrites()

		r.produceAs("orders-us", 3, 10)
		r.produceAs("orders-apac", 1, 10)
		r.produceAs("orders-test-2", 1, 10)
		r.produceAs("my-orders-us", 1, 10)
		d := until(t, "40 messages more", func() bool { return total(a, b) == 70 })
		t.Logf("read after %v", d)
		if d > 61*time.Second {
			t.Errorf("the new topics were read after %v", d)
		}
		time.Sleep(5 * time.Minute)
		if got := r.memberNodes(); got != nodes {
			t.Errorf("members were %s and are %s", nodes, got)
		}
		if n := r.setWrites() - writes; n != 1 {
			t.Errorf("%d writes of the set", n)
		}
		if total(a, b) != 70 || a.setups() != 1 || len(a.owns())+len(b.owns()) != 7 || len(a.owns()) < 3 || len(b.owns()) < 3 {
			t.Errorf("%d messages, %d Setups; a owns %v and b %v", total(a, b), a.setups(), a.owns(), b.owns())
		}
		if errs := append(a.errors(), b.errors()...); len(errs) > 0 {
			t.Error(errs)
		}

		c := r.member("c", nil).start("orders-test-1", "^my-.*") // beside others with other lists
		until(t, "20 messages more", func() bool { return total(c) == 20 })
		if fmt.Sprint(c.owns()) != "[my-orders-us:0 orders-test-1:0]" || total(a, b) != 70 {
			t.Errorf("c owns %v", c.owns())
		}
		for _, m := range []*member{a, b, c} {
			quit(m)
		}
	})
}

// A member whose patterns match nothing joins and waits. A topic that is created later is found within Metadata.RefreshFrequency.
func TestPatternsThatFindNothingWait(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		var out lines
		a := r.member("a", func(o *consumer.Options) {
			logTo(&out, o)
			o.Config.Metadata.RefreshFrequency = 5 * time.Second
		}).start("^late.*")
		until(t, "Setup", func() bool { return a.setups() == 1 })
		time.Sleep(10 * time.Minute)
		if said := out.take(); len(said) != 1 || !strings.Contains(said[0], "no topic matches the patterns") {
			t.Errorf("log: %s", said)
		}
		r.produceAs("late", 1, 10)
		if d := until(t, "10 messages", func() bool { return total(a) == 10 }); d > 6*time.Second {
			t.Errorf("found after %v", d)
		}
		if a.setups() != 1 || len(a.errors()) > 0 {
			t.Errorf("%d Setups, errors %v", a.setups(), a.errors())
		}
		quit(a)
	})
}

// A topic that is deleted in Kafka is reported once by who consumes it, and its partitions wait. RemoveTopic then removes it for
// good, though patterns match it, until Kafka has it again.
func TestPatternsOfADeletedTopic(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produceAs("gone", 2, 10)
		reg := prometheus.NewRegistry()
		a := r.member("a", func(o *consumer.Options) { o.Registerer = reg }).start("^gone.*", topic)
		until(t, "20 messages", func() bool { return total(a) == 20 })
		time.Sleep(5 * time.Second) // all is committed
		r.deleteTopic("gone")
		time.Sleep(3 * time.Minute)
		if errs := a.errors(); len(errs) != 1 || !errors.Is(errs[0], consumer.ErrTopicMissing) {
			t.Errorf("errors: %v", errs)
		}
		if n := missingTopics(t, reg); n != 1 {
			t.Errorf("%v missing topics", n)
		}
		if err := a.group.RemoveTopic(t.Context(), "gone"); err != nil {
			t.Error(err)
		}
		if err := a.group.RemoveTopic(t.Context(), topic); !errors.Is(err, consumer.ErrTopicInUse) {
			t.Error(err)
		}
		time.Sleep(5 * time.Minute)
		if got := r.set(); got != `["t:0"]` {
			t.Error(got)
		}
		if errs := a.errors(); len(errs) != 1 {
			t.Errorf("errors: %v", errs[1:])
		}
		for name := range scrape(t, reg) {
			if strings.Contains(name, "topic=gone") {
				t.Errorf("after the removal there is %s", name)
			}
		}
		if err := r.zk.Delete(setPath); err != nil { // it is added again, without what was removed
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if got := r.set(); got != `["t:0"]` {
			t.Error(got)
		}
		r.produceAs("gone", 1, 5)
		until(t, "what was created again", func() bool { return total(a) == 25 })
		quit(a)
	})
}

// A topic in the set that patterns match, and that Kafka does not have at the start, is missing too.
func TestPatternsOfATopicThatOnlyTheSetHas(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		first := r.member("first", nil).start()
		until(t, "it is open", func() bool { return len(first.owns()) == 1 })
		quit(first)
		if err := r.zk.Set(setPath, []byte(`["gone:0", "gone:1", "t:0"]`)); err != nil {
			t.Fatal(err)
		}
		a := r.member("a", nil).start("^gone.*", "^t")
		until(t, "it is open", func() bool { return len(a.owns()) == 1 })
		time.Sleep(5 * time.Minute)
		if errs := a.errors(); len(errs) != 1 || !errors.Is(errs[0], consumer.ErrTopicMissing) {
			t.Errorf("errors: %v", errs)
		}
		r.produceAs("gone", 2, 10)
		if d := until(t, "20 messages", func() bool { return total(a) == 20 }); d > 15*time.Second {
			t.Errorf("read after %v", d)
		}
		if errs := a.errors(); len(errs) != 1 {
			t.Errorf("errors: %v", errs)
		}
		quit(a)
	})
}

// A topic that RemoveTopic takes out while patterns match it and Kafka has it comes back at the next look, at its position.
func TestPatternsFindARemovedTopicAgain(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1)
		a := r.member("a", nil).start("^t.*")
		until(t, "20 messages", func() bool { return total(a) == 20 })
		if err := a.group.RemoveTopic(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
		until(t, "it is closed", func() bool { return len(a.owns()) == 0 })
		if d := until(t, "it is open again", func() bool { return len(a.owns()) == 2 }); d > time.Minute {
			t.Errorf("open after %v", d)
		}
		r.produce(10, 0, 1)
		until(t, "20 messages more", func() bool { return total(a) == 40 })
		quit(a)
		r.check(false)
	})
}

// With StartAt: Latest, topics that exist when a member joins are read from their ends, and one that is found later from its
// first message, by whichever member, however many partitions the members share.
func TestPatternsFromLatest(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1, 2, 3)
		a, b := r.member("a", fromLatest).start("^t.*"), r.member("b", fromLatest).start("^t.*")
		until(t, "all is open", func() bool { return len(a.owns()) == 2 && len(b.owns()) == 2 })
		time.Sleep(time.Minute)
		if n := total(a, b); n != 0 {
			t.Errorf("%d old messages were read", n)
		}
		r.produceAs("t2", 8, 10)
		until(t, "all of the new topic", func() bool { return total(a, b) == 80 })
		time.Sleep(2 * time.Minute)
		if n := total(a, b); n != 80 {
			t.Errorf("%d messages", n)
		}
		for _, m := range []*member{a, b} {
			quit(m)
		}
	})
}

// While a member in Python is in the group, patterns mean as little as names: all is divided, and what a member does not consume
// it does not claim.
func TestPatternsBesidePython(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.createTopic("u", 2)
		b := r.member("b", nil).start("u", topic)
		until(t, "all is open", func() bool { return len(b.owns()) == 4 })
		quit(b)
		a := r.member("a", nil).start("^t.*")
		until(t, "it is open", func() bool { return len(a.owns()) == 2 })
		if err := r.zk.Create(membersPath+"/python", nil); err != nil {
			t.Fatal(err)
		}
		until(t, "a part is Python's", func() bool { return len(a.owns()) == 1 })
		time.Sleep(time.Minute)
		refused := slices.ContainsFunc(a.errors(), func(err error) bool { return errors.Is(err, consumer.ErrTopicMismatch) })
		if !refused || fmt.Sprint(r.zk.Children("/kiel/groups/"+group+"/owners")) != "[t:0]" {
			t.Errorf("errors %v, owned %v", a.errors(), r.zk.Children("/kiel/groups/"+group+"/owners"))
		}
		quit(a)
	})
}

// A next call with the same patterns, in whatever order, goes on with the membership; one with others joins anew.
func TestNextCallWithPatterns(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		a := r.member("a", nil)
		var nodes []string
		for _, topics := range [][]string{{"^t.*", "!^tt"}, {"!^tt", "^t.*", "^t.*"}, {"^t.*"}} {
			a.failSetup(topics...)
			nodes = append(nodes, r.memberNodes())
		}
		if nodes[0] != nodes[1] || nodes[1] == nodes[2] || !strings.Contains(nodes[2], `["^t.*"]`) {
			t.Errorf("members: %s", nodes)
		}
		a.close()
	})
}

// A list that can't be one of topics is refused, and nothing is joined. Without Kafka the error is sarama's.
func TestPatternsThatAreRefused(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		a := r.member("a", nil)
		for _, topics := range [][]string{{"^t("}, {"!^t"}, {"t", "!^t"}, {`^\pL`}, {"^" + strings.Repeat("t", 1000)}} {
			if err := a.group.Consume(t.Context(), topics, a.h); !errors.Is(err, kiel.ErrInvalidName) || !strings.HasPrefix(err.Error(), "consumer: invalid name: ") {
				t.Errorf("%.20s: %v", topics, err)
			}
			if _, err := allocator.New(a.zk, group, "x", allocator.Options{Topics: topics}); !errors.Is(err, kiel.ErrInvalidName) {
				t.Errorf("%.20s: %v", topics, err)
			}
		}
		r.kafka.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := a.group.Consume(ctx, []string{"^t.*"}, a.h); !errors.Is(err, sarama.ErrOutOfBrokers) {
			t.Error(err)
		}
		if _, _, ok := r.zk.Get(membersPath); ok {
			t.Error("the group was joined")
		}
		a.close()
	})
}
