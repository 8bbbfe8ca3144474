package sim_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/zktest"
)

// fault is a kind of fault.
type fault struct {
	weight   int
	from, to float64 // how long it lasts, in T; 0, 0 = it is over at once
	delay    float64 // the greatest delay, in T
	// do begins it. It returns its end, nil when there is none, and whether it was possible.
	do    func(w *world, s step) (end func(), ok bool)
	drill *drill // alone, with a bound of its own
}

var (
	faults   = table()
	allKinds = slices.Sorted(maps.Keys(faults))
)

// kinds returns the names of all kinds, sorted, so that a seed's draws don't depend on a map's order.
func kinds() []string { return allKinds }

func table() map[string]fault {
	return map[string]fault{
		// The network.
		"cut":        {weight: 3, do: onMember(cut), drill: unnoticed()},
		"cut all":    {weight: 2, do: at(func(w *world, _ step) { w.nw.Cut() }), drill: unnoticed()},
		"flap":       {weight: 2, from: .1, to: 1.5, do: flap},
		"hole":       {weight: 6, from: .1, to: 2.5, do: onLink(hole)},
		"short hole": {weight: 1, from: .05, to: .32, do: onLink(hole), drill: unnoticed()},
		"long hole": {
			weight: 1, from: 2, to: 3, do: onLink(fullHole),
			drill: &drill{bound: rejoin, fromEnd: true},
		},
		"hole all": {weight: 2, from: .1, to: 2, do: onNetwork(func(w *world, s step) { w.nw.BlackHole(direction(s)) })},
		"delay":    {weight: 3, from: .2, to: 3, delay: .4, do: onLink(func(p *process, s step) { p.client.Delay(s.D) })},
		"slow network": {
			weight: 1, from: 1, to: 3, delay: .04, do: onNetwork(func(w *world, s step) { w.nw.Delay(s.D) }),
			drill: &drill{still: true},
		},
		"delay all":  {weight: 2, from: .2, to: 2, delay: .3, do: onNetwork(func(w *world, s step) { w.nw.Delay(s.D) })},
		"refuse":     {weight: 2, from: .1, to: 2, do: onLink(refuse)},
		"refuse all": {weight: 1, from: .1, to: 1.5, do: onNetwork(func(w *world, _ step) { w.nw.Refuse(); w.nw.Cut() })},

		// The servers.
		"kill session":      {weight: 4, do: tryMember(killSession), drill: within(1).but(outsiders)},
		"freeze server":     {weight: 2, from: .1, to: 2, do: onServer(freeze, thaw)},
		"freeze clock":      {weight: 2, from: .1, to: 2.5, do: onServer(freezeClock, thawClock), drill: after(reconnect)},
		"down":              {weight: 2, from: .1, to: 2.5, do: onServer(down, up), drill: after(reconnect)},
		"restart":           {weight: 2, do: onServer(restart, nil), drill: unnoticed()},
		"wipe":              {weight: 1, do: onServer(wipe, nil), drill: &drill{bound: rebuilt}},
		"refuse handshakes": {weight: 1, from: .1, to: 1.5, do: handshakes((*zktest.Server).RefuseHandshakes)},
		"silent handshakes": {weight: 2, from: .1, to: 1.5, do: handshakes((*zktest.Server).SilentHandshakes)},
		"isolate":           {weight: 4, from: .2, to: 3, do: isolate, drill: unnoticed()},
		"lose any":          {weight: 3, from: .2, to: 1, do: lose(nil)},
		"lose claim":        {weight: 3, from: .5, to: 3, do: lose(isClaim)},
		"lose release":      {weight: 3, from: .5, to: 3, do: lose(isRelease)},
		"lose join":         {weight: 1, from: .5, to: 3, do: lose(isJoin)},
		"answer error":      {weight: 2, from: .2, to: 1, do: onRequests(answerError)},
		"ignore":            {weight: 2, from: .2, to: 1, do: onRequests(func(h *hook, s step) { h.ignore = 1 + s.N%4 })},
		"cut at request":    {weight: 1, from: .2, to: 1, do: onRequests(func(h *hook, s step) { h.cut = 1 + s.N%4 })},
		"slow requests":     {weight: 2, from: .2, to: 1.5, delay: .1, do: onRequests(slowRequests)},
		"late touches":      {weight: 3, from: .5, to: 4, do: onRequests(func(h *hook, _ step) { h.touches = true })},

		// The members.
		"join":           {weight: 3, do: join, drill: &drill{bound: seconds(.3), orderly: true, touches: newcomers}},
		"leave":          {weight: 3, do: leave, drill: &drill{bound: seconds(.3), orderly: true, touches: outsiders}},
		"crash":          {weight: 3, do: crash(false), drill: &drill{bound: expiry, touches: outsiders}},
		"power loss":     {weight: 2, do: crash(true), drill: &drill{bound: expiry, touches: outsiders}},
		"restart member": {weight: 2, from: .01, to: 1, do: restartMember},
		"freeze member":  {weight: 5, from: .1, to: 2.5, do: freezeMember, drill: after(rejoin)},
		"slow handler":   {weight: 2, from: .5, to: 3, delay: .5, do: slowHandler},
		"stuck handler":  {weight: 2, from: .5, to: 4, do: stuckHandler},
		"stuck at join":  {weight: 1, from: 1, to: 3, do: stuckAtJoin, drill: &drill{bound: stuckBound}},
		"panic":          {weight: 1, do: onMember(func(p *process, s step) { p.misbehave(1+s.N%3, 0) })},
		"return":         {weight: 1, do: onMember(func(p *process, s step) { p.misbehave(0, 1+s.N%3) })},
		"double":         {weight: 2, from: 1.5, to: 3, do: double, drill: unnoticed()},
		"storm":          {weight: 1, do: storm, drill: &drill{bound: seconds(2), rebalances: 5, orderly: true}},
		"rebalance":      {weight: 1, do: rebalance},

		// Clocks of members. What the margins are for: a rate that is wrong by a tenth.
		"clock jumps":  {weight: 3, do: onMember(clockJumps), drill: &drill{bound: trustAgain}},
		"slow clock":   {weight: 3, from: 1, to: 20, do: onClock(.9, .9)},
		"fast clock":   {weight: 1, from: 1, to: 20, do: onClock(1.1, 1.1)},
		"lagging wall": {weight: 1, from: 1, to: 20, do: onClock(1, .5)},
		"suspended":    {weight: 3, from: .2, to: 2.5, do: suspended, drill: after(rejoin)},

		// Operators.
		"delete member":  {weight: 2, do: tryMember(deleteMember), drill: within(1).but(outsiders)},
		"bad record":     {weight: 1, do: badRecord},
		"delete claim":   {weight: 2, do: deleteClaim, drill: within(1).renewing()},
		"delete epoch":   {weight: 2, do: deleteEpoch, drill: within(1).renewing()},
		"delete set":     {weight: 1, do: deleting(groupPath + "/partitions"), drill: within(1).but(none)},
		"delete members": {weight: 1, do: deleting(groupPath + "/members"), drill: within(1)},
		"delete owners":  {weight: 1, do: deleting(groupPath + "/owners"), drill: within(1)},
		"delete epochs":  {weight: 1, do: deleting(groupPath + "/epochs"), drill: within(1)},
		"delete group":   {weight: 1, do: deleting("/kiel"), drill: within(1)},
		"garbage": {
			weight: 2, from: .2, to: 2, do: garbage,
			drill: &drill{bound: seconds(1), fromEnd: true, touches: none},
		},
		"shrink set": {weight: 1, from: .2, to: 2, do: shrinkSet},

		// Kafka.
		"slow kafka":   {weight: 2, from: .3, to: 3, delay: .3, do: onKafka(slowKafka)},
		"kafka down":   {weight: 2, from: .2, to: 2, do: onKafka(kafkaDown)},
		"late commits": {weight: 3, from: .5, to: 3, do: onKafka(lateCommits)},
	}
}

