package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	closed    bool
	next      int64 // marked: the offset of the next message to read
	text      string
	dirty     bool // next was never committed
	committed int64
	comText   string
	repeats   []time.Time // when to commit again, the next one first
	every     time.Duration
	sending   chan struct{} // closed when the request that carries it is answered; nil when there is none
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

func (b *book) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// send notes that a request carries the book's offset, until answered is called.
func (b *book) send() (answered func()) {
	done := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sending = done
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.sending = nil
		close(done)
	}
}

// allowed says whether the book's offset may be stored at this moment.
func (b *book) allowed() error {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("commit %s: %w", b.partition, errEnded)
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

func (b *book) isDue(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.repeats) > 0 && !now.Before(b.repeats[0])
}

// position returns what to store: the marked position, or the committed one.
func (b *book) position(marked bool) (offset int64, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if marked {
		return b.next, b.text
	}
	return b.committed, b.comText
}

// stored notes that an offset was committed.
func (b *book) stored(offset int64, text string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.committed, b.comText = offset, text
	if b.next == offset && b.text == text {
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

	mu    sync.RWMutex
	books map[allocfn.Partition]*book
}

type ledgerOptions struct {
	store    offsetStore
	auto     bool
	interval time.Duration
	timeout  time.Duration                  // the session timeout; the first repeat comes after it
	current  func(topic string) sarama.Uuid // the topic's id as known now
	observe  func(Event)
	report   func(error, allocfn.Partition)
	metrics  *metrics
}

// commitRequest asks for the commit of one book, or of all marked ones when
// book is nil.
type commitRequest struct {
	book   *book
	answer chan error // of 1
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
		old.close()
	}
	l.books[p] = b
	return b
}

// close takes no more marks for b and commits it no more. What was sent before
// is waited for, so that it does not arrive after the next owner's commits. ctx
// is the claim's lifetime.
func (l *ledger) close(ctx context.Context, b *book) {
	b.close() // what is not written yet never will be
	l.mu.Lock()
	if l.books[b.partition] == b {
		delete(l.books, b.partition)
	}
	l.mu.Unlock()

	b.mu.Lock()
	answered := b.sending
	b.mu.Unlock()
	if answered == nil {
		return
	}
	limit := time.NewTimer(settleTimeout)
	defer limit.Stop()
	select {
	case <-answered:
	case <-ctx.Done():
	case <-l.done:
	case <-limit.C:
	}
}

// find returns the book of an open partition, or nil.
func (l *ledger) find(topic string, partition int32) *book {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.books[allocfn.Partition{Topic: topic, ID: partition}]
}

// commit stores the position of b, or of all marked books when b is nil, and
// returns when it is stored or refused, when ctx ends, or the ledger does.
// Errors but those of ctx are reported.
func (l *ledger) commit(ctx context.Context, b *book) error {
	q := commitRequest{book: b, answer: make(chan error, 1)}
	select {
	case l.requests <- q:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.done:
		return errEnded
	}
	select {
	case err := <-q.answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.done:
		return errEnded
	}
}

// settle stores what was marked last in a partition that is given up, and
// closes its book. ctx is the claim's lifetime. Without auto commit marks that
// were not committed are dropped, as sarama does.
func (l *ledger) settle(ctx context.Context, b *book) error {
	defer l.close(ctx, b)
	if !l.auto || !b.isDirty() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, fmt.Errorf("not committed within %v", settleTimeout))
	defer cancel()
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
			errs := l.flush(ctx, l.wanted(requests))
			for _, q := range requests {
				if q.book == nil {
					q.answer <- nil // each error was reported
				} else {
					q.answer <- errs[q.book]
				}
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

// waiting returns the books that are to be committed without anybody asking.
func (l *ledger) waiting(now time.Time) map[*book]bool {
	books := map[*book]bool{}
	for _, b := range l.all() {
		if l.auto && b.isDirty() || b.isDue(now) {
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

// flush commits books in one request and reports what was refused.
func (l *ledger) flush(ctx context.Context, books map[*book]bool) map[*book]error {
	if len(books) == 0 {
		return nil
	}
	type posting struct {
		offset int64
		text   string
	}
	postings := make(map[*book]posting, len(books))
	entries := make([]entry, 0, len(books))
	for b, marked := range books {
		defer b.send()()
		offset, text := b.position(marked)
		postings[b] = posting{offset, text}
		entries = append(entries, entry{
			partition: b.partition,
			offset:    offset,
			metadata:  note{topic: b.topic, token: b.claim.Token(), text: text}.String(),
			allowed:   b.allowed,
		})
	}
	start := time.Now()
	results := l.store.commit(ctx, entries)
	now := time.Now()
	errs := make(map[*book]error, len(books))
	for b := range books {
		err := results[b.partition]
		errs[b] = err
		l.metrics.committed(err, now.Sub(start))
		if err == nil {
			p := postings[b]
			// Before settle can find nothing left to commit: the claim is released then.
			l.observe(Event{
				Kind: Committed, Topic: b.partition.Topic, Partition: b.partition.ID,
				Token: b.claim.Token(), Version: b.claim.Version(), Offset: p.offset, Since: start,
			})
			b.stored(p.offset, p.text, now)
			continue
		}
		if ctx.Err() == nil && !fenced(err) { // the end of the claim is told elsewhere
			l.report(err, b.partition)
		}
	}
	return errs
}
