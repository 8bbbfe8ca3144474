package allocfn_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// topicFuncs are the functions that give a partition only to members that ask for its topic.
func topicFuncs() []allocfn.Func {
	return []allocfn.Func{allocfn.RoundRobin(), allocfn.Range(), allocfn.Balanced(), allocfn.TopicBalanced()}
}

// failer is a *testing.T or a *rapid.T.
type failer interface {
	noerr.TB
	Fatalf(format string, args ...any)
}

// asks reports whether a member asks for a topic.
func asks(m allocfn.Member, topic string) bool {
	return len(m.Topics) == 0 || slices.Contains(m.Topics, topic)
}

// askers returns the indices of the members that ask for a topic, all if none does.
func askers(in allocfn.Input, topic string) []int {
	var who, all []int
	for j, m := range in.Members {
		all = append(all, j)
		if asks(m, topic) {
			who = append(who, j)
		}
	}
	if len(who) == 0 {
		return all
	}
	return who
}

// checkTopicPlan holds a plan of one of the topicFuncs to what its page says of members that ask for different topics. It shares
// no code with the package and takes no short cut.
func checkTopicPlan(t failer, f allocfn.Func, in allocfn.Input, a allocfn.Assignment) {
	t.Helper()
	if len(in.Members) == 0 {
		return
	}
	noerr.Must(t, allocfn.Check(in, a))
	who := make(map[string][]int)
	for i, p := range in.Partitions {
		if who[p.Topic] == nil {
			who[p.Topic] = askers(in, p.Topic)
		}
		if !slices.Contains(who[p.Topic], int(a[i])) {
			t.Fatalf("%s: %v is with %v, which does not ask for it", f.Name, p, in.Members[a[i]])
		}
	}
	switch f.Name {
	case "roundrobin":
		checkCircle(t, in, a)
	case "range":
		checkRuns(t, in, a)
	default:
		checkLevels(t, f, in, a)
	}
}

// checkCircle walks on the circle of members, one step at a time.
func checkCircle(t failer, in allocfn.Input, a allocfn.Assignment) {
	t.Helper()
	next, place := 0, 0
	who := make(map[string][]int)
	for i, p := range in.Partitions {
		if who[p.Topic] == nil {
			who[p.Topic] = askers(in, p.Topic)
		}
		for ; in.Places != nil && place < int(in.Places[i]); place++ {
			next++
		}
		for !slices.Contains(who[p.Topic], next%len(in.Members)) {
			next++
		}
		if int(a[i]) != next%len(in.Members) {
			t.Fatalf("roundrobin: %v is with member %d, want %d: %v", p, a[i], next%len(in.Members), a)
		}
		next++
		place++
	}
}

// checkRuns cuts each topic over its askers.
func checkRuns(t failer, in allocfn.Input, a allocfn.Assignment) {
	t.Helper()
	byTopic := make(map[string][]int)
	for i, p := range in.Partitions {
		byTopic[p.Topic] = append(byTopic[p.Topic], i)
	}
	for topic, indices := range byTopic {
		slices.SortFunc(indices, func(i, k int) int { return int(in.Partitions[i].ID) - int(in.Partitions[k].ID) })
		who, k := askers(in, topic), 0
		for rest := len(indices); len(who) > 0; who = who[1:] {
			run := (rest + len(who) - 1) / len(who)
			for range run {
				if int(a[indices[k]]) != who[0] {
					t.Fatalf("range: %v is with member %d, want %d", in.Partitions[indices[k]], a[indices[k]], who[0])
				}
				k++
			}
			rest -= run
		}
	}
}

// askerGroup is a group of topics that the same members ask for.
type askerGroup struct {
	askers     []int
	topics     []string
	partitions []int
}