// at is a deed that is over at once.
func at(deed func(w *world, s step)) func(*world, step) (func(), bool) {
	return func(w *world, s step) (func(), bool) {
		deed(w, s)
		return nil, true
	}
}

// onMember is a deed done to a member, over at once.
func onMember(deed func(p *process, s step)) func(*world, step) (func(), bool) {
	return func(w *world, s step) (func(), bool) {
		p := w.choose(s.Member)
		if p == nil {
			return nil, false
		}
		deed(p, s)
		return nil, true
	}
}

// tryMember is a deed done to a member, over at once, that may not be possible.
func tryMember(deed func(p *process) bool) func(*world, step) (func(), bool) {
	return func(w *world, s step) (func(), bool) {
		p := w.choose(s.Member)
		return nil, p != nil && deed(p)
	}
}

// onLink is trouble on a member's connections. There is one at a time.
func onLink(deed func(p *process, s step)) func(*world, step) (func(), bool) {
	return func(w *world, s step) (func(), bool) {
		p := w.choose(s.Member)
		if p == nil {
			return nil, false
		}
		free, ok := w.hold("link of " + p.id)
		if !ok {
			return nil, false
		}
		deed(p, s)
		began := time.Now()
		return func() {
			free()
			p.heal(began)
		}, true
	}
}

