package consumer_test

import (
	"fmt"
	"log"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer"
)

// byTopic is a strategy that a program has written for sarama: all partitions of a topic are at one member.
type byTopic struct{}

func (byTopic) Name() string { return "by-topic" }

func (byTopic) Plan(members map[string]sarama.ConsumerGroupMemberMetadata, topics map[string][]int32) (sarama.BalanceStrategyPlan, error) {
	plan := sarama.BalanceStrategyPlan{}
	for i, topic := range slices.Sorted(maps.Keys(topics)) {
		var asking []string
		for name, m := range members {
			if slices.Contains(m.Topics, topic) {
				asking = append(asking, name)
			}
		}
		slices.Sort(asking) // not in the order of the map, which is another one in each process
		plan.Add(asking[i%len(asking)], topic, topics[topic]...)
	}
	return plan, nil
}

func (byTopic) AssignmentData(string, map[string][]int32, int32) ([]byte, error) { return nil, nil }

// A strategy that was written for sarama divides the partitions. Give the function to Options.Func of all members.
func ExampleFromStrategy() {
	f, err := consumer.FromStrategy("by-topic", byTopic{})
	if err != nil {
		log.Fatal(err) // such as an ErrPlanDiffers
	}
	options := consumer.Options{Func: f}

	in := allocfn.Input{Members: []allocfn.Member{{Name: "host-1"}, {Name: "host-2"}}}
	in.Partitions, in.Places, _ = kiel.ParsePartitions([]string{"orders:0", "orders:1", "refunds:0", "refunds:1"})
	a, err := allocfn.Call(options.Func, in)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(allocfn.Mapping(in, a))
	// Output: map[host-1:map[orders:[0 1]] host-2:map[refunds:[0 1]]]
}
