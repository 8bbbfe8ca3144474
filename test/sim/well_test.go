package sim_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel"
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

// notice is how long it takes until everybody has noticed everything: the servers end the sessions of the dead, and what nobody
// is told of is read again after T.
func (w *world) notice() time.Duration { return w.plan.Timeout + w.plan.Tick + soon }

// settle waits until the group has become well by itself and has been so for as long as it takes to notice everything: all
// members joined and of one mind, each partition owned by whom the mapping says, the set complete, no claim that its session's
// member does not know of, all messages processed.
func (w *world) settle(what string, bound time.Duration) bool {
	began := time.Now()
	ends := w.mustBeProcessed(w.broker.ends()[:w.known])
	owned, well := time.Time{}, time.Time{} // since when all is owned, and all is well
	for well.IsZero() || time.Since(well) < w.notice() {
		w.supervise()
		why := w.unwell()
		switch {
		case why != "":
			owned = time.Time{}
		case owned.IsZero():
			owned = time.Now()
		}
		if why == "" && !w.mon.processedAll(ends) {
			why = "not all messages were processed"
		}
		switch {
		case why != "":
			well = time.Time{}
		case well.IsZero():
			well = time.Now()
		}
		d, step := time.Since(began), 100*time.Millisecond
		switch {
		case why != "" && (d > bound+patience*3 || owned.IsZero() && d > bound):
			if !owned.IsZero() {
				w.due = ends
			}
			w.mon.Violate("L1", "not well %v after %s: %s\n%s", d, what, why, w.state())
			return false
		case why == "":
			step = w.notice() / 20
		case d < time.Second:
			step = 10 * time.Millisecond
		}
		if !w.rest(step) {
			return false
		}
	}
	w.due = ends
	figure := "all owned after " + what
	w.res.figures[figure] = append(w.res.figures[figure], owned.Sub(began))
	return true
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
	switch {
	case len(w.doubles) > 0:
		return w.doubles[0].id + " is a double"
	case w.errands.Load() > 0:
		return "an operator is at work"
	}
	slices.Sort(names)
	if w.plan.Group {
		return cmp.Or(w.groupsUnwell(live, names), w.strayClaim())
	}
	return cmp.Or(w.ownersUnwell(live, names), w.strayClaim())
}

// ownersUnwell is unwell where the members are Owners.
func (w *world) ownersUnwell(live []*process, names []string) string {
	all := w.onlyWanted(w.partitions())
	unwanted := w.unwanted()
	for _, p := range live {
		snap := p.alloc.Snapshot()
		switch {
		case snap == nil || !snap.Joined || snap.Incarnation == nil || !snap.Incarnation.Trusted():
			return p.id + " has not joined"
		case snap.Err != nil:
			return fmt.Sprintf("%s: %v", p.id, snap.Err)
		case !slices.Equal(snap.Members, names):
			return fmt.Sprintf("%s sees %v, not %v", p.id, snap.Members, names)
		case !slices.Equal(snap.Partitions, all) || !slices.Equal(snap.Unwanted, unwanted):
			return fmt.Sprintf("the set of %s is %v, without %v", p.id, snap.Partitions, snap.Unwanted)
		}
		var owned []kiel.Partition
		for _, info := range p.owner.Owned() {
			owned = append(owned, kiel.Partition{Topic: info.Topic, ID: info.Partition})
			if info.Revoking {
				return fmt.Sprintf("%s revokes %v", p.id, info)
			}
		}
		mine := snap.Mine()
		kiel.SortPartitions(mine)
		kiel.SortPartitions(owned)
		if !slices.Equal(mine, owned) {
			return fmt.Sprintf("%s owns %v, not %v", p.id, owned, mine)
		}
	}
	return ""
}

// strayClaim finds a claim that exists though the member whose session it is does not know of it.
func (w *world) strayClaim() string {
	standing := w.claims()
	for part := range w.known {
		c, ok := standing[part]
		if !w.isWanted(part) {
			if ok {
				return fmt.Sprintf("p%d has a claim, and nobody asks for its topic", part)
			}
			w.cov.hit("topics: one that nobody asks for")
			continue
		}
		if !ok {
			return fmt.Sprintf("p%d has no claim", part)
		}
		if !w.mon.knows(part, c) {
			return fmt.Sprintf("nobody knows of the claim of p%d with token %#x in session %#x", part, c.token, c.session)
		}
	}
	return ""
}

// standing is a claim as the servers see it.
type standing struct{ token, session int64 }

// claims returns the claims that exist, by partition.
func (w *world) claims() map[int]standing {
	all := map[int]standing{}
	for part := range w.plan.Partitions {
		if _, stat, ok := w.srv.Get(w.plan.ownerPath(part)); ok {
			all[part] = standing{token: stat.Czxid, session: stat.EphemeralOwner}
		}
	}
	return all
}

// groupsUnwell is unwell where the members are Groups, who don't show their snapshots: all are members, each partition has one
// owner, and the shares are fair.
func (w *world) groupsUnwell(live []*process, names []string) string {
	if got := w.srv.Children(groupPath + "/members"); !slices.Equal(got, names) {
		return fmt.Sprintf("the members are %v, not %v", got, names)
	}
	if w.plan.differ() {
		return w.listsUnwell(live, names)
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
