package sim_test

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kielgo/kiel/allocfn"
)

// drill is what a fault may do at most when it comes alone.
type drill struct {
	bound      func(w *world, s step) time.Duration // until all is well
	fromEnd    bool                                 // counted from the fault's end, not from its beginning
	still      bool                                 // nothing may change at all
	orderly    bool                                 // no message may be processed again
	rebalances func(w *world, s step) int           // at most so many for each member; nil = any number
	renews     bool                                 // what it concerns has to be claimed anew
	// touches says which partitions it may concern; no other may be revoked or lost. Nil: all.
	touches func(w *world, s step) []int
}

// within says that all must be well so many seconds after it began.
func within(s float64) *drill { return &drill{bound: seconds(s)} }

// renewing has a drill have the claims of one partition made anew.
func (d *drill) renewing() *drill {
	d.renews = true
	return d.but(that)
}

// but has a drill concern these partitions only.
func (d *drill) but(touches func(w *world, s step) []int) *drill {
	d.touches = touches
	return d
}

// after says that all must be well in a time after its end.
func after(bound func(w *world, s step) time.Duration) *drill {
	return &drill{bound: bound, fromEnd: true}
}

// unnoticed says that nothing may change.
func unnoticed() *drill { return &drill{still: true} }

func seconds(s float64) func(w *world, s step) time.Duration {
	return func(*world, step) time.Duration { return time.Duration(s * float64(time.Second)) }
}

// expiry is how long the partitions of a crashed member may be without an owner.
func expiry(w *world, _ step) time.Duration { return w.plan.Timeout + w.plan.Tick + time.Second }

// rebuilt is how long it may take until all is well after the servers have lost their data.
func rebuilt(w *world, _ step) time.Duration {
	return max(2*w.plan.Timeout, 15*time.Second) + 2*time.Second
}

// restored is how long it may take until all is well after the servers have gone back to a backup: the sessions of members that
// have ended since may live once more.
func restored(w *world, s step) time.Duration { return rebuilt(w, s) + expiry(w, s) }

// stuckBound is how long a partition may be held up by a handler that does not return.
func stuckBound(*world, step) time.Duration { return rebalanceTimeout + time.Second }

// reconnect is how long it may take after the servers are back: a handshake that hangs, a proof that counts from too long ago to
// begin with, and a back-off.
func reconnect(w *world, _ step) time.Duration {
	return w.plan.Timeout/4 + w.plan.Timeout/6 + 3*time.Second
}

// trustAgain is how long it takes until the next proof.
func trustAgain(w *world, _ step) time.Duration { return w.plan.Timeout/3 + time.Second }

// rejoin is how long it may take after a member is back whose session has expired.
func rejoin(w *world, s step) time.Duration { return reconnect(w, s) }

// joined is how long it may take until all is well after a member has joined: longer when it adds a topic to the set.
func joined(w *world, s step) time.Duration {
	if w.addsTopic(s) {
		return otherTopicsBound
	}
	return 300 * time.Millisecond
}

// left is how long it may take until all is well after a member has left: longer where lists differ, since nobody else may ask
// for what it asks for when it comes back.
func left(w *world, _ step) time.Duration {
	if w.plan.differ() {
		return otherTopicsBound
	}
	return 300 * time.Millisecond
}

// perJoining is a rebalance, and another when the member adds a topic to the set.
func perJoining(w *world, s step) int {
	if w.addsTopic(s) {
		return 2
	}
	return 1
}

// most is a number of rebalances.
func most(n int) func(*world, step) int { return func(*world, step) int { return n } }

// perGoing is a rebalance for each change of members when one goes away: there is another when it comes back.
func perGoing(w *world, _ step) int {
	if w.spare() {
		return 1
	}
	return 2
}

// none: no partition is concerned.
func none(*world, step) []int { return nil }

// bySeeds: no partition is concerned when all members add the same to the set.
func bySeeds(w *world, _ step) []int {
	if w.plan.differ() {
		return w.everyPartition()
	}
	return nil
}

// that: the partition of the step.
func that(_ *world, s step) []int { return []int{s.Part} }

// outsiders: all that are another's when the member of the step is not there, be it for a moment.
func outsiders(w *world, s step) []int {
	names := w.names()
	if p := w.choose(s.Member); p != nil {
		return w.moving(names, slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == p.name }))
	}
	return nil
}

// newcomers: all that are another's when the next member has joined.
func newcomers(w *world, s step) []int {
	slot, ok := w.free(s)
	if !ok {
		return nil
	}
	if w.addsTopic(s) { // for a moment the member is there and its topic is not
		return w.everyPartition()
	}
	names := w.names()
	joined := append(slices.Clone(names), fmt.Sprintf("m%d", slot))
	return w.moving(names, joined)
}

