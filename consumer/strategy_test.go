package consumer

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

type (
	planMembers = map[string]sarama.ConsumerGroupMemberMetadata
	planTopics  = map[string][]int32
)

// custom is a strategy that a program has written.
type custom struct {
	name string
	plan func(planMembers, planTopics) (sarama.BalanceStrategyPlan, error)
}

func (c *custom) Name() string { return c.name }
func (c *custom) Plan(members map[string]sarama.ConsumerGroupMemberMetadata, topics map[string][]int32) (sarama.BalanceStrategyPlan, error) {
	return c.plan(members, topics)
}

func (*custom) AssignmentData(string, map[string][]int32, int32) ([]byte, error) {
	panic("not called")
}
func (*custom) SubscriptionUserData([]string) ([]byte, error)             { panic("not called") }
func (*custom) OnAssignment(*sarama.ConsumerGroupMemberAssignment, int32) { panic("not called") }

// wrapped is a strategy that has one of sarama's in it.
type wrapped struct{ sarama.BalanceStrategy }

// withPlan returns a strategy with a plan that does not fail.
func withPlan(plan func(planMembers, planTopics) sarama.BalanceStrategyPlan) *custom {
	return &custom{"custom", func(m planMembers, t planTopics) (sarama.BalanceStrategyPlan, error) { return plan(m, t), nil }}
}

// dealt gives the partitions of each topic to some members in turn.
func dealt(names []string, topics planTopics) sarama.BalanceStrategyPlan {
	plan := sarama.BalanceStrategyPlan{}
	for topic, ids := range topics {
		for i, id := range ids {
			plan.Add(names[i%len(names)], topic, id)
		}
	}
	return plan
}

// good is a strategy that may be used.
func good() *custom {
	return withPlan(func(m planMembers, t planTopics) sarama.BalanceStrategyPlan {
		return dealt(slices.Sorted(maps.Keys(m)), t)
	})
}

// groupOf returns an input with members of one letter, and with partitions as they stand in a set.
func groupOf(members string, items ...string) (in allocfn.Input) {
	for _, name := range members {
		in.Members = append(in.Members, allocfn.Member{Name: string(name)})
	}
	slices.Sort(items)
	in.Partitions, in.Places, _ = kiel.ParsePartitions(items)
	return in
}

func itemsOf(topic string, n int) (items []string) {
	for i := range n {
		items = append(items, fmt.Sprintf("%s:%d", topic, i))
	}
	return items
}

// Plan is given what sarama's leader gives to it: the topics of members, and the partitions of topics in the order of their
// numbers.
func TestWhatPlanIsGiven(t *testing.T) {
	var members []planMembers
	var topics []planTopics
	f, err := FromStrategy("custom", withPlan(func(m planMembers, of planTopics) sarama.BalanceStrategyPlan {
		members, topics = append(members, maps.Clone(m)), append(topics, maps.Clone(of))
		plan := dealt(slices.Sorted(maps.Keys(m)), of)
		clear(m)
		for _, ids := range of {
			slices.Reverse(ids)
		}
		return plan
	}))
	noerr.Must(t, err)
	in := groupOf("abc", append(itemsOf("t", 12), "u:0", "left:0")...)
	in.Members[0].Topics, in.Members[0].Zone, in.Members[0].Weight = []string{"u", "t", "none", "t"}, "z1", 7
	in.Members[1].Topics = []string{"t"}
	before := fmt.Sprint(in)
	members, topics = nil, nil
	if _, err := allocfn.Call(f, in); err != nil {
		t.Fatal(err)
	}
	assert.Equal(t, fmt.Sprint(in), before, "the input")
	if len(members) != 3 || len(members[1]) != 2 {
		t.Fatalf("%d calls", len(members))
	}
	for i, reverse := range map[int]bool{0: false, 2: true} {
		for name, want := range map[string][]string{"a": {"left", "none", "t", "u"}, "b": {"left", "t"}, "c": {"left", "t", "u"}} {
			if reverse {
				slices.Reverse(want)
			}
			m := members[i][name]
			if !slices.Equal(m.Topics, want) || m.UserData != nil || m.OwnedPartitions != nil || m.GenerationID != -1 || (m.RackID != nil) != (name == "a") {
				t.Errorf("call %d: %s is %+v, want topics %q", i, name, m, want)
			}
		}
		if rack := members[i]["a"].RackID; rack == nil || *rack != "z1" {
			t.Error("a has no rack")
		}
		if got := fmt.Sprint(topics[i]); len(topics[i]) != 4 || len(topics[i]["none"]) != 0 || len(topics[i]["t"]) != 12 {
			t.Errorf("call %d: topics %s", i, got)
		}
	}
	// The partitions of a set are in the order of their texts, those of a topic in sarama in that of their numbers.
	f, err = FromStrategy("custom", sarama.NewBalanceStrategyRange())
	noerr.Must(t, err)
	in = groupOf("ab", itemsOf("t", 12)...)
	a, err := allocfn.Call(f, in)
	noerr.Must(t, err)
	for i, p := range in.Partitions {
		if want := p.ID / 6; a[i] != want {
			t.Errorf("%s is given to %d, want %d", p, a[i], want)
		}
	}
}

