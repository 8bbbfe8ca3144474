package sim_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/zktest"
)

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
