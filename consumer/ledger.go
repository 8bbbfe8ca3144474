package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
)

const (
	// idleRepeat is how often the offset of a partition is committed again on
	// which nothing happens. Kafka forgets the offset of a group without members
	// of its own protocol a time after its last commit: 7 days unless
	// configured, 1 day before Kafka 2.0.
	idleRepeat = 6 * time.Hour
	// settleTimeout bounds the last commit of a partition that is given up.
	settleTimeout = 10 * time.Second
)

// holder is the claim under which a partition is open; an *ownership.Claim.
type holder interface {
	Topic() string
	Partition() int32
	Token() int64
	Version() uint64
	Trusted() bool
	Context() context.Context
}

// book is the position of one open partition.
type book struct {
	partition allocfn.Partition
	claim     holder
	topic     sarama.Uuid                    // the topic's id when the partition was opened
	current   func(topic string) sarama.Uuid // the topic's id as known now

	mu        sync.Mutex
	closed    bool     // no mark is taken, nothing is posted
	awaited   *posting // that close waits for; when closed it alone may still be written
	next      int64    // marked: the offset of the next message to read
	text      string
	dirty     bool // next was never committed
	committed int64
	comText   string
	repeats   []time.Time // when to commit again, the next one first
	every     time.Duration
	last      *posting // the newest; nil before the first
}

// mark raises the position, as sarama's MarkOffset does.
func (b *book) mark(offset int64, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && offset > b.next {
		b.next, b.text, b.dirty = offset, text, true
	}
}

// reset lowers the position, as sarama's ResetOffset does.
func (b *book) reset(offset int64, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && offset <= b.next {
		b.next, b.text, b.dirty = offset, text, true
	}
}

// move sets the position that a policy chose.
func (b *book) move(offset int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next, b.text, b.dirty = offset, "", true
}

// close takes no more marks, and lets nothing be written any more but the newest
// posting, which it returns: until end. Those before it were answered: the ledger
// sends one request after the other.
func (b *book) close() *posting {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed { // once: what end has forbidden stays so
		b.closed, b.awaited = true, b.last
	}
	return b.last
}

// end lets nothing be written any more.
func (b *book) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.awaited = true, nil
}

// allowed says whether the claim allows that the book's offset is stored at this
// moment.
func (b *book) allowed() error {
	switch {
	case !b.claim.Trusted():
		return fmt.Errorf("commit %s: %w", b.partition, errLost)
	case !sameTopic(b.topic, b.current(b.partition.Topic)):
		return fmt.Errorf("commit %s: %w", b.partition, recreated(b.partition.Topic))
	default:
		return nil
	}
}

// isDirty says whether there is a mark to commit, isDue whether a commit is to
// be repeated.
func (b *book) isDirty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dirty
}

// isTold says whether the observer knows all that was stored.
func (b *book) isTold() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		return true
	}
	select {
	case <-b.last.told:
		return true
	default:
		return false
	}
}

func (b *book) isDue(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.repeats) > 0 && !now.Before(b.repeats[0])
}

// stored notes that a posting was committed.
func (b *book) stored(p *posting, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.committed, b.comText = p.offset, p.text
	if b.next == p.offset && b.text == p.text {
		b.dirty = false
	}
	for len(b.repeats) > 0 && !now.Before(b.repeats[0]) {
		b.repeats = b.repeats[1:]
	}
	if len(b.repeats) == 0 {
		b.repeats = []time.Time{now.Add(b.every)}
	}
}

// ledger holds the books of one Consume call and commits them: the marked ones
// together once an interval, and those that are asked for at once, together
// with what else waits while a commit is under way.
type ledger struct {
	ledgerOptions
	requests chan commitRequest
	done     chan struct{} // closed when run has returned

	aborting sync.Mutex   // held while connections are thrown away
	aborts   atomic.Int64 // how often that was begun

	mu    sync.RWMutex
	books map[allocfn.Partition]*book
}

type ledgerOptions struct {
	store    offsetStore
	abort    func() // ends the store's connections, with what is on them
	auto     bool
	interval time.Duration
	timeout  time.Duration                        // the session timeout; the first repeat comes after it
	current  func(topic string) sarama.Uuid       // the topic's id as known now
	observe  func(e Event, then func()) *callback // has the observer told, nil when there is none
	report   func(error, allocfn.Partition)
	metrics  *metrics
}

// commitRequest asks for the commit of one book, or of all marked ones when
// book is nil.
type commitRequest struct {
	book   *book
	answer chan commitAnswer // of 1
}

type commitAnswer struct {
	err  error
	told <-chan struct{} // closed when the observer was told; nil when book is
}

func newLedger(opts ledgerOptions) *ledger {
	return &ledger{
		ledgerOptions: opts,
		requests:      make(chan commitRequest),
		done:          make(chan struct{}),
		books:         map[allocfn.Partition]*book{},
	}
}

// open makes the book of a partition that starts at offset. What the partition
// had before is closed: a late mark of an earlier handler finds nothing.
func (l *ledger) open(p allocfn.Partition, c holder, topic sarama.Uuid, offset int64, text string) *book {
	now := time.Now()
	b := &book{
		partition: p, claim: c, topic: topic, current: l.current,
		next: offset, text: text, dirty: true, committed: offset, comText: text,
		repeats: []time.Time{now.Add(l.timeout), now.Add(time.Minute), now.Add(10 * time.Minute)},
		every:   idleRepeat,
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.books[p]; old != nil {
		old.end()
	}
	l.books[p] = b
	return b
}

// close takes no more marks for b and commits it no more. What is under way is
// waited for, so that it does not arrive after the next owner's commits: until ctx
// ends, the claim's lifetime or the time to close it in, settleTimeout at most. Then it
// is thrown away. While it is waited for the claim stands, so it may be written, too:
// a refusal would end the connection of whoever happens to write next, and on the
// coordinator's that is what b's commit is answered on.
func (l *ledger) close(ctx context.Context, b *book) {
	p := b.close()
	l.mu.Lock()
	if l.books[b.partition] == b {
		delete(l.books, b.partition)
	}
	l.mu.Unlock()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, errLate)
	defer cancel()
	answered := l.wait(ctx, p.answered)
	b.end() // first: what is asked after this is refused, what was asked before is thrown away
	if answered {
		l.wait(ctx, p.told)
	} else if ctx.Err() != nil {
		l.throwAway(p)
	}
}

