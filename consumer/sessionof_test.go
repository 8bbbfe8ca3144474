package consumer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/internal/testonly/assert"
)

// wrapper is a session in another, as tracing libraries make them.
type wrapper struct {
	sarama.ConsumerGroupSession
	ctx context.Context
}

func (w wrapper) Context() context.Context { return w.ctx }

// kafkasMember is a session of a member that Kafka knows.
type kafkasMember struct{ wrapper }

func (kafkasMember) MemberID() string    { return "sarama-1" }
func (kafkasMember) GenerationID() int32 { return 0 }

// renamed is a Session with another MemberID.
type renamed struct{ wrapper }

func (renamed) MemberID() string { return "pod-7" }

func TestSessionOf(t *testing.T) {
	type key struct{}
	r := newRig(t, nil, nil)
	s := r.session
	derived := context.WithValue(s.Context(), key{}, "span")
	for name, c := range map[string]struct {
		session sarama.ConsumerGroupSession
		want    bool
	}{
		"itself":                              {s, true},
		"wrapped":                             {struct{ sarama.ConsumerGroupSession }{s}, true},
		"wrapped twice, context derived":      {struct{ sarama.ConsumerGroupSession }{wrapper{s, derived}}, true},
		"wrapped, with a name":                {renamed{wrapper{s, derived}}, true},
		"wrapped, context of its own":         {wrapper{s, t.Context()}, false},
		"of sarama's group, within a handler": {kafkasMember{wrapper{ctx: derived}}, false},
		"in the user's test, without context": {wrapper{ctx: nil, ConsumerGroupSession: s}, false},
		"nil":                                 {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			own, ok := SessionOf(c.session)
			if ok != c.want || ok && own != Session(s) {
				t.Fatalf("SessionOf: %v, %t", own, ok)
			}
			if ok && (own.Member() != "m" || own.Version() != 3) {
				t.Errorf("member %q, version %d", own.Member(), own.Version())
			}
		})
	}
}

// seen is what a session says of one partition.
type seen struct {
	token   int64
	trusted bool
}

func look(s Session, p kiel.Partition) seen {
	return seen{s.Token(p.Topic, p.ID), s.Trusted(p.Topic, p.ID)}
}

// Token and Trusted are those of the partition's present opening in this session.
func TestTokenAndTrustBySession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := tp("t", 0), tp("t", 1)
		release := make(chan struct{})
		r := newRig(t, func(_ sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
			for range c.Messages() {
			}
			<-release
			return nil
		}, nil)
		done := make(chan error, 1)
		open := func(token int64) *fakeHolder {
			h := newHolder(t, p)
			h.token = token
			go func() { done <- r.own(h.work, h) }()
			<-r.fetch.streams
			synctest.Wait()
			return h
		}
		check := func(when string, s Session, want seen) {
			t.Helper()
			assert.Equal(t, look(s, p), want, "%s", when)
			if got := look(s, other); got != (seen{}) {
				t.Errorf("%s: of a partition that is not open: %+v", when, got)
			}
		}
		first := r.session
		check("before it is open", first, seen{})
		h := open(7)
		check("open", first, seen{7, true})
		h.lose()
		synctest.Wait()
		check("lost, its handler still runs", first, seen{7, false})
		release <- struct{}{}
		<-done
		check("closed", first, seen{})

		h = open(9)
		check("claimed again", first, seen{9, true})
		go func() { release <- struct{}{} }()
		r.endSession()
		check("after the session", first, seen{})

		r.begin(t.Context())
		<-r.fetch.streams
		synctest.Wait()
		check("under the same claim in the next session", r.session, seen{9, true})
		check("in the session before", first, seen{})
		h.revoke()
		synctest.Wait()
		check("revoked, its handler still runs", r.session, seen{9, true})
		release <- struct{}{}
		<-done
		check("released", r.session, seen{})
	})
}

// A handler that is stuck has no partition once its session is over.
func TestTokenOfAStuckHandler(t *testing.T) {
	s := newConsumeSession(t.Context(), t.Context(), sessions.Kind{})
	p, _, _ := newPartition(t)
	s.opened(p)
	own := &groupSession{session: s}
	if got := look(own, p.id); got != (seen{7, true}) {
		t.Errorf("open: %+v", got)
	}
	s.finish(sessions.Asked)
	if got := look(own, p.id); got != (seen{}) {
		t.Errorf("after the session: %+v", got)
	}
}

