package consumer

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

// FromStrategy makes an allocation function, for Options.Func, of a BalanceStrategy that a program has written for sarama. All
// members of the group need it, with the same name. Every change of the strategy that changes a plan needs a new name, or a new
// Version of the Func that is returned.
//
// In a group of Kafka one member, the leader, calls Plan for all. Here each member calls it, and all must come to the same plan.
// So Plan must depend on its arguments alone: not on what it has seen before, not on the order in which a map is ranged over, on
// chance, time or the machine, nor on the order in which a member names its topics. That is checked as far as one process can.
// FromStrategy calls Plan some hundreds of times, for groups that it makes up. Later, each computation calls it three times: for
// the group, for the group without one of its members, of which it ignores the result, and for the group again, with maps that
// were filled in another order and topics in another order. Plans that differ are [ErrPlanDiffers], of FromStrategy or of the
// computation. The members' mapping hashes show what the check has missed (the alert KielMappingsDiffer).
//
// Plan gets each member's topics, sorted, and its zone as RackID; of each topic the ids of the partitions in the group's set,
// sorted. A topic that no member asks for is asked for by all. UserData, OwnedPartitions and a generation do not exist here:
// Config.Consumer.Group.Member.UserData is not passed, and AssignmentData, SubscriptionUserData and OnAssignment are not called.
// Plan may change its arguments. One call of Plan runs at a time for one FromStrategy.
//
// A plan that leaves a partition out, gives one twice, or names a member or a partition that Plan did not get is an error of the
// computation that names it; then the member keeps the mapping that it has ([allocfn.Call]).
func FromStrategy(name string, strategy sarama.BalanceStrategy) (allocfn.Func, error) {
	if strategy == nil {
		return allocfn.Func{}, failure("", "", errors.New("strategy is nil"))
	}
	p := &planner{strategy: strategy}
	f := allocfn.Func{Name: name, Assign: p.assign}
	if err := f.Validate(); err != nil {
		return allocfn.Func{}, failure("", "", err)
	}
	if err := p.try(); err != nil {
		return allocfn.Func{}, failure("use the strategy", strconv.Quote(strategy.Name()), err)
	}
	return f, nil
}

// planner calls a strategy's Plan.
type planner struct {
	mu       sync.Mutex // held while Plan is called
	strategy sarama.BalanceStrategy
}

// assign is the function that is made of the strategy.
func (p *planner) assign(in allocfn.Input) (allocfn.Assignment, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first, err := p.plan(in, false)
	if err != nil {
		return nil, err
	}
	if n := len(in.Members); n > 1 { // a plan that remembers what it has seen moves partitions when a member goes and comes
		less := in
		less.Members = in.Members[:n-1]
		p.ignore(less)
	}
	second, err := p.plan(in, true)
	if err != nil {
		return nil, err
	}
	for i, m := range first {
		if second[i] != m {
			return nil, fmt.Errorf("%w: %s to %q and to %q", ErrPlanDiffers, in.Partitions[i], in.Members[m].Name, in.Members[second[i]].Name)
		}
	}
	return first, nil
}

// plan calls Plan and checks its result. backwards fills the maps, and names the topics of members, in the reverse order.
func (p *planner) plan(in allocfn.Input, backwards bool) (allocfn.Assignment, error) {
	members, topics := planArguments(in, backwards)
	plan, err := p.strategy.Plan(members, topics)
	if err != nil {
		return nil, err
	}
	return allocfn.FromMapping(in, plan)
}

// ignore calls Plan, and drops what comes of it.
func (p *planner) ignore(in allocfn.Input) {
	defer func() { _ = recover() }()
	_, _ = p.strategy.Plan(planArguments(in, false))
}

// The groups that try makes up, and how often it goes through them. A plan that ranges over a map of two members differs in one
// of eight calls at least.
const (
	tryMembers = 4
	tryRounds  = 24
)

