package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/ownership"
)

// watchEvery is how often the topics are looked at for new partitions, and for
// having been created again, if the configuration does not ask for more.
const watchEvery = time.Minute

// consumption is one Consume call.
type consumption struct {
	group     *Group
	topics    []string
	handler   sarama.ConsumerGroupHandler
	session   *groupSession
	committer *offsets.Committer
	reader    *offsets.Reader
	fetcher   fetcher
	catalog   *catalog
	hangUp    func() // ends the connections that fetch
	edge      func(ctx context.Context, p allocfn.Partition, from From) (int64, error)
	metrics   *metrics
	pauses    *pauses
	log       *slog.Logger
	ready     chan struct{} // closed after Setup
	watchers  watchers
	pumping   kafkaconn.Calls // pumps and error readers
	users     *callbacks

	from         From
	resetInvalid bool
	queueLimit   int
	interceptors []sarama.ConsumerInterceptor
	observer     func(Event)
}

// observe has the user's observer told, and then calls then. It waits for nothing.
func (c *consumption) observe(e Event, then func()) *callback {
	if c.observer == nil {
		return nil
	}
	return c.users.call(callObserver, func() error { c.tell(e); return nil }, func(err error) {
		if err != nil {
			c.group.report(err)
		}
		if then != nil {
			then()
		}
	})
}

// notifyCommitted has the observer notified that an offset was stored, and then calls
// observed. It returns false when there is nobody to notify.
func (c *consumption) notifyCommitted(s offsets.Committed, observed func()) bool {
	return c.observe(Event{
		Kind: Committed, Topic: s.Partition.Topic, Partition: s.Partition.ID,
		Token: s.Claim.Token(), Version: s.Claim.Version(), Offset: s.Offset, Since: s.Since,
	}, observed) != nil
}

func (c *consumption) tell(e Event) {
	if c.observer == nil {
		return
	}
	switch e.Kind {
	case Opened, Message:
	case Committed:
		if cl := c.session.claim(allocfn.Partition{Topic: e.Topic, ID: e.Partition}); cl != nil {
			cl.waitTold(e.Offset)
		}
		if c.users.ended() {
			return // meanwhile
		}
	default:
		e.Offset = -1
	}
	c.observer(e)
}

// report hands an error of a partition to the user, in sarama's shape.
func (c *consumption) report(err error, p allocfn.Partition) {
	if _, ok := errors.AsType[*sarama.ConsumerError](err); !ok {
		err = &sarama.ConsumerError{Topic: p.Topic, Partition: p.ID, Err: err}
	}
	c.group.report(err)
}

// closingGrace is how long connections that were aborted get to close when the time to leave is over.
const closingGrace = 50 * time.Millisecond

// cleanupGrace is how much of the time to leave is kept for Cleanup, after the partitions.
func cleanupGrace(stopTimeout time.Duration) time.Duration {
	return min(stopTimeout/20, 500*time.Millisecond)
}

// consume joins, consumes and leaves; see Group.Consume.
func (g *Group) consume(ctx context.Context, topics []string, handler sarama.ConsumerGroupHandler) (err error) {
	ctx, leave := context.WithCancelCause(ctx)
	late, inTime := kafkaconn.Overdue(ctx, g.settings.StopTimeout)
	defer inTime()
	defer leave(nil)
	life, end := context.WithCancel(context.WithoutCancel(ctx)) // for what is to be done after ctx has ended
	defer end()
	k, err := newKafka(life, g.brokers, g.name, g.settings.config, g.zk.Timeout())
	if err != nil {
		return err
	}
	defer func() {
		leave(nil)
		end() // before k.end: nothing is connected again
		err = errors.Join(err, k.endUntil(late))
	}()

	cat := newCatalog(topics, k.describe, &k.do)
	if err := cat.refresh(ctx, 0); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	var a *allocator.PartitionAllocator
	stopTimeout := g.settings.StopTimeout - cleanupGrace(g.settings.StopTimeout)
	c := g.newConsumption(ctx, leave, topics, handler, k, cat)
	a, err = allocator.New(g.zk, g.name, g.settings.Name, allocator.Options{
		Seed:        cat.partitions(),
		Func:        g.settings.Func,
		AlsoFuncs:   g.settings.AlsoFuncs,
		PythonFunc:  g.settings.PythonFunc,
		Weight:      g.settings.Weight,
		Zone:        g.settings.Zone,
		Topics:      topics,
		StopTimeout: stopTimeout,
		OnError:     g.report,
		Logger:      g.settings.Logger,
		Registerer:  g.settings.Registerer,
	})
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	c.session.generation = func() int32 {
		if s := a.Snapshot(); s != nil {
			return int32(s.Version) //nolint:gosec // wraps after 2 billion rebalances
		}
		return 0
	}
	owner, err := ownership.New(a, func(ctx context.Context, cl *ownership.Claim) error { return c.own(ctx, cl) }, ownership.Options{
		RebalanceTimeout: g.settings.RebalanceTimeout,
		StopTimeout:      stopTimeout,
		Accept:           c.accept,
		Observer:         c.observeOwner,
		OnError:          c.ownerError,
		Logger:           g.settings.Logger,
		Registerer:       g.settings.Registerer,
	})
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}

	// Of the user's only the Logger runs in it; connections that are to close are waited for no longer than life.
	var background sync.WaitGroup
	background.Go(func() { c.committer.Run(life) })
	background.Go(func() { c.reader.Run(life) })
	background.Go(func() { g.watchTrust(life, k) })
	defer func() {
		end()
		background.Wait()
		err = errors.Join(err, c.users.end(late))
	}()
	return c.run(ctx, late, a, owner, &background)
}

