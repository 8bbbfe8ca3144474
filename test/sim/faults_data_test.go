package sim_test

import (
	"context"
	"strings"
	"time"
)

// delete removes a znode and all below it, as an operator would. It says whether there was one.
func (w *world) delete(path string) bool {
	if w.srv.Delete(path) != nil {
		return false
	}
	w.cov.hit("operator deleted a znode")
	return true
}

// deleteClaims removes a znode below which there are claims.
func (w *world) deleteClaims(path string) bool {
	for part := range w.plan.Partitions {
		if _, stat, ok := w.srv.Get(w.plan.ownerPath(part)); ok {
			w.mon.claimGoes(part, stat.Czxid, stat.EphemeralOwner)
		}
	}
	return w.delete(path)
}

func deleteMember(p *process, _ step) bool { return p.w.delete(groupPath + "/members/" + p.name) }

func deleteEpoch(w *world, s step) (func(), bool) { return nil, w.delete(w.plan.epochPath(s.Part)) }

// deleting removes a znode, below which there may be claims.
func deleting(path string) deed {
	return func(w *world, _ step) (func(), bool) {
		if strings.HasPrefix(groupPath+"/owners", path) {
			return nil, w.deleteClaims(path)
		}
		return nil, w.delete(path)
	}
}

func deleteClaim(w *world, s step) (func(), bool) {
	_, stat, ok := w.srv.Get(w.plan.ownerPath(s.Part))
	if !ok {
		return nil, false
	}
	w.mon.claimGoes(s.Part, stat.Czxid, stat.EphemeralOwner)
	return nil, w.delete(w.plan.ownerPath(s.Part))
}

// badRecord overwrites what a member says of itself.
func badRecord(p *process, s step) bool {
	data := []string{"", "{", `{"v":1,"functions":["other"]}`}[s.N%3]
	return p.w.srv.Set(groupPath+"/members/"+p.name, []byte(data)) == nil
}

// garbage overwrites the set, and repairs it.
func garbage(w *world, s step) (func(), bool) {
	data, _, ok := w.srv.Get(w.partitionsPath())
	if !ok {
		return nil, false
	}
	free, ok := w.hold("set")
	if !ok {
		return nil, false
	}
	bad := []string{"{}", "null", "[1]", `["t:0"`, "\x00"}[s.N%5]
	if err := w.srv.Set(w.partitionsPath(), []byte(bad)); err != nil {
		free()
		return nil, false
	}
	return func() {
		free()
		if now, _, ok := w.srv.Get(w.partitionsPath()); ok && string(now) == bad {
			_ = w.srv.Set(w.partitionsPath(), data)
			w.cov.hit("garbage in the set was repaired")
		}
	}, true
}

// shrinkSet takes a partition out of the set, and puts it back.
func shrinkSet(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil || p.alloc == nil {
		return nil, false
	}
	free, ok := w.hold("set")
	if !ok {
		return nil, false
	}
	one := w.plan.byTopic(s.Part)
	removed := make(chan error, 1)
	w.later(func() { removed <- w.changeSet(p, p.alloc.RemovePartitions, one) })
	return func() {
		live := w.live()
		w.errand(func() {
			defer free()
			unsure := <-removed != nil
			w.putBack(live, one)
			if unsure { // the removal may still happen, as long as its session lives
				time.Sleep(2 * w.plan.Timeout)
				w.putBack(live, one)
			}
		})
	}, true
}

// errand has an operator do something that takes time. The group is not well before it is done.
func (w *world) errand(f func()) {
	w.errands.Add(1)
	w.later(func() {
		defer w.errands.Add(-1)
		f()
	})
}

// putBack has each of these members add partitions, as an operator does who wants them in all seeds. Members that start later
// have them.
func (w *world) putBack(live []*process, parts map[string][]int32) {
	for _, p := range live {
		for !p.hasEnded() && !p.isDead() && !p.isLeaving() && w.changeSet(p, p.alloc.AddPartitions, parts) != nil {
			time.Sleep(time.Second)
		}
	}
}

// changeSet has a member change the set.
func (w *world) changeSet(p *process, change func(context.Context, map[string][]int32) error, parts map[string][]int32) error {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	err := change(ctx, parts)
	w.mon.Note("%s changed the set: %v", p.id, err)
	if err == nil {
		w.cov.hit("set changed")
	}
	return err
}
