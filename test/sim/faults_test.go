package sim_test

import (
	"maps"
	"slices"
	"time"

	"github.com/kielgo/kiel/zktest"
)

// fault is a kind of fault.
type fault struct {
	weight   int
	from, to float64 // how long it lasts, in T; 0, 0 = it is over at once
	delay    float64 // the greatest delay, in T
	do       deed
	ails     func(w *world, s step) string // who is in trouble while it lasts, as the monitor names them; nil = nobody
	drill    *drill                        // alone, with a bound of its own
}

// deed begins a fault. It returns its end, nil when there is none, and whether it was possible.
type deed = func(w *world, s step) (end func(), ok bool)

var (
	faults   = table()
	allKinds = slices.Sorted(maps.Keys(faults))
)

// harmless are the kinds that are no trouble: members come and go, in order.
var harmless = []string{"join", "leave", "storm", "double", "rebalance", otherTopics}

// kinds returns the names of all kinds, sorted, so that a seed's draws don't depend on a map's order.
func kinds() []string { return allKinds }

func table() map[string]fault {
	return map[string]fault{
		// The network.
		"cut":        {weight: 3, ails: theMember, do: onMember(cut), drill: unnoticed()},
		"cut all":    {weight: 2, ails: all, do: at(func(w *world, _ step) { w.nw.Cut() }), drill: unnoticed()},
		"flap":       {weight: 2, from: .1, to: 1.5, ails: theMember, do: flap},
		"hole":       {weight: 6, from: .1, to: 2.5, ails: theMember, do: onLink(hole)},
		"short hole": {weight: 1, from: .05, to: .32, ails: theMember, do: onLink(hole), drill: unnoticed()},
		"long hole": {
			weight: 1, from: 2, to: 3, ails: theMember, do: onLink(fullHole),
			drill: &drill{bound: rejoin, fromEnd: true},
		},
		"hole all": {weight: 2, from: .1, to: 2, ails: all, do: onNetwork(func(w *world, s step) { w.nw.BlackHole(direction(s)) })},
		"delay":    {weight: 3, from: .2, to: 3, delay: .4, ails: theMember, do: onLink(func(p *process, s step) { p.client.Delay(s.D) })},
		"slow network": {
			weight: 1, from: 1, to: 3, delay: .04, ails: all, do: onNetwork(func(w *world, s step) { w.nw.Delay(s.D) }),
			drill: &drill{still: true},
		},
		"delay all":  {weight: 2, from: .2, to: 2, delay: .3, ails: all, do: onNetwork(func(w *world, s step) { w.nw.Delay(s.D) })},
		"refuse":     {weight: 2, from: .1, to: 2, ails: theMember, do: onLink(refuse)},
		"refuse all": {weight: 1, from: .1, to: 1.5, ails: all, do: onNetwork(func(w *world, _ step) { w.nw.Refuse(); w.nw.Cut() })},

		// The servers.
		"kill session":      {weight: 4, do: tryMember(killSession), drill: within(1).but(outsiders)},
		"freeze server":     {weight: 2, from: .1, to: 2, ails: all, do: onServer(freeze, thaw)},
		"freeze clock":      {weight: 2, from: .1, to: 2.5, ails: all, do: onServer(freezeClock, thawClock), drill: after(reconnect)},
		"down":              {weight: 2, from: .1, to: 2.5, ails: all, do: onServer(down, up), drill: after(reconnect)},
		"restart":           {weight: 2, ails: all, do: atServer(restart), drill: unnoticed()},
		"wipe":              {weight: 1, do: atServer(wipe), drill: &drill{bound: rebuilt}},
		"backup":            {weight: 2, from: .01, to: 3, ails: all, do: backup, drill: after(restored)},
		"refuse handshakes": {weight: 1, from: .1, to: 1.5, ails: all, do: handshakes((*zktest.Server).RefuseHandshakes)},
		"silent handshakes": {weight: 2, from: .1, to: 1.5, ails: all, do: handshakes((*zktest.Server).SilentHandshakes)},
		"isolate":           {weight: 4, from: .2, to: 3, ails: theServer, do: trouble("isolation", isolate), drill: unnoticed()},
		"lag":               {weight: 3, from: .2, to: 3, ails: theServer, do: trouble("lag", lag), drill: unnoticed()},
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
		"join": {
			weight: 3, do: join,
			drill: &drill{bound: joined, orderly: true, rebalances: perJoining, touches: newcomers},
		},
		"leave": {
			weight: 3, do: tryMember(leave),
			drill: &drill{bound: left, orderly: true, rebalances: perGoing, touches: outsiders},
		},
		"crash": {
			weight: 3, do: crash(false), drill: &drill{bound: expiry, rebalances: perGoing, touches: outsiders},
		},
		"power loss": {
			weight: 2, do: crash(true), drill: &drill{bound: expiry, rebalances: perGoing, touches: outsiders},
		},
		"restart member": {weight: 2, from: .01, to: 1, do: troubleWith(slotOf, restartMember)},
		"freeze member":  {weight: 5, from: .1, to: 2.5, ails: theMember, do: troubleWith(linkOf, freezeMember), drill: after(rejoin)},
		"slow handler":   {weight: 2, from: .5, to: 3, delay: .5, do: troubleWith(handlersOf, slowHandler)},
		"stuck handler":  {weight: 2, from: .5, to: 4, do: troubleWith(handlersOf, stuckHandler)},
		"stuck at join":  {weight: 1, from: 1, to: 3, do: stuckAtJoin, drill: &drill{bound: stuckBound}},
		"panic":          {weight: 1, do: onMember(func(p *process, s step) { p.misbehave(1+s.N%3, 0) })},
		"return":         {weight: 1, do: onMember(func(p *process, s step) { p.misbehave(0, 1+s.N%3) })},
		"double":         {weight: 2, from: 1.5, to: 3, do: troubleWith(slotOf, double), drill: unnoticed()},
		"storm":          {weight: 1, do: storm, drill: &drill{bound: seconds(2), rebalances: most(5), orderly: true}},
		"rebalance":      {weight: 1, do: tryMember(rebalance)},
		otherTopics: {
			do:    tryMember(askForOthers),
			drill: &drill{bound: func(*world, step) time.Duration { return otherTopicsBound }, orderly: true, rebalances: most(3)},
		},

		// Clocks of members. What the margins are for: a rate that is wrong by a tenth.
		"clock jumps":  {weight: 3, do: onMember(clockJumps), drill: &drill{bound: trustAgain}},
		"slow clock":   {weight: 3, from: 1, to: 20, do: onClock(.9, .9)},
		"fast clock":   {weight: 1, from: 1, to: 20, do: onClock(1.1, 1.1)},
		"lagging wall": {weight: 1, from: 1, to: 20, do: onClock(1, .5)},
		"suspended":    {weight: 3, from: .2, to: 2.5, ails: theMember, do: troubleWith(linkOf, suspended), drill: after(rejoin)},

		// Operators.
		"delete member":  {weight: 2, do: tryMember(deleteMember), drill: within(1).but(outsiders)},
		"bad record":     {weight: 1, do: tryMember(badRecord)},
		"delete claim":   {weight: 2, do: deleteClaim, drill: within(1).renewing()},
		"delete epoch":   {weight: 2, do: deleteEpoch, drill: within(1).renewing()},
		"delete set":     {weight: 1, do: deleting(groupPath + "/partitions"), drill: within(1).but(bySeeds)},
		"delete members": {weight: 1, do: deleting(groupPath + "/members"), drill: within(1)},
		"delete owners":  {weight: 1, do: deleting(groupPath + "/owners"), drill: within(1)},
		"delete epochs":  {weight: 1, do: deleting(groupPath + "/epochs"), drill: within(1)},
		"delete records": {weight: 1, do: deleting(recordsPath), drill: unnoticed()},
		"forge records":  {weight: 1, from: .2, to: 3, do: forgeRecords, drill: unnoticed()},
		"refuse records": {weight: 1, from: .2, to: 3, do: onRequests(refuseRecords), drill: unnoticed()},
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
func at(do func(w *world, s step)) deed {
	return func(w *world, s step) (func(), bool) {
		do(w, s)
		return nil, true
	}
}

// onMember is a deed done to a member, over at once.
func onMember(do func(p *process, s step)) deed {
	return func(w *world, s step) (func(), bool) {
		p := w.choose(s.Member)
		if p == nil {
			return nil, false
		}
		do(p, s)
		return nil, true
	}
}

// tryMember is a deed done to a member, over at once, that may not be possible.
func tryMember(do func(p *process, s step) bool) deed {
	return func(w *world, s step) (func(), bool) {
		p := w.choose(s.Member)
		return nil, p != nil && do(p, s)
	}
}

// trouble is a deed that lasts. There is one at a time with the same target.
func trouble(target string, begin func(w *world, s step) (end func())) deed {
	return func(w *world, s step) (func(), bool) {
		free, ok := w.hold(target)
		if !ok {
			return nil, false
		}
		end := begin(w, s)
		return func() {
			free()
			end()
		}, true
	}
}

// troubleWith is trouble with something of a member.
func troubleWith(something func(p *process) string, begin func(p *process, s step) (end func())) deed {
	return func(w *world, s step) (func(), bool) {
		p := w.choose(s.Member)
		if p == nil {
			return nil, false
		}
		return trouble(something(p), func(_ *world, s step) func() { return begin(p, s) })(w, s)
	}
}

// all: everybody is in trouble.
func all(*world, step) string { return everybody }

// theMember: the process that the step is done to.
func theMember(w *world, s step) string {
	if p := w.choose(s.Member); p != nil {
		return p.id
	}
	return "nobody"
}

// theServer: who is connected to the server of the step.
func theServer(w *world, s step) string { return w.addresses()[s.Part%listeners] }

func slotOf(p *process) string     { return "slot " + p.name }
func linkOf(p *process) string     { return "link of " + p.id }
func handlersOf(p *process) string { return "handlers of " + p.id }
func clockOf(p *process) string    { return "clock of " + p.id }
