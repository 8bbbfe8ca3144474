package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/ownership"
)

// claimOn returns a claim of a channel size and its partition, stream and owned claim. feed runs until the test ends.
func claimOn(t *testing.T, size int) (c *claimChannel, s *fakeStream, h *fakeHolder, revoke context.CancelCauseFunc) {
	t.Helper()
	p, s, h := newPartition(t)
	owned, revoke := context.WithCancelCause(p.ctx)
	p.ctx, p.end = context.WithCancelCause(owned)
	return feedingFor(owned, t, p, size), s, h, revoke
}

// feeding returns a claim on p. feed runs until the test ends.
func feeding(t *testing.T, p *Partition, size int) *claimChannel {
	t.Helper()
	return feedingFor(p.ctx, t, p, size)
}

func feedingFor(owned context.Context, t *testing.T, p *Partition, size int) *claimChannel {
	t.Helper()
	c := newClaimChannel(p, size)
	returned, fed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(fed)
		c.feed(owned, returned, func() {})
	}()
	t.Cleanup(func() {
		p.end(errHandlerReturned)
		close(returned)
		<-fed
	})
	return c
}

func take(t *testing.T, c *claimChannel, want int64) {
	t.Helper()
	if m, open := <-c.Messages(); !open || m.Offset != want {
		t.Fatalf("got %v, want %d", m, want)
	}
}

func nothingIsLeft(t *testing.T, c *claimChannel) {
	t.Helper()
	synctest.Wait()
	if m, open := <-c.Messages(); open {
		t.Errorf("%d was left in the channel", m.Offset)
	}
}

// The channel holds as much as the configuration says. It is empty once the partition is revoked or lost.
func TestChannelIsEmptiedAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(*fakeHolder, context.CancelCauseFunc){
		"revoked": func(_ *fakeHolder, revoke context.CancelCauseFunc) { revoke(ownership.ErrRevoked) },
		"lost":    func(_ *fakeHolder, revoke context.CancelCauseFunc) { revoke(ownership.ErrLost) },
	} {
		for _, size := range []int{0, 1, 3, 256} {
			bubble.Run(t, name, func(t *testing.T) {
				c, s, h, revoke := claimOn(t, size)
				s.send(0, 1, 2, 3, 4, 5)
				take(t, c, 0)
				synctest.Wait()
				if n := min(size, 5); len(c.Messages()) != n {
					t.Errorf("%d messages stand in the channel, want %d", len(c.Messages()), n)
				}
				end(h, revoke)
				nothingIsLeft(t, c)
			})
		}
	}
}

// Trust is checked for each message that enters the channel. When trust has ended, the channel is emptied.
func TestChannelTakesNothingUntrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, h, _ := claimOn(t, 2)
		s.send(0, 1, 2, 3, 4)
		synctest.Wait()
		assert.Equal(t, h.asked.Load(), 3, "questions for three messages")
		h.distrust.Store(true)
		take(t, c, 0) // makes room for the message that the claim was asked for
		nothingIsLeft(t, c)
		assert.Error(t, context.Cause(c.p.ctx), ownership.ErrLost, "ended with")
	})
}

// Messages in the channel stay the handler's when reading ends by itself, unless the partition is revoked.
func TestChannelKeepsWhatWasReadBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, _, revoke := claimOn(t, 3)
		s.send(0, 1, 2)
		synctest.Wait()
		s.ended <- errors.New("no leader")
		synctest.Wait()
		take(t, c, 0)
		revoke(ownership.ErrRevoked)
		nothingIsLeft(t, c)
	})
}

// A handler that takes its messages from the channel commits nothing of them once the claim has ended.
func TestWhatStoodInTheChannelIsNotCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		r := newRig(t, func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			time.Sleep(time.Second)
			h.distrust.Store(true) // the process was stopped, and does not know yet
			for range 3 {
				s.MarkMessage(<-c.Messages(), "")
			}
			s.Commit()
			h.end(ownership.ErrLost)
			for range c.Messages() {
			}
			return nil
		}, nil)
		r.fetch.ready = 10
		assert.Error(t, <-r.owned(h), nil, "own")
		assert.Equal(t, r.store.Get(p).Offset, 0, "stored")
	})
}

// Messages that were dropped from the channel are read again, even if the handler has received one behind them and marks that.
func TestMarksBehindTheEmptiedChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, _, revoke := claimOn(t, 256)
		s.send(0, 1, 2, 3, 4, 5)
		take(t, c, 0)
		synctest.Wait()
		revoke(ownership.ErrRevoked)
		nothingIsLeft(t, c)
		if c.p.tracker.Mark(6, "") {
			t.Error("a mark of 5 counts, though 1 to 4 were dropped")
		}
		if !c.p.tracker.Mark(1, "") {
			t.Error("the mark of 0 does not count")
		}
	})
}
