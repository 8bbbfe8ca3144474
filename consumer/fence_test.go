package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/topics"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
)

// drain is a handler that marks nothing.
func drain(_ sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for range c.Messages() {
	}
	return nil
}

// storeForeign stores an offset of p as another program does.
func (r *rig) storeForeign(p kiel.Partition, offset int64) {
	r.store.Set(map[kiel.Partition]offsets.Stored{p: {Offset: offset}})
}

// fencing is a change of Options: Fence calls f.
func fencing(from StartAt, f func() error) func(*Options) {
	return func(o *Options) { o.StartAt, o.Fence = from, func(context.Context, string, int32) error { return f() } }
}

func harmless() error { return nil }

// The position is read when Fence has returned, so commits of a former owner until then count. With Fence a stored offset is
// never committed again: not at the opening, not later, not at the release.
func TestFenceComesBeforeThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		var r *rig
		r = newRig(t, drain, func(o *Options) {
			o.Fence = func(ctx context.Context, topic string, id int32) error {
				if topic != "t" || id != 0 || ctx.Err() != nil {
					t.Errorf("called for %s:%d, %v", topic, id, ctx.Err())
				}
				r.storeForeign(p, 7)
				return nil
			}
		})
		r.storeForeign(p, 5)
		_, done := r.opened(h, 7, 8)
		time.Sleep(24 * time.Hour)
		h.release(t, done)
		assert.Slices(t, r.log.all(), []string{line("open", p, 7)}, "log")
		r.reportsNothing(t)
	})
}

// With Fence the start position of Latest is committed, because the end moves, and nothing else: no offset is raised, restored or
// replaced later. So it is when Kafka does not have the stored offset. Commits of marks do not commit the position again, because
// a transaction may have stored another offset meanwhile.
func TestPolicysChoiceWithFence(t *testing.T) {
	p := tp("t", 0)
	for name, c := range map[string]struct {
		from          StartAt
		before, later int64 // the offsets that others store, or -1: when it is opened, and while it is open
		last, at      int64
		want          []string
	}{
		"earliest":               {Earliest, -1, -1, 90, 30, []string{line("open", p, 30)}},
		"latest":                 {Latest, -1, -1, 90, 90, []string{line("commit", p, 90), line("open", p, 90)}},
		"out of range, earliest": {Earliest, 5, 32, 1 << 40, 30, []string{line("open", p, 30)}},
		"out of range, latest":   {Latest, 5, 32, 1 << 40, 30, []string{line("commit", p, 30), line("open", p, 30)}},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			h := newHolder(t, p)
			r := newRig(t, drain, fencing(c.from, harmless)) // AutoCommit.Enable is true
			r.fetch.first, r.fetch.last = 30, c.last
			r.storeForeign(p, c.before)
			_, done := r.opened(h, c.at, c.at+1)
			time.Sleep(time.Second / 2) // no repeat was due yet
			r.storeForeign(p, c.later)  // by a transaction, if any
			time.Sleep(24 * time.Hour)
			r.session.Commit()
			h.release(t, done)
			assert.Slices(t, r.log.all(), c.want, "log")
			assert.Equal(t, r.store.Get(p).Offset, c.later, "stored")
		})
	}
}

// With Fence marks are committed as without it.
func TestMarksWithFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t, tp("t", 0))
		r := newMarkRig(t, fencing(Earliest, harmless))
		r.storeForeign(h.p, 5)
		_, done := r.opened(h, 5)
		synctest.Wait()
		h.release(t, done)
		assert.Equal(t, r.store.Get(h.p).Offset, 6, "stored")
	})
}

// A Fence that fails keeps the partition closed, is reported and called again.
func TestFenceFails(t *testing.T) {
	boom := errors.New("boom")
	fails := func(err error) func() error { return func() error { return err } }
	for name, c := range map[string]struct {
		fail func() error
		want error
	}{
		"error": {fails(boom), boom},
		"panic": {func() error { panic("boom") }, ownership.ErrCallback},
		"what counts as a refusal of Kafka's elsewhere": {fails(sarama.ErrTopicAuthorizationFailed), sarama.ErrTopicAuthorizationFailed},
		// Here it may be the topic of results.
		"what is reported once elsewhere":    {fails(sarama.ErrUnknownTopicOrPartition), sarama.ErrUnknownTopicOrPartition},
		"what is reported nowhere else":      {fails(ErrTopicMissing), ErrTopicMissing},
		"what ends a handler's time":         {fails(ErrHandler), ErrHandler},
		"what says that a claim is not ours": {fails(ownership.ErrLost), ownership.ErrLost},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			h := newHolder(t, tp("t", 0))
			calls := 0
			r := newRig(t, drain, fencing(Earliest, func() error {
				if calls++; calls <= 3 {
					return c.fail()
				}
				return nil
			}))
			_, done := r.opened(h)
			h.release(t, done)
			errs := r.errors()
			if len(errs) != 3 || calls != 4 {
				t.Fatalf("%d calls, reported %v", calls, errs)
			}
			if ce, ok := errors.AsType[*sarama.ConsumerError](errs[0]); !ok || ce.Topic != "t" || !errors.Is(errs[0], c.want) {
				t.Errorf("reported %v", errs[0])
			}
		})
	}
}

// A member that has lost its partition while Fence ran, frozen maybe, reads nothing and reports nothing.
func TestTrustEndsWhileFencing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t, tp("t", 0))
		r := newRig(t, drain, fencing(Earliest, func() error {
			h.distrust.Store(true) // and its context does not know yet
			return nil
		}))
		done := r.owned(h)
		synctest.Wait()
		h.lose()
		<-done
		if n := len(r.store.Fetches()); n > 0 || len(r.log.all()) > 0 {
			t.Errorf("%d reads of the position, %v", n, r.log.all())
		}
		r.reportsNothing(t)
	})
}

// A member whose claim has ended before Fence's turn does not call Fence: that would fence off the next owner.
func TestNoFenceAfterTheClaim(t *testing.T) {
	for name, end := range map[string]func(*fakeHolder){
		"lost": (*fakeHolder).lose, "revoked": (*fakeHolder).revoke,
		"not trusted any more": func(h *fakeHolder) { h.distrust.Store(true) },
	} {
		bubble.Run(t, name, func(t *testing.T) {
			h := newHolder(t, tp("t", 0))
			calls := 0
			r := newRig(t, drain, func(o *Options) {
				o.Fence = func(context.Context, string, int32) error { calls++; return nil }
			})
			noerr.Must(t, r.catalog.Refresh(t.Context(), 0))
			time.Sleep(time.Minute) // the answer is old
			asked, answer, load := make(chan struct{}), make(chan struct{}), r.catalog.Load
			r.catalog.Load = func(topics []string) (map[string]topics.Info, error) {
				close(asked)
				<-answer
				return load(topics)
			}
			done := r.owned(h)
			<-asked
			end(h)
			synctest.Wait()
			close(answer)
			synctest.Wait()
			h.lose()
			<-done
			if calls > 0 {
				t.Errorf("Fence was called %d times", calls)
			}
			r.reportsNothing(t)
		})
	}
}
