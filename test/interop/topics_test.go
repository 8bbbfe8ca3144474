package interop_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/wait"
)

// Go members that ask for different topics, beside a Python member, compute what Python computes, which knows of no topics. When
// the last Python member has gone, each topic is for those that ask for it.
func TestTopicsBesidePython(t *testing.T) {
	g := newGroup(t, "topics", 10*time.Second)
	a := g.joinFor([]string{"orders"}, "go", "orders:0", "orders:1", "orders:2")
	b := g.joinFor([]string{"orders", "payments"}, "go", "orders:0", "orders:1", "orders:2", "payments:0", "payments:1", "payments:2")
	g.see(a, map[string][]string{a.name: {"orders"}, b.name: {"orders", "payments"}})
	g.see(b, map[string][]string{a.name: {"orders"}, b.name: {"orders", "payments"}})
	python := g.join("python")
	g.agree()
	g.join("python")
	g.agree()
	g.leave(python)
	g.agree()
	for _, m := range g.members {
		if m.language == "python" {
			g.leave(m)
		}
	}
	g.see(a, map[string][]string{a.name: {"orders"}, b.name: {"orders", "payments"}})
	g.see(b, map[string][]string{a.name: {"orders"}, b.name: {"orders", "payments"}})
}

// see waits until a member sees that each partition belongs to one of those that ask for its topic.
func (g *group) see(m *member, asks map[string][]string) {
	g.t.Helper()
	var got response
	wait.Until(g.t, agreeTimeout, func() bool {
		var err error
		if got, err = m.ask(request{Op: "state"}); err != nil {
			g.t.Fatal(err)
		}
		if got.Error != "" || !slices.Equal(got.Members, slices.Sorted(maps.Keys(asks))) {
			return false
		}
		var all []string
		for name, share := range got.Mapping {
			for topic, ids := range share {
				if !slices.Contains(asks[name], topic) {
					return false
				}
				for _, id := range ids {
					all = append(all, fmt.Sprintf("%s:%d", topic, id))
				}
			}
		}
		slices.Sort(all)
		return slices.Equal(all, slices.Sorted(maps.Keys(g.items)))
	}, func() string { return fmt.Sprintf("%s sees %+v", m.name, got) })
}

// consuming is a member of the group that consumes, in this process.
type consuming struct {
	name   string
	topics []string

	mu    sync.Mutex
	owned map[string]bool
	errs  []error
}

// Setup is sarama's.
func (*consuming) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup is sarama's.
func (*consuming) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim reads until its partition is revoked.
func (*consuming) ConsumeClaim(_ sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for range c.Messages() {
	}
	return nil
}

// consume starts a member that consumes topics until the test ends.
func (g *group) consume(brokers []string, name string, topics ...string) *consuming {
	g.t.Helper()
	c := &consuming{name: name, topics: topics, owned: map[string]bool{}}
	zk, err := session.New([]string{g.zk}, session.Options{MinSessionTimeout: minSessionTimeout})
	if err != nil {
		g.t.Fatal(err)
	}
	config := sarama.NewConfig()
	config.ClientID, config.Version, config.Consumer.Return.Errors = "test", sarama.V3_6_0_0, true
	members, err := consumer.New(zk, brokers, g.name, consumer.Options{Name: name, Config: config, StartAt: consumer.Earliest, Observer: c.observe})
	if err != nil {
		g.t.Fatal(err)
	}
	life, end := context.WithCancel(context.Background())
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := zk.Run(life); err != nil {
			g.t.Errorf("%s: %v", name, err)
		}
	})
	work.Go(func() {
		for err := range members.Errors() {
			c.mu.Lock()
			c.errs = append(c.errs, err)
			c.mu.Unlock()
		}
	})
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = members.Consume(ctx, topics, c)
		}
		if errors.Is(err, context.Canceled) {
			err = nil // it had ended before the call
		}
		done <- err
	}()
	g.t.Cleanup(func() {
		stop()
		if err := errors.Join(<-done, members.Close()); err != nil {
			g.t.Errorf("%s: %v", name, err)
		}
		end()
		work.Wait()
	})
	return c
}

func (c *consuming) observe(e consumer.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	item := fmt.Sprintf("%s:%d", e.Topic, e.Partition)
	switch e.Kind {
	case consumer.Claimed:
		c.owned[item] = true
	case consumer.Releasing, consumer.Lost:
		delete(c.owned, item)
	default:
	}
}

// owns returns what the member owns, sorted.
func (c *consuming) owns() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.owned))
}

