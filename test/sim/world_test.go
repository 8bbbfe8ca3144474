package sim_test

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/zktest"
)

const (
	groupName        = "g"
	topic            = "t"
	groupPath        = "/kiel/groups/g"
	listeners        = 3
	rebalanceTimeout = 20 * time.Second
	stopTimeout      = 25 * time.Second
)

// manners are those of the handlers that a negative control does without.
type manners struct {
	trust      bool // handlers don't ask for trust
	commitLate bool // handlers commit after they have returned
}

// result is what came of a run.
type result struct {
	plan       *plan
	violations []violation
	phase      int // in which the first violation was
	tail       string
	cov        coverage
	virtual    time.Duration
	faults     int // injected
	overlaps   int // that nobody excuses
	excused    int // overlaps after a third party's deed
	lost       int // messages that nobody has processed
	dups       int // messages processed again
	messages   int64
	injected   []string // what was tried when, a line each
	figures    map[string][]time.Duration
}

// world is a group, its servers and its Kafka, in a bubble.
type world struct {
	plan    *plan
	lax     manners
	srv     *zktest.Server
	nw      *zktest.Network
	kafka   *kafka    // of members that are Owners
	brokers *brokers  // of members that are Groups
	broker  kafkaLike // which of them there is
	mon     *monitor
	cov     coverage
	hook    *hook
	res     *result
	phase   int
	pauses  []pause // of the servers' clock
	trouble bool    // there is or was some in this phase: whoever leaves may fail to do it in order
	due     []int64 // ends of the logs when it was last to be well: what is before them must have been processed

	started int
	all     []*process // ever started and not buried
	lives   []*life    // of all that were ever started
	slots   []*process // by slot: whose member it is; nil when it left
	wanted  []bool     // by slot: there should be a process
	lists   []int      // by slot: the topics that its next process asks for, see plan.list
	doubles []*process
	busy    sync.Map // what is in trouble
	serving sync.WaitGroup
	work    sync.WaitGroup
	errands atomic.Int32     // of operators, under way
	known   int              // partitions that there are now: the last one comes after the first backup
	sorted  []kiel.Partition // see partitions
	backups []*zktest.Backup // see backUp
	woken   chan struct{}
}

// simulate runs a plan in a bubble. It fails no test: what is wrong is in the result.
func simulate(t *testing.T, p *plan, lax manners) (res *result) {
	res = &result{plan: p, cov: newCoverage(), figures: map[string][]time.Duration{}}
	defer func() {
		if r := recover(); r != nil { // of synctest: goroutines are left, or none can go on
			res.violations = append(res.violations, violation{invariant: "S9", text: fmt.Sprintf("%v\n%s", r, debug.Stack())})
		}
	}()
	synctest.Test(t, func(*testing.T) {
		newWorld(p, lax, res).run()
	})
	return res
}

func newWorld(p *plan, lax manners, res *result) *world {
	w := &world{
		plan: p, lax: lax, cov: res.cov, res: res,
		srv: zktest.NewServer(zktest.Options{TickTime: p.Tick, MaxSessionTimeout: 2 * p.Timeout}), nw: zktest.NewNetwork(),
		slots: make([]*process, p.Slots), wanted: make([]bool, p.Slots), lists: p.lists(),
		woken: make(chan struct{}, 1),
	}
	w.mon = newMonitor(p, p.Timeout*5/6, res.cov)
	if p.Group {
		w.brokers = newBrokers(p)
		w.broker = w.brokers
	} else {
		w.kafka = newKafka(w.mon, p.Seed, p.Partitions)
		w.broker = w.kafka
	}
	w.hook = newHook(w)
	w.srv.SetHook(w.hook.on)
	for _, address := range w.addresses() {
		var l net.Listener
		l, err := w.nw.Listen(address)
		if err != nil {
			panic(err)
		}
		w.serving.Go(func() { _ = w.srv.Serve(l) })
	}
	return w
}

func (w *world) addresses() []string {
	var list []string
	for i := range listeners {
		list = append(list, fmt.Sprintf("zk%d:2181", i))
	}
	return list
}