// heal ends trouble on a process's connections that began then. Those of one that was killed stay as they are.
func (p *process) heal(began time.Time) {
	if !p.isDead() {
		p.client.Heal()
		p.w.delivers(began, func(l *life) bool { return l == p.life })
	}
}

// onNetwork is trouble on all connections. There is one at a time.
func onNetwork(deed func(w *world, s step)) func(*world, step) (func(), bool) {
	return func(w *world, s step) (func(), bool) {
		free, ok := w.hold("network")
		if !ok {
			return nil, false
		}
		deed(w, s)
		began := time.Now()
		return func() {
			free()
			w.nw.Heal()
			w.delivers(began, func(*life) bool { return true })
		}, true
	}
}

// onServer is trouble of all servers. There is one at a time.
func onServer(deed, end func(w *world)) func(*world, step) (func(), bool) {
	return func(w *world, _ step) (func(), bool) {
		free, ok := w.hold("server")
		if !ok {
			return nil, false
		}
		deed(w)
		if end == nil {
			free()
			return nil, true
		}
		return func() {
			free()
			end(w)
		}, true
	}
}

func handshakes(set func(s *zktest.Server, on bool)) func(*world, step) (func(), bool) {
	return func(w *world, _ step) (func(), bool) {
		free, ok := w.hold("handshakes")
		if !ok {
			return nil, false
		}
		set(w.srv, true)
		w.nw.Cut()
		return func() {
			free()
			set(w.srv, false)
		}, true
	}
}

// onRequests is trouble with single requests. There is one at a time.
func onRequests(deed func(h *hook, s step)) func(*world, step) (func(), bool) {
	return func(w *world, s step) (func(), bool) {
		free, ok := w.hold("requests")
		if !ok {
			return nil, false
		}
		p := w.choose(s.Member)
		w.hook.set(func(h *hook) {
			if p != nil && s.N%2 == 0 {
				h.client = p.id
			}
			deed(h, s)
		})
		return func() {
			free()
			w.hook.reset()
		}, true
	}
}

func direction(s step) zktest.Direction {
	return []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.Both, zktest.Both}[s.N%4]
}

func cut(p *process, _ step) { p.client.Cut() }

func hole(p *process, s step) { p.client.BlackHole(direction(s)) }

func fullHole(p *process, _ step) { p.client.BlackHole(zktest.Both) }

func refuse(p *process, _ step) {
	p.client.Refuse()
	p.client.Cut()
}

func slowRequests(h *hook, s step) { h.slow = s.D }

func freeze(w *world) { w.srv.Freeze() }

func thaw(w *world) { w.srv.Thaw() }

func up(w *world) { w.srv.Restart(false) }

// flap cuts a member's connection again and again.
func flap(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	ctx, cancel := context.WithCancel(w.ctx)
	every := 50*time.Millisecond + time.Duration(s.N%1000)*time.Millisecond
	w.later(func() {
		for sleep(ctx, every) {
			p.client.Cut()
		}
	})
	return cancel, true
}

func killSession(p *process) bool {
	id := p.ses.Stats().SessionID
	if id == 0 {
		return false
	}
	p.w.mon.sessionEnds(id)
	return p.w.srv.KillSession(id)
}

func freezeClock(w *world) {
	w.pauses = append(w.pauses, pause{from: time.Now()})
	w.srv.FreezeClock()
}

func thawClock(w *world) {
	w.pauses[len(w.pauses)-1].to = time.Now()
	w.srv.Thaw()
}

func down(w *world) { w.srv.Down() }

func restart(w *world) { w.srv.Restart(false) }

func wipe(w *world) {
	var ids []int64
	for _, info := range w.srv.Sessions() {
		ids = append(ids, info.ID)
	}
	w.mon.dataGoes(ids)
	w.srv.Restart(true)
}

// isolate cuts one server off from the others: a deposed leader, or a follower without one.
func isolate(w *world, s step) (func(), bool) {
	address := w.addresses()[s.Part%listeners]
	free, ok := w.hold("isolation")
	if !ok {
		return nil, false
	}
	w.srv.Isolate(address)
	return func() {
		free()
		w.srv.Rejoin(address)
	}, true
}

func isClaim(r zktest.Request) bool   { return hasOp(r, zktest.OpCreate, "/owners/") }
func isRelease(r zktest.Request) bool { return hasOp(r, zktest.OpDelete, "/owners/") }

func isJoin(r zktest.Request) bool {
	return (r.Op == zktest.OpCreate || r.Op == zktest.OpCreate2) && strings.Contains(r.Path, "/members/")
}

