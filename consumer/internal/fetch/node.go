package fetch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/IBM/sarama"
)

// node is a broker that partitions are fetched from. Its fields are guarded by the fetcher's mu.
type node struct {
	of         *Fetcher
	at         Node
	about      string   // its name in the log
	links      [2]*link // the first carries long polls, the second short polls beside them
	cancel     context.CancelFunc
	partitions map[*Partition]struct{}
	throttled  time.Time // until when the broker's quotas allow no request (KIP-219)
	idleSince  time.Time // since when the node has no partitions; zero while it has some

	silence time.Duration // how long the broker may send no byte while an answer is due, until slowFor after slowAt
	slowAt  time.Time     // when the broker was last silent for longer than the shortest such time; zero for never
}

func newNode(f *Fetcher, at Node) *node {
	n := &node{of: f, at: at, about: fmt.Sprintf("%d at %s", at.ID, at.Addr), partitions: map[*Partition]struct{}{}}
	for i := range n.links {
		n.links[i] = newLink(n)
	}
	return n
}

// wake has the links call take.
func (n *node) wake() {
	for _, l := range n.links {
		select {
		case l.woken <- struct{}{}:
		default:
		}
	}
}

// stop ends the links' goroutines and connections.
func (n *node) stop() {
	n.of.gone(n.about)
	n.cancel()
	for _, l := range n.links {
		l.stopped = true
		l.abort()
	}
}

// entry is one partition in a request, with its state when the request was made.
type entry struct {
	p        *Partition
	turn     int
	position int64  // messages below this offset are left out
	epoch    int32  // the leader epoch of the batch before position
	leader   int32  // the leader's epoch, which the request names (KIP-320)
	ask      int64  // the offset to fetch
	check    *check // a copy of the partition's check; nil for none
	size     int    // the bytes to ask for
	probes   bool   // the answer shows whether ask can be read, in a hunt
	follower bool   // the request goes to a follower
	alone    bool   // the request has no other entry
	share    int    // bytes that the partition may hold
}

// request is a request for the ready partitions of one broker.
type request struct {
	entries []entry
	wire    *sarama.FetchRequest
	wait    time.Duration // how long the broker may wait for messages
	silence time.Duration // how long the broker may send no byte after that
	quiet   bool          // the last answers had no messages of any of the partitions
	began   time.Time
	before  int64 // number of bytes that the connection had received when the request was sent; only the link's goroutine uses it
}

// take makes a request for the partitions that are ready and not in flight on the other link. If there are none, it returns nil
// and the time after which to call it again.
func (l *link) take() (*request, time.Duration) {
	n, f := l.node, l.node.of
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if wait := n.throttled.Sub(now); wait > 0 {
		return nil, wait
	}
	first, second := n.links[0], n.links[1]
	if l == second && first.request == nil {
		return nil, idleTimeout // the first link takes the ready partitions
	}
	if r := second.request; l == first && r != nil && r.quiet {
		if wait := r.began.Add(mergeWait).Sub(now); wait > 0 {
			return nil, wait // the first link then takes the second one's partitions, too
		}
	}
	ps, alone := n.ready(now)
	if len(ps) == 0 {
		return nil, idleTimeout
	}
	req := &request{began: now, quiet: true, wait: f.settings.Config.Consumer.MaxWaitTime, silence: n.maySilence(now)}
	for _, p := range ps {
		req.quiet = req.quiet && p.quiet
	}
	if l == second {
		req.wait = min(req.wait, l.nextPoll(req.quiet))
	}
	if alone {
		req.wait = 0
	}
	req.wire = f.settings.newRequest(req.wait)
	for _, p := range ps {
		req.add(p, l, alone)
	}
	l.request = req
	if alone {
		n.wake() // the other link takes the other partitions
	}
	return req, 0
}

// maySilence returns how long the broker may send no byte while an answer is due.
func (n *node) maySilence(now time.Time) time.Duration {
	if n.slowAt.IsZero() || now.Sub(n.slowAt) >= slowFor {
		return silence
	}
	return n.silence
}

// heard adapts the time for which the broker may be silent to how a request has ended. If that time has ended it, the next one
// gets twice as much: a broker that reads from slow storage would begin the same answer anew each time, and never be read.
func (n *node) heard(req *request, err error, now time.Time) {
	if silent, ok := errors.AsType[*silentError](err); ok {
		n.silence, n.slowAt = min(2*silent.after, n.of.settings.maxSilence), now
	} else if err == nil && now.Sub(req.began) > req.wait+silence {
		n.silence, n.slowAt = max(req.silence, n.maySilence(now)), now
	}
}

// nextPoll returns how long the next short poll may wait for messages.
func (l *link) nextPoll(quiet bool) time.Duration {
	l.poll = min(2*l.poll, maxShortPoll)
	if !quiet || l.poll == 0 {
		l.poll = minShortPoll
	}
	return l.poll
}

// ready returns the partitions to fetch, or a single one that is to be fetched alone.
func (n *node) ready(now time.Time) (ps []*Partition, alone bool) {
	for p := range n.partitions {
		switch {
		case p.flying != nil, p.paused, !p.hasRoom():
		case p.follower >= 0 && now.After(p.lease):
			p.look() // the leader may name another follower, or none
		case p.alone, p.hunt != nil:
			return []*Partition{p}, true
		default:
			ps = append(ps, p)
		}
	}
	return ps, false
}

// add adds a partition to the request. The fetcher's mu is held.
func (r *request) add(p *Partition, l *link, alone bool) {
	e := entry{
		p: p, turn: p.turn, position: p.position, epoch: p.epoch, leader: p.leaderEpoch, ask: p.position,
		size: min(p.fetchSize(), math.MaxInt32), follower: p.follower >= 0, alone: alone, share: p.share(),
	}
	switch {
	case p.check != nil:
		c := *p.check
		e.check, e.ask = &c, c.ask(p.position)
		if c.least || p.hunt != nil {
			e.size = 1
		} else if c.searching {
			e.size = minFetch // the header of the record batch is enough
		}
	case p.hunt != nil:
		e.ask, e.size = p.hunt.ask(p.position)
		e.probes = p.hunt.found
		r.wire.RackID = "" // a follower may have another copy, so the leader must not name one
	}
	r.entries = append(r.entries, e)
	if p.end < 0 { // Opened waits for the first answer
		r.wait, r.wire.MaxWaitTime = 0, 0
	}
	r.wire.AddBlock(p.topic, p.id, e.ask, int32(e.size), p.leaderEpoch)
	p.flying = l
}

// newRequest returns a fetch request without partitions.
func (s *settings) newRequest(wait time.Duration) *sarama.FetchRequest {
	r := &sarama.FetchRequest{
		Version: s.version, MaxWaitTime: int32(wait / time.Millisecond), MinBytes: s.Config.Consumer.Fetch.Min,
		MaxBytes: s.answer, Isolation: s.Config.Consumer.IsolationLevel,
	}
	if r.Version >= 7 {
		r.SessionEpoch = -1 // no fetch session (KIP-227)
	}
	if r.Version >= 11 {
		r.RackID = s.Config.RackID // KIP-392
	}
	return r
}