// seed is what a member that asks for topics adds to the set.
func (w *world) seed(topics []string) map[string][]int32 {
	all := map[string][]int32{}
	for i := range w.known {
		if part := w.plan.partition(i); wants(topics, part.Topic) {
			all[part.Topic] = append(all[part.Topic], part.ID)
		}
	}
	return all
}

// partitions returns what the set should hold, sorted as members sort it.
func (w *world) partitions() []kiel.Partition {
	if len(w.sorted) != w.known {
		w.sorted = nil
		for i := range w.known {
			w.sorted = append(w.sorted, w.plan.partition(i))
		}
		kiel.SortPartitions(w.sorted)
	}
	return w.sorted
}

func (w *world) partitionsPath() string { return groupPath + "/partitions" }

// wake makes who waits for the group look again.
func (w *world) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// later runs f beside everything else.
func (w *world) later(f func()) { w.work.Go(f) }

// run does what the plan says.
func (w *world) run() {
	began := time.Now()
	producing, stopProducing := context.WithCancel(context.Background())
	w.work.Go(func() { w.broker.produce(producing) })
	defer func() {
		w.res.virtual = time.Since(began)
		stopProducing()
		w.close()
		w.finish()
	}()
	if !w.begin() {
		return
	}
	// Phases begin when they would if getting well took as long as it may: at the same times in each run of the seed.
	calm := began.Add(2 * (w.bound() + w.notice()))
	for i, ph := range w.plan.Phases {
		w.phase = i
		w.backUp()
		begin := calm.Add(w.quiet() + ph.Idle)
		if !w.idle(ph.Idle, begin) || !w.faulty(ph) {
			return
		}
		calm = begin.Add(w.longest(ph))
	}
	w.rest(time.Minute)
}

// begin starts the first members. Once they are well it makes the first backup, and then adds the last partition: that one is in
// no seed when the members are Groups, who know of all partitions from the beginning.
func (w *world) begin() bool {
	w.known = w.plan.Partitions
	if !w.plan.Group {
		w.known--
	}
	for slot := range w.plan.Members {
		w.wanted[slot] = true
		w.slots[slot] = w.start(slot, false)
	}
	if !w.settle("start", w.bound()) {
		return false
	}
	w.backUp()
	if w.known == w.plan.Partitions {
		return true
	}
	last := w.plan.byTopic(w.known)
	w.known++
	live := w.live()
	w.errand(func() { w.putBack(live, last) })
	return w.settle("growth", w.bound())
}

// quiet is how long what coalesced before may still be told, and late commits may arrive.
func (w *world) quiet() time.Duration { return 2*w.plan.Timeout + 5*time.Second }

// longest is how long a phase takes at most if all goes well, from its beginning until all is well.
func (w *world) longest(ph phase) time.Duration {
	var steps time.Duration
	for _, s := range ph.Steps {
		steps = max(steps, s.At+s.For)
	}
	return steps + w.bound() + w.notice()
}

// idle lets the time pass, d of it or more, until something is to begin. Nothing may happen to the group meanwhile.
func (w *world) idle(d time.Duration, until time.Time) bool {
	w.broker.setPace(calmPace)
	if !w.rest(w.quiet()) {
		return false
	}
	before := w.versions()
	if !w.rest(max(d, time.Until(until))) {
		return false
	}
	if after := w.versions(); after != before {
		w.mon.Violate("L4", "in %v of calm came rebalances or claims\nbefore %s\nafter  %s", d, before, after)
		return false
	}
	return true
}

// undo is the end of a fault.
type undo struct {
	at   time.Time
	what string
	f    func()
}

