package consumertest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/consumer/internal/handmade"
	"github.com/kielgo/kiel/ownership"
)

// Options are those of a Partition. The zero value is partition 0 of the topic "test", which begins at offset 0.
type Options struct {
	Topic string // default: "test"
	ID    int32
	Start int64 // the offset that is committed when the partition is run first, and that of the first message
	// Metadata are stored with Start.
	Metadata string
	// Token is the fencing token of the first claim; each later claim's is higher by one. Default: 1.
	Token int64
	// KeepOpen has the partition wait for more messages when all have been handed out, until it is revoked or lost, or the
	// context of Run or Consume ends. Otherwise reading ends when all are marked, or Patience after the last was handed out, with
	// ErrEnd as the cause of the handler's context.
	KeepOpen bool
	// Patience is how long reading goes on after the last message if not all are marked. Default: 5 s.
	Patience time.Duration
}

// Partition has messages for a handler, and what the handler has marked. Its methods may be called from any goroutine, also by
// the handler.
type Partition struct {
	opts Options
	id   kiel.Partition

	mu        sync.Mutex
	log       []sarama.ConsumerMessage // all messages that were sent, in the order of their offsets
	claims    int64                    // made so far
	claim     *claim                   // of the handler that runs; nil if none does
	due       func(*claim)             // what Revoke or Lose is to do with the next claim; nil for nothing
	stream    *stream                  // and its messages
	marked    func() (offset int64, text string)
	committed int64
	text      string // committed with it
	late      []int64
}

// NewPartition returns a partition with messages that have these values.
func NewPartition(opts Options, values ...string) *Partition {
	if opts.Topic == "" {
		opts.Topic = "test"
	}
	if opts.Token == 0 {
		opts.Token = 1
	}
	if opts.Patience == 0 {
		opts.Patience = 5 * time.Second
	}
	p := &Partition{
		opts: opts, id: kiel.Partition{Topic: opts.Topic, ID: opts.ID}, committed: opts.Start, text: opts.Metadata,
	}
	p.Send(values...)
	return p
}

// Send adds messages with these values. It does not block. What is sent while nothing consumes the partition is there for the
// next Run or Consume.
func (p *Partition) Send(values ...string) {
	messages := make([]*sarama.ConsumerMessage, len(values))
	for i, value := range values {
		messages[i] = &sarama.ConsumerMessage{Value: []byte(value)}
	}
	p.SendMessages(messages...)
}

// SendMessages adds copies of messages. Topic, Partition and Offset are set: each gets the next offset, or its own one if that is
// higher, which leaves a gap. A Timestamp that is zero is set to now.
func (p *Partition) SendMessages(messages ...*sarama.ConsumerMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range messages {
		add := *m
		add.Topic, add.Partition, add.Offset = p.id.Topic, p.id.ID, max(add.Offset, p.end())
		if add.Timestamp.IsZero() {
			add.Timestamp = time.Now()
		}
		p.log = append(p.log, add)
	}
	if p.stream != nil {
		p.stream.more()
	}
}

// end returns the offset after the last message. p.mu is held.
func (p *Partition) end() int64 {
	if len(p.log) == 0 {
		return p.opts.Start
	}
	return p.log[len(p.log)-1].Offset + 1
}

// from returns copies of the messages from an offset on, and the end.
func (p *Partition) from(offset int64) ([]sarama.ConsumerMessage, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first, _ := slices.BinarySearchFunc(p.log, offset, func(m sarama.ConsumerMessage, at int64) int { return int(m.Offset - at) })
	return slices.Clone(p.log[first:]), p.end()
}

// Run calls handle with the partition, as Group.Run does, and returns when handle has returned and its marks are committed. The
// error is that of handle; if handle returned before its context ended, it is the one that Group.Run would return, also if handle
// returned nil. An error that says only that handle's context has ended is none.
func (p *Partition) Run(ctx context.Context, handle func(ctx context.Context, p *consumer.Partition) error) error {
	return run(ctx, []*Partition{p}, func(parts []*handmade.Part) error { return consumer.RunHandmade(ctx, parts, handle) })
}

