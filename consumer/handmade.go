package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/handmade"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/ownership"
)

// RunHandmade is for package consumertest, which makes the parts, and not for programs: it may change in any version. It calls
// handle for each of them, as [Group.Run] does, and returns when all calls have returned and what they marked is committed.
func RunHandmade(ctx context.Context, parts []*handmade.Part, handle func(ctx context.Context, p *Partition) error) error {
	return runHandmade(ctx, parts, func(*handmadeMember) sessionUser { return runUser{handle} })
}

// ConsumeHandmade is for package consumertest, as RunHandmade is, and calls handler as an incremental session of [Group.Consume]
// does.
func ConsumeHandmade(ctx context.Context, parts []*handmade.Part, handler sarama.ConsumerGroupHandler) error {
	return runHandmade(ctx, parts, func(m *handmadeMember) sessionUser { return m.groupSession(handler) })
}

// handmadeMember is one call of a handler with partitions that a test has made.
type handmadeMember struct {
	session   *consumeSession
	committer *offsets.Committer
	pauses    *pauses
	log       *errlog.Log
	guard     usercall.Guard
	metrics   *metrics
	parts     map[kiel.Partition]*handmade.Part

	mu   sync.Mutex
	rest map[*handmade.Part]*offsets.Tracker // whose last commit is due when Cleanup has returned
}

func runHandmade(ctx context.Context, parts []*handmade.Part, userOf func(*handmadeMember) sessionUser) error {
	if ctx.Err() != nil {
		return nil
	}
	m := &handmadeMember{
		session: newConsumeSession(ctx, ctx, sessions.Kind{}), log: errlog.New(defaultlog.Or(nil)),
		pauses: &pauses{paused: map[kiel.Partition]bool{}, open: map[kiel.Partition]*opened{}}, parts: map[kiel.Partition]*handmade.Part{},
		rest: map[*handmade.Part]*offsets.Tracker{},
	}
	m.guard = usercall.Guard{Package: "consumer", Err: ownership.ErrCallback, Log: m.log}
	defer context.AfterFunc(ctx, func() { m.session.close(nil, true) })()
	var ids []kiel.Partition
	for _, part := range parts {
		m.parts[part.ID] = part
		ids = append(ids, part.ID)
	}
	m.metrics, _ = promreg.New(nil, "test", newMetrics) // nobody reads them
	m.committer = m.newCommitter()
	committing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { m.committer.Run(committing) })
	defer running.Wait()
	defer stop()
	user := userOf(m)
	m.session.expect(ids, nil)
	err := m.call(callSetup, user.setup)
	m.session.setupEnded(err)
	if err == nil {
		err = m.consumeAll(user, parts)
	}
	m.session.close(nil, true)
	err = errors.Join(err, m.call(callCleanup, user.cleanup))
	m.session.over.Store(true)
	for part, t := range m.rest {
		_ = m.committer.CommitLast(part.Claim.Context(), t)
	}
	return err
}

// call calls the user's code on a goroutine of its own, which it may end.
func (m *handmadeMember) call(kind string, f func() error) error {
	return m.guard.Go(usercall.Callback{Kind: kind}, f, nil).Result()
}

// consumeAll opens all parts at the same time, and returns their errors when they are closed.
func (m *handmadeMember) consumeAll(user sessionUser, parts []*handmade.Part) error {
	errs := make([]error, len(parts))
	var running sync.WaitGroup
	for i, part := range parts {
		running.Go(func() { errs[i] = m.consume(user, part) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// consume opens a part, calls the handler, and commits what that has marked.
func (m *handmadeMember) consume(user sessionUser, part *handmade.Part) error {
	start, text := part.Start, part.Text
	if to, seekText, moved := m.session.sought(part.ID, start); moved && to >= 0 {
		start, text = to, seekText
		part.Stream.Reposition(start)
	}
	t := m.committer.OpenStored(part.ID, part.Claim, sarama.Uuid{}, start, text)
	part.Opened(func() (int64, string) {
		offset, text, _ := t.Marked()
		return offset, text
	})
	owned, stop := m.session.within(part.Owned)
	defer stop()
	work, end := context.WithCancelCause(owned)
	defer end(nil)
	p := &Partition{
		ctx: work, end: end, id: part.ID, claim: part.Claim, stream: part.Stream, start: start, text: text, tracker: t,
		committer: m.committer, pauses: m.pauses, log: m.log, countLate: m.late, openedAt: time.Now(),
		metrics: m.metrics.of(part.ID.Topic),
	}
	m.session.opened(p)
	p.reading.resumed = m.pauses.opened(part.ID, part.Stream)
	err := m.call(callHandler, func() error { return user.consume(owned, p) })
	if m.session.ending() {
		m.session.close(nil, true) // before the end of the caller's context has come here
		<-owned.Done()
	}
	p.handlerReturned(owned)
	byItself := errors.Is(context.Cause(work), errHandlerReturned)
	m.session.closed(p, byItself)
	m.pauses.closed(part.ID, part.Stream)
	if byItself { // the session ends, and marks of Cleanup count
		m.later(part, t)
		m.session.close(errHandlerReturned, true)
		if failure := user.failure(part.ID, err); failure != nil {
			return failure
		}
	} else {
		_ = m.committer.CommitLast(part.Claim.Context(), t) // it is lost, or the store in memory takes it
	}
	return err
}

func (m *handmadeMember) later(part *handmade.Part, t *offsets.Tracker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rest[part] = t
}

func (m *handmadeMember) late(p kiel.Partition, offset int64) {
	if part := m.parts[p]; part != nil {
		part.Late(offset)
	}
}

// newCommitter returns a committer that tells the parts what it stores.
func (m *handmadeMember) newCommitter() *offsets.Committer {
	return offsets.NewCommitter(offsets.Options{
		Store: &offsets.MemoryStore{OnStored: func(c offsets.OffsetCommit) { m.parts[c.Partition].Stored(c.Offset, c.Text) }},
		Abort: func() {}, Auto: true, Interval: time.Second, Timeout: time.Minute,
		CurrentID: func(string) sarama.Uuid { return sarama.Uuid{} },
		Notify:    func(offsets.Committed, func()) bool { return false },
		Report:    func(error, kiel.Partition) {},
		Logger:    defaultlog.Or(nil), Errors: m.log,
		Count: func(kiel.Partition, error, time.Duration) {},
	})
}

// groupSession returns the Session of the call. Its channels have no room, so that no message is lost in one when reading ends.
func (m *handmadeMember) groupSession(handler sarama.ConsumerGroupHandler) *groupSession {
	s := &groupSession{
		session: m.session, handler: handler, member: "test", committer: m.committer, version: func() uint64 { return 1 }, countLate: m.late,
		left: func() error { return nil }, ended: func(*Partition) {}, store: func() {},
	}
	s.ctx = context.WithValue(m.session.ctx, sessionKey{}, s)
	return s
}
