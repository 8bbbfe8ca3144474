package consumer

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
)

// Poll returns the next messages that are there, most of them at most, as few as one, in the order of their offsets. If none is
// there, it waits for the first. The messages are of one batch, which has those of one answer of a broker; a later Poll, or a
// loop over Messages or Batches, goes on behind them. As with Batches, the claim is checked once, right before the messages are
// returned, and the caller must not write to the slice's elements. A most below 1 counts as 1.
//
// Poll returns no messages, and an error, in these cases:
//   - ctx has ended: its cause. The partition stays open, and no message is lost; the next Poll returns it.
//   - The handler's context has ended, or the claim is not trusted any more: the cause of the handler's context, which wraps
//     ownership.ErrRevoked or ownership.ErrLost when the partition is revoked or lost. The handler is to return.
//
// Poll marks none of the messages: [Partition.Mark] of the last one marks all.
func (p *Partition) Poll(ctx context.Context, most int) ([]sarama.ConsumerMessage, error) {
	p.handled()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var b []sarama.ConsumerMessage
	if p.hasMessage() || ctx.Done() == nil || ctx == p.ctx {
		b = p.nextBatch(p.ctx, max(most, 1))
	} else {
		b = p.awaitBatch(ctx, max(most, 1))
	}
	switch {
	case b != nil:
		return b, nil
	case p.ctx.Err() != nil:
		p.count()
		return nil, context.Cause(p.ctx)
	default:
		return nil, context.Cause(ctx)
	}
}

// hasMessage reports whether a message waits that may be handed out without a wait.
func (p *Partition) hasMessage() bool {
	c := p.cursor.Load()
	if c == nil {
		return false
	}
	done := c.done.Load()
	return done < int64(len(c.messages)) && p.tracker.Room(c.messages[done].Offset) == nil
}

// awaitBatch is nextBatch, and waits until ctx or p's context ends.
func (p *Partition) awaitBatch(ctx context.Context, most int) []sarama.ConsumerMessage {
	both, end := context.WithCancel(p.ctx)
	defer end()
	defer context.AfterFunc(ctx, end)()
	return p.nextBatch(both, most)
}

// Seek goes on reading at offset, back or forward: the next message that is handed out is the first one there or behind. A loop
// over Messages or Batches goes on there, too. Messages that were fetched and not handed out are dropped.
//
// Seek also sets the marked position to offset: all messages before it count as done, and none from there on. So messages that
// are skipped are not handed out again after a crash, and those that are read again are. If the program marks messages, the
// position is committed as a mark is. If it has marked none since the partition was opened, because it commits in transactions,
// say, the position is committed with its next mark, and not before.
//
// Let all work on messages of before the Seek end first: their marks are late. Mark and Done have no effect for a message that
// was not handed out again since the Seek. When it has been, its marks of before can't be told from those of now.
//
// Seek returns an error that is sarama.ErrOffsetOutOfRange, and changes nothing, if offset is negative or beyond the end of the
// partition. It waits for Kafka for half a second at most if offset is beyond the end that is known, and for two seconds at most
// while the position behind control records is being committed. An offset before the first message that Kafka has is like a
// committed one: that is reported ([ErrOffsetReset]), and the partition is opened again, at its first message. If the program has
// not marked a message before, nothing is committed, and the partition is opened again at its committed offset. When the
// handler's context has ended, or the claim is not trusted any more, Seek returns the cause; so it does when ctx has ended.
func (p *Partition) Seek(ctx context.Context, offset int64) error {
	if !p.mayHandOut() {
		return context.Cause(p.ctx)
	}
	if offset > p.knownEnd() && ctx.Err() == nil {
		p.stream.AskEnd(ctx, endWait)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if end := p.knownEnd(); offset < 0 || offset > end {
		return failure("seek in", p.id.String(), fmt.Errorf("offset %d, and the end is %d: %w", offset, end, sarama.ErrOffsetOutOfRange))
	}
	if p.tracker.AwaitPassed(ctx); ctx.Err() != nil { // else that commit could pass over what is read again
		return context.Cause(ctx)
	}
	p.count()
	p.stream.Reposition(offset)
	p.reading.again = p.tracker.Restart(offset, p.position())
	p.arrived(&cursor{next: offset})
	return nil
}

// knownEnd returns the highest offset at which a message may be, as far as it is known.
func (p *Partition) knownEnd() int64 { return max(p.stream.HighWatermark(), p.stream.End()) }

// reread tells the tracker that the messages before offset were handed out since Seek has gone back.
func (p *Partition) reread(offset int64) { p.reading.again = p.tracker.HandedAgain(offset) }
