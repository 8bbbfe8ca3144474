package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// kafka is a small model of Kafka: logs in memory, one committed offset each, a steady producer, and a network on which requests
// and replies take time, get lost, or arrive when nobody thinks of them any more.
type kafka struct {
	pacer

	mon *monitor

	mu      sync.Mutex
	rand    *rand.Rand
	parts   []*topicPart
	slow    time.Duration // on top of each way
	down    bool
	late    bool // commits may arrive much later, or their replies not at all
	pending map[*time.Timer]struct{}
	closed  bool
	wg      sync.WaitGroup
}

// kafkaLike is our model or kfake.
type kafkaLike interface {
	produce(ctx context.Context)
	setPace(every time.Duration)
	ends() []int64
	setSlow(d time.Duration)
	setDown(on bool)
	setLate(on bool)
	close()
}

// topicPart is a partition: a log of messages that are their offsets.
type topicPart struct {
	end       int64
	committed int64
	last      *commit       // that is stored
	wake      chan struct{} // closed when there is a new message
}

// commit is one request.
type commit struct {
	p     *process
	part  int
	off   int64
	term  *term // in which it was sent
	late  bool  // it arrived after its sender was told that it failed
	sent  time.Time
	stray bool // stored although it was late, or its term was over, or unaware
	// unaware says that a third party had taken the claim when this was sent, and that its owner could not know yet.
	unaware bool
}

var errKafka = errors.New("kafka: no answer")

func newKafka(mon *monitor, seed uint64, parts int) *kafka {
	k := &kafka{
		pacer: newPacer(), mon: mon, rand: rand.New(rand.NewPCG(seed, 1)), pending: map[*time.Timer]struct{}{},
	}
	for range parts {
		k.parts = append(k.parts, &topicPart{wake: make(chan struct{})})
	}
	return k
}

// Messages come slowly while nothing happens, so that virtual days are cheap.
const (
	calmPace = 2 * time.Minute
	busyPace = 700 * time.Millisecond
)

// pacer says how often messages come.
type pacer struct {
	mu    sync.Mutex
	every time.Duration
	pace  chan struct{} // closed when every changes
}

func newPacer() pacer { return pacer{every: calmPace, pace: make(chan struct{})} }

func (p *pacer) setPace(every time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.every != every {
		p.every = every
		close(p.pace)
		p.pace = make(chan struct{})
	}
}

// each calls f at that pace until ctx ends.
func (p *pacer) each(ctx context.Context, f func()) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		p.mu.Lock()
		every, pace := p.every, p.pace
		p.mu.Unlock()
		timer.Reset(every)
		select {
		case <-ctx.Done():
			return
		case <-pace:
			continue
		case <-timer.C:
		}
		f()
	}
}

// atOnce is how many partitions get a message at a time. Where there are more they take turns, so that many partitions cost no
// more than few.
const atOnce = 10

// produce appends to the partitions until ctx ends.
func (k *kafka) produce(ctx context.Context) {
	next := 0
	k.each(ctx, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		for range min(atOnce, len(k.parts)) {
			part := k.parts[next]
			next = (next + 1) % len(k.parts)
			part.end++
			close(part.wake)
			part.wake = make(chan struct{})
		}
	})
}

func (k *kafka) setSlow(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slow = d
}

func (k *kafka) setDown(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = on
}

func (k *kafka) setLate(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.late = on
}

// ends returns the ends of all logs.
func (k *kafka) ends() []int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	ends := make([]int64, len(k.parts))
	for i, part := range k.parts {
		ends[i] = part.end
	}
	return ends
}

// message says whether there is one at off, else what to wait for.
func (k *kafka) message(part int, off int64) (wake <-chan struct{}, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.parts[part].wake, off < k.parts[part].end
}

// way is how long a request or a reply is under way now, and whether it ever arrives.
func (k *kafka) way() (time.Duration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := time.Duration(1+k.rand.IntN(5)) * time.Millisecond
	if k.slow > 0 {
		d += time.Duration(k.rand.Int64N(int64(k.slow)))
	}
	return d, !k.down
}

// patience is how long a client waits for an answer.
const patience = 2 * time.Second

// committed reads the committed offset.
func (k *kafka) committed(ctx context.Context, part int) (int64, error) {
	there, up := k.way()
	if !up || there > patience {
		there = patience
	}
	if !sleep(ctx, there) {
		return 0, context.Cause(ctx)
	}
	if !up || there == patience {
		return 0, errKafka
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.parts[part].committed, nil
}

// commit stores an offset. With an error nobody knows whether, and when. The sender's trust was checked right before.
func (k *kafka) commit(ctx context.Context, c *commit) error {
	c.sent = time.Now()
	there, up := k.way()
	back, _ := k.way()
	if !up {
		sleep(ctx, patience)
		return errKafka
	}
	k.mu.Lock()
	late, deaf := false, false
	if k.late {
		late, deaf = k.rand.IntN(2) == 0, k.rand.IntN(4) == 0
	}
	var delay time.Duration
	if late {
		delay = patience + time.Duration(k.rand.Int64N(int64(3*time.Minute)))
	}
	k.mu.Unlock()
	if late {
		k.after(delay, func() {
			k.mu.Lock()
			c.late = true
			k.mu.Unlock()
			k.store(c)
		})
		sleep(ctx, patience)
		return fmt.Errorf("%w (it will arrive in %v)", errKafka, delay-patience)
	}
	stored := make(chan struct{})
	k.after(there, func() {
		k.store(c)
		close(stored)
	})
	select {
	case <-stored:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if deaf || there+back > patience {
		sleep(ctx, patience)
		return errKafka
	}
	if !sleep(ctx, back) {
		return context.Cause(ctx)
	}
	return nil
}

func (k *kafka) after(d time.Duration, f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.wg.Add(1)
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		defer k.wg.Done()
		k.mu.Lock()
		delete(k.pending, timer)
		k.mu.Unlock()
		f()
	})
	k.pending[timer] = struct{}{}
}

// store is the arrival of a commit.
func (k *kafka) store(c *commit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	part := k.parts[c.part]
	k.mon.stored(c, part.last, part.committed)
	part.committed, part.last = c.off, c
}

// close ends everything that is under way.
func (k *kafka) close() {
	k.mu.Lock()
	k.closed = true
	for timer := range k.pending {
		if timer.Stop() {
			k.wg.Done()
		}
	}
	k.mu.Unlock()
	k.wg.Wait()
}

// sleep waits for d, and says whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
