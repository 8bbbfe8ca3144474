package sim_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

// otherTopics is the kind of fault in which a member leaves and comes back with another list of topics. It has no weight: plans
// get it by addTopics, from a source of its own, so that it changes no other draw of a seed.
const otherTopics = "other topics"

// otherTopicsBound is how long a partition of a topic that somebody asks for may be without an owner while a member leaves and
// comes back: two hand-overs, and a quiet period for what it adds to the set.
const otherTopicsBound = 700 * time.Millisecond

// topicSource is what a plan draws its topics from.
func topicSource(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x746f70696373)) }

// addTopics gives a third of the plans several topics, members that ask for some of them, and members that come back with another
// list: some during each phase of faults, and a few alone, at the end.
func (p *plan) addTopics(idle time.Duration) {
	r := topicSource(p.Seed)
	if r.IntN(3) > 0 {
		return
	}
	p.Topics = 2 + r.IntN(2)
	for range p.Slots {
		p.Lists = append(p.Lists, r.IntN(1<<p.Topics))
	}
	for i, ph := range p.Phases {
		if ph.Drill {
			continue
		}
		last := ph.Steps[len(ph.Steps)-1].At
		for range 1 + r.IntN(3) {
			s := p.draw(r, otherTopics)
			s.At = between(r, 0, last)
			ph.Steps = append(ph.Steps, s)
		}
		slices.SortStableFunc(ph.Steps, func(a, b step) int { return int(a.At - b.At) })
		p.Phases[i] = ph
	}
	for range 3 {
		p.Phases = append(p.Phases, phase{Idle: idle, Drill: true, Steps: []step{p.draw(r, otherTopics)}})
	}
	p.Patterns = r.IntN(2) == 0
}

// newTopicDrills makes a plan of two rolling deploys and what may come in the middle of them: the first adds a topic, the second
// takes it away. In the end each member asks for one topic alone.
func newTopicDrills(seed uint64, members int) *plan {
	r := topicSource(seed)
	p := &plan{Seed: seed, Deploys: true, Patterns: seed%2 == 1, Func: []string{"balanced", "roundrobin", "range"}[seed%3], Topics: 2 + r.IntN(2)}
	p.Timeout = []time.Duration{6 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}[r.IntN(4)]
	p.Tick = p.Timeout / time.Duration(3+r.IntN(6))
	p.Members = max(members, 3)
	p.Slots = p.Members + 1
	p.Partitions = 5 + r.IntN(8)
	every := 1<<p.Topics - 1
	few := every >> 1
	for range p.Slots {
		p.Lists = append(p.Lists, few)
	}
	add := func(kind string, slot, n int) {
		s := p.draw(r, kind)
		s.Member = slot
		if kind == otherTopics {
			s.N = n
		}
		p.Phases = append(p.Phases, phase{Idle: time.Minute, Drill: true, Steps: []step{s}})
	}
	between := []string{"leave", "crash", "kill session", "delete set"}
	for _, list := range []int{every, few} {
		for slot := range p.Members {
			add(otherTopics, slot, list)
			if slot%2 == 0 {
				add(between[r.IntN(len(between))], r.IntN(p.Slots), 0)
			}
		}
	}
	for slot := range p.Members {
		add(otherTopics, slot, 1<<(slot%p.Topics))
	}
	add("join", p.Members, 0)
	add("leave", 0, 0)
	return p
}

// differ says whether members may ask for different topics.
func (p *plan) differ() bool { return p.Topics > 1 }

// lists returns which topics the first process of each slot asks for.
func (p *plan) lists() []int {
	if !p.differ() {
		return make([]int, p.Slots)
	}
	return slices.Clone(p.Lists)
}

// list returns the topics of a list, a bit each. No bit is all: as nil, which only an allocator's options know.
func (p *plan) list(bits int) []string {
	bits %= 1 << max(p.Topics, 1)
	if bits == 0 && !p.Group {
		return nil
	}
	var list []string
	for i := range max(p.Topics, 1) {
		if bits == 0 || bits&(1<<i) != 0 {
			list = append(list, p.topic(i))
		}
	}
	return list
}

func (p *plan) topic(i int) string {
	if i == 0 {
		return topic
	}
	return fmt.Sprint(topic, i)
}

// partition returns the partition that the plan and the monitor call i.
func (p *plan) partition(i int) kiel.Partition {
	n := max(p.Topics, 1)
	return kiel.Partition{Topic: p.topic(i % n), ID: int32(i / n)}
}

// index is the other way round.
func (p *plan) index(topicName string, id int32) int {
	n := max(p.Topics, 1)
	for i := range n {
		if p.topic(i) == topicName {
			return int(id)*n + i
		}
	}
	panic("unknown topic " + topicName)
}

// byTopic returns a partition as the methods of an allocator take it.
func (p *plan) byTopic(i int) map[string][]int32 {
	part := p.partition(i)
	return map[string][]int32{part.Topic: {part.ID}}
}

