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
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/offsets"
)

// newMarkRig is newRig with a handler that marks what it gets.
func newMarkRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	var r *rig
	r = newRig(t, marker(&r), change)
	return r
}

// marker marks what it is given, and says when it returns.
func marker(r **rig) handlerFunc {
	return func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		for m := range c.Messages() {
			s.MarkMessage(m, "")
		}
		(*r).log.add("return", tp(c.Topic(), c.Partition()), 0)
		return nil
	}
}

func (r *rig) errors() []error {
	var errs []error
	for {
		select {
		case err := <-r.group.report.Errors():
			errs = append(errs, err)
		default:
			return errs
		}
	}
}

func TestOpeningAndClosingKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		r := newMarkRig(t, nil)
		r.store.Set(map[kiel.Partition]offsets.Stored{p: {Offset: 40}})
		done := r.owned(h)
		s := <-r.fetch.streams
		s.send(40, 41, 42)
		synctest.Wait()
		h.release(t, done)
		r.log.add("release", p, 0) // what ownership does next
		want := []string{
			line("commit", p, 40), line("open", p, 40), line("return", p, 0), line("commit", p, 43), line("release", p, 0),
		}
		if got := r.log.all(); !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		events := []string{
			line("committed", p, 40), line("opened", p, 40), line("message", p, 40), line("message", p, 41), line("message", p, 42),
			line("committed", p, 43),
		}
		if got := r.kinds(p); !slices.Equal(got, events) {
			t.Errorf("got  %v\nwant %v", got, events)
		}
		if c := r.session.Claims(); len(c) != 0 {
			t.Errorf("claims after the end: %v", c)
		}
	})
}

func TestLostPartitionCommitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		r := newRig(t, func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			for m := range c.Messages() {
				s.MarkMessage(m, "")
			}
			s.MarkOffset("t", 0, 1000, "") // late
			s.Commit()
			if !errors.Is(c.(Claim).Context().Err(), c.(Claim).Context().Err()) || c.(Claim).Trusted() {
				t.Error("the claim says it is still ours")
			}
			return nil
		}, nil)
		go func() { _ = r.own(h.work, h) }()
		s := <-r.fetch.streams
		s.send(0, 1, 2)
		synctest.Wait()
		h.lose()
		synctest.Wait()
		time.Sleep(time.Minute)
		if got := r.store.Get(p).Offset; got != 0 {
			t.Errorf("stored %d, want the start position alone", got)
		}
	})
}

func TestOutOfRangeIsNotResetWhenTheConfigurationSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		r := newMarkRig(t, func(o *Options) { o.Config.Consumer.Group.ResetInvalidOffsets = false })
		r.store.Set(map[kiel.Partition]offsets.Stored{p: {Offset: 7}})
		r.fetch.first = 20
		done := r.owned(h)
		time.Sleep(time.Minute)
		h.release(t, done)
		if got := r.store.Get(p).Offset; got != 7 {
			t.Errorf("stored %d", got)
		}
		errs := r.errors()
		if len(errs) == 0 || !errors.Is(errs[0], sarama.ErrOffsetOutOfRange) {
			t.Errorf("reported %v", errs)
		}
		if n := len(r.fetch.opens); n < 5 || n > 30 {
			t.Errorf("tried %d times in a minute", n)
		}
	})
}

func TestNothingIsReadBeforeTheStartPositionIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t, tp("t", 0))
		r := newMarkRig(t, nil)
		fail := errors.New("no coordinator")
		r.refuse.Store(&fail)
		done := r.owned(h)
		time.Sleep(10 * time.Second)
		if len(r.fetch.opens) != 0 {
			t.Errorf("opened at %v", r.fetch.opens)
		}
		r.refuse.Store(nil)
		<-r.fetch.streams
		h.release(t, done)
		if errs := r.errors(); len(errs) == 0 || !errors.Is(errs[0], fail) {
			t.Errorf("reported %v", errs)
		}
	})
}

func TestStreamThatEndsByItselfIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		r := newMarkRig(t, nil)
		done := r.owned(h)
		s := <-r.fetch.streams
		s.send(0, 1, 2)
		synctest.Wait()
		s.ended <- errEndedInTest
		s = <-r.fetch.streams // opened again after a pause
		s.send(3)
		synctest.Wait()
		h.release(t, done)
		if got := r.store.Get(p).Offset; got != 4 {
			t.Errorf("stored %d", got)
		}
		if !slices.Equal(r.fetch.opens, []int64{0, 3}) {
			t.Errorf("opened at %v", r.fetch.opens)
		}
		errs := r.errors()
		if len(errs) != 1 || !errors.Is(errs[0], errEndedInTest) {
			t.Errorf("reported %v", errs)
		}
	})
}

// TestLeaderThatIsPendingAgainAndAgain: tries that fail because a leader is not ready count anew once the partition was open.
func TestLeaderThatIsPendingAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t, tp("t", 0))
		r := newMarkRig(t, func(o *Options) { o.Config.Metadata.Retry.Max = 1 })
		done := r.owned(h)
		for range 3 {
			s := <-r.fetch.streams
			s.ended <- sarama.ErrNotLeaderForPartition
		}
		<-r.fetch.streams
		h.release(t, done)
		if errs := r.errors(); len(errs) > 0 {
			t.Errorf("reported %v", errs)
		}
	})
}

func TestTruncatedLogIsReadFromWhereItDiffers(t *testing.T) {
	for _, reset := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p, h := tp("t", 0), newHolder(t, tp("t", 0))
			r := newMarkRig(t, func(o *Options) { o.Config.Consumer.Group.ResetInvalidOffsets = reset })
			done := r.owned(h)
			s := <-r.fetch.streams
			s.send(0, 1, 2, 3)
			synctest.Wait()
			s.ended <- &fetch.TruncatedError{Topic: "t", Position: 4, Diverges: 2, Epoch: 5, Found: 6}
			want, stored := []int64{0}, int64(4)
			if reset {
				want, stored = []int64{0, 2}, 2
				<-r.fetch.streams
			} else {
				time.Sleep(time.Second)
			}
			synctest.Wait()
			if got := r.store.Get(p).Offset; got != stored {
				t.Errorf("reset %v: stored %d", reset, got)
			}
			h.release(t, done)
			if !slices.Equal(r.fetch.opens, want) {
				t.Errorf("reset %v: opened at %v", reset, r.fetch.opens)
			}
			if errs := r.errors(); len(errs) < 2 || !errors.Is(errs[1], ErrOffsetReset) || !errors.Is(errs[1], fetch.ErrTruncated) {
				t.Errorf("reset %v: reported %v", reset, errs)
			}
		})
	}
}

// The leader epoch is committed with the offset, so the next owner finds a truncation of the log.
func TestTruncationIsSeenByTheNextOwner(t *testing.T) {
	for name, c := range map[string]struct {
		foreign bool // another program has stored the offset
		want    []int64
	}{
		"ours":                    {false, []int64{0, 4, 2}},
		"stored by somebody else": {true, []int64{0, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, first := tp("t", 0), newHolder(t, tp("t", 0))
				r := newMarkRig(t, nil)
				r.fetch.epoch = 5
				done := r.owned(first)
				s := <-r.fetch.streams
				s.send(0, 1, 2, 3)
				synctest.Wait()
				first.release(t, done)
				stored := r.store.Get(p)
				if stored.Offset != 4 || stored.LeaderEpoch != 5 {
					t.Errorf("stored %d with epoch %d", stored.Offset, stored.LeaderEpoch)
				}
				if c.foreign {
					stored.Ours = false
					r.store.Set(map[kiel.Partition]offsets.Stored{p: stored})
				}
				r.fetch.cut, r.fetch.epoch = &fetch.TruncatedError{Topic: "t", Position: 4, Diverges: 2, Epoch: 5, Found: 6}, 6
				second := newHolder(t, p)
				second.token = 8
				done = r.owned(second)
				<-r.fetch.streams
				synctest.Wait()
				second.release(t, done)
				if !slices.Equal(r.fetch.opens, c.want) {
					t.Errorf("opened at %v", r.fetch.opens)
				}
				reset := slices.ContainsFunc(r.errors(), func(err error) bool {
					return errors.Is(err, ErrOffsetReset) && errors.Is(err, fetch.ErrTruncated)
				})
				if reset == c.foreign {
					t.Errorf("a reset was reported: %v", reset)
				}
				if got := r.store.Get(p).Offset; got != c.want[len(c.want)-1] {
					t.Errorf("stored %d", got)
				}
			})
		})
	}
}

