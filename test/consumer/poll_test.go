package consumer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
)

// polled calls Poll, which must return a message that begins at want.
func polled(ctx context.Context, t *testing.T, p *consumer.Partition, most int, want int64) []sarama.ConsumerMessage {
	t.Helper()
	ms, err := p.Poll(ctx, most)
	if err != nil || len(ms) > most || ms[0].Offset != want {
		t.Errorf("%d messages from %v on, %v, want %d", len(ms), ms, err, want)
	}
	return ms
}

// Seek goes back and forward. What is committed follows it, and so does what the next owner reads.
func TestSeek(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(50, 0)
		r.produce(50, 0)
		a := r.member("a", nil)
		sought := make(chan struct{})
		a.runWith(func(ctx context.Context, p *consumer.Partition) error {
			ms := polled(ctx, t, p, 10, 0)
			p.Mark(&ms[len(ms)-1])
			for _, to := range []int64{5, 60, 0, 99, 40} {
				if err := p.Seek(ctx, to); err != nil {
					t.Errorf("Seek(%d): %v", to, err)
				}
				polled(ctx, t, p, 7, to)
			}
			for m := range p.Messages() { // goes on behind what was polled
				if m.Offset != 47 {
					t.Errorf("the loop goes on at %d", m.Offset)
				}
				if err := p.Seek(ctx, 20); err != nil {
					t.Error(err)
				}
				break
			}
			for _, to := range []int64{-1, 101} {
				if err := p.Seek(ctx, to); !errors.Is(err, sarama.ErrOffsetOutOfRange) {
					t.Errorf("Seek(%d): %v", to, err)
				}
			}
			polled(ctx, t, p, 1, 20)
			time.Sleep(5 * time.Second)
			if got := r.committed(topic, 0); got != 20 {
				t.Errorf("committed %d, want 20", got)
			}
			if err := p.Seek(ctx, 100); err != nil {
				t.Error(err)
			}
			time.AfterFunc(time.Minute, func() { r.produce(1, 0) })
			ms = polled(ctx, t, p, 9, 100)
			p.Mark(&ms[0])
			if err := p.Seek(ctx, 30); err != nil {
				t.Error(err)
			}
			p.Mark(&ms[0]) // of before: it would pass over 30 to 100
			close(sought)
			<-ctx.Done()
			return nil
		})
		<-sought
		a.leave()
		if got := r.committed(topic, 0); got != 30 {
			t.Errorf("committed %d, want 30", got)
		}
		b := r.member("b", nil).run()
		until(t, "b has read on from there", func() bool { return total(b) == 71 })
		if got := b.h.offsets(topic, 0); got[0] != 30 {
			t.Errorf("b has begun at %d", got[0])
		}
		quit(b)
		a.close()
	})
}

// Random seeks, with little memory: the next message is always that at the offset.
func TestRandomSeeks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	inRig(t, 1, func(t *testing.T, r *rig) {
		const n = 500
		for range n / 10 {
			r.produce(10, 0)
		}
		a := r.member("a", func(o *consumer.Options) { o.BufferBytes = 1 << 10 })
		done := make(chan struct{})
		a.runWith(func(ctx context.Context, p *consumer.Partition) error {
			next := int64(0)
			for range 300 {
				if random.IntN(3) > 0 {
					next = random.Int64N(n)
					if err := p.Seek(ctx, next); err != nil {
						t.Error(err)
						break
					}
				}
				if next == n {
					continue
				}
				ms := polled(ctx, t, p, 1+random.IntN(20), next)
				for i := range ms {
					if ms[i].Offset != next {
						t.Errorf("%d comes after %d", ms[i].Offset, next-1)
					}
					next = ms[i].Offset + 1
				}
				if random.IntN(2) == 0 {
					p.Mark(&ms[len(ms)-1])
				} else {
					p.Done(&ms[0])
				}
			}
			close(done)
			<-ctx.Done()
			return nil
		})
		<-done
		quit(a)
	})
}

// A Seek before the first message that Kafka has is reported as a reset, and goes on at that message.
func TestSeekBeforeTheLog(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(100, 0)
		a := r.member("a", nil)
		begun := make(chan int64, 2)
		a.runWith(func(ctx context.Context, p *consumer.Partition) error {
			ms, err := p.Poll(ctx, 10)
			if err != nil {
				t.Error(err)
				return nil
			}
			begun <- ms[0].Offset
			if ms[0].Offset == 0 {
				p.Mark(&ms[9])
				if err := r.kafka.DeleteRecords(topic, 0, 50); err != nil {
					t.Error(err)
				}
				if err := p.Seek(ctx, 20); err != nil {
					t.Error(err)
				}
				if ms, err := p.Poll(ctx, 10); !errors.Is(err, sarama.ErrOffsetOutOfRange) {
					t.Errorf("%v, %v", ms, err)
				}
			}
			<-ctx.Done()
			return nil
		})
		if first, second := <-begun, <-begun; first != 0 || second != 50 {
			t.Errorf("begun at %d and %d", first, second)
		}
		if !slices.ContainsFunc(a.errors(), func(err error) bool { return errors.Is(err, consumer.ErrOffsetReset) }) {
			t.Errorf("errors: %v", a.errors())
		}
		quit(a)
	})
}
