package sim_test

import (
	"runtime"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
)

const (
	aheadRoom  = 2               // messages between the goroutine that receives and ConsumeClaim
	aheadEvery = 3 * time.Second // ConsumeClaim lets messages pile up for so long
	aheadSpins = 100_000         // so often it is looked whether the channel of the claim is being emptied
)

// aheadHandler is a groupHandler that receives as wrappers of handlers do: a goroutine beside ConsumeClaim reads Messages, and hands on
// through a channel of its own. ConsumeClaim works through what has piled up every few seconds, and at once when it is told to finish: when
// the session ends, or the Observer is notified of a revocation.
type aheadHandler struct{ groupHandler }

// ahead is one call of its ConsumeClaim.
type ahead struct {
	consumer.Claim

	p       *process
	handed  chan *sarama.ConsumerMessage
	ended   <-chan struct{} // closed when the session ends
	revoked <-chan struct{} // closed when the Observer is notified of the revocation
	stop    chan struct{}   // closed when ConsumeClaim has returned
}

func (h aheadHandler) ConsumeClaim(s sarama.ConsumerGroupSession, claimed sarama.ConsumerGroupClaim) error {
	a := &ahead{
		Claim: claimed.(consumer.Claim), p: h.p, handed: make(chan *sarama.ConsumerMessage, aheadRoom), ended: s.Context().Done(),
		revoked: h.p.told(h.p.w.plan.index(claimed.Topic(), claimed.Partition())), stop: make(chan struct{}),
	}
	defer close(a.stop)
	go a.receive()
	return h.p.work(a, a.messages, func(m *sarama.ConsumerMessage) { s.MarkMessage(m, "") })
}

// isTold returns whether ConsumeClaim is to finish.
func (a *ahead) isTold() bool {
	select {
	case <-a.ended:
		return true
	case <-a.revoked:
		return true
	default:
		return false
	}
}

// messages yields what is handed on.
func (a *ahead) messages(yield func(*sarama.ConsumerMessage) bool) {
	timer := time.NewTimer(aheadEvery)
	defer timer.Stop()
	ended, revoked := a.ended, a.revoked
	for {
		select {
		case <-timer.C:
		case <-ended:
			ended = nil
		case <-revoked:
			revoked = nil
		}
		for piled := true; piled; {
			timer.Reset(time.Millisecond) // this time passes when there is nothing to hand on
			select {
			case m, open := <-a.handed:
				if !open || !yield(m) {
					return
				}
			case <-timer.C:
				piled = false
			}
		}
		timer.Reset(aheadEvery)
	}
}

// receive hands on the messages of the claim until there are no more, or ConsumeClaim has returned. Messages are left out only while
// the channel of the claim is being emptied, which takes no time.
func (a *ahead) receive() {
	defer close(a.handed)
	next, dropped := a.InitialOffset(), time.Time{}
	for m := range a.Messages() {
		switch {
		case !dropped.IsZero() && time.Since(dropped) > 0:
			a.p.w.mon.Violate("S5", "%s is handed %d of %s:%d %v after messages were left out",
				a.p.id, m.Offset, m.Topic, m.Partition, time.Since(dropped))
		case m.Offset != next && dropped.IsZero():
			dropped = time.Now()
			a.p.w.cov.hit("group: received behind what was dropped")
		}
		next = m.Offset + 1
		if !a.hand(m) {
			return
		}
	}
}

// hand hands m on. It returns false if ConsumeClaim has returned. When it is told to finish meanwhile, it goes on in the moment in which
// the channel of the claim begins to be emptied.
func (a *ahead) hand(m *sarama.ConsumerMessage) bool {
	select {
	case a.handed <- m:
		return true
	case <-a.stop:
		return false
	case <-a.ended:
	case <-a.revoked:
	}
	for n, i := len(a.Messages()), 0; len(a.Messages()) >= n && n > 0 && i < aheadSpins; i++ {
		if i%100 == 99 {
			runtime.Gosched()
		}
	}
	select {
	case a.handed <- m:
		return true
	case <-a.stop:
		return false
	}
}

// told returns a channel that is closed when the Observer is next notified of a partition's revocation.
func (p *process) told(part int) <-chan struct{} {
	c := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.revoked == nil {
		p.revoked = map[int]chan struct{}{}
	}
	p.revoked[part] = c
	return c
}

// tell closes the channel of told.
func (p *process) tell(e consumer.Event) {
	if e.Kind != ownership.Revoking || e.Partition < 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	part := p.w.plan.index(e.Topic, e.Partition)
	if c := p.revoked[part]; c != nil {
		close(c)
		delete(p.revoked, part)
	}
}