func (g *Group) newConsumption(
	ctx context.Context, leave context.CancelCauseFunc, topics []string, handler sarama.ConsumerGroupHandler, k *kafka, cat *catalog,
) *consumption {
	c := &consumption{
		group:        g,
		topics:       topics,
		handler:      handler,
		fetcher:      k.fetcher,
		hangUp:       k.fetcher.dialer.Abort,
		catalog:      cat,
		edge:         k.edge,
		metrics:      g.metrics,
		pauses:       &g.pauses,
		log:          g.settings.log,
		ready:        make(chan struct{}),
		from:         g.settings.From,
		resetInvalid: g.settings.config.Consumer.Group.ResetInvalidOffsets,
		queueLimit:   int(g.settings.config.Consumer.Fetch.Default),
		interceptors: g.settings.config.Consumer.Interceptors,
		observer:     g.settings.Observer,
		users:        newCallbacks(usercall.Limit(g.settings.RebalanceTimeout), g.settings.log, g.report, leave),
	}
	c.committer = offsets.NewCommitter(offsets.Options{
		Store:     k.offsets,
		Abort:     k.abortCommits,
		Auto:      g.settings.autoCommit,
		Interval:  g.settings.CommitInterval,
		Timeout:   g.zk.Timeout(),
		CurrentID: cat.id,
		Notify:    c.notifyCommitted,
		Report:    c.report,
		Count:     g.metrics.committed,
	})
	c.reader = offsets.NewReader(k.offsets)
	c.session = &groupSession{ctx: ctx, member: g.settings.Name, committer: c.committer, open: map[allocfn.Partition]*claim{}}
	return c
}

// run is the session: Setup, partitions, Cleanup. Of the user's it waits for
// nothing when late has ended.
func (c *consumption) run(
	ctx, late context.Context, a *allocator.PartitionAllocator, owner *ownership.Owner, background *sync.WaitGroup,
) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c.session.ctx = ctx
	c.group.attach(c.session)
	defer c.group.attach(nil)

	ended := make(chan error, 1)
	background.Go(func() {
		defer c.users.leave(nil) // with the owner, all is over; what is waited for is so for StopTimeout from now on
		ended <- owner.Run(ctx)
	})
	asked := make(chan struct{}, 1)
	background.Go(func() { c.watchTopics(ctx, a, asked) })
	if c.group.settings.Zone != "" {
		keeper := &zoneKeeper{kafka: c.catalog.racks, group: a.Zones, update: a.UpdateZones}
		background.Go(func() { keeper.run(ctx, asked, c.group.report) })
	}

	setup := c.setup(ctx, late, a)
	if setup != nil {
		stop()
	}
	err := <-ended
	_, runs := errors.AsType[*ownership.StuckError](err)
	c.pumping.Start(c.hangUp) // what is being fetched is of no use; where Kafka is silent it would be waited for
	kafkaconn.Await(late, c.pumping.Ended())
	if err != nil {
		err = fmt.Errorf("consumer: %w", err)
	}
	if errors.Is(setup, errNotJoined) || errors.Is(setup, errNotCalled) || errors.Is(setup, errLeftBehind) {
		return err // Setup was not called, or runs
	}
	if runs {
		return errors.Join(setup, err) // Cleanup is not for while a ConsumeClaim runs
	}
	switch cleanup := c.users.try(late, callCleanup, func() error { return c.handler.Cleanup(c.session) }); {
	case cleanup != nil && !errors.Is(cleanup, errLeftBehind):
		c.group.report(cleanup)
		err = errors.Join(err, cleanup)
	}
	return errors.Join(setup, err)
}