// manyOpen returns a session with n open partitions of topic t.
func manyOpen(tb testing.TB, n int32) Session {
	tb.Helper()
	s := newConsumeSession(tb.Context(), tb.Context(), sessions.Kind{})
	for i := range n {
		s.opened(&Partition{id: tp("t", i), claim: &fakeHolder{p: tp("t", i), token: 7}})
	}
	return &groupSession{session: s}
}

func TestTrustedAllocatesNothing(t *testing.T) {
	s := manyOpen(t, 1000)
	if n := testing.AllocsPerRun(1000, func() { s.Trusted("t", 500); s.Token("t", 500) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkTrusted is what a handler pays for asking before each effect: by the claim, and by the session.
func BenchmarkTrusted(b *testing.B) {
	s := newConsumeSession(b.Context(), b.Context(), sessions.Kind{})
	for i := range int32(1000) {
		s.opened(&Partition{id: tp("t", i), claim: new(steadyHolder)})
	}
	own := &groupSession{session: s}
	c := &claimChannel{p: s.find("t", 500)}
	for name, trusted := range map[string]func() bool{
		"claim":   c.Trusted,
		"session": func() bool { return own.Trusted("t", 500) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if !trusted() {
						b.Error("not trusted")
					}
				}
			})
		})
	}
}

// steadyHolder is a claim that is trusted for ever, at no cost.
type steadyHolder struct{ fakeHolder }

func (*steadyHolder) Trusted() bool { return true }

// Marks reach the tracker of the opening that lasts, though a session remembers those of marks before, and none after the
// session.
func TestMarksAreOfTheNewestOpening(t *testing.T) {
	s := newConsumeSession(t.Context(), t.Context(), sessions.Kind{})
	late := 0
	own := &groupSession{
		session: s, committer: offsets.NewCommitter(offsets.Options{Timeout: time.Second}), countLate: func(kiel.Partition, int64) { late++ },
	}
	openAt := func(topic string, id int32) *offsets.Tracker {
		return own.committer.OpenStored(tp(topic, id), &fakeHolder{p: tp(topic, id)}, sarama.Uuid{}, 0, "")
	}
	check := func(what string, tr *offsets.Tracker, want int64, wantLate int) {
		t.Helper()
		if at, _, _ := tr.Marked(); at != want || late != wantLate {
			t.Errorf("%s: marked %d, %d late; want %d, %d", what, at, late, want, wantLate)
		}
	}
	first, same, far := openAt("t", 1), openAt("u", 1), openAt("t", 65)
	for i := range int64(3) { // they share a place
		own.MarkOffset("t", 1, 10+i, "")
		own.MarkOffset("u", 1, 20+i, "")
		own.MarkOffset("t", 65, 30+i, "")
	}
	own.MarkOffset("t", 1, 13, "")
	check("t:1", first, 13, 0)
	check("u:1", same, 22, 0)
	check("t:65", far, 32, 0)
	own.committer.Close(t.Context(), first)
	own.MarkOffset("t", 1, 14, "")
	check("closed", first, 13, 1)
	second := openAt("t", 1)
	own.MarkOffset("t", 1, 5, "")
	check("opened again", second, 5, 1)
	s.finish(sessions.Asked)
	own.MarkOffset("t", 1, 6, "")
	check("the session is over", second, 5, 2)
}

// BenchmarkMark is what a handler pays for a mark by the session.
func BenchmarkMark(b *testing.B) {
	own := &groupSession{
		session:   newConsumeSession(b.Context(), b.Context(), sessions.Kind{}),
		committer: offsets.NewCommitter(offsets.Options{Timeout: time.Second}),
	}
	for i := range int32(200) {
		own.committer.OpenStored(tp("orders", i), &fakeHolder{p: tp("orders", i)}, sarama.Uuid{}, 0, "")
	}
	for i := range b.N {
		own.MarkOffset("orders", int32(i/1000)%8, int64(i), "")
	}
}
