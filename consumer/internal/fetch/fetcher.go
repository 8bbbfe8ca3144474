package fetch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
)

// key names a partition.
type key struct {
	topic string
	id    int32
}

func (k key) partition() kiel.Partition { return kiel.Partition{Topic: k.topic, ID: k.id} }
func (k key) String() string            { return k.partition().String() }

// Fetcher reads partitions.
type Fetcher struct {
	settings settings
	cluster  Cluster
	changed  chan struct{} // holds a token when Run is to call dispatch

	mu      sync.Mutex // held for moments, never while a goroutine waits for anything else
	open    map[key]*Partition
	nodes   map[Node]*node
	notes   []func() // lines for the log, see addNote
	logging bool     // a goroutine writes notes to the log
	looking [2]bool  // a search for leaders runs: in cached metadata, and in fresh ones
	ends    ends     // the reading of ends of partitions that are not fetched

	unreadable map[key]*UnreadableError // the last batch of each partition that could not be read, until the position has passed it

	running bool
	ended   bool
	life    context.Context //nolint:containedctx // Run's context, for the goroutines of brokers that Run starts later
	all     sync.WaitGroup  // the goroutines that Run has started
}

// New makes a Fetcher. It starts nothing; see [Fetcher.Run].
func New(cluster Cluster, opts Options) (*Fetcher, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, operr.New("consumer", "option Config", "", err)
	}
	return &Fetcher{
		settings: s, cluster: cluster, changed: make(chan struct{}, 1),
		open: map[key]*Partition{}, nodes: map[Node]*node{}, unreadable: map[key]*UnreadableError{},
	}, nil
}

// Open starts to read a partition at offset. It does not wait for Kafka: Opened and Next return an error if Kafka does not have
// the offset. leaderEpoch is the leader epoch of the message before offset; with -1 nothing is compared at the start. The caller
// closes the partition.
func (f *Fetcher) Open(ctx context.Context, topic string, id int32, offset int64, leaderEpoch int32) (*Partition, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	k := key{topic, id}
	switch {
	case f.ended:
		return nil, operr.New("consumer", "open", k.String(), ErrClosed)
	case f.open[k] != nil:
		return nil, operr.New("consumer", "open", k.String(), ErrOpen)
	}
	p := &Partition{
		of: f, key: k, ready: make(chan struct{}, 1), done: make(chan struct{}), found: make(chan struct{}),
		position: offset, epoch: leaderEpoch, taken: offset, takenEpoch: leaderEpoch, handed: offset, handedEpoch: leaderEpoch,
		waits: -1, end: -1, stable: -1, leaderEpoch: -1, follower: -1,
	}
	f.open[k] = p
	for _, other := range f.open {
		other.trim()
	}
	p.look()
	p.expect()
	return p, nil
}

// Prepare connects to the leaders of partitions that are to be opened soon, as far as they are known. It does not block. What
// fails is tried again when they are opened, and reported then.
func (f *Fetcher) Prepare(topic string, ids []int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.running {
		return
	}
	f.all.Go(func() {
		for _, id := range ids {
			if leader, _, err := f.cluster.Leader(topic, id); err == nil {
				f.connect(leader)
			}
		}
	})
}

// connect has the link to a broker connect that carries the first request for a partition, if it is not connected.
func (f *Fetcher) connect(at Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.running {
		return
	}
	n := f.node(at)
	n.links[0].early = true
	n.wake()
}

// Run fetches until ctx ends. Then it closes all partitions and connections, and waits for all goroutines, also for those that
// call the Cluster or dial. A second call returns [kiel.ErrRunTwice].
func (f *Fetcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	if err := f.begin(ctx); err != nil {
		cancel()
		return err
	}
	defer f.end(cancel)
	watch := time.NewTicker(watchInterval)
	defer watch.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watch.C:
			f.watch()
		case <-f.changed:
		case <-timer.C:
		}
		timer.Reset(f.dispatch())
	}
}

func (f *Fetcher) begin(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running || f.ended {
		return kiel.ErrRunTwice
	}
	f.running, f.life = true, ctx
	return nil
}

// end closes all partitions and connections, and waits for all goroutines.
func (f *Fetcher) end(cancel context.CancelFunc) {
	cancel()
	f.mu.Lock()
	f.running, f.ended = false, true
	for _, p := range f.open {
		p.close()
	}
	for _, n := range f.nodes {
		n.stop()
	}
	f.unlock()
	f.all.Wait()
}

