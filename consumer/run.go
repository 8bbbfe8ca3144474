package consumer

import (
	"context"
	"errors"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
)

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
// When handle returns before that, the call ends and returns the error, as a
// *sarama.ConsumerError that wraps [ErrHandler] and what handle returned; nil counts as
// an error, since nobody would read the partition any more. All partitions are closed and
// what was marked is committed. The member stays in the group for a while and keeps its
// claims, for the next call; Close makes it leave at once. Calls that end so begin once a
// second at most, and one that is younger ends when it is a second old. With Options.ReopenPartition that partition alone is closed, and opened
// again. A panic and runtime.Goexit are errors, too. What handle returns after its context
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

// failure returns what Run returns when the function returned err by itself.
func (runUser) failure(p kiel.Partition, err error) error {
	return &sarama.ConsumerError{Topic: p.Topic, Partition: p.ID, Err: errHandler(err)}
}

// consume calls the function. That it ends with its context is no error.
func (u runUser) consume(_ context.Context, p *Partition) error {
	err := u.handle(p.ctx, p)
	if isEndOf(p.ctx, err) {
		return nil
	}
	return err
}