// sarama's range and round robin depend on their arguments alone, and range here is Kafka's. The sticky ones plan by chance what
// no UserData says, which does no harm where one leader plans for all.
func TestFromStrategyOfSaramas(t *testing.T) {
	in := groupOf("abcd", slices.Concat(itemsOf("t", 13), itemsOf("u", 13), itemsOf("v", 3))...)
	for _, s := range []sarama.BalanceStrategy{
		sarama.NewBalanceStrategyRange(), sarama.NewBalanceStrategyRoundRobin(), sarama.NewBalanceStrategySticky(), sarama.NewBalanceStrategyCooperativeSticky(),
	} {
		f, err := FromStrategy("custom", s)
		if sticky := strings.Contains(s.Name(), "sticky"); sticky != errors.Is(err, ErrPlanDiffers) || err != nil && !sticky {
			t.Errorf("%s: %v", s.Name(), err)
		}
		if err != nil {
			continue
		}
		a, err := allocfn.Call(f, in)
		if err != nil {
			t.Errorf("%s: %v", s.Name(), err)
			continue
		}
		if want, err := allocfn.Call(allocfn.Range(), in); s.Name() == "range" && (err != nil || !slices.Equal(a, want)) {
			t.Errorf("range gives %v, want %v, %v", a, want, err)
		}
	}
}

// Plans that are not the same for the same group are found before a member joins.
func TestPlansThatDiffer(t *testing.T) {
	first := func(m planMembers) string { // the first that the map gives
		for name := range m {
			return name
		}
		return ""
	}
	to := func(name string, topics planTopics) sarama.BalanceStrategyPlan { return dealt([]string{name}, topics) }
	sorted := func(m planMembers) []string { return slices.Sorted(maps.Keys(m)) }
	var calls int
	was := map[string]string{} // partition → member
	for name, plan := range map[string]func(planMembers, planTopics) sarama.BalanceStrategyPlan{
		"ranges over the members": func(m planMembers, of planTopics) sarama.BalanceStrategyPlan { return to(first(m), of) },
		"deals in the order of the map": func(m planMembers, of planTopics) sarama.BalanceStrategyPlan {
			return dealt(slices.Collect(maps.Keys(m)), of)
		},
		"counts through the topics": func(m planMembers, of planTopics) sarama.BalanceStrategyPlan {
			plan, i, names := sarama.BalanceStrategyPlan{}, 0, sorted(m)
			for topic, ids := range of {
				for _, id := range ids {
					plan.Add(names[i%len(names)], topic, id)
					i++
				}
			}
			return plan
		},
		"goes by chance": func(m planMembers, of planTopics) sarama.BalanceStrategyPlan {
			names := sorted(m)
			return to(names[rand.N(len(names))], of)
		},
		"counts calls": func(m planMembers, of planTopics) sarama.BalanceStrategyPlan {
			calls++
			return to(sorted(m)[calls/2%len(m)], of)
		},
		"remembers": func(m planMembers, of planTopics) sarama.BalanceStrategyPlan {
			plan, names := sarama.BalanceStrategyPlan{}, sorted(m)
			for _, topic := range slices.Sorted(maps.Keys(of)) {
				for i, id := range of[topic] {
					key := fmt.Sprint(topic, id)
					if _, there := m[was[key]]; !there {
						was[key] = names[i%len(names)]
					}
					plan.Add(was[key], topic, id)
				}
			}
			return plan
		},
		"goes by the first topic": func(m planMembers, of planTopics) sarama.BalanceStrategyPlan {
			names := sorted(m)
			slices.SortStableFunc(names, func(a, b string) int { return strings.Compare(m[b].Topics[0], m[a].Topics[0]) })
			return dealt(names, of)
		},
	} {
		for range 20 {
			clear(was)
			if f, err := FromStrategy("custom", withPlan(plan)); !errors.Is(err, ErrPlanDiffers) || f.Assign != nil ||
				!strings.HasPrefix(err.Error(), `consumer: use the strategy "custom": the strategy's plan is not the same`) {
				t.Errorf("%s: %v", name, err)
				break
			}
		}
	}
}