// wake has Run call dispatch.
func (f *Fetcher) wake() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// dispatch starts the searches for leaders that are due, and returns the time until the next one is due.
func (f *Fetcher) dispatch() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := time.Hour
	var due [2][]*Partition // to be searched in cached metadata, and in fresh ones
	now := time.Now()
	for _, p := range f.open {
		if p.node != nil || p.err != nil || p.looking {
			continue
		}
		if wait := p.due.Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		kind := 0
		if p.refresh || p.outside {
			kind = 1
		}
		due[kind] = append(due[kind], p)
	}
	for kind, ps := range due {
		if len(ps) == 0 || f.looking[kind] {
			continue // the running search wakes Run at its end
		}
		f.search(ps, kind)
	}
	return next
}

// search starts look. The fetcher's mu is held.
func (f *Fetcher) search(ps []*Partition, kind int) {
	f.looking[kind] = true
	for _, p := range ps {
		p.looking = true
	}
	f.all.Go(func() { f.look(ps, kind) })
}

// searchSlow starts a search for the leaders of the partitions whose broker may be slow: it has more time than others, and has
// not answered in theirs. If it hangs and they have moved, they are not to wait for the end of that time. The fetcher's mu is
// held.
func (f *Fetcher) searchSlow(now time.Time) {
	var ps []*Partition
	for _, p := range f.open {
		if p.flying == nil || p.flying.request == nil || p.looking {
			continue
		}
		if r := p.flying.request; r.silence > silence && now.Sub(r.began) > r.wait+silence {
			ps = append(ps, p)
		}
	}
	if len(ps) > 0 && !f.looking[1] {
		f.search(ps, 1)
	}
}

// look finds the leaders of the partitions. It blocks, in a goroutine of its own.
func (f *Fetcher) look(ps []*Partition, kind int) {
	defer func() {
		f.mu.Lock()
		f.looking[kind] = false
		f.mu.Unlock()
		f.wake()
	}()
	if kind == 1 {
		topics := map[string]bool{}
		for _, p := range ps {
			topics[p.topic] = true
		}
		_ = f.cluster.Refresh(slices.Collect(maps.Keys(topics))) // find below returns the error of a missing topic
	}
	unknown := map[string]error{} // the errors of whole topics, so that a missing topic is not searched for each of its partitions
	for _, p := range ps {
		found := searchResult{err: unknown[p.topic]}
		if found.err == nil {
			found = f.find(p)
		}
		if errors.Is(found.err, sarama.ErrUnknownTopicOrPartition) || errors.Is(found.err, sarama.ErrOutOfBrokers) {
			unknown[p.topic] = found.err
		}
		f.mu.Lock()
		p.looking = false
		if found.err == nil && p.node != nil && found.node != p.node.at && found.epoch >= p.leaderEpoch {
			p.detach() // see searchSlow
		}
		if p.node == nil && p.err == nil && !p.closed {
			p.assign(found)
		}
		f.unlock()
	}
}

// searchResult is the result of a search for a partition's leader.
type searchResult struct {
	node       Node
	epoch      int32 // the leader's epoch
	follower   int32 // the follower to fetch from; -1 for the leader
	start, end int64 // the first offset of the log and the one after the last, if outside
	outside    bool  // the leader has answered that the position is out of range
	err        error
}

// find searches the broker to fetch a partition from: its leader, or the follower that the leader has named (KIP-392).
func (f *Fetcher) find(p *Partition) searchResult {
	f.mu.Lock()
	follower, outside := p.follower, p.outside
	if follower >= 0 && time.Now().After(p.lease) {
		follower = -1
	}
	f.mu.Unlock()
	out := searchResult{follower: -1, outside: outside}
	if outside {
		if out.start, out.end, out.err = f.cluster.Range(p.topic, p.id); out.err != nil {
			return out
		}
	}
	if out.node, out.epoch, out.err = f.cluster.Leader(p.topic, p.id); out.err != nil || follower < 0 {
		return out
	}
	at, ok := f.cluster.Node(follower)
	if !ok && f.cluster.Refresh([]string{p.topic}) == nil { // a new broker
		at, ok = f.cluster.Node(follower)
	}
	if !ok {
		out.err = sarama.ErrReplicaNotAvailable
		return out
	}
	out.node, out.follower = at, follower
	return out
}

