package consumer_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
)

// halves is a strategy of a program's own: partitions below 3 are the first member's, the others the last one's.
type halves struct{}

func (halves) Name() string { return "halves" }

func (halves) Plan(members map[string]sarama.ConsumerGroupMemberMetadata, topics map[string][]int32) (sarama.BalanceStrategyPlan, error) {
	names := slices.Sorted(maps.Keys(members))
	plan := sarama.BalanceStrategyPlan{}
	for topic, ids := range topics {
		for _, id := range ids {
			if id < 3 {
				plan.Add(names[0], topic, id)
			} else {
				plan.Add(names[len(names)-1], topic, id)
			}
		}
	}
	return plan, nil
}

func (halves) AssignmentData(string, map[string][]int32, int32) ([]byte, error) { return nil, nil }

// SupportedProtocols has sessions be incremental, as with sarama.
func (halves) SupportedProtocols() []sarama.RebalanceProtocol {
	return []sarama.RebalanceProtocol{sarama.RebalanceProtocolCooperative}
}

// A group divides its partitions by a strategy that was written for sarama.
func TestStrategyOfAProgram(t *testing.T) {
	inRig(t, 12, func(t *testing.T, r *rig) {
		with := func(o *consumer.Options) {
			o.Config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{halves{}}
			f, err := consumer.FromStrategy("halves", halves{})
			if err != nil {
				t.Fatal(err)
			}
			o.Func = f
		}
		a := r.member("a", with).start()
		until(t, "a has all", func() bool { return len(a.owns()) == 12 })
		b, c := r.member("b", with).start(), r.member("c", with).start()
		until(t, "a and c have theirs", func() bool {
			return fmt.Sprint(a.owns()) == "[t:0 t:1 t:2]" && len(b.owns()) == 0 && len(c.owns()) == 9
		})
		for _, m := range []*member{a, b, c} {
			if g := m.group.Status(); g.Mapping == nil || g.Mapping.Function != "halves/1" || len(g.Disagreements) > 0 {
				t.Errorf("%s: %+v, %+v", m.name, g.Mapping, g.Disagreements)
			}
		}
		time.Sleep(time.Minute)
		a.leave()
		until(t, "b has what a had", func() bool { return fmt.Sprint(b.owns()) == "[t:0 t:1 t:2]" })
		b.leave()
		c.leave()
		r.check(true)
	})
}
