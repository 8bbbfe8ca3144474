package interop_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/wait"
)

// staticTest is a group of static consumers and a Python member, and what the consumers have done.
type staticTest struct {
	*group
	brokers []string

	mu      sync.Mutex
	owners  map[int32]string // of the partitions that a consumer has now
	claims  map[string]int   // by member
	handled map[string]int   // how often each message was handled
	faults  []string
	sent    int // messages
}

// run starts a static consumer. stop ends it in order, as a process that is told to end.
func (s *staticTest) run(name string) (stop func()) {
	s.t.Helper()
	config := sarama.NewConfig()
	config.ClientID, config.Version = "test", sarama.V3_6_0_0
	g, err := consumer.NewGroup([]string{s.zk}, s.brokers, s.name, consumer.Options{
		Name: name, Static: true, Config: config, StartAt: consumer.Earliest,
		Session:  session.Options{Timeout: 10 * time.Second, MinSessionTimeout: minSessionTimeout},
		Observer: func(e consumer.Event) { s.observe(name, e) },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- g.Run(ctx, []string{"orders"}, func(_ context.Context, p *consumer.Partition) error {
			for m := range p.Messages() {
				s.mu.Lock()
				s.handled[string(m.Value)]++
				s.mu.Unlock()
				p.Mark(m)
			}
			return nil
		})
	}()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
		if err := g.Close(); err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
	})
}

func (s *staticTest) observe(name string, e consumer.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case consumer.Claimed:
		if owner := s.owners[e.Partition]; owner != "" {
			s.faults = append(s.faults, fmt.Sprintf("%s claims %d, which %s has", name, e.Partition, owner))
		}
		s.owners[e.Partition] = name
		s.claims[name]++
	case consumer.Releasing, consumer.Lost:
		delete(s.owners, e.Partition)
	default:
	}
}

// holds returns the partitions that a consumer has now, sorted.
func (s *staticTest) holds(name string) (ids []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, owner := range s.owners {
		if owner == name {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// claimsBut counts the claims of all consumers but one.
func (s *staticTest) claimsBut(name string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for owner, claims := range s.claims {
		if owner != name {
			n += claims
		}
	}
	return n
}

// produce sends a message to each partition that is not the Python member's.
func (s *staticTest) produce(python map[string][]int32, count int, partitions int32) {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	for id := range partitions {
		if slices.Contains(python["orders"], id) {
			continue
		}
		for range count {
			s.sent++
			record := &kgo.Record{Topic: "orders", Partition: id, Value: []byte(strconv.Itoa(s.sent))}
			if err := client.ProduceSync(s.t.Context(), record).FirstErr(); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// wantAll waits until each message was handled, and says that none was handled twice.
func (s *staticTest) wantAll() {
	s.t.Helper()
	wait.Until(s.t, agreeTimeout, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.handled) >= s.sent
	}, func() string { return fmt.Sprintf("%d of %d messages were handled", len(s.handled), s.sent) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for value, n := range s.handled {
		if n != 1 {
			s.t.Errorf("message %s was handled %d times", value, n)
		}
	}
}

// Static consumers share a group with a Python member. One that is restarted moves nothing, of the other consumer or of the
// Python member, which sees its name all the while; what came meanwhile is handled once.
func TestStaticBesidePython(t *testing.T) {
	const partitions, batch = 9, 3
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	s := &staticTest{
		group: newGroup(t, "static", 10*time.Second), brokers: kafka.ListenAddrs(),
		owners: map[int32]string{}, claims: map[string]int{}, handled: map[string]int{},
	}
	for id := range partitions {
		s.items[fmt.Sprintf("orders:%d", id)] = true
	}
	stop := map[string]func(){}
	for _, name := range []string{"a", "b"} {
		stop[name] = s.run(name)
		t.Cleanup(func() { stop[name]() })
	}
	python := s.join("python")
	members := []string{"a", "b", python.name}
	want := roundRobin(members, slices.Sorted(maps.Keys(s.items)))
	divided := func() {
		t.Helper()
		wait.Until(t, agreeTimeout, func() bool {
			state, err := python.ask(request{Op: "state"})
			if err != nil {
				t.Fatal(err)
			}
			agreed := equal(state, response{Members: members, Partitions: slices.Sorted(maps.Keys(s.items)), Mapping: want})
			return agreed && slices.Equal(s.holds("a"), want["a"]["orders"]) && slices.Equal(s.holds("b"), want["b"]["orders"])
		}, func() string { return fmt.Sprintf("a has %v, b has %v, want %v", s.holds("a"), s.holds("b"), want) })
	}
	divided()
	s.produce(want[python.name], batch, partitions)
	s.wantAll()
	for _, name := range []string{"a", "b", "a"} {
		before := s.claimsBut(name)
		stop[name]()
		wait.Pass(t, time.Second) // in which the others would take its partitions
		s.produce(want[python.name], batch, partitions)
		state, err := python.ask(request{Op: "state"})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(state.Members, members) || !equal(state, response{Members: members, Partitions: state.Partitions, Mapping: want}) {
			t.Errorf("while %s is away, the Python member sees %v", name, state)
		}
		stop[name] = s.run(name)
		divided()
		s.wantAll()
		if n := s.claimsBut(name) - before; n > 0 {
			t.Errorf("a restart of %s: %d claims of the other consumer", name, n)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fault := range s.faults {
		t.Error(fault)
	}
}
