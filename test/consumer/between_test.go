package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
)

// The tests in this file are about rules that hold only between two events. No Observer and no interceptor is called for a
// message here, because each such call checks the partition, too.

// After a revocation no message of the batch is handed out any more, so that the next owner waits for one message and not for all
// that were fetched.
func TestRevocationEndsTheBatch(t *testing.T) {
	for name, consume := range map[string]func(context.Context, *consumer.Partition, func()){
		"messages": func(_ context.Context, p *consumer.Partition, work func()) {
			for m := range p.Messages() {
				work()
				p.Mark(m)
			}
		},
		"batches": func(ctx context.Context, p *consumer.Partition, work func()) {
			for b := range p.Batches() {
				for i := range b {
					if ctx.Err() != nil {
						return
					}
					work()
					p.Mark(&b[i])
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				r.produce(100, 0, 1)
				late := make(chan int32, 200)
				handle := func(began chan<- int32) func(context.Context, *consumer.Partition) error {
					return func(ctx context.Context, p *consumer.Partition) error {
						began <- p.ID()
						consume(ctx, p, func() {
							if ctx.Err() != nil {
								late <- p.ID()
							}
							time.Sleep(500 * time.Millisecond)
						})
						return ctx.Err()
					}
				}
				as, bs := make(chan int32, 10), make(chan int32, 10)
				quiet := func(o *consumer.Options) { o.Observer = nil }
				a, b := r.member("a", quiet), r.member("b", quiet)
				a.runWith(handle(as))
				<-as
				<-as
				time.Sleep(5 * time.Second)
				began := time.Now()
				b.runWith(handle(bs))
				<-bs
				if took := time.Since(began); took > 5*time.Second || len(late) > 0 {
					t.Errorf("handed over after %v, %d messages were handed out after the revocation", took, len(late))
				}
				quit(a, b)
			})
		})
	}
}

// A reset of Setup is applied once. When the partition is opened again in the same session, it starts where the program's
// transactions have stored it by then; else their results would be stored twice.
func TestSeekIsAppliedOnce(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(10, 0)
		r.commitAs("", 0, 5)
		starts := make(chan int64, 10)
		a := r.member("a", func(o *consumer.Options) {
			o.Observer, o.ReopenPartition = nil, true
			o.Config.Consumer.Offsets.AutoCommit.Enable = false
			o.Fence = func(context.Context, string, int32) error { return nil }
		})
		again := make(chan struct{}, 1)
		a.startWith(funcs{
			setup: func(s sarama.ConsumerGroupSession) error {
				s.ResetOffset(topic, 0, 2, "")
				return nil
			},
			claim: func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
				starts <- c.InitialOffset()
				select {
				case <-again:
				case <-s.Context().Done():
				}
				return nil
			},
		}, topic)
		if at := <-starts; at != 2 {
			t.Errorf("opened at %d, and Setup has reset it to 2", at)
		}
		r.commitAs("", 0, 8) // a transaction of the program's
		again <- struct{}{}
		if at := <-starts; at != 8 {
			t.Errorf("opened again at %d, and a transaction has stored 8", at)
		}
		a.leave()
	})
}