// Consume calls handler with partitions, as Group.Consume does in an incremental session: Setup, ConsumeClaim for each of them at
// the same time, and Cleanup. It returns when all have returned and the marks are committed, with the errors that they have
// returned. It ends with ctx. Without partitions it calls Setup and Cleanup alone.
func Consume(ctx context.Context, handler sarama.ConsumerGroupHandler, partitions ...*Partition) error {
	return run(ctx, partitions, func(parts []*handmade.Part) error { return consumer.ConsumeHandmade(ctx, parts, handler) })
}

func run(ctx context.Context, partitions []*Partition, call func([]*handmade.Part) error) error {
	parts := make([]*handmade.Part, len(partitions))
	seen := map[kiel.Partition]bool{}
	for i, p := range partitions {
		if seen[p.id] {
			panic("consumertest: two partitions are " + p.id.String() + ": set Options.ID or Topic")
		}
		seen[p.id] = true
		parts[i] = p.open(ctx)
		defer p.close()
	}
	return call(parts)
}

// open makes a claim, whose contexts have the values of ctx. It panics if the partition is open: nothing has two owners.
func (p *Partition) open(ctx context.Context) *handmade.Part {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.claim != nil {
		panic("consumertest: " + p.id.String() + " is run twice at the same time")
	}
	p.claim, p.stream = newClaim(context.WithoutCancel(ctx), p.id, p.opts.Token+p.claims), newStream(p, p.committed)
	p.claims++
	if p.due != nil {
		p.due(p.claim)
		p.due = nil
	}
	return &handmade.Part{
		ID: p.id, Claim: p.claim, Owned: p.claim.owned, Stream: p.stream, Start: p.committed, Text: p.text,
		Opened: func(marked func() (int64, string)) { p.change(func() { p.marked = marked }) },
		Stored: func(offset int64, text string) { p.change(func() { p.committed, p.text = offset, text }) },
		Late:   func(offset int64) { p.change(func() { p.late = append(p.late, offset) }) },
	}
}

func (p *Partition) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
}

// close ends the claim.
func (p *Partition) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claim.end(ownership.ErrRevoked)
	p.claim, p.stream, p.marked = nil, nil, nil
}

// Revoke revokes the partition, as when the plan gives it to another member: the handler's context ends with
// ownership.ErrRevoked, it is to finish, and its marks are committed. Revoke does not wait for that. While no handler runs, the
// next one is revoked as it begins.
func (p *Partition) Revoke() { p.order((*claim).revoke) }

// Lose ends the claim as when trust in the ZooKeeper session ends: the contexts of the handler and of the claim end with
// ownership.ErrLost, Trusted is false, and nothing is committed any more. While no handler runs, the next one loses it as it
// begins.
func (p *Partition) Lose() { p.order((*claim).lose) }

// order does something with the claim, or with the next one if there is none.
func (p *Partition) order(do func(*claim)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.claim == nil {
		p.due = do
		return
	}
	do(p.claim)
}

// Marked returns the offset that is marked: that of the first message which is not done. Before the first mark it is where the
// partition has started.
func (p *Partition) Marked() int64 {
	p.mu.Lock()
	marked, committed := p.marked, p.committed
	p.mu.Unlock()
	if marked == nil {
		return committed
	}
	offset, _ := marked()
	return offset
}

// Committed returns the offset that is committed, and the metadata with it. While a handler runs, marks are committed once a
// second, and by Commit.
func (p *Partition) Committed() (offset int64, metadata string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.committed, p.text
}

// Late returns the offsets of marks that had no effect, because the partition was closed: a group counts them in
// kiel_consumer_ignored_total, and the messages are handled again.
func (p *Partition) Late() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.late)
}
