package sim_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/zktest"
)

// onLink is trouble on a member's connections. There is one at a time.
func onLink(do func(p *process, s step)) deed {
	return troubleWith(linkOf, func(p *process, s step) func() {
		do(p, s)
		began := time.Now()
		return func() { p.heal(began) }
	})
}

// heal ends trouble on a process's connections that began then. Those of one that was killed stay as they are.
func (p *process) heal(began time.Time) {
	if !p.isDead() {
		p.client.Heal()
		p.w.delivers(began, func(l *life) bool { return l == p.life })
	}
}

// onNetwork is trouble on all connections. There is one at a time.
func onNetwork(do func(w *world, s step)) deed {
	return trouble("network", func(w *world, s step) func() {
		do(w, s)
		began := time.Now()
		return func() {
			w.nw.Heal()
			w.delivers(began, func(*life) bool { return true })
		}
	})
}

// onServer is trouble of all servers. There is one at a time.
func onServer(do, end func(w *world)) deed {
	return trouble("server", func(w *world, _ step) func() {
		do(w)
		return func() { end(w) }
	})
}

// atServer is the same, over at once.
func atServer(do func(w *world)) deed {
	return func(w *world, _ step) (func(), bool) {
		free, ok := w.hold("server")
		if !ok {
			return nil, false
		}
		do(w)
		free()
		return nil, true
	}
}

func handshakes(set func(s *zktest.Server, on bool)) deed {
	return trouble("handshakes", func(w *world, _ step) func() {
		set(w.srv, true)
		w.nw.Cut()
		return func() { set(w.srv, false) }
	})
}

// onRequests is trouble with single requests. There is one at a time.
func onRequests(do func(h *hook, s step)) deed {
	return trouble("requests", func(w *world, s step) func() {
		p := w.choose(s.Member)
		w.hook.set(func(h *hook) {
			if p != nil && s.N%2 == 0 {
				h.client = p.id
			}
			do(h, s)
		})
		return w.hook.reset
	})
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
	ctx, cancel := context.WithCancel(context.Background())
	every := 50*time.Millisecond + time.Duration(s.N%1000)*time.Millisecond
	w.later(func() {
		for sleep(ctx, every) {
			p.client.Cut()
		}
	})
	return cancel, true
}

func killSession(p *process, _ step) bool {
	id := p.ses.Stats().SessionID
	if !slices.ContainsFunc(p.w.srv.Sessions(), func(s zktest.SessionInfo) bool { return s.ID == id }) {
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

func wipe(w *world) { w.loseData(func() { w.srv.Restart(true) }) }

// isolate cuts one server off from the others: a deposed leader, or a follower without one.
func isolate(w *world, s step) func() {
	address := theServer(w, s)
	w.srv.Isolate(address)
	return func() { w.srv.Rejoin(address) }
}

// lag keeps one server behind the others.
func lag(w *world, s step) func() {
	address := theServer(w, s)
	w.srv.Lag(address)
	return func() { w.srv.CatchUp(address) }
}

func isClaim(r zktest.Request) bool   { return hasOp(r, zktest.OpCreate, "/owners/") }
func isRelease(r zktest.Request) bool { return hasOp(r, zktest.OpDelete, "/owners/") }

func isJoin(r zktest.Request) bool {
	return hasOp(r, zktest.OpCreate, "/members/") || (r.Op == zktest.OpCreate || r.Op == zktest.OpCreate2) && strings.Contains(r.Path, "/members/")
}

func hasOp(r zktest.Request, op zktest.Op, path string) bool {
	return r.Op == zktest.OpMulti && slices.ContainsFunc(r.Ops, func(o zktest.Request) bool {
		return (o.Op == op || op == zktest.OpCreate && o.Op == zktest.OpCreate2) && strings.Contains(o.Path, path)
	})
}

// lose loses replies to requests that were executed. So that there are some, a member joins anew.
func lose(match func(zktest.Request) bool) deed {
	return trouble("loss", func(w *world, s step) func() {
		w.srv.LoseReply(1+s.N%4, func(r zktest.Request) bool {
			lost := match == nil || match(r)
			if lost {
				w.cov.hit("reply lost, or about to be")
				w.mon.Disturbed(r.Client)
			}
			return lost
		})
		if p := w.choose(s.Member); p != nil && match != nil {
			w.delete(groupPath + "/members/" + p.name)
		}
		return func() { w.srv.LoseReply(0, nil) }
	})
}

func answerError(h *hook, s step) {
	h.errors = 1 + s.N%6
	h.code = []zktest.Error{zktest.ErrConnectionLoss, zktest.ErrOperationTimeout, zktest.ErrThrottled}[s.N%3]
}

// onKafka is trouble with Kafka. There is one at a time.
func onKafka(set func(k kafkaLike, s step, on bool)) deed {
	return trouble("kafka", func(w *world, s step) func() {
		set(w.broker, s, true)
		return func() { set(w.broker, s, false) }
	})
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
