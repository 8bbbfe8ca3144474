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
	"github.com/kielgo/kiel/consumer/internal/topics"
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
		done := r.owned(h)
		(<-r.fetch.streams).send(7, 8)
		time.Sleep(24 * time.Hour)
		h.release(t, done)
		if want := []string{line("open", p, 7)}; !slices.Equal(r.log.all(), want) {
			t.Errorf("got  %v\nwant %v", r.log.all(), want)
		}
		if errs := r.errors(); len(errs) > 0 {
			t.Errorf("reported %v", errs)
		}
	})
}

// With Fence the start position of Latest is committed, because the end moves. No offset is raised, restored or replaced later.
func TestPolicysChoiceWithFence(t *testing.T) {
	p := tp("t", 0)
	for from, want := range map[StartAt][]string{
		Earliest: {line("open", p, 30)},
		Latest:   {line("commit", p, 90), line("open", p, 90)},
	} {
		t.Run(from.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHolder(t, p)
				r := newRig(t, drain, func(o *Options) {
					o.StartAt, o.Fence = from, func(context.Context, string, int32) error { return nil }
				})
				r.fetch.first, r.fetch.last = 30, 90
				done := r.owned(h)
				(<-r.fetch.streams).send(90, 91)
				time.Sleep(time.Second / 2)
				r.store.Clear() // no repeat was due yet
				time.Sleep(24 * time.Hour)
				h.release(t, done)
				if got := r.log.all(); !slices.Equal(got, want) {
					t.Errorf("got  %v\nwant %v", got, want)
				}
			})
		})
	}
}

// With Fence marks are committed as without it.
func TestMarksWithFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		r := newMarkRig(t, func(o *Options) {
			o.Fence = func(context.Context, string, int32) error { return nil }
		})
		r.storeForeign(p, 5)
		done := r.owned(h)
		(<-r.fetch.streams).send(5)
		synctest.Wait()
		h.release(t, done)
		if got := r.store.Get(p).Offset; got != 6 {
			t.Errorf("stored %d, want 6", got)
		}
	})
}

// A Fence that fails keeps the partition closed, is reported and called again.
func TestFenceFails(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		fail func() error
		want error
	}{
		"error": {func() error { return boom }, boom},
		"panic": {func() error { panic("boom") }, ownership.ErrCallback},
		"what counts as a refusal of Kafka's elsewhere": {
			func() error { return sarama.ErrTopicAuthorizationFailed }, sarama.ErrTopicAuthorizationFailed,
		},
		"what is reported once elsewhere": { // here it may be the topic of results
			func() error { return sarama.ErrUnknownTopicOrPartition }, sarama.ErrUnknownTopicOrPartition,
		},
		"what is reported nowhere else":      {func() error { return ErrTopicMissing }, ErrTopicMissing},
		"what ends a handler's time":         {func() error { return ErrHandler }, ErrHandler},
		"what says that a claim is not ours": {func() error { return ownership.ErrLost }, ownership.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHolder(t, tp("t", 0))
				calls := 0
				r := newRig(t, drain, func(o *Options) {
					o.Fence = func(context.Context, string, int32) error {
						if calls++; calls <= 3 {
							return c.fail()
						}
						return nil
					}
				})
				done := r.owned(h)
				<-r.fetch.streams
				h.release(t, done)
				errs := r.errors()
				if len(errs) != 3 || calls != 4 {
					t.Fatalf("%d calls, reported %v", calls, errs)
				}
				if ce, ok := errors.AsType[*sarama.ConsumerError](errs[0]); !ok || ce.Topic != "t" || !errors.Is(errs[0], c.want) {
					t.Errorf("reported %v", errs[0])
				}
			})
		})
	}
}

// A member that has lost its partition while Fence ran, frozen maybe, reads nothing and reports nothing.
func TestTrustEndsWhileFencing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t, tp("t", 0))
		r := newRig(t, drain, func(o *Options) {
			o.Fence = func(context.Context, string, int32) error {
				h.distrust.Store(true) // and its context does not know yet
				return nil
			}
		})
		done := r.owned(h)
		synctest.Wait()
		h.lose()
		<-done
		if n := len(r.store.Fetches()); n > 0 || len(r.log.all()) > 0 {
			t.Errorf("%d reads of the position, %v", n, r.log.all())
		}
		if errs := r.errors(); len(errs) > 0 {
			t.Errorf("reported %v", errs)
		}
	})
}

// A member whose claim has ended before Fence's turn does not call Fence: that would fence off the next owner.
func TestNoFenceAfterTheClaim(t *testing.T) {
	for name, end := range map[string]func(*fakeHolder){
		"lost": (*fakeHolder).lose, "revoked": (*fakeHolder).revoke,
		"not trusted any more": func(h *fakeHolder) { h.distrust.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHolder(t, tp("t", 0))
				calls := 0
				r := newRig(t, drain, func(o *Options) {
					o.Fence = func(context.Context, string, int32) error { calls++; return nil }
				})
				if err := r.catalog.Refresh(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
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
				if errs := r.errors(); len(errs) > 0 {
					t.Errorf("reported %v", errs)
				}
			})
		})
	}
}

// When Kafka does not have the stored offset, the position that Latest chooses instead is committed before reading. Commits of
// marks do not commit it again, because a transaction may have stored another offset meanwhile.
func TestOutOfRangeWithFence(t *testing.T) {
	p := tp("t", 0)
	for from, want := range map[StartAt][]string{
		Earliest: {line("open", p, 30)},
		Latest:   {line("commit", p, 30), line("open", p, 30)},
	} {
		t.Run(from.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHolder(t, p)
				r := newRig(t, drain, func(o *Options) { // AutoCommit.Enable is true
					o.StartAt, o.Fence = from, func(context.Context, string, int32) error { return nil }
				})
				r.fetch.first = 30
				r.storeForeign(p, 5)
				done := r.owned(h)
				(<-r.fetch.streams).send(30, 31)
				synctest.Wait()
				r.storeForeign(p, 32) // by a transaction
				time.Sleep(time.Minute)
				r.session.Commit()
				h.release(t, done)
				if got := r.log.all(); !slices.Equal(got, want) {
					t.Errorf("got  %v\nwant %v", got, want)
				}
				if got := r.store.Get(p).Offset; got != 32 {
					t.Errorf("stored %d, want 32", got)
				}
			})
		})
	}
}