// wait waits for c, until ctx ends or the ledger does, and says whether it came.
func (l *ledger) wait(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c: // whatever has ended too
		return true
	default:
	}
	select {
	case <-c:
		return true
	case <-ctx.Done():
	case <-l.done:
	}
	return false
}

// find returns the book of an open partition, or nil.
func (l *ledger) find(topic string, partition int32) *book {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.books[allocfn.Partition{Topic: topic, ID: partition}]
}

// commit stores the position of b, or of all marked books when b is nil, and
// returns when it is stored or refused, when ctx ends, or the ledger does. When b
// is stored it waits for the observer too. Errors but those of ctx are reported.
func (l *ledger) commit(ctx context.Context, b *book) error {
	q := commitRequest{book: b, answer: make(chan commitAnswer, 1)}
	select {
	case l.requests <- q:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.done:
		return errEnded
	}
	select {
	case a := <-q.answer:
		if a.told != nil {
			l.wait(ctx, a.told)
		}
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.done:
		return errEnded
	}
}

// settle stores what was marked last in a partition that is given up, and
// closes its book, all within settleTimeout. ctx is the claim's lifetime. Without
// auto commit marks that were not committed are dropped, as sarama does.
func (l *ledger) settle(ctx context.Context, b *book) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, errLate)
	defer cancel()
	defer l.close(ctx, b)
	if !l.auto || !b.isDirty() {
		return nil
	}
	wait := newBackoff(storeBackoff, maxStoreBackoff)
	for {
		err := l.commit(ctx, b)
		if err == nil || ctx.Err() != nil || refused(err) {
			return err
		}
		if err := wait.wait(ctx); err != nil {
			return err
		}
	}
}

// fenced says whether we did not send a commit because it is not ours to make.
func fenced(err error) bool {
	return errors.Is(err, errLost) || errors.Is(err, errEnded) || errors.Is(err, ErrRecreated)
}

// refused says whether a commit will not be taken later either.
func refused(err error) bool { return fenced(err) || errors.Is(err, ErrGroupInUse) || permanent(err) }

// run commits until ctx ends.
func (l *ledger) run(ctx context.Context) {
	defer close(l.done)
	tick := time.NewTicker(l.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.flush(ctx, l.waiting(time.Now()))
		case first := <-l.requests:
			requests := l.gather(first)
			answers := l.flush(ctx, l.wanted(requests))
			for _, q := range requests {
				q.answer <- answers[q.book] // for all books none: each error was reported
			}
		}
	}
}

// gather takes all requests that wait.
func (l *ledger) gather(first commitRequest) []commitRequest {
	requests := []commitRequest{first}
	for {
		select {
		case q := <-l.requests:
			requests = append(requests, q)
		default:
			return requests
		}
	}
}

// wanted returns the books of requests, each with whether its mark is meant.
func (l *ledger) wanted(requests []commitRequest) map[*book]bool {
	books := map[*book]bool{}
	for _, q := range requests {
		if q.book != nil {
			books[q.book] = true
			continue
		}
		for _, b := range l.all() {
			if b.isDirty() {
				books[b] = true
			}
		}
	}
	return books
}

// waiting returns the books that are to be committed without anybody asking. One
// whose last commit the observer was not told of yet is not among them.
func (l *ledger) waiting(now time.Time) map[*book]bool {
	books := map[*book]bool{}
	for _, b := range l.all() {
		if (l.auto && b.isDirty() || b.isDue(now)) && b.isTold() {
			books[b] = l.auto
		}
	}
	return books
}

func (l *ledger) all() []*book {
	l.mu.RLock()
	defer l.mu.RUnlock()
	books := make([]*book, 0, len(l.books))
	for _, b := range l.books {
		books = append(books, b)
	}
	return books
}

// flush commits books in one request and reports what was refused. It does not
// wait for the observer: one that hangs on a partition holds up that one alone.
func (l *ledger) flush(ctx context.Context, books map[*book]bool) map[*book]commitAnswer {
	if len(books) == 0 {
		return nil
	}
	postings := make([]*posting, 0, len(books))
	entries := make([]entry, 0, len(books))
	for b, marked := range books {
		p := b.post(l, marked)
		postings = append(postings, p)
		entries = append(entries, entry{
			partition: b.partition,
			offset:    p.offset,
			metadata:  note{topic: b.topic, token: b.claim.Token(), text: p.text}.String(),
			allowed:   p.ask,
		})
	}
	start := time.Now()
	results := l.store.commit(ctx, entries)
	now := time.Now()
	answers := make(map[*book]commitAnswer, len(books))
	for _, p := range postings {
		b := p.book
		err := results[b.partition]
		answers[b] = commitAnswer{err: err, told: p.told}
		l.metrics.committed(err, now.Sub(start))
		close(p.answered)
		if err == nil {
			b.stored(p, now)
			l.tell(p, true)
			continue
		}
		l.tell(p, false)
		if ctx.Err() == nil && !fenced(err) { // the end of the claim is told elsewhere
			l.report(err, b.partition)
		}
	}
	return answers
}
