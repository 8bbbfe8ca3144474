package scenarios

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Variant is a group that a scenario runs on.
type Variant int

// The variants. Ours with the same strategies as one of sarama's is to be as that one: see [Counterparts].
const (
	SaramaEager       Variant = iota // sarama's group with its default strategy, range
	SaramaCooperative                // sarama's group with the cooperative-sticky strategy
	OursEager                        // the group of package consumer with sarama's default strategies
	OursIncremental                  // the group of package consumer with the cooperative-sticky strategy
)

// Variants returns all variants.
func Variants() []Variant {
	return []Variant{SaramaEager, SaramaCooperative, OursEager, OursIncremental}
}

// String names the variant.
func (v Variant) String() string {
	return [...]string{"sarama eager", "sarama cooperative", "ours eager", "ours incremental"}[v]
}

// isOurs reports whether the variant is of package consumer.
func (v Variant) isOurs() bool { return v == OursEager || v == OursIncremental }

// isCooperative reports whether the configuration has the cooperative-sticky strategy.
func (v Variant) isCooperative() bool { return v == SaramaCooperative || v == OursIncremental }

// Counterparts returns, for each variant of ours, the variant of sarama with the same strategies.
func Counterparts() map[Variant]Variant {
	return map[Variant]Variant{OursEager: SaramaEager, OursIncremental: SaramaCooperative}
}

// Case is one scenario.
type Case struct {
	// Name is unique.
	Name string
	// Kfake says that the case needs what only the fake Kafka can do.
	Kfake bool
	// Real says that the case needs a real Kafka.
	Real bool
	// Process says that the case may end its process, and so runs in one of its own.
	Process bool

	run func(*scene)
}

// Observations are what was observed: texts by lane, in order.
type Observations map[string][]string

// recorder takes notes, from any goroutine.
type recorder struct {
	mu   sync.Mutex
	seen Observations
	also func(lane, text string) // told of each note; nil for none
}

func (r *recorder) note(lane, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[lane] = append(r.seen[lane], text)
	if r.also != nil {
		r.also(lane, text)
	}
}

// result returns what was noted. What came to Errors is sorted, and the same only once: partitions report in any order, and some
// again and again.
func (r *recorder) result() Observations {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Observations{}
	for lane, texts := range r.seen {
		out[lane] = slices.Clone(texts)
		if strings.HasSuffix(lane, "Errors") {
			slices.Sort(out[lane])
			out[lane] = slices.Compact(out[lane])
		}
	}
	return out
}

// String lists the notes.
func (r *recorder) String() string {
	seen := r.result()
	var b strings.Builder
	for _, lane := range slices.Sorted(maps.Keys(seen)) {
		fmt.Fprintf(&b, "%s: %s\n", lane, strings.Join(seen[lane], "; "))
	}
	return b.String()
}

// scene is one run of a case.
type scene struct {
	*Backend
	Case

	t            *testing.T
	variant      Variant
	client       *kgo.Client
	kafka        network // of the members
	group, topic string
	seen         recorder
	partitions   int32
	members      []*member
}

// Observe runs a case on a variant. also, when not nil, is told of each note at once.
func Observe(t *testing.T, b *Backend, c Case, v Variant, also func(lane, text string)) Observations {
	t.Helper()
	name := strings.NewReplacer(" ", "-", ",", "").Replace(c.Name + "-" + v.String() + b.Suffix)
	s := &scene{
		Backend: b, Case: c, t: t, variant: v, group: "g-" + name, topic: "t-" + name, partitions: 2,
		seen: recorder{seen: Observations{}, also: also},
	}
	s.client = b.client(t)
	defer s.client.Close()
	s.createTopic(s.topic, s.partitions)
	defer func() {
		for _, m := range s.members {
			m.close()
		}
	}()
	c.run(s)
	for _, m := range s.members {
		m.close()
	}
	return s.seen.result()
}

// note notes an observation.
func (s *scene) note(lane, format string, args ...any) {
	s.seen.note(lane, fmt.Sprintf(format, args...))
}

// config is the configuration of members unless a case changes it.
func (s *scene) config() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "test"
	c.Version = sarama.V3_6_0_0
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	c.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	c.Consumer.Group.Session.Timeout = 20 * time.Second // the machine may be busy
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	if s.variant.isCooperative() {
		c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	}
	c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, &s.kafka
	return c
}