// askerGroups returns the groups in the order in which they are divided.
func askerGroups(in allocfn.Input) []*askerGroup {
	byTopic := make(map[string][]int)
	for i, p := range in.Partitions {
		byTopic[p.Topic] = append(byTopic[p.Topic], i)
	}
	groups := make(map[string]*askerGroup)
	for topic, partitions := range byTopic {
		who := askers(in, topic)
		g := groups[fmt.Sprint(who)]
		if g == nil {
			g = &askerGroup{askers: who}
			groups[fmt.Sprint(who)] = g
		}
		g.partitions = append(g.partitions, partitions...)
		g.topics = append(g.topics, topic)
	}
	var sorted []*askerGroup
	for _, g := range groups {
		slices.Sort(g.topics)
		sorted = append(sorted, g)
	}
	slices.SortFunc(sorted, func(a, b *askerGroup) int {
		if len(a.askers) != len(b.askers) {
			return len(a.askers) - len(b.askers)
		}
		return strings.Compare(a.topics[0], b.topics[0])
	})
	return sorted
}

// waterline returns the exact totals of members when so many partitions, cut as finely as need be, fill up those that have least
// per weight.
func waterline(weights []*big.Int, have []int, partitions int) []*big.Rat {
	order := make([]int, len(have))
	for j := range order {
		order[j] = j
	}
	perWeight := func(j int) *big.Rat { return new(big.Rat).SetFrac(big.NewInt(int64(have[j])), weights[j]) }
	slices.SortFunc(order, func(i, j int) int { return perWeight(i).Cmp(perWeight(j)) })
	level, all, weight := new(big.Rat), big.NewInt(int64(partitions)), new(big.Int)
	for k, j := range order {
		if k > 0 && level.Cmp(perWeight(j)) <= 0 {
			break
		}
		all.Add(all, big.NewInt(int64(have[j])))
		weight.Add(weight, weights[j])
		level.SetFrac(all, weight)
	}
	exact := make([]*big.Rat, len(have))
	for j := range exact {
		exact[j] = new(big.Rat).SetInt64(int64(have[j]))
		if full := new(big.Rat).Mul(level, new(big.Rat).SetInt(weights[j])); full.Cmp(exact[j]) > 0 {
			exact[j] = full
		}
	}
	return exact
}

// off returns how far a count is above the exact one.
func off(count int, exact *big.Rat) *big.Rat {
	return new(big.Rat).Sub(new(big.Rat).SetInt64(int64(count)), exact)
}

// checkLevels checks that the totals after each group are as level, per weight, as whole partitions of that group allow: less
// than one away from the exact totals, and so that nobody could give one to another and both together would come closer to them.
// With equal weights no asker that got any of the group has two more than another. For TopicBalanced it checks each topic too;
// there totals may be rounded otherwise where weights differ.
func checkLevels(t failer, f allocfn.Func, in allocfn.Input, a allocfn.Assignment) {
	t.Helper()
	one := big.NewRat(1, 1)
	totals := make([]int, len(in.Members))
	for _, g := range askerGroups(in) {
		var weights []*big.Int
		var have []int
		equal := true
		for _, j := range g.askers {
			have = append(have, totals[j])
			weights = append(weights, bruteWeight(in.Members[j]))
			equal = equal && weights[0].Cmp(weights[len(weights)-1]) == 0
		}
		exact := waterline(weights, have, len(g.partitions))
		for _, i := range g.partitions {
			totals[a[i]]++
		}
		for k, j := range g.askers {
			if d := off(totals[j], exact[k]); new(big.Rat).Abs(d).Cmp(one) >= 0 {
				t.Fatalf("%s: after %q member %d has %d, exactly %v", f.Name, g.topics, j, totals[j], exact[k])
			}
			if totals[j] == have[k] {
				continue // it has none that it could give
			}
			for l, other := range g.askers {
				if equal && totals[j] > totals[other]+1 {
					t.Fatalf("%s: after %q member %d has %d, and %d has %d", f.Name, g.topics, j, totals[j], other, totals[other])
				}
				gap := new(big.Rat).Sub(off(totals[j], exact[k]), off(totals[other], exact[l]))
				if gap.Cmp(one) > 0 && (equal || f.Name == "balanced") {
					t.Fatalf("%s: after %q member %d has %d, and %d has %d: exactly %v and %v",
						f.Name, g.topics, j, totals[j], other, totals[other], exact[k], exact[l])
				}
			}
		}
		if f.Name == "topicbalanced" {
			checkTopicShares(t, in, a, g, have, exact)
		}
	}
}