// refused returns which partitions the member has reported since as not asked for, sorted.
func (c *consuming) refused() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	items := map[string]bool{}
	for _, err := range c.errs {
		if of, ok := errors.AsType[*sarama.ConsumerError](err); ok && errors.Is(err, consumer.ErrTopicMismatch) {
			items[fmt.Sprintf("%s:%d", of.Topic, of.Partition)] = true
		}
	}
	return slices.Sorted(maps.Keys(items))
}

// Consumers with different topics, beside a Python member: it and they go by round robin. What falls to a consumer that does not
// ask for it is owned by nobody, and reported. When the Python member has gone, all is owned.
func TestConsumersBesidePython(t *testing.T) {
	const n = 4
	g := newGroup(t, "consumers", 10*time.Second)
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(n, "orders", "payments"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	a := g.consume(kafka.ListenAddrs(), "a", "orders")
	b := g.consume(kafka.ListenAddrs(), "b", "payments")
	for id := range n {
		g.items[fmt.Sprintf("orders:%d", id)], g.items[fmt.Sprintf("payments:%d", id)] = true, true
	}
	each := func() {
		t.Helper()
		wait.Until(t, agreeTimeout, func() bool { return len(a.owns()) == n && len(b.owns()) == n }, func() string {
			return fmt.Sprintf("a owns %v, b owns %v: not all of what they ask for", a.owns(), b.owns())
		})
	}
	each()
	if got := slices.Concat(a.refused(), b.refused()); len(got) > 0 {
		t.Errorf("refused without a Python member: %v", got)
	}
	python := g.join("python") // its name is after theirs
	items := slices.Sorted(maps.Keys(g.items))
	want := roundRobin([]string{a.name, b.name, python.name}, items)
	wait.Until(t, agreeTimeout, func() bool {
		state, err := python.ask(request{Op: "state"})
		if err != nil {
			t.Fatal(err)
		}
		return equal(state, response{Members: []string{a.name, b.name, python.name}, Partitions: items, Mapping: want})
	}, func() string { return "Python does not see three members by round robin" })
	for _, c := range []*consuming{a, b} {
		var owned, refused []string
		for topic, ids := range want[c.name] {
			for _, id := range ids {
				if item := fmt.Sprintf("%s:%d", topic, id); slices.Contains(c.topics, topic) {
					owned = append(owned, item)
				} else {
					refused = append(refused, item)
				}
			}
		}
		slices.Sort(owned)
		slices.Sort(refused)
		wait.Until(t, agreeTimeout, func() bool { return slices.Equal(c.owns(), owned) && slices.Equal(c.refused(), refused) }, func() string {
			return fmt.Sprintf("%s owns %v, not %v, and has refused %v, not %v: %q", c.name, c.owns(), owned, c.refused(), refused, c.errs)
		})
		if len(refused) == 0 {
			t.Errorf("nothing of another topic falls to %s", c.name)
		}
	}
	g.inspect(kafka.ListenAddrs(), want, map[string][]string{a.name: a.refused(), b.name: b.refused()})
	g.leave(python)
	each()
}

// inspect checks what package inspect says from outside: whose partitions are planned for whom, as Python has computed it, and
// which of those that are planned for members in Go have no owner. What Python has is no problem.
func (g *group) inspect(brokers []string, planned map[string]map[string][]int32, unowned map[string][]string) {
	g.t.Helper()
	in, err := inspect.Open(g.t.Context(), inspect.Sources{Servers: []string{g.zk}, Brokers: brokers})
	if err != nil {
		g.t.Fatal(err)
	}
	defer in.Close(context.WithoutCancel(g.t.Context()))
	report, err := in.Look(g.t.Context(), g.name, inspect.Options{Window: 500 * time.Millisecond})
	if err != nil {
		g.t.Fatal(err)
	}
	got := map[string]map[string][]int32{}
	for _, p := range report.Partitions {
		if got[p.Planned] == nil {
			got[p.Planned] = map[string][]int32{}
		}
		got[p.Planned][p.Topic] = append(got[p.Planned][p.Topic], p.Partition.Partition)
	}
	if !reflect.DeepEqual(got, planned) {
		g.t.Errorf("planned %v, want %v", got, planned)
	}
	for _, f := range report.Findings {
		if f.Severity != inspect.Problem {
			continue
		}
		if f.Kind != inspect.NoOwner || !slices.Equal(f.Objects, unowned[f.Member]) || !strings.Contains(f.Text, "does not ask for the topic") {
			g.t.Errorf("%+v", f)
		}
		delete(unowned, f.Member)
	}
	if len(unowned) > 0 {
		g.t.Errorf("not found: %v, in %+v", unowned, report.Findings)
	}
}
