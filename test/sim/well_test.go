package sim_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/allocfn"
)

// versions tells the claims and snapshots of all members.
func (w *world) versions() string {
	var b strings.Builder
	for _, p := range w.live() {
		list, _, _ := w.mon.holdings(p)
		fmt.Fprintf(&b, "%s:%d[%s] ", p.id, w.mon.snapshots(p), list)
	}
	return b.String()
}

// rest waits, and says whether all is well.
func (w *world) rest(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-w.mon.failed:
			return false
		case <-w.woken:
			w.supervise()
		case <-timer.C:
			return true
		}
	}
}

// bound is how long the group may take to be well again after anything.
func (w *world) bound() time.Duration {
	t := w.plan.Timeout
	replaced := max(2*t, 15*time.Second) + 2*time.Second
	return replaced + 2*(t+w.plan.Tick+time.Second) + rebalanceTimeout + 30*time.Second
}

// settle waits until the group is well: all members joined and of one mind, each partition owned by whom the mapping
// says, the set complete, all messages processed.
func (w *world) settle(what string, bound time.Duration) bool {
	began := time.Now()
	ends := w.broker.ends()
	owned, repaired := time.Duration(0), time.Duration(0)
	for {
		w.supervise()
		why := w.unwell()
		if why == "" {
			if owned == 0 {
				owned = max(1, time.Since(began))
			}
			if w.mon.processedAll(ends) {
				w.due = ends
				break
			}
			why = "not all messages were processed"
		}
		d := time.Since(began)
		if d > bound+patience*3 || owned == 0 && d > bound {
			if owned != 0 {
				w.due = ends
			}
			w.mon.Violate("L1", "not well %v after %s: %s\n%s", d, what, why, w.state())
			return false
		}
		if strings.HasPrefix(why, "the set") && d-repaired > 10*time.Second {
			repaired = d
			w.complete()
		}
		step := 100 * time.Millisecond
		if d < time.Second {
			step = 10 * time.Millisecond
		}
		if !w.rest(step) {
			return false
		}
	}
	w.res.figures["all owned after "+what] = append(w.res.figures["all owned after "+what], owned)
	return w.rest(0)
}

// complete adds what is missing in the set, as a member.
func (w *world) complete() {
	if live := w.live(); len(live) > 0 && live[0].alloc != nil {
		p := live[0]
		w.later(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
			defer cancel()
			err := p.alloc.AddPartitions(ctx, w.seed())
			w.mon.Note("%s added partitions: %v", p.id, err)
		})
	}
}

// unwell says what is wrong with the group, "" when nothing is.
func (w *world) unwell() string {
	live := w.live()
	var names []string
	for slot, p := range w.slots {
		if w.wanted[slot] && p == nil {
			return fmt.Sprintf("there is no m%d", slot)
		}
		if p != nil && (p.isLeaving() || p.isDead()) {
			return p.id + " is on its way out"
		}
		if p != nil {
			names = append(names, p.name)
		}
	}
	if len(w.doubles) > 0 {
		return w.doubles[0].id + " is a double"
	}
	slices.Sort(names)
	var all []allocfn.Partition
	for i := range w.plan.Partitions {
		all = append(all, allocfn.Partition{Topic: topic, ID: int32(i)})
	}
	allocfn.Sort(all)
	if w.plan.Group {
		return w.groupsUnwell(live, names)
	}
	for _, p := range live {
		snap := p.alloc.Snapshot()
		switch {
		case snap == nil || !snap.Joined || snap.Incarnation == nil || !snap.Incarnation.Trusted():
			return p.id + " has not joined"
		case snap.Err != nil:
			return fmt.Sprintf("%s: %v", p.id, snap.Err)
		case !slices.Equal(snap.Members, names):
			return fmt.Sprintf("%s sees %v, not %v", p.id, snap.Members, names)
		case !slices.Equal(snap.Partitions, all):
			return fmt.Sprintf("the set of %s is %v", p.id, snap.Partitions)
		}
		var owned []allocfn.Partition
		for _, info := range p.owner.Owned() {
			owned = append(owned, allocfn.Partition{Topic: info.Topic, ID: info.Partition})
			if info.Revoking {
				return fmt.Sprintf("%s revokes %v", p.id, info)
			}
		}
		mine := snap.Mine()
		allocfn.Sort(mine)
		allocfn.Sort(owned)
		if !slices.Equal(mine, owned) {
			return fmt.Sprintf("%s owns %v, not %v", p.id, owned, mine)
		}
	}
	return ""
}

// groupsUnwell is unwell where the members are Groups, who don't show their snapshots: all are members, each
// partition has one owner, and the shares are fair.
func (w *world) groupsUnwell(live []*process, names []string) string {
	if got := w.srv.Children(groupPath + "/members"); !slices.Equal(got, names) {
		return fmt.Sprintf("the members are %v, not %v", got, names)
	}
	owned, least, most := 0, w.plan.Partitions, 0
	for _, p := range live {
		list, parts, settled := w.mon.holdings(p)
		if !settled {
			return fmt.Sprintf("%s: not all of %s is open", p.id, list)
		}
		// Who has partitions tells by itself that trust has ended. Being asked would end it for the Group, which has to ask.
		if len(parts) == 0 && p.ses.Current() == nil {
			return p.id + " is not trusted"
		}
		owned, least, most = owned+len(parts), min(least, len(parts)), max(most, len(parts))
	}
	if owned != w.plan.Partitions || most-least > 1 {
		return fmt.Sprintf("%d of %d are owned, from %d to %d", owned, w.plan.Partitions, least, most)
	}
	return ""
}

// state describes everybody, for messages.
func (w *world) state() string {
	var b strings.Builder
	for _, p := range append(w.live(), w.doubles...) {
		if p.alloc == nil {
			list, _, _ := w.mon.holdings(p)
			fmt.Fprintf(&b, "%s owns %s\n  session %+v\n", p.id, list, p.ses.Stats())
			continue
		}
		snap := p.alloc.Snapshot()
		fmt.Fprintf(&b, "%s owns %v\n  session %+v\n", p.id, p.owner.Owned(), p.ses.Stats())
		if snap != nil {
			fmt.Fprintf(&b, "  snapshot %d joined %v members %v mine %v err %v\n",
				snap.Version, snap.Joined, snap.Members, snap.Mine(), snap.Err)
		}
	}
	b.WriteString(w.srv.Dump())
	return b.String()
}