// sizes returns how many partitions each topic has.
func (p *plan) sizes() map[string]int32 {
	n := map[string]int32{}
	for i := range p.Partitions {
		n[p.partition(i).Topic]++
	}
	return n
}

func (p *plan) ownerPath(part int) string {
	return fmt.Sprintf("%s/owners/%s", groupPath, p.partition(part))
}

func (p *plan) epochPath(part int) string {
	return fmt.Sprintf("%s/epochs/%s", groupPath, p.partition(part))
}

// wants says whether who has this list asks for a topic.
func wants(list []string, topicName string) bool {
	return list == nil || slices.Contains(list, topicName)
}

// anyWants says whether one of the members asks for a topic.
func anyWants(members []allocfn.Member, topicName string) bool {
	return slices.ContainsFunc(members, func(m allocfn.Member) bool { return wants(m.Topics, topicName) })
}

// askForOthers makes a member leave in order and come back with another list.
func askForOthers(p *process, s step) bool {
	if !p.w.plan.differ() {
		return false
	}
	p.w.lists[p.slot] = s.N
	p.leave()
	return true
}

// isWanted says whether a member that is there, or should be, asks for a partition's topic.
func (w *world) isWanted(part int) bool {
	for slot, wanted := range w.wanted {
		if wanted && wants(w.plan.list(w.lists[slot]), w.plan.partition(part).Topic) {
			return true
		}
	}
	return false
}

// onlyWanted leaves out partitions that nobody asks for.
func (w *world) onlyWanted(parts []kiel.Partition) []kiel.Partition {
	if !w.plan.differ() {
		return parts
	}
	return slices.DeleteFunc(slices.Clone(parts), func(q kiel.Partition) bool { return !w.isWanted(w.plan.index(q.Topic, q.ID)) })
}

// mustBeProcessed returns which messages must be processed when the group is well: those before ends of what somebody asks for,
// of the rest those that had to be before.
func (w *world) mustBeProcessed(ends []int64) []int64 {
	for i := range ends {
		if w.isWanted(i) {
			continue
		}
		ends[i] = 0
		if i < len(w.due) {
			ends[i] = w.due[i]
		}
	}
	return ends
}

// everyPartition returns all.
func (w *world) everyPartition() []int {
	all := make([]int, w.plan.Partitions)
	for i := range all {
		all[i] = i
	}
	return all
}

// listOf returns what the member of this name asks for.
func (w *world) listOf(name string) []string {
	for slot, bits := range w.lists {
		if fmt.Sprintf("m%d", slot) == name {
			return w.plan.list(bits)
		}
	}
	panic("no slot of " + name)
}

// stored returns which partitions are in the set.
func (w *world) stored() map[kiel.Partition]bool {
	data, _, _ := w.srv.Get(w.partitionsPath())
	all := map[kiel.Partition]bool{}
	for i := range w.plan.Partitions {
		part := w.plan.partition(i)
		all[part] = strings.Contains(string(data), `"`+part.String()+`"`)
	}
	return all
}

// addsTopic says whether the member that a step has join asks for partitions that are not in the set.
func (w *world) addsTopic(s step) bool {
	slot, ok := w.free(s)
	if !ok || !w.plan.differ() {
		return false
	}
	stored := w.stored()
	return slices.ContainsFunc(w.partitions(), func(q kiel.Partition) bool {
		return !stored[q] && wants(w.plan.list(w.lists[slot]), q.Topic)
	})
}

// input is what these members compute of: the partitions that they ask for.
func (w *world) input(names []string) allocfn.Input {
	in := allocfn.Input{}
	for _, name := range names {
		in.Members = append(in.Members, allocfn.Member{Name: name, Topics: w.listOf(name)})
	}
	for _, part := range w.partitions() {
		if anyWants(in.Members, part.Topic) {
			in.Partitions = append(in.Partitions, part)
		}
	}
	return in
}

// unwanted returns the topics in the set that nobody asks for, sorted.
func (w *world) unwanted() []string {
	if !w.plan.differ() {
		return nil
	}
	topics := map[string]bool{}
	for part, ok := range w.stored() {
		if ok && !w.isWanted(w.plan.index(part.Topic, part.ID)) {
			topics[part.Topic] = true
		}
	}
	return slices.Sorted(keys(topics))
}

// listsUnwell is groupsUnwell where members may ask for different topics: each has what the mapping says.
func (w *world) listsUnwell(live []*process, names []string) string {
	mapping := w.mapping(names)
	for _, p := range live {
		list, parts, settled := w.mon.holdings(p)
		var want []int
		for i, name := range mapping {
			if name == p.name {
				want = append(want, i)
			}
		}
		switch {
		case !settled:
			return fmt.Sprintf("%s: not all of %s is open", p.id, list)
		case !slices.Equal(parts, want):
			return fmt.Sprintf("%s has %v, not %v", p.id, parts, want)
		case len(parts) == 0 && p.ses.Current() == nil:
			return p.id + " is not trusted"
		}
	}
	return ""
}