func TestRecreatedTopicClosesTheClaimAndStartsAtTheEarliest(t *testing.T) {
	for name, forgotten := range map[string]bool{"its offsets are kept": false, "its offsets are deleted too": true} {
		t.Run(name, func(t *testing.T) { testRecreated(t, forgotten) })
	}
}

func testRecreated(t *testing.T, forgotten bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		r := newMarkRig(t, func(o *Options) { o.StartAt = Latest })
		r.store.Set(map[kiel.Partition]offsets.Stored{p: {Offset: 0}})
		done := r.owned(h)
		s := <-r.fetch.streams
		s.send(0, 1, 2)
		synctest.Wait()
		if forgotten {
			r.store.Clear()
		}
		time.Sleep(time.Second)
		r.setID("t", 9)
		if err := r.catalog.Refresh(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		r.openPartitions.check(r.catalog.ID)
		s = <-r.fetch.streams
		synctest.Wait()
		if got := r.store.Get(p).Offset; got != 0 {
			t.Errorf("stored %d: the position of the deleted topic was committed", got)
		}
		s.send(0)
		synctest.Wait()
		h.release(t, done)
		if n := r.store.Get(p); n.TopicID != (sarama.Uuid{9}) {
			t.Errorf("metadata says %+v", n)
		}
		if errs := r.errors(); len(errs) != 1 || !errors.Is(errs[0], ErrRecreated) {
			t.Errorf("reported %v", errs)
		}
	})
}

func TestSessionLooksLikeSaramas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h0, h1 := newHolder(t, tp("t", 0)), newHolder(t, tp("t", 1))
		h0.token = 70
		type view struct {
			claims  map[string][]int32
			initial int64
			hwm     int64
			token   int64
		}
		views := make(chan view, 2)
		r := newRig(t, func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			<-c.Messages()
			if cause := context.Cause(s.Context()); s.MemberID() != "" || s.GenerationID() != -1 || cause != nil && !errors.Is(cause, errRevokedInTest) {
				t.Errorf("member %q, generation %d, %v", s.MemberID(), s.GenerationID(), s.Context().Err())
			}
			views <- view{s.Claims(), c.InitialOffset(), c.HighWaterMarkOffset(), c.(Claim).Token()}
			for range c.Messages() {
			}
			return nil
		}, nil)
		r.store.Set(map[kiel.Partition]offsets.Stored{tp("t", 0): {Offset: 12}})
		done := r.owned(h0)
		s := <-r.fetch.streams
		other := r.owned(h1)
		<-r.fetch.streams
		synctest.Wait()
		s.send(12)
		v := <-views
		if !slices.Equal(v.claims["t"], []int32{0, 1}) || v.initial != 12 || v.hwm != 99 || v.token != 70 {
			t.Errorf("%+v", v)
		}
		h0.release(t, done)
		if got := r.session.Claims()["t"]; !slices.Equal(got, []int32{1}) {
			t.Errorf("claims: %v", got)
		}
		h1.release(t, other)
	})
}

func TestObserverHearsOfAMessageBeforeItsCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		r := newRig(t, func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			for m := range c.Messages() {
				s.MarkMessage(m, "")
				s.Commit()
			}
			return nil
		}, nil)
		record := r.observer
		r.observer = func(e Event) {
			if e.Kind == Message {
				time.Sleep(10 * time.Millisecond) // the commit is faster
			}
			record(e)
		}
		done := r.owned(h)
		s := <-r.fetch.streams
		s.send(0, 1)
		time.Sleep(time.Second)
		h.release(t, done)
		want := []string{
			line("committed", p, 0), line("opened", p, 0), line("message", p, 0), line("committed", p, 1),
			line("message", p, 1), line("committed", p, 2),
		}
		if got := r.kinds(p); !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}