// try calls Plan for groups that it makes up, and returns an ErrPlanDiffers if a plan is not always the same. Other errors and
// panics are ignored: the strategy may refuse members and topics that it does not know.
func (p *planner) try() error {
	plans := map[int]allocfn.Assignment{}
	for range tryRounds {
		for n := 1; n <= tryMembers; n++ {
			in := madeUp(n)
			a, err := p.attempt(in)
			switch {
			case errors.Is(err, ErrPlanDiffers):
				return err
			case err != nil:
				continue
			case plans[n] != nil && !slices.Equal(plans[n], a):
				return fmt.Errorf("%w: for %d members, after plans for others", ErrPlanDiffers, n)
			}
			plans[n] = a
		}
	}
	return nil
}

// attempt is assign with a panic as an error.
func (p *planner) attempt(in allocfn.Input) (a allocfn.Assignment, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return p.assign(in)
}

// madeUp returns a group of n members. All ask for one topic, and all but the first for another.
func madeUp(n int) (in allocfn.Input) {
	for i := range n {
		m := allocfn.Member{Name: "member-" + strconv.Itoa(i), Topics: []string{"a", "b"}}
		if i == 0 && n > 1 {
			m.Topics = []string{"a"}
		}
		in.Members = append(in.Members, m)
	}
	for _, topic := range []string{"a", "b"} {
		for id := range 2*int32(n) + 1 {
			in.Partitions = append(in.Partitions, kiel.Partition{Topic: topic, ID: id})
		}
	}
	return in
}

// planArguments returns a group as sarama's leader gives it to Plan.
func planArguments(in allocfn.Input, backwards bool) (map[string]sarama.ConsumerGroupMemberMetadata, map[string][]int32) {
	ids := map[string][]int32{}
	for _, p := range in.Partitions {
		ids[p.Topic] = append(ids[p.Topic], p.ID)
	}
	all := slices.Sorted(maps.Keys(ids))
	asked := map[string]bool{}
	for _, m := range in.Members {
		for _, topic := range m.Topics {
			asked[topic] = true
		}
	}
	unasked := slices.DeleteFunc(slices.Clone(all), func(topic string) bool { return asked[topic] })
	members := map[string]sarama.ConsumerGroupMemberMetadata{}
	for _, m := range ordered(in.Members, backwards) {
		of := all
		if len(m.Topics) > 0 {
			of = slices.Compact(slices.Sorted(slices.Values(slices.Concat(m.Topics, unasked))))
		}
		metadata := sarama.ConsumerGroupMemberMetadata{Version: 3, Topics: ordered(of, backwards), GenerationID: -1}
		if m.Zone != "" {
			metadata.RackID = new(m.Zone)
		}
		members[m.Name] = metadata
	}
	topics := map[string][]int32{}
	for _, topic := range ordered(slices.Sorted(maps.Keys(asked)), backwards) {
		topics[topic] = nil // as for a topic without partitions
	}
	for _, topic := range ordered(all, backwards) {
		slices.Sort(ids[topic])
		topics[topic] = ids[topic]
	}
	return members, topics
}

// ordered returns a copy of a list, backwards if asked for.
func ordered[T any](list []T, backwards bool) []T {
	list = slices.Clone(list)
	if backwards {
		slices.Reverse(list)
	}
	return list
}

// checkStrategies adds a fault for each strategy of Config, which may be nil, that is not sarama's own: it would divide otherwise
// than this group does.
func (f *faults) checkStrategies(config *sarama.Config) {
	if config == nil {
		return
	}
	for _, s := range strategiesOf(config) {
		if s == nil || isSaramas(s) { // Validate refuses nil
			continue
		}
		f.add("option Config: the balance strategy %.100q (%T) is not sarama's own, and no member of this group calls its Plan: set Options.Func, to consumer.FromStrategy of it if its Plan depends on nothing but its arguments", s.Name(), s)
	}
}

// isSaramas reports whether a strategy is of sarama's package.
func isSaramas(s sarama.BalanceStrategy) bool {
	t := reflect.TypeOf(s)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() == reflect.TypeFor[sarama.Config]().PkgPath()
}