// A plan that differs only for a group that FromStrategy does not know is an error of the computation.
func TestPlanThatDiffersLater(t *testing.T) {
	calls := 0
	f, err := FromStrategy("custom", withPlan(func(m planMembers, of planTopics) sarama.BalanceStrategyPlan {
		names := slices.Sorted(maps.Keys(m))
		if _, ok := of["orders"]; ok {
			calls++
			names = names[min(calls/2, 1):]
		}
		return dealt(names, of)
	}))
	noerr.Must(t, err)
	if _, err := allocfn.Call(f, groupOf("ab", "t:0", "t:1")); err != nil {
		t.Error(err)
	}
	calls = 0
	remembers := map[int]string{}
	g, err := FromStrategy("custom", withPlan(func(m planMembers, of planTopics) sarama.BalanceStrategyPlan {
		if names := slices.Sorted(maps.Keys(m)); len(of["orders"]) == 0 {
			return dealt(names, of)
		} else if _, there := m[remembers[0]]; !there {
			remembers[0] = names[len(names)-1]
		}
		return dealt([]string{remembers[0]}, of)
	}))
	noerr.Must(t, err)
	for _, f := range []allocfn.Func{f, g} {
		_, err = allocfn.Call(f, groupOf("abc", "orders:0", "orders:1"))
		if want := "allocfn: allocation function custom: the strategy's plan is not the same for the same group: orders:0 to "; !errors.Is(err, ErrPlanDiffers) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s…", err, want)
		}
	}
}