// errNotJoined says that the end came before Setup.
var errNotJoined = errors.New("consumer: not joined")

// setup waits until this member has joined, calls Setup and lets the partitions
// be opened.
func (c *consumption) setup(ctx, late context.Context, a *allocator.PartitionAllocator) error {
	if err := a.Ready(ctx); err != nil {
		return errNotJoined // Run says why
	}
	if s := a.Snapshot(); s != nil {
		c.session.expect(slices.DeleteFunc(s.Mine(), func(p allocfn.Partition) bool { return c.accept(p) != nil }))
	}
	if err := c.users.try(late, callSetup, func() error { return c.handler.Setup(c.session) }); err != nil {
		return err
	}
	c.session.expect(nil)
	close(c.ready)
	return nil
}

// accept refuses partitions of topics that were not asked for.
func (c *consumption) accept(p allocfn.Partition) error {
	if slices.Contains(c.topics, p.Topic) {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrTopicMismatch, p)
}

// ownerError passes on what ownership reports, but for what was reported here.
func (c *consumption) ownerError(err error) {
	if errors.Is(err, errReported) {
		return
	}
	if errors.Is(err, ErrTopicMismatch) {
		c.metrics.mismatches.Inc()
	}
	c.group.report(err)
}

// observeOwner passes on ownership's events. Of a panic ownership tells.
func (c *consumption) observeOwner(e ownership.Event) {
	c.tell(Event{
		Kind: EventKind(e.Kind.String()), Topic: e.Topic, Partition: e.Partition, Token: e.Token,
		Version: e.Version, Session: e.Session, Since: e.Since, Err: e.Err,
	})
}

// watchTrust throws away the connections that carry commits when the session is
// not trusted any more, so that what is under way on them can't arrive after the
// next owner's commits.
func (g *Group) watchTrust(ctx context.Context, k *kafka) {
	for {
		inc, err := g.zk.Incarnation(ctx)
		if err != nil {
			return
		}
		select {
		case <-inc.Context().Done():
			k.abortCommits()
		case <-ctx.Done():
			return
		}
	}
}

// watchTopics adds partitions that the topics get, and closes those of topics
// that were created again. It sends to asked, if there is room, when it has asked.
func (c *consumption) watchTopics(ctx context.Context, a *allocator.PartitionAllocator, asked chan<- struct{}) {
	every := watchEvery
	if f := c.group.settings.config.Metadata.RefreshFrequency; f > 0 {
		every = min(every, f)
	}
	known := c.catalog.partitions()
	for kafkaconn.Sleep(ctx, every) == nil {
		if err := c.catalog.refresh(ctx, 0); err != nil && ctx.Err() == nil {
			c.group.report(err)
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		c.watchers.check(c.catalog.id)
		now := c.catalog.partitions()
		more := added(known, now)
		if len(more) == 0 {
			continue
		}
		if err := a.AddPartitions(ctx, more); err != nil {
			if ctx.Err() == nil {
				c.group.report(fmt.Errorf("consumer: add partitions: %w", err))
			}
			continue // known stays, so it is tried again
		}
		known = now
	}
}

// watchers are the open terms, to be closed when their topic is created again.
type watchers struct {
	mu    sync.Mutex
	terms map[*term]context.CancelCauseFunc
}

func (w *watchers) add(t *term, stop context.CancelCauseFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.terms == nil {
		w.terms = map[*term]context.CancelCauseFunc{}
	}
	w.terms[t] = stop
}

func (w *watchers) remove(t *term) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.terms, t)
}

func (w *watchers) check(id func(topic string) sarama.Uuid) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t, stop := range w.terms {
		if !offsets.SameTopic(t.topic, id(t.Topic())) {
			stop(offsets.Recreated(t.Topic()))
		}
	}
}