// names returns the names of all members, sorted.
func (w *world) names() []string {
	var names []string
	for _, p := range w.live() {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return names
}

// moving returns the partitions that go to others when the members change.
func (w *world) moving(before, after []string) []int {
	slices.Sort(after)
	was, is := w.mapping(before), w.mapping(after)
	var parts []int
	for part := range w.plan.Partitions {
		if was[part] != is[part] {
			parts = append(parts, part)
		}
	}
	return parts
}

// mapping returns the owner of each partition, as the members compute it, "" where nobody asks for it.
func (w *world) mapping(names []string) []string {
	in := w.input(names)
	owners, err := allocfn.Call(w.function(), in)
	if err != nil {
		panic(err)
	}
	list := make([]string, w.plan.Partitions)
	for i, member := range owners {
		list[w.plan.index(in.Partitions[i].Topic, in.Partitions[i].ID)] = names[member]
	}
	return list
}

// drill injects one fault and checks its bounds.
func (w *world) drill(s step) bool {
	d := faults[s.Kind].drill
	name := "drill " + s.Kind
	look := w.lookAround(d, s)
	end, ok := w.inject(s)
	if !ok {
		w.cov.hit("drill was not possible: " + s.Kind)
		return w.settle("drill", w.bound())
	}
	if end == nil {
		end = func() {}
	}
	if !w.undergo(d, name, s, end) || !w.settle("drill", w.bound()) || !look(name) {
		return false
	}
	w.cov.hit("drill: " + s.Kind)
	return true
}

// undergo waits for the end of a drill's fault, and as long as its bound allows.
func (w *world) undergo(d *drill, name string, s step, end func()) bool {
	switch {
	case d.still:
		ok := w.rest(s.For)
		end()
		if !ok || !w.rest(w.plan.Timeout+5*time.Second) {
			return false
		}
		w.res.figures[name] = append(w.res.figures[name], 0)
		return true
	case d.fromEnd:
		ok := w.rest(s.For)
		end()
		return ok && w.recovers(name, d.bound(w, s))
	default:
		ok := w.recovers(name, d.bound(w, s)) && w.rest(s.For)
		end()
		return ok
	}
}

// lookAround looks at the group before a drill. What it returns looks again after it, and says whether all is as it should be.
func (w *world) lookAround(d *drill, s step) func(name string) bool {
	before := w.versions()
	counts := map[*process]int{}
	for _, p := range w.live() {
		counts[p] = w.mon.snapshots(p)
	}
	rebalances := math.MaxInt
	if d.rebalances != nil {
		rebalances = d.rebalances(w, s)
	}
	kept, renewed := map[int]*term{}, map[int]*term{}
	if d.touches != nil {
		kept = w.mon.open()
		for _, part := range d.touches(w, s) {
			if d.renews && kept[part] != nil {
				renewed[part] = kept[part]
			}
			delete(kept, part)
		}
	}
	again, strayed, astray := w.mon.again()
	again += w.mon.owed()
	return func(name string) bool {
		w.supervise()
		wrong := w.mon.failures()
		if after := w.versions(); d.still && after != before {
			w.mon.Violate("L4", "%s: something has changed\nbefore %s\nafter  %s", name, before, after)
		}
		for _, p := range w.live() {
			if n := w.mon.snapshots(p) - counts[p]; n > rebalances {
				w.mon.Violate("L4", "%s: %d rebalances of %s, not %d", name, n, p.id, rebalances)
			}
		}
		w.mon.stillOpen(name, kept, renewed)
		// An offset that was moved back by a commit from before is read again for that reason.
		if n, late, _ := w.mon.again(); d.orderly && n > again && late == strayed && !astray {
			w.mon.Violate("S6", "%s: %d messages were processed again", name, n-again)
		}
		return w.mon.failures() == wrong
	}
}

// open returns the term of each partition.
func (m *monitor) open() map[int]*term {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[int]*term{}
	for i, part := range m.parts {
		for _, t := range part.terms {
			all[i] = t
		}
	}
	return all
}

// stillOpen checks that terms go on as if nothing had happened (L4), and that others have ended.
func (m *monitor) stillOpen(name string, kept, renewed map[int]*term) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, t := range renewed {
		if !t.over {
			m.violate("L4", "%s: %s did not notice: p%d (%v)", name, t.p.id, i, t)
		}
	}
	for i, t := range kept {
		m.cov.hit("drill: not concerned, and kept")
		if t.over || t.revoking {
			m.violate("L4", "%s: %s had to give up p%d (%v), which is not concerned", name, t.p.id, i, t)
		}
	}
}

// again returns how many messages were processed again so far, how many commits moved an offset back, and whether some offset has
// not been put right yet.
func (m *monitor) again() (messages, strays int, astray bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dups, m.strays, slices.ContainsFunc(m.parts, func(part *partState) bool { return part.strayed })
}

// owed counts the messages of partitions without a handler that an earlier fault has kept from being committed: whoever opens
// the partition next, in a drill for example that asks for its topic, processes them again.
func (m *monitor) owed() (messages int) {
	open := m.open()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, part := range m.parts {
		if open[i] == nil {
			messages += int(max(0, part.processed-part.acked))
		}
	}
	return messages
}

// failures counts the violations.
func (m *monitor) failures() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.faults)
}

// eagerBound is how much longer it may take with eager sessions: a call waits a second for its claims, and a gained one waits
// until the session is a second old, and then a second for the others.
const eagerBound = 3 * time.Second

// recovers waits until all is well for good, at most the bound, and keeps how long it took.
func (w *world) recovers(name string, bound time.Duration) bool {
	if w.plan.Group {
		bound += eagerBound
	}
	began := time.Now()
	well := time.Duration(0) // since when all is well
	why := ""
	for time.Since(began) <= bound+2*time.Second {
		w.supervise()
		if now := w.unwell(); now != "" {
			why, well = now, -1
			if time.Since(began) > bound {
				w.mon.Violate("L1", "%s: not well after %v: %s\n%s", name, bound, why, w.state())
				return false
			}
		} else if well < 0 {
			well = time.Since(began)
		}
		if !w.rest(5 * time.Millisecond) {
			return false
		}
	}
	w.res.figures[name] = append(w.res.figures[name], well)
	return true
}