// A plan that is wrong, and a Plan that fails, are errors of the computation.
func TestPlansThatAreWrong(t *testing.T) {
	type plan = sarama.BalanceStrategyPlan
	for name, test := range map[string]struct {
		plan plan
		err  error
		want error
		says string
	}{
		"nothing":              {nil, nil, allocfn.ErrUnassigned, `partition unassigned: "t:0"`},
		"left out":             {plan{"a": {"t": {0}}}, nil, allocfn.ErrUnassigned, `"t:1"`},
		"twice":                {plan{"a": {"t": {0, 1}}, "b": {"t": {1}}}, nil, allocfn.ErrAssignedTwice, `partition assigned twice: "t:1", to "a" and to "b"`},
		"twice to one":         {plan{"a": {"t": {0, 1, 1}}}, nil, allocfn.ErrAssignedTwice, `"t:1"`},
		"a stranger":           {plan{"a": {"t": {0, 1}}, "x": {}}, nil, allocfn.ErrUnknownTarget, `"x"`},
		"an unknown partition": {plan{"a": {"t": {0, 1, 2}}}, nil, allocfn.ErrUnknownTarget, `"t:2"`},
		"an unknown topic":     {plan{"a": {"t": {0, 1}, "u": {-1}}}, nil, allocfn.ErrUnknownTarget, `"u:-1"`},
		"an error":             {nil, sarama.ErrOutOfBrokers, sarama.ErrOutOfBrokers, "custom: kafka"},
		"a panic":              {nil, nil, allocfn.ErrPanic, "no plan"},
		"a panic for fewer":    {plan{"a": {"t": {0, 1}}, "b": {}}, nil, nil, ""},
	} {
		f, err := FromStrategy("custom", &custom{"custom", func(m planMembers, _ planTopics) (plan, error) {
			if name == "a panic" || name == "a panic for fewer" && len(m) < 2 {
				panic("no plan")
			}
			return test.plan, test.err
		}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for range 2 { // a panic leaves nothing locked
			_, err = allocfn.Call(f, groupOf("ab", "t:0", "t:1"))
			switch {
			case test.want == nil && err == nil:
			case !errors.Is(err, test.want), !strings.Contains(err.Error(), test.says), strings.Count(err.Error(), "allocfn") != 1:
				t.Errorf("%s: %v, want %v with %q", name, err, test.want, test.says)
			}
		}
	}
}

func TestFromStrategyArguments(t *testing.T) {
	for name, strategy := range map[string]sarama.BalanceStrategy{"Not Good": good(), "": good(), "fine": nil} {
		if f, err := FromStrategy(name, strategy); err == nil || f.Assign != nil || !strings.HasPrefix(err.Error(), "consumer: ") {
			t.Errorf("%q: %v", name, err)
		}
	}
	f, err := FromStrategy("mine", good())
	if err != nil || f.ID() != "mine/1" {
		t.Error(f.ID(), err)
	}
}

// One Plan runs at a time, since strategies are written for one leader: sarama's own sticky ones keep state while they plan.
func TestPlansDoNotOverlap(t *testing.T) {
	var running atomic.Int32
	plan := good().plan
	f, err := FromStrategy("custom", &custom{"custom", func(m planMembers, of planTopics) (sarama.BalanceStrategyPlan, error) {
		if running.Add(1) > 1 {
			t.Error("two at a time")
		}
		defer running.Add(-1)
		return plan(m, of)
	}})
	noerr.Must(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if _, err := allocfn.Call(f, groupOf("abc", "t:0", "t:1", "t:2")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// A strategy that is not sarama's own is an error, unless Options.Func says how partitions are divided.
func TestCustomStrategies(t *testing.T) {
	mine := good()
	f, err := FromStrategy("custom", mine)
	noerr.Must(t, err)
	own := func() []sarama.BalanceStrategy {
		return []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky(), sarama.NewBalanceStrategyRange(), sarama.NewBalanceStrategyRoundRobin(), sarama.NewBalanceStrategyCooperativeSticky()}
	}
	for name, test := range map[string]struct {
		strategy sarama.BalanceStrategy
		all      []sarama.BalanceStrategy
		f        allocfn.Func
		want     string
	}{
		"sarama's":          {nil, own()[:3], allocfn.Func{}, ""},
		"a cooperative one": {nil, own()[3:], allocfn.Func{}, ""},
		"mine":              {nil, []sarama.BalanceStrategy{mine}, allocfn.Func{}, `option Config: the balance strategy "custom" (*consumer.custom) is not sarama's own`},
		"mine among others": {nil, append(own()[:3], mine), allocfn.Func{}, `the balance strategy "custom"`},
		"mine alone counts": {mine, own()[:3], allocfn.Func{}, `the balance strategy "custom"`},
		"mine is behind":    {own()[0], []sarama.BalanceStrategy{mine}, allocfn.Func{}, ""},
		"wrapped":           {nil, []sarama.BalanceStrategy{wrapped{own()[0]}}, allocfn.Func{}, `the balance strategy "sticky" (consumer.wrapped)`},
		"nil":               {nil, []sarama.BalanceStrategy{nil}, allocfn.Func{}, "must not be empty"},
		"mine as Func":      {nil, []sarama.BalanceStrategy{mine}, f, ""},
		"another Func":      {nil, []sarama.BalanceStrategy{mine}, allocfn.CoPartitioned(), ""},
	} {
		config := sarama.NewConfig()
		config.Consumer.Group.Rebalance.Strategy, config.Consumer.Group.Rebalance.GroupStrategies = test.strategy, test.all
		_, err := newSettings([]string{"a:1"}, "g", Options{Config: config, Func: test.f})
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %s", name, err, test.want)
		case strings.Contains(test.want, "strategy") && !strings.Contains(err.Error(), "Options.Func"):
			t.Errorf("%s: %v does not say what to do", name, err)
		}
	}
	if _, err := newSettings([]string{"a:1"}, "g", Options{}); err != nil {
		t.Error(err)
	}
}
