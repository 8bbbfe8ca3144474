package consumer

import (
	"context"
	"errors"
)

// HandlerErrorAction says what becomes of a partition whose handler returned while
// the partition was owned.
type HandlerErrorAction int

const (
	// RetryPartition commits what was marked, releases the partition and reports
	// the error. After a pause, which grows from failure to failure, the partition is
	// claimed and opened again. Other partitions go on.
	RetryPartition HandlerErrorAction = iota
	// EndRun ends the Run or Consume call, which returns the error. All partitions are
	// closed and what was marked is committed. As after an error of Setup the member
	// stays in the group for a while and keeps its claims, for the next call; Close
	// makes it leave at once.
	EndRun
)

// String returns "retry partition" or "end run".
func (a HandlerErrorAction) String() string {
	if a == EndRun {
		return "end run"
	}
	return "retry partition"
}

// Run is [Group.Consume] for programs that need nothing of sarama's interfaces. It
// calls handle for each partition that this member comes to own, on a goroutine of
// its own. No other goroutine stands between Kafka and handle: [Partition.Messages]
// checks the claim in the same call that hands out a message, so a process that was
// stopped, and goes on after it has lost the partition, gets no message more than
// the one that it was about to get.
//
//	err := group.Run(ctx, []string{"orders"}, func(ctx context.Context, p *consumer.Partition) error {
//		for m := range p.Messages() {
//			if err := work(ctx, m); err != nil {
//				return err
//			}
//			p.Mark(m)
//		}
//		return nil
//	})
//
// handle's ctx ends when the partition is revoked, lost, or can't be read any more,
// and the loop with it. context.Cause(ctx) is then ownership.ErrRevoked: handle has
// RebalanceTimeout to finish what it has in hand and return; what it marks is
// committed. Or it is ownership.ErrLost: the partition may be another member's
// already, and nothing is committed any more. With any other cause what was marked is
// committed and the partition is opened again, by the next call if this one ends.
//
// Options.AfterHandlerError says what happens when handle returns before that. nil
// counts as an error, ErrHandler, since nobody would read the partition any more. A
// panic and runtime.Goexit are errors, too. What handle returns after its context
// has ended goes to Errors, unless it is the context's error or cause.
//
// Everything else is as with Consume, which uses the same partitions: Run blocks
// until ctx ends or Close is called, and returns nil then.
func (g *Group) Run(ctx context.Context, topics []string, handle func(ctx context.Context, p *Partition) error) error {
	if handle == nil {
		return errors.New("consumer: the handler is nil")
	}
	return g.runSession(ctx, topics, func(*membership, *consumeSession) sessionUser { return runUser{handle} })
}

// runUser is a function that was given to Run.
type runUser struct {
	handle func(context.Context, *Partition) error
}

func (runUser) setup() error   { return nil }
func (runUser) cleanup() error { return nil }

// consume calls the function. That it ends with its context is no error.
func (u runUser) consume(_ context.Context, p *Partition) error {
	err := u.handle(p.ctx, p)
	if p.ctx.Err() != nil && (errors.Is(err, p.ctx.Err()) || errors.Is(err, context.Cause(p.ctx))) {
		return nil
	}
	return err
}
