package consumer

import (
	"context"
	"errors"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/internal/pause"
)

// Run is [Group.Consume] for programs that need nothing of sarama's interfaces. It calls handle for each partition that this
// member comes to own, on a goroutine of its own. [Partition.Messages] checks the claim in the same call that hands out a
// message. So a process that was stopped, and goes on after it has lost the partition, gets at most the one message whose check
// began before the stop.
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
// handle's ctx ends when the partition is revoked, lost, or can't be read any more, and the loop over Messages ends with it.
// context.Cause(ctx) says why:
//
//   - ownership.ErrRevoked: handle has RebalanceTimeout to finish its current messages and return; its marks are committed.
//   - ownership.ErrLost: the partition may be another member's already, and nothing is committed any more.
//   - Any other cause: marks are committed and the partition is opened again, by the next call if this one ends.
//
// When handle returns before its ctx ends, the call ends and returns the error, as a *sarama.ConsumerError that wraps
// [ErrHandler] and the error of handle. nil counts as an error, because nobody would read the partition any more; a panic and
// runtime.Goexit are errors, too. All partitions are closed and marks are committed. The member stays in the group for a while
// and keeps its claims, for the next call; Close makes it leave at once. Calls that end so begin once a second at most: a call
// that is younger ends when it is a second old. With Options.ReopenPartition that partition alone is closed, and opened again.
//
// An error that handle returns after its ctx has ended goes to Errors, unless it is or wraps the context's error or cause, and no
// other error.
//
// Everything else is as with Consume, which uses the same partitions: Run blocks until ctx ends or Close is called, and returns
// nil then, also if ctx has ended before.
func (g *Group) Run(ctx context.Context, topics []string, handle func(ctx context.Context, p *Partition) error) error {
	if handle == nil {
		return failure("", "", errors.New("handler is nil"))
	}
	return g.runSession(ctx, nil, topics, sessions.Kind{Run: true}, func(*membership, *consumeSession) sessionUser { return runUser{handle} })
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

// consume calls the function. An error that says only that the function's context has ended is no error.
func (u runUser) consume(_ context.Context, p *Partition) error {
	defer p.relieve()
	err := u.handle(p.ctx, p)
	if pause.OnlyEnd(p.ctx, err) {
		return nil
	}
	return err
}
