package consumer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/ownership"
)

// offsetsOf returns the offsets of messages.
func offsetsOf(ms []sarama.ConsumerMessage) (out []int64) {
	for _, m := range ms {
		out = append(out, m.Offset)
	}
	return out
}

// poll calls Poll, which must return these messages.
func poll(t *testing.T, p *Partition, most int, want ...int64) {
	t.Helper()
	if ms, err := p.Poll(t.Context(), most); err != nil || !slices.Equal(offsetsOf(ms), want) {
		t.Errorf("Poll returned %v, %v, want %v", offsetsOf(ms), err, want)
	}
}

// Poll returns what is there, not more than asked for, and waits for the first message; loops go on behind it.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPartition(t)
		s.send(3, 4, 5, 6, 9)
		s.send(10)
		poll(t, p, 2, 3, 4)
		poll(t, p, 1, 5)
		poll(t, p, 100, 6, 9)
		poll(t, p, 0, 10)
		time.AfterFunc(time.Hour, func() { s.send(11, 12, 13, 14) })
		poll(t, p, 1, 11)
		for m := range p.Messages() {
			assert.Equal(t, m.Offset, 12, "the loop goes on at")
			break
		}
		poll(t, p, 9, 13, 14)
		s.send(15, 16)
		for b := range p.Batches() {
			assert.Equal(t, len(b), 2, "a batch of %v has", offsetsOf(b))
			break
		}
	})
}

// A Poll whose context ends returns its cause, and costs no message.
func TestPollWhoseContextEnds(t *testing.T) {
	errMine := errors.New("mine")
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPartition(t)
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { end(errMine) })
		if ms, err := p.Poll(ctx, 9); ms != nil || !errors.Is(err, errMine) {
			t.Errorf("%v, %v", ms, err)
		}
		s.send(3, 4)
		if ms, err := p.Poll(ctx, 9); ms != nil || !errors.Is(err, errMine) {
			t.Errorf("%v, %v", ms, err)
		}
		poll(t, p, 1, 3)
		if ms, err := p.Poll(ctx, 9); ms != nil || !errors.Is(err, errMine) {
			t.Errorf("with a message that waits: %v, %v", ms, err)
		}
		poll(t, p, 9, 4)
		assert.Error(t, p.ctx.Err(), nil, "the partition's context")
	})
}

// When the partition has ended, Poll returns why, and no message, though some wait: also if that comes while it waits.
func TestPollAfterTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(p *Partition, s *fakeStream, h *fakeHolder)
		want error
	}{
		"revoked":     {func(p *Partition, _ *fakeStream, _ *fakeHolder) { p.end(errRevokedInTest) }, errRevokedInTest},
		"not trusted": {func(_ *Partition, _ *fakeStream, h *fakeHolder) { h.distrust.Store(true) }, ownership.ErrLost},
		"unreadable":  {func(_ *Partition, s *fakeStream, _ *fakeHolder) { s.ended <- sarama.ErrOffsetOutOfRange }, sarama.ErrOffsetOutOfRange},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			p, s, h := newPartition(t)
			if name != "unreadable" {
				s.send(3, 4)
				poll(t, p, 1, 3)
			}
			c.end(p, s, h)
			for range 2 {
				if ms, err := p.Poll(t.Context(), 9); ms != nil || !errors.Is(err, c.want) {
					t.Errorf("%v, %v", offsetsOf(ms), err)
				}
			}
			assert.Error(t, p.Seek(t.Context(), 3), c.want, "Seek")
		})
	}
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newPartition(t)
		time.AfterFunc(time.Minute, func() { p.end(errRevokedInTest) })
		if ms, err := p.Poll(t.Context(), 9); ms != nil || !errors.Is(err, errRevokedInTest) {
			t.Errorf("while it waits: %v, %v", ms, err)
		}
	})
}

// A full window holds back Poll as well, until its context ends or there is room.
func TestPollOfAFullWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMarkRig(t, func(o *Options) { o.MaxUnmarked = 2 })
		r.store.Set(map[kiel.Partition]offsets.Stored{tp("t", 0): {Offset: 3}})
		p, s, _ := newPartition(t)
		p.tracker = r.committer.Open(p.id, p.claim, sarama.Uuid{}, 3, "")
		s.send(3, 4, 5, 6)
		ms, _ := p.Poll(t.Context(), 1)
		p.Done(&ms[0])
		poll(t, p, 9, 4, 5)
		ctx, end := context.WithTimeout(t.Context(), 10*time.Second)
		defer end()
		if ms, err := p.Poll(ctx, 9); ms != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", offsetsOf(ms), err)
		}
		time.AfterFunc(10*time.Second, func() { p.Done(&sarama.ConsumerMessage{Topic: "t", Offset: 4}) })
		poll(t, p, 9, 6)
	})
}
