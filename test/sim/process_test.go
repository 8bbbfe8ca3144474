package sim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/clocks"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// process is one process of a member, from its start to its end. A member that is started again is another process, with the same
// name.
type process struct {
	w      *world
	slot   int
	name   string
	id     string // name and number: no two are alike
	life   *life
	double bool     // another process of this name is meant to be at work
	topics []string // that it asks for; nil is all
	client *zktest.Client
	clock  *memberClock
	ses    *session.Session
	alloc  *allocator.PartitionAllocator // nil when it is a Group
	owner  *ownership.Owner
	group  *consumer.Group
	reg    lasting

	quit func()        // makes Run of the owner leave
	end  func()        // ends the session
	done chan struct{} // the owner's Run has returned
	err  error         // with this, after done
	gone chan struct{} // the session's Run has returned
	dead chan struct{} // it was killed: nothing that it does happens

	mu      sync.Mutex
	server  string        // the address that it dialed last
	leaving time.Time     // when it was told to
	killed  bool          // dead is closed
	pause   chan struct{} // not nil while the process stands still; closed when it goes on
	inHand  bool          // it stood still between asking and doing
	slow    time.Duration // handlers take this long for a message
	stuck   chan struct{} // not nil while handlers don't return
	hung    bool          // they did not for a while
	panics  int           // so many messages make a handler panic
	returns int           // so many make it return
}

// dial connects to a server. A process that leaves a server in trouble for another has been in trouble until now.
func (p *process) dial(ctx context.Context, network, address string) (net.Conn, error) {
	p.mu.Lock()
	last := p.server
	p.server = address
	p.mu.Unlock()
	if last != address {
		p.w.mon.Moved(p, last)
	}
	return p.client.Dial(ctx, network, address)
}

// connected is the address of the server that the process has dialed last.
func (p *process) connected() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server
}

func (p *process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// isLeaving says whether it was told to leave.
func (p *process) isLeaving() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.leaving.IsZero()
}

// hasEnded says whether the owner's Run has returned.
func (p *process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// start starts a process of a slot.
func (w *world) start(slot int, double bool) *process {
	w.started++
	name := fmt.Sprintf("m%d", slot)
	p := &process{
		w: w, slot: slot, name: name, id: fmt.Sprintf("%s#%d", name, w.started), double: double,
		done: make(chan struct{}), gone: make(chan struct{}), dead: make(chan struct{}),
		clock: newMemberClock(), reg: lasting{prometheus.NewRegistry()},
	}
	p.topics = w.plan.list(w.lists[slot])
	w.mon.Asks(p)
	p.life = &life{id: p.id, name: name, double: double, began: time.Now()}
	w.lives = append(w.lives, p.life)
	p.client = w.nw.Client(p.id)
	w.mon.Note("%s starts", p.id)
	log := slog.New(counting{p: p})
	var err error
	p.ses, err = session.New(w.addresses(), session.Options{
		Timeout: w.plan.Timeout, MinSessionTimeout: max(2*w.plan.Tick, 2*time.Second), MaxSessionTimeout: w.plan.Timeout,
		Dial: p.dial, Logger: log,
	})
	if err != nil {
		panic(err)
	}
	run := p.consume
	if w.plan.Group {
		w.startGroup(p, log)
	} else {
		w.startOwner(p, log)
		run = p.owner.Run
	}
	base := context.Background()
	ctx, quit := context.WithCancel(base)
	life, end := context.WithCancel(base)
	p.quit, p.end = quit, end
	go func() {
		defer close(p.gone)
		if err := p.ses.Run(clocks.With(life, p.clock.now)); err != nil {
			w.mon.Violate("S9", "%s: the session ended: %v", p.id, err)
		}
	}()
	go func() {
		defer close(p.done)
		p.err = run(ctx)
		w.mon.Note("%s has ended: %v", p.id, p.err)
		end()
		p.took()
		w.wake()
	}()
	w.all = append(w.all, p)
	return p
}

// function is the group's allocation function.
func (w *world) function() allocfn.Func {
	switch w.plan.Func {
	case "range":
		return allocfn.Range()
	case "roundrobin":
		return allocfn.RoundRobin()
	}
	return allocfn.Balanced()
}

// startOwner makes the process an Owner.
func (w *world) startOwner(p *process, log *slog.Logger) {
	var err error
	p.alloc, err = allocator.New(p.ses, groupName, p.name, allocator.Options{
		Seed: w.seed(p.topics), Topics: p.asked(), Func: p.function(), Logger: log, Registerer: p.reg, StopTimeout: stopTimeout,
		OnError: func(_ context.Context, err error) { p.onError(err) },
	})
	if err != nil {
		panic(err)
	}
	p.owner, err = ownership.New(p.alloc, p.handle, ownership.Options{
		RebalanceTimeout: rebalanceTimeout, StopTimeout: stopTimeout, Logger: log, Registerer: p.reg, Accept: p.accept,
		Observer: func(e ownership.Event) { w.mon.observe(p, e) }, OnError: p.onError,
	})
	if err != nil {
		panic(err)
	}
}

// onError hears of the errors of allocator and ownership.
func (p *process) onError(err error) {
	for _, known := range []struct {
		target error
		name   string
	}{
		{ownership.ErrStuck, "stuck"},
		{ownership.ErrCallback, "callback panicked"},
		{ownership.ErrHandler, "handler returned"},
		{ownership.ErrLost, "lost"},
		{allocator.ErrFuncFailed, "function failed"},
		{consumer.ErrHandler, "group's handler returned"},
		{consumer.ErrOffsetReset, "offset reset"},
		{allocator.ErrUnwantedTopic, "unwanted topic"},
		{errNotAsked, "not asked for"},
		{consumer.ErrTopicMismatch, "not asked for"},
	} {
		if errors.Is(err, known.target) {
			p.w.cov.hit("error: " + known.name)
		}
	}
	p.w.mon.Note("%s error: %v", p.id, err)
}

// took checks how long leaving took.
func (p *process) took() {
	p.mu.Lock()
	leaving := p.leaving
	p.mu.Unlock()
	if d := time.Since(leaving); !leaving.IsZero() && d > stopTimeout {
		p.w.mon.Violate("S9", "%s: leaving took %v", p.id, d)
	}
}

// leave makes the process leave in order.
func (p *process) leave() {
	p.mu.Lock()
	if p.leaving.IsZero() {
		p.leaving = time.Now()
	}
	p.mu.Unlock()
	p.quit()
}

// kill ends the process at once. Its connections break, or nobody hears of it at all.
func (p *process) kill(silent bool) {
	p.mu.Lock()
	if p.killed {
		p.mu.Unlock()
		return
	}
	p.killed = true
	p.mu.Unlock()
	p.life.end = time.Now()
	p.w.mon.dies(p)
	close(p.dead)
	if silent {
		p.client.BlackHole(zktest.Both)
	} else {
		p.client.Refuse()
		p.client.Cut()
	}
	if p.group != nil {
		p.w.brokers.cut(p)
	}
	p.resume()
	p.unstick()
	// What is left of it in this program must go some time; nobody hears of it.
	p.quit()
	p.end()
}

// stop makes the process stand still, as by SIGSTOP: others hear nothing, no handler goes on. With inHand, a handler that is
// about to process a message stops after it asked for trust.
func (p *process) stop(inHand bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pause == nil {
		p.pause, p.inHand = make(chan struct{}), inHand
	}
	p.client.Freeze()
	if p.group != nil {
		p.w.brokers.cut(p)
	}
}

// resume ends stop for the handlers.
func (p *process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pause != nil {
		close(p.pause)
		p.pause = nil
	}
}

// gate waits while the process stands still. It says whether it has waited, and whether the process is still there.
func (p *process) gate(hand bool) (waited, alive bool) {
	p.mu.Lock()
	pause := p.pause
	if pause != nil && !hand && p.inHand {
		pause = nil // it is at the next gate that it stops
	}
	p.mu.Unlock()
	if pause != nil {
		<-pause
	}
	return pause != nil, !p.isDead()
}

func (p *process) standsStill() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pause != nil
}