// faulty injects the faults of a phase, ends them, and waits until the group is well again.
func (w *world) faulty(ph phase) bool {
	if len(ph.Steps) == 0 {
		return true
	}
	w.broker.setPace(busyPace)
	defer w.broker.setPace(calmPace)
	w.trouble = false // what there was is over, and who was to leave then has left
	w.rest(2 * time.Second)
	if ph.Drill {
		return w.drill(ph.Steps[0])
	}
	began := time.Now()
	var undos []undo
	ending := func(until time.Time) bool {
		for {
			slices.SortStableFunc(undos, func(a, b undo) int { return a.at.Compare(b.at) })
			if len(undos) == 0 || undos[0].at.After(until) {
				return w.rest(time.Until(until))
			}
			u := undos[0]
			undos = undos[1:]
			if !w.rest(time.Until(u.at)) {
				u.f()
				return false
			}
			w.mon.Note("--- end of %s", u.what)
			u.f()
			w.mon.Sweep()
		}
	}
	well := true
	for _, s := range ph.Steps {
		if well = ending(began.Add(s.At)); !well {
			break
		}
		if f, ok := w.inject(s); ok && f != nil {
			undos = append(undos, undo{at: time.Now().Add(s.For), what: s.Kind, f: f})
		}
	}
	if well && len(undos) > 0 {
		last := slices.MaxFunc(undos, func(a, b undo) int { return a.at.Compare(b.at) }).at
		well = ending(last)
	}
	for _, u := range undos {
		u.f()
	}
	return well && w.settle("faults", w.bound())
}

// inject does a step; it returns its end, nil when there is none, and whether the step was possible.
func (w *world) inject(s step) (end func(), ok bool) {
	w.mon.Note("--- %v", s)
	w.res.injected = append(w.res.injected, fmt.Sprintf("%v %v", time.Since(w.mon.began), s))
	f, whose := faults[s.Kind], ""
	if f.ails != nil {
		whose = f.ails(w, s)
	}
	end, ok = f.do(w, s)
	w.mon.Sweep()
	if !ok {
		w.mon.Note("--- not possible now")
		return nil, false
	}
	w.res.faults++
	w.trouble = w.trouble || !slices.Contains(harmless, s.Kind)
	w.cov.hit("fault: " + s.Kind)
	if f.ails == nil {
		return end, true
	}
	w.mon.Troubled(whose)
	if end == nil {
		w.mon.Relieved(whose, 0)
		return nil, true
	}
	over := end
	return func() {
		over()
		w.mon.Relieved(whose, s.D) // what was sent before may still be under way for so long
	}, true
}

// close ends everything. All faults have ended; if the plan has, too, then all is well and all can leave in order.
func (w *world) close() {
	calm, ended := w.mon.failures() == 0, map[*process]bool{}
	w.trouble = false
	if !calm {
		w.srv.Thaw()
		w.srv.Restart(false)
		w.nw.Heal()
	}
	for i := range w.wanted {
		w.wanted[i] = false
	}
	for _, p := range w.all {
		ended[p] = p.hasEnded()
		if !calm && !p.isDead() {
			p.client.Heal()
		}
		p.resume()
		p.unstick()
		p.leave()
	}
	for _, p := range w.all {
		<-p.done
		<-p.gone
		p.collect()
		if calm && !ended[p] {
			w.ended(p)
		}
	}
	w.work.Wait()
	// Time must go on for goroutines that remove znodes in the background, which find their session over at the next try, and for
	// sarama's, which notice that after a read timeout.
	time.Sleep(12 * time.Second)
	w.broker.close()
	_ = w.srv.Close()
	w.serving.Wait()
}

// finish fills the result.
func (w *world) finish() {
	if lost := w.mon.lostOf(w.due); lost > 0 {
		w.mon.Violate("S5", "%d messages were processed by nobody", lost)
	}
	stats := w.srv.Stats()
	w.cov.add("server: sessions expired", stats.SessionsExpired)
	w.cov.add("server: sessions attached again", stats.SessionsReattached)
	w.res.phase = w.phase
	w.res.violations = w.mon.violations()
	w.res.tail = w.mon.last()
	w.res.overlaps, w.res.excused, w.res.dups = len(w.mon.clashes), len(w.mon.pairs), w.mon.dups
	w.res.lost = w.mon.lostOf(w.due)
	for _, end := range w.broker.ends() {
		w.res.messages += end
	}
}

// choose picks a live process by a slot's number: that one's, or the next there is.
func (w *world) choose(slot int) *process {
	for i := range w.slots {
		p := w.slots[(slot+i)%len(w.slots)]
		if p != nil && !p.isLeaving() && !p.isDead() && !p.hasEnded() {
			return p
		}
	}
	return nil
}

// hold marks a target as in trouble; ok is false when it was already.
func (w *world) hold(target string) (free func(), ok bool) {
	if _, held := w.busy.LoadOrStore(target, true); held {
		return nil, false
	}
	return func() { w.busy.Delete(target) }, true
}