// asked returns what the process asks for: its topics, or where a plan has patterns, and for every other slot, patterns that find
// just these.
func (p *process) asked() []string {
	if !p.w.plan.Patterns || p.slot%2 == 0 || p.topics == nil {
		return slices.Clone(p.topics)
	}
	list := []string{"^" + topic + "[0-9]*"}
	for i := range max(p.w.plan.Topics, 1) {
		if name := p.w.plan.topic(i); !wants(p.topics, name) {
			list = append(list, "!^"+name)
		}
	}
	return list
}

var errNotAsked = errors.New("topic was not asked for")

// accept refuses what the process does not ask for, as package consumer does.
func (p *process) accept(part kiel.Partition) error {
	if wants(p.topics, part.Topic) {
		return nil
	}
	return fmt.Errorf("%w: %s", errNotAsked, part)
}

// function is the group's allocation function. Where topic lists may differ the monitor is shown what it computes.
func (p *process) function() allocfn.Func {
	f := p.w.function()
	if !p.w.plan.differ() {
		return f
	}
	assign := f.Assign
	f.Assign = func(in allocfn.Input) (allocfn.Assignment, error) {
		owners, err := assign(in)
		if err == nil {
			p.w.mon.compute(f.ID(), in, owners)
		}
		return owners, err
	}
	return f
}

// listed names a member and what it asks for.
func listed(name string, topics []string) string {
	return fmt.Sprint(name, " ", slices.Sorted(slices.Values(topics)))
}

// Asks notes what a process asks for.
func (m *monitor) Asks(p *process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lists[listed(p.name, p.topics)] = true
	m.note("%s asks for %v", p.id, p.topics)
}

// compute judges what a function made of its input (S8): each member asks for what it has asked for at some time, unless patterns
// find what there is of that, each partition
// goes to a member that asks for its topic, and those that ask for the same get the same.
func (m *monitor) compute(fn string, in allocfn.Input, owners allocfn.Assignment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	alike := map[string][]int{} // members by what they ask for
	for i, member := range in.Members {
		names = append(names, member.Name)
		list := listed("", member.Topics)
		alike[list] = append(alike[list], i)
	}
	if len(alike) > 1 {
		m.cov.hit("topics: lists differ")
	}
	key := fmt.Sprint(fn, names, in.Partitions)
	var b strings.Builder
	totals, ofTopic := make([]int, len(in.Members)), map[string][]int{}
	for i, part := range in.Partitions {
		owner := in.Members[owners[i]]
		fmt.Fprintf(&b, "%v=%s ", part, owner.Name)
		if !wants(owner.Topics, part.Topic) {
			m.violate("S8", "%s gives %v to %s, who asks for %v", fn, part, owner.Name, owner.Topics)
		}
		if ofTopic[part.Topic] == nil {
			ofTopic[part.Topic] = make([]int, len(in.Members))
		}
		ofTopic[part.Topic][owners[i]]++
		totals[owners[i]]++
	}
	m.computed[key+b.String()] = true
	for _, members := range alike {
		counts := [][]int{totals}
		if !strings.HasPrefix(fn, "balanced/") { // levels what a member has in all, these what it has of each topic
			counts = counts[:0]
			for _, n := range ofTopic {
				counts = append(counts, n)
			}
		}
		for _, n := range counts {
			least, most := len(in.Partitions), 0
			for _, i := range members {
				least, most = min(least, n[i]), max(most, n[i])
			}
			if most-least > 1 {
				m.violate("S8", "%s: one member has %d, another that asks for the same %d: %s", key, most, least, b.String())
			}
		}
	}
	for _, member := range in.Members {
		if len(alike) > 1 && !m.plan.Patterns && !m.lists[listed(member.Name, member.Topics)] {
			m.violate("S8", "%s never asked for %v", member.Name, member.Topics)
		}
	}
}

// Members leave and come back with other topics, in rolling deploys that add a topic and take it away: what somebody asks for is
// owned by who asks for it, but for hand-overs, and no message of it is lost or processed again.
func TestTopicLists(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		p := newTopicDrills(seed, *flagMembers)
		p.Group = seed >= 3
		t.Run(fmt.Sprintf("%s groups %t", p.Func, p.Group), func(t *testing.T) {
			t.Parallel()
			res := simulate(t, p, manners{})
			if len(res.violations) > 0 {
				report(t, res, manners{})
			}
			for _, what := range []string{"drill: " + otherTopics, "topics: lists differ"} {
				if res.cov.of(what) == 0 {
					t.Errorf("not reached: %s", what)
				}
			}
			all := res.figures["drill "+otherTopics]
			slices.Sort(all)
			if len(all) > 0 {
				t.Attr("well_after_other_topics", fmt.Sprintf("n %d, median %v, max %v", len(all), all[len(all)/2], all[len(all)-1]))
			}
		})
	}
}
