package functions

import (
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// peers returns the functions of other libraries.
func peers() []Contestant {
	const franz = "metadata as bytes to nested maps"
	all := []Contestant{
		{Library: "franz-go", Name: StickyFresh, What: franz + ", nobody has anything", Prepare: stickyFresh},
		{Library: "franz-go", Name: "sticky, join", What: franz + ", one has joined", Prepare: stickyAfter(Group.joined)},
		{Library: "franz-go", Name: "sticky, leave", What: franz + ", one has left", Prepare: stickyAfter(Group.left)},
	}
	for _, s := range []struct {
		name  string
		limit int
		make  func() sarama.BalanceStrategy
	}{
		{"range", 0, sarama.NewBalanceStrategyRange},
		{"round robin", 0, sarama.NewBalanceStrategyRoundRobin},
		{"sticky, fresh", 1_000 * 10_000, sarama.NewBalanceStrategySticky},
	} {
		all = append(all, Contestant{
			Library: "sarama", Name: s.name, What: "the members' metadata, decoded, to nested maps", Limit: s.limit,
			Prepare: func(g Group) (Run, error) { return saramaRun(g, s.make()), nil },
		})
	}
	return all
}

func saramaRun(g Group, strategy sarama.BalanceStrategy) Run {
	members := make(map[string]sarama.ConsumerGroupMemberMetadata)
	for _, name := range g.Members {
		members[name] = sarama.ConsumerGroupMemberMetadata{Topics: g.Topics}
	}
	ids := make([]int32, g.Size)
	for id := range ids {
		ids[id] = int32(id)
	}
	topics := make(map[string][]int32)
	for _, topic := range g.Topics {
		topics[topic] = ids
	}
	var plan sarama.BalanceStrategyPlan
	return Run{
		Plan:  func() (err error) { plan, err = strategy.Plan(members, topics); return err },
		Check: func() error { _, err := assignmentOf(g, plan); return err },
	}
}

func stickyFresh(g Group) (Run, error) { return stickyRun(g, nil), nil }

// stickyAfter is franz-go's sticky after a change, when members have what it gave them before.
func stickyAfter(after func(Group) Group) func(Group) (Run, error) {
	return func(g Group) (Run, error) {
		has, err := stickyPlan(g, nil)
		return stickyRun(after(g), has), err
	}
}

// stickyPlan returns the plan of franz-go's sticky, when members have what the plan has says.
func stickyPlan(g Group, has map[string]map[string][]int32) (map[string]map[string][]int32, error) {
	return stickyPlanner(g, has)()
}

func stickyRun(g Group, has map[string]map[string][]int32) Run {
	planner := stickyPlanner(g, has)
	var plan map[string]map[string][]int32
	return Run{
		Plan:  func() (err error) { plan, err = planner(); return err },
		Check: func() error { _, err := assignmentOf(g, plan); return err },
	}
}

func stickyPlanner(g Group, has map[string]map[string][]int32) func() (map[string]map[string][]int32, error) {
	balancer := kgo.StickyBalancer()
	members := make([]kmsg.JoinGroupResponseMember, len(g.Members))
	for i, name := range g.Members {
		generation := int32(-1)
		if has[name] != nil {
			generation = 1
		}
		members[i].MemberID = name
		members[i].ProtocolMetadata = balancer.JoinGroupMetadata(slices.Clone(g.asked(i)), has[name], generation)
	}
	topics := make(map[string]int32)
	for _, topic := range g.Topics {
		topics[topic] = int32(g.Size)
	}
	return func() (map[string]map[string][]int32, error) {
		b, _, err := balancer.MemberBalancer(members)
		if err != nil {
			return nil, err
		}
		withError, ok := b.(kgo.GroupMemberBalancerOrError)
		if !ok {
			return nil, errors.New("franz-go's balancer has another shape than it had")
		}
		into, err := withError.BalanceOrError(topics)
		if err != nil {
			return nil, err
		}
		plan, ok := into.(*kgo.BalancePlan)
		if !ok {
			return nil, fmt.Errorf("franz-go's plan is a %T", into)
		}
		return plan.AsMemberIDMap(), nil
	}
}