// unstick lets the handlers return that would not.
func (p *process) unstick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck != nil {
		close(p.stuck)
		p.stuck = nil
	}
}

func (p *process) stick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck == nil && !p.killed {
		p.stuck, p.hung = make(chan struct{}), true
	}
}

func (p *process) hasHung() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hung
}

func (p *process) stuckNow() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stuck
}

func (p *process) setSlow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = d
}

func (p *process) slowness() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slow
}

// misbehave has the next messages end their handlers.
func (p *process) misbehave(panics, returns int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.panics, p.returns = panics, returns
}

// mood says whether a message makes the handler panic, or return.
func (p *process) mood() (panics, returns bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.panics > 0:
		p.panics--
		return true, false
	case p.returns > 0:
		p.returns--
		return false, true
	}
	return false, false
}

// lasting is a registry that loses nothing: what a process has counted is read when it has ended.
type lasting struct{ *prometheus.Registry }

func (lasting) Unregister(prometheus.Collector) bool { return true }

// collect counts what the metrics and the session of an ended process say.
func (p *process) collect() {
	if p.isDead() {
		return
	}
	cov := p.w.cov
	stats := p.ses.Stats()
	cov.add("session: expirations", int(stats.Expirations))
	cov.add("session: reconnects", int(stats.Reconnects))
	cov.add("session: client replaced", int(stats.Replaced))
	cov.add("session: trust losses", int(stats.TrustLosses))
	if stats.BadFrames > 0 {
		p.w.mon.Violate("S9", "%s: %d bad frames", p.id, stats.BadFrames)
	}
	families, err := p.reg.Gather()
	if err != nil {
		p.w.mon.Violate("S9", "%s: metrics: %v", p.id, err)
	}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			if metric.GetCounter() == nil {
				continue
			}
			name := "metric: " + f.GetName()
			for _, l := range metric.GetLabel() {
				if l.GetName() != "group" && l.GetName() != "topic" {
					name += " " + l.GetName() + "=" + l.GetValue()
				}
			}
			cov.add(name, int(metric.GetCounter().GetValue()))
		}
	}
}
