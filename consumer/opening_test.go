package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// newMarkRig is newRig with a handler that marks what it gets, and says when it returns.
func newMarkRig(t *testing.T, change func(*Options)) (r *rig) {
	t.Helper()
	r = newRig(t, func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		for m := range c.Messages() {
			s.MarkMessage(m, "")
		}
		r.log.add("return", tp(c.Topic(), c.Partition()), 0)
		return nil
	}, change)
	return r
}

func TestOpeningAndClosingKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := tp("t", 0), newHolder(t, tp("t", 0))
		r := newMarkRig(t, nil)
		r.store.Set(map[kiel.Partition]offsets.Stored{p: {Offset: 40}})
		_, done := r.opened(h, 40, 41, 42)
		synctest.Wait()
		h.release(t, done)
		r.log.add("release", p, 0) // what ownership does next
		want := []string{
			line("commit", p, 40), line("open", p, 40), line("return", p, 0), line("commit", p, 43), line("release", p, 0),
		}
		assert.Slices(t, r.log.all(), want, "log")
		events := []string{
			line("committed", p, 40), line("opened", p, 40), line("message", p, 40), line("message", p, 41), line("message", p, 42),
			line("committed", p, 43),
		}
		assert.Slices(t, r.kinds(p), events, "events")
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
		r.opened(h, 0, 1, 2)
		synctest.Wait()
		h.lose()
		synctest.Wait()
		time.Sleep(time.Minute)
		assert.Equal(t, r.store.Get(p).Offset, 0, "stored")
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
		assert.Equal(t, r.store.Get(p).Offset, 7, "stored")
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
		assert.Equal(t, len(r.fetch.opens), 0, "openings, at %v", r.fetch.opens)
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
		s, done := r.opened(h, 0, 1, 2)
		synctest.Wait()
		s.ended <- errEndedInTest
		s = <-r.fetch.streams // opened again after a pause
		s.send(3)
		synctest.Wait()
		h.release(t, done)
		assert.Equal(t, r.store.Get(p).Offset, 4, "stored")
		assert.Slices(t, r.fetch.opens, []int64{0, 3}, "opened at")
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
		r.reportsNothing(t)
	})
}

func TestTruncatedLogIsReadFromWhereItDiffers(t *testing.T) {
	for _, reset := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p, h := tp("t", 0), newHolder(t, tp("t", 0))
			r := newMarkRig(t, func(o *Options) { o.Config.Consumer.Group.ResetInvalidOffsets = reset })
			s, done := r.opened(h, 0, 1, 2, 3)
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
			assert.Equal(t, r.store.Get(p).Offset, stored, "reset %v: stored", reset)
			h.release(t, done)
			assert.Slices(t, r.fetch.opens, want, "reset %v: opened at", reset)
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
		bubble.Run(t, name, func(t *testing.T) {
			p, first := tp("t", 0), newHolder(t, tp("t", 0))
			r := newMarkRig(t, nil)
			r.fetch.epoch = 5
			_, done := r.opened(first, 0, 1, 2, 3)
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
			assert.Slices(t, r.fetch.opens, c.want, "opened at")
			reset := slices.ContainsFunc(r.errors(), func(err error) bool {
				return errors.Is(err, ErrOffsetReset) && errors.Is(err, fetch.ErrTruncated)
			})
			if reset == c.foreign {
				t.Errorf("a reset was reported: %v", reset)
			}
			assert.Equal(t, r.store.Get(p).Offset, c.want[len(c.want)-1], "stored")
		})
	}
}

func TestRecreatedTopicClosesTheClaimAndStartsAtTheEarliest(t *testing.T) {
	for name, forgotten := range map[string]bool{"its offsets are kept": false, "its offsets are deleted too": true} {
		bubble.Run(t, name, func(t *testing.T) {
			p, h := tp("t", 0), newHolder(t, tp("t", 0))
			r := newMarkRig(t, func(o *Options) { o.StartAt = Latest })
			r.store.Set(map[kiel.Partition]offsets.Stored{p: {Offset: 0}})
			_, done := r.opened(h, 0, 1, 2)
			synctest.Wait()
			if forgotten {
				r.store.Clear()
			}
			time.Sleep(time.Second)
			r.setID("t", 9)
			noerr.Must(t, r.catalog.Refresh(t.Context(), 0))
			r.openPartitions.check(r.catalog.ID)
			s := <-r.fetch.streams
			synctest.Wait()
			assert.Equal(t, r.store.Get(p).Offset, 0, "stored, after the position of the deleted topic")
			s.send(0)
			synctest.Wait()
			h.release(t, done)
			assert.Equal(t, r.store.Get(p).TopicID, sarama.Uuid{9}, "the topic in the metadata")
			if errs := r.errors(); len(errs) != 1 || !errors.Is(errs[0], ErrRecreated) {
				t.Errorf("reported %v", errs)
			}
		})
	}
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
		s, done := r.opened(h0)
		other := r.owned(h1)
		<-r.fetch.streams
		synctest.Wait()
		s.send(12)
		v := <-views
		if !slices.Equal(v.claims["t"], []int32{0, 1}) || v.initial != 12 || v.hwm != 99 || v.token != 70 {
			t.Errorf("%+v", v)
		}
		h0.release(t, done)
		assert.Slices(t, r.session.Claims()["t"], []int32{1}, "claims")
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
		_, done := r.opened(h, 0, 1)
		time.Sleep(time.Second)
		h.release(t, done)
		want := []string{
			line("committed", p, 0), line("opened", p, 0), line("message", p, 0), line("committed", p, 1),
			line("message", p, 1), line("committed", p, 2),
		}
		assert.Slices(t, r.kinds(p), want, "events")
	})
}

// A handler has recovered when its partition has got further than where it stumbled.
func TestStumbled(t *testing.T) {
	var s stumbled
	p, stream := trackedPartition(t, 0)
	stream.send(0, 1, 2)
	p.next()
	s.at(p)
	open := func() map[kiel.Partition]*Partition { return map[kiel.Partition]*Partition{p.id: p} }
	none := func() map[kiel.Partition]*Partition { return nil }
	if got := s.passed(open); len(got) > 0 {
		t.Errorf("%v got further", got)
	}
	if got := s.passed(none); len(got) > 0 {
		t.Errorf("%v got further though they are closed", got)
	}
	p.next()
	assert.Equal(t, fmt.Sprint(s.passed(open), s.passed(open)), "[t:0] []", "further than before")
	s.at(p)
	p.Mark(&sarama.ConsumerMessage{Topic: "t", Offset: 0})
	if got := s.passed(open); len(got) != 1 {
		t.Errorf("%v have marked more", got)
	}
	s.at(p)
	s.forget(p.id)
	p.next()
	if got := s.passed(open); len(got) > 0 {
		t.Errorf("%v was forgotten", got)
	}
}

// A claim that has ended leaves nothing behind: a member of a group that goes on for ever may have had any partition. So the
// opening of a claim that is not known any more is logged as the first one.
func TestOpenLogForgets(t *testing.T) {
	r, said := newRig(t, nil, nil), &logtest.Log{}
	r.logTo(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h := newHolder(t, tp("t", 0))
	for i, again := range []string{"level=INFO", "level=DEBUG"} {
		ended := r.addOpening(&opening{member: r.membership, claim: h, tp: h.p})
		r.openLog.Opened(h.p, h, func() int { return 1 })
		r.openLog.Opened(h.p, h, func() int { return 1 })
		if n := said.Count(again, "msg=opened"); n != i+1 {
			t.Errorf("opening %d: %d lines %s:\n%s", i, n, again, said)
		}
		ended()
	}
}