func hasOp(r zktest.Request, op zktest.Op, path string) bool {
	return r.Op == zktest.OpMulti && slices.ContainsFunc(r.Ops, func(o zktest.Request) bool {
		return (o.Op == op || op == zktest.OpCreate && o.Op == zktest.OpCreate2) && strings.Contains(o.Path, path)
	})
}

// lose loses replies to requests that were executed. So that there are some, a member joins anew.
func lose(match func(zktest.Request) bool) func(*world, step) (func(), bool) {
	return func(w *world, s step) (func(), bool) {
		free, ok := w.hold("loss")
		if !ok {
			return nil, false
		}
		w.srv.LoseReply(1+s.N%4, func(r zktest.Request) bool {
			lost := match == nil || match(r)
			if lost {
				w.cov.hit("reply lost, or about to be")
			}
			return lost
		})
		if p := w.choose(s.Member); p != nil && match != nil {
			w.delete(groupPath + "/members/" + p.name)
		}
		return func() {
			free()
			w.srv.LoseReply(0, nil)
		}, true
	}
}

func answerError(h *hook, s step) {
	h.errors = 1 + s.N%6
	h.code = []zktest.Error{zktest.ErrConnectionLoss, zktest.ErrOperationTimeout, zktest.ErrThrottled}[s.N%3]
}

// join starts a member that is not there.
func join(w *world, s step) (func(), bool) {
	slot, ok := w.free(s)
	if ok {
		w.wanted[slot] = true
		w.slots[slot] = w.start(slot, false)
	}
	return nil, ok
}

// free is the slot that a step has join.
func (w *world) free(s step) (int, bool) {
	for i := range w.slots {
		slot := (s.Member + i) % len(w.slots)
		if w.slots[slot] == nil && !w.wanted[slot] {
			return slot, true
		}
	}
	return 0, false
}

// spare says whether one more member may go away for good.
func (w *world) spare() bool {
	n := 0
	for _, wanted := range w.wanted {
		if wanted {
			n++
		}
	}
	return n > 3
}

// leave makes a member leave for good; or leave and come back, when there are few.
func leave(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	if w.spare() {
		w.wanted[p.slot] = false
	}
	p.leave()
	return nil, true
}

// crash kills a process; nobody tells the servers when it is silent. It is started again when there are few.
func crash(silent bool) func(w *world, s step) (func(), bool) {
	return func(w *world, s step) (func(), bool) {
		p := w.choose(s.Member)
		if p == nil {
			return nil, false
		}
		w.wanted[p.slot] = !w.spare()
		w.slots[p.slot] = nil
		p.kill(silent)
		if w.wanted[p.slot] {
			w.slots[p.slot] = w.start(p.slot, false)
		}
		return nil, true
	}
}

// restartMember kills a process and starts it again within the session timeout.
func restartMember(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	free, ok := w.hold("slot " + p.name)
	if !ok {
		return nil, false
	}
	slot := p.slot
	w.slots[slot], w.wanted[slot] = nil, false
	p.kill(s.N%2 == 0)
	return func() {
		free()
		if w.slots[slot] == nil {
			w.wanted[slot] = true
			w.slots[slot] = w.start(slot, false)
		}
	}, true
}

// freezeMember stops a process like SIGSTOP.
func freezeMember(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	free, ok := w.hold("link of " + p.id)
	if !ok {
		return nil, false
	}
	p.stop(s.N%2 == 0)
	began := time.Now()
	return func() {
		free()
		p.heal(began)
		p.resume()
	}, true
}

func slowHandler(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	free, ok := w.hold("handlers of " + p.id)
	if !ok {
		return nil, false
	}
	p.setSlow(min(s.D, rebalanceTimeout*2/3))
	return func() {
		free()
		p.setSlow(0)
	}, true
}

// stuckHandler has the handlers of a member not return; then its share changes.
func stuckHandler(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	free, ok := w.hold("handlers of " + p.id)
	if !ok {
		return nil, false
	}
	p.stick()
	if other := w.choose(s.Member + 1); other != nil && other != p {
		w.delete(groupPath + "/members/" + other.name)
	}
	return func() {
		free()
		p.unstick()
	}, true
}

// stuckAtJoin has the handlers of a member not return, and another member join.
func stuckAtJoin(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if _, ok := w.free(s); !ok || p == nil {
		return nil, false
	}
	free, ok := w.hold("handlers of " + p.id)
	if !ok {
		return nil, false
	}
	p.stick()
	join(w, s)
	return func() {
		free()
		p.unstick()
	}, true
}