// checkTopicShares checks that of each topic of a group every asker has its exact share, which is as what it gets of the group,
// rounded down or up.
func checkTopicShares(t failer, in allocfn.Input, a allocfn.Assignment, g *askerGroup, have []int, exact []*big.Rat) {
	t.Helper()
	for _, topic := range g.topics {
		counts, size := make([]int, len(in.Members)), 0
		for _, i := range g.partitions {
			if in.Partitions[i].Topic == topic {
				counts[a[i]]++
				size++
			}
		}
		for k, j := range g.askers {
			share := new(big.Rat).Sub(exact[k], new(big.Rat).SetInt64(int64(have[k])))
			share.Mul(share, big.NewRat(int64(size), int64(len(g.partitions))))
			if new(big.Rat).Abs(off(counts[j], share)).Cmp(big.NewRat(1, 1)) >= 0 {
				t.Fatalf("topicbalanced: of %q member %d has %d, exactly %v", topic, j, counts[j], share)
			}
		}
	}
}

// drawTopicLists gives the members of a group lists of topics, of several kinds.
func drawTopicLists(t *rapid.T, in allocfn.Input) {
	var names []string
	for _, p := range in.Partitions {
		names = append(names, p.Topic)
	}
	names = append(slices.Compact(slices.Sorted(slices.Values(names))), "not-in-the-set")
	list := rapid.SliceOfN(rapid.SampledFrom(names), 0, 2*len(names))
	shared := rapid.SliceOfN(list, 1, 4).Draw(t, "lists")
	for i := range in.Members {
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0:
			in.Members[i].Topics = nil
		case 1:
			in.Members[i].Topics = list.Draw(t, "list")
		default:
			in.Members[i].Topics = rapid.SampledFrom(shared).Draw(t, "one of the lists")
		}
	}
}

// TestTopicsOfRandomGroups checks plans of random groups, with weights, zones and any lists of topics, against their definition,
// and that lists which say the same in another way change nothing.
func TestTopicsOfRandomGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawGroup(t)
		drawTopicLists(t, in)
		same := in
		same.Members = slices.Clone(in.Members)
		r := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed")))
		for i, m := range in.Members {
			if len(m.Topics) == 0 {
				continue
			}
			list := append(slices.Clone(m.Topics), "nobody-has-this", m.Topics[0])
			r.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
			same.Members[i].Topics = list
		}
		for _, f := range topicFuncs() {
			a := mustCall(t, f, in)
			checkTopicPlan(t, f, in, a)
			if b := mustCall(t, f, same); !slices.Equal(a, b) {
				t.Fatalf("%s: got %v, with lists in another order %v", f.Name, a, b)
			}
		}
	})
}

// TestEqualTopicsChangeNothing wants the plan without topics where all members ask for the same, however they say it.
func TestEqualTopicsChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawGroup(t)
		var names []string
		for _, p := range in.Partitions {
			names = append(names, p.Topic)
		}
		names = slices.Compact(slices.Sorted(slices.Values(names)))
		wanted := names[:rapid.IntRange(0, len(names)).Draw(t, "wanted")]
		all := len(wanted) == len(names) && rapid.Bool().Draw(t, "some name no topics")
		asking := in
		asking.Members = slices.Clone(in.Members)
		for i := range asking.Members {
			list := append(slices.Clone(wanted), "not-in-the-set", fmt.Sprintf("of-%d", i%3))
			if i%2 == 0 {
				slices.Reverse(list)
			}
			if i%3 > 0 && all {
				list = nil
			}
			asking.Members[i].Topics = list
		}
		for _, f := range topicFuncs() {
			if a, b := mustCall(t, f, in), mustCall(t, f, asking); !slices.Equal(a, b) {
				t.Fatalf("%s: got %v, without topics %v", f.Name, b, a)
			}
		}
	})
}
