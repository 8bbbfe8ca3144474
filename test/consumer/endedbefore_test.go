package consumer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
)

// A context that has ended before the call: Consume returns the context's error itself, as sarama's does, and not that of its
// cause. What is wrong with the call comes first, and nothing of the handler is called. Run returns nil.
func TestContextEndedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		a := r.member("a", nil)
		canceled, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the cause"))
		late, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		time.Sleep(time.Second)
		consume := func(ctx context.Context, topics ...string) error { return a.group.Consume(ctx, topics, a.h) }

		began := time.Now()
		for _, ctx := range []context.Context{canceled, late} {
			if err := consume(ctx, topic); err != ctx.Err() { //nolint:errorlint // the very error: programs compare it
				t.Errorf("Consume: %v, want %v", err, ctx.Err())
			}
		}
		if err := a.group.Run(canceled, []string{topic}, a.h.handle); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		if err := consume(canceled); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("without topics: %v", err)
		}
		if err := consume(canceled, "no topic"); !errors.Is(err, sarama.ErrInvalidTopic) {
			t.Errorf("with an invalid topic: %v", err)
		}
		a.start()
		until(t, "a owns t:0", func() bool { return len(a.owns()) == 1 })
		if err := consume(canceled, topic); !errors.Is(err, consumer.ErrBusy) {
			t.Errorf("while another call runs: %v", err)
		}
		a.leave() // the context ends later: nil
		calls := len(a.h.called())
		if err := consume(canceled, topic); err != canceled.Err() { //nolint:errorlint // the very error
			t.Errorf("after the member has left: %v", err)
		}
		if err := a.group.Close(); err != nil {
			t.Error(err)
		}
		if err := consume(canceled, topic); err != sarama.ErrClosedConsumerGroup { //nolint:errorlint // the very error
			t.Errorf("after Close: %v", err)
		}
		if n := len(a.h.called()); n != calls {
			t.Errorf("the handler was called: %v", a.h.called()[calls:])
		}
		if errs := a.errors(); len(errs) > 0 {
			t.Errorf("reported %v", errs)
		}
	})
}

// A member that waits for the next call leaves when that comes with a context that has ended, before the call returns.
func TestContextEndedBetweenCalls(t *testing.T) {
	for name, topics := range map[string][]string{"the same topics": {topic}, "other topics": {"another"}} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				a, b := r.member("a", nil), r.member("b", nil)
				r.produce(1, 0)
				a.h.each = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim, *sarama.ConsumerMessage) error {
					return errors.New("enough")
				}
				a.start()
				if err := <-a.done; err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				calls := len(a.h.called())
				if err := a.group.Consume(ctx, topics, a.h); err != ctx.Err() { //nolint:errorlint // the very error
					t.Errorf("Consume: %v", err)
				}
				if _, _, ok := r.zk.Get("/kiel/groups/g/members/a"); ok {
					t.Error("a is still a member")
				}
				if got := a.h.called()[calls:]; len(got) > 0 {
					t.Errorf("the handler was called: %v", got)
				}
				b.start()
				until(t, "b owns t:0", func() bool { return len(b.owns()) == 1 })
				b.leave()
				a.h.each = nil
				a.start() // it joins again, at once
				if took := until(t, "a owns t:0 again", func() bool { return len(a.owns()) == 1 }); took > time.Second {
					t.Errorf("it took %v", took)
				}
				a.leave()
			})
		})
	}
}

// A loop that ends when Consume returns an error ends with its context, however often it has called Consume before.
func TestLoopEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		a := r.member("a", nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan int)
		go func() {
			calls := 0
			for calls < 100 {
				calls++
				if err := a.group.Consume(ctx, []string{topic}, a.h); err != nil {
					break
				}
			}
			done <- calls
		}()
		until(t, "a owns t:0", func() bool { return len(a.owns()) == 1 })
		cancel()
		if calls := <-done; calls != 2 {
			t.Errorf("%d calls", calls)
		}
	})
}