// assign adds the partition to the broker that was found, or schedules another search.
func (p *Partition) assign(found searchResult) {
	if found.err != nil {
		p.retry(found.err)
		return
	}
	cut := false
	if found.outside {
		p.outside = false
		if cut = p.isCutOff(found); !cut && (p.position < found.start || p.position > found.end) {
			delete(p.of.unreadable, p.key) // the log is not the one that had it
			p.fail(&RangeError{Topic: p.topic, Partition: p.id, Position: p.position, Start: found.start, End: found.end})
			return
		}
	}
	p.follower = found.follower
	if p.leaderEpoch != found.epoch && p.epoch >= 0 && p.position > 0 && p.of.settings.version >= 9 {
		p.check = &check{} // at the first leader, too: Open was given an epoch
	}
	if cut {
		p.check, p.alone = &check{searching: true, low: found.start, high: found.end, epoch: found.epoch}, true
	}
	if p.hunt != nil && (p.hunt.found || p.leaderEpoch != found.epoch) {
		p.hunt = &hunt{within: 1} // another leader may have the batch as it was
	}
	p.leaderEpoch = found.epoch
	p.node = p.of.node(found.node)
	p.node.partitions[p] = struct{}{}
	p.node.wake()
}

// isCutOff returns whether the log ends before the position because a leader of a later epoch has truncated it.
func (p *Partition) isCutOff(found searchResult) bool {
	return p.position > found.end && p.epoch >= 0 && found.epoch > p.epoch && p.of.settings.version >= 9
}

// node returns the broker, and starts its goroutines if it is new.
func (f *Fetcher) node(at Node) *node {
	if n := f.nodes[at]; n != nil {
		n.idleSince = time.Time{}
		return n
	}
	n := newNode(f, at)
	f.nodes[at] = n
	ctx, cancel := context.WithCancel(f.life)
	n.cancel = cancel
	for _, l := range n.links {
		f.all.Go(func() { l.run(ctx) })
	}
	return n
}

// watch resets partitions that make no progress, and stops brokers that have had no partition for idleTimeout.
func (f *Fetcher) watch() {
	reachable := f.settings.Reachable()
	f.mu.Lock()
	now := time.Now()
	var stuck []*Partition
	for _, p := range f.open {
		if p.standsStill(now) {
			stuck = append(stuck, p)
		}
	}
	for _, p := range stuck {
		p.watched = watched{reset: now}
		if p.flying != nil {
			p.flying.abort()
		}
		p.detach()
		p.follower, p.due, p.refresh = -1, now, true
		f.failed(kindStall, p.String(), errStall)
		f.wake()
	}
	for at, n := range f.nodes {
		switch {
		case len(n.partitions) > 0, !reachable:
			n.idleSince = time.Time{}
		case n.idleSince.IsZero():
			n.idleSince = now
		case now.Sub(n.idleSince) >= idleTimeout:
			n.stop()
			delete(f.nodes, at)
		}
	}
	f.searchSlow(now)
	f.unlock()
	for _, p := range stuck {
		if f.settings.OnReset != nil {
			f.settings.OnReset(p.topic, p.id)
		}
	}
}

// standsStill returns whether the position has not moved for stuckAfter although there are messages to fetch and room for them.
func (p *Partition) standsStill(now time.Time) bool {
	w := &p.watched
	if p.err != nil || p.paused || !p.hasRoom() || p.readable() <= p.position {
		w.since = time.Time{}
		return false
	}
	if w.since.IsZero() || w.position != p.position {
		w.since, w.position = now, p.position
		return false
	}
	return now.Sub(w.since) >= stuckAfter && now.Sub(w.reset) >= resetAtMost && !p.isAnswering(w.since)
}

// isAnswering returns whether a request for the partition has been in flight since then, and its connection is in time: its
// answer is large, or the broker is slow. Another request would begin the same answer anew. If the broker falls silent, the
// connection ends by itself.
func (p *Partition) isAnswering(since time.Time) bool {
	l := p.flying
	return l != nil && l.request != nil && !l.request.began.After(since) && l.conn != nil && !l.conn.isDue()
}