// double starts a second process with the name of one that lives.
func double(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	free, ok := w.hold("slot " + p.name)
	if !ok {
		return nil, false
	}
	d := w.start(p.slot, true)
	w.doubles = append(w.doubles, d)
	return func() {
		free()
		d.leave()
	}, true
}

// storm lets all members leave and come back at once, but one.
func storm(w *world, s step) (func(), bool) {
	first := w.choose(s.Member)
	for slot := range w.slots {
		if p := w.slots[slot]; p == nil && !w.wanted[slot] {
			w.wanted[slot] = true
			w.slots[slot] = w.start(slot, false)
		} else if p != nil && p != first && !p.isLeaving() && s.N%2 == 0 {
			p.leave()
		}
	}
	return nil, true
}

func rebalance(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil || p.alloc == nil {
		return nil, false
	}
	w.later(func() {
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
		defer cancel()
		err := p.alloc.Rebalance(ctx)
		w.mon.Note("%s: rebalance asked for: %v", p.id, err)
	})
	return nil, true
}

// clockJumps sets the wall clock of a member, by up to an hour.
func clockJumps(p *process, s step) {
	p.clock.set(1, 1, time.Duration(s.N%7200-3600)*time.Second)
}

// onClock has a member's clocks run at another rate.
func onClock(mono, wall float64) func(*world, step) (func(), bool) {
	return func(w *world, s step) (func(), bool) {
		p := w.choose(s.Member)
		if p == nil {
			return nil, false
		}
		free, ok := w.hold("clock of " + p.id)
		if !ok {
			return nil, false
		}
		p.clock.set(mono, wall, 0)
		return func() {
			free()
			p.clock.set(1, 1, 0)
		}, true
	}
}

// suspended is a machine that sleeps: all of a process stands still, and its monotonic clock does.
func suspended(w *world, s step) (func(), bool) {
	thaw, ok := freezeMember(w, s)
	if !ok {
		return nil, false
	}
	clock := w.choose(s.Member).clock
	clock.set(0, 1, 0)
	return func() {
		clock.set(1, 1, 0)
		thaw()
	}, true
}

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
		if _, stat, ok := w.srv.Get(ownerPath(part)); ok {
			w.mon.claimGoes(part, stat.Czxid)
		}
	}
	return w.delete(path)
}

func deleteMember(p *process) bool { return p.w.delete(groupPath + "/members/" + p.name) }

func deleteEpoch(w *world, s step) (func(), bool) { return nil, w.delete(epochPath(s.Part)) }

// deleting removes a znode, below which there may be claims.
func deleting(path string) func(*world, step) (func(), bool) {
	return func(w *world, _ step) (func(), bool) {
		if strings.HasPrefix(groupPath+"/owners", path) {
			return nil, w.deleteClaims(path)
		}
		return nil, w.delete(path)
	}
}

func deleteClaim(w *world, s step) (func(), bool) {
	_, stat, ok := w.srv.Get(ownerPath(s.Part))
	if !ok {
		return nil, false
	}
	w.mon.claimGoes(s.Part, stat.Czxid)
	return nil, w.delete(ownerPath(s.Part))
}

// badRecord overwrites what a member says of itself.
func badRecord(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	data := []string{"", "{", `{"v":1,"functions":["other"]}`}[s.N%3]
	return nil, w.srv.Set(groupPath+"/members/"+p.name, []byte(data)) == nil
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
	one := map[string][]int32{topic: {int32(s.Part)}}
	change := func(f func(ctx context.Context, parts map[string][]int32) error) {
		w.later(func() {
			ctx, cancel := context.WithTimeout(w.ctx, 8*time.Second)
			defer cancel()
			err := f(ctx, one)
			w.mon.Note("%s changed the set: %v", p.id, err)
			if err == nil {
				w.cov.hit("set changed")
			}
		})
	}
	change(p.alloc.RemovePartitions)
	return func() {
		free()
		change(p.alloc.AddPartitions)
	}, true
}

// onKafka is trouble with Kafka. There is one at a time.
func onKafka(set func(k kafkaLike, s step, on bool)) func(*world, step) (func(), bool) {
	return func(w *world, s step) (func(), bool) {
		free, ok := w.hold("kafka")
		if !ok {
			return nil, false
		}
		set(w.broker, s, true)
		return func() {
			free()
			set(w.broker, s, false)
		}, true
	}
}

func slowKafka(k kafkaLike, s step, on bool) {
	if on {
		k.setSlow(min(s.D, 3*time.Second))
	} else {
		k.setSlow(0)
	}
}

func kafkaDown(k kafkaLike, _ step, on bool) { k.setDown(on) }

func lateCommits(k kafkaLike, _ step, on bool) { k.setLate(on) }
