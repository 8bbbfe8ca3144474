package consumer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/consumer/internal/topics"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/status"
)

// membership is this member in its group, from the Consume call that joins until the member has left. It owns the connections to
// Kafka, the catalog, the committer, the allocator and the Owner. Each Consume call is a session on it, one at a time. Between
// two sessions the claims are kept, the plan is followed, and nothing is read.
type membership struct {
	group     *Group
	topics    *topiclist.List
	kafka     *kafka
	cluster   string // the cluster's id in the member's record; "" if it was unknown
	allocator *allocator.PartitionAllocator
	owner     *ownership.Owner

	committer      *offsets.Committer
	reader         *offsets.Reader
	fetcher        fetcher
	catalog        *topics.Catalog
	logOffset      func(ctx context.Context, p kiel.Partition, from StartAt) (int64, error)
	at             func(ctx context.Context, p kiel.Partition, t time.Time) (int64, error)
	metrics        *metrics
	report         *reporting.Reporter
	pauses         *pauses
	refusals       *refusals
	log            *slog.Logger
	openPartitions openPartitions
	openLog        *reporting.OpenLog
	openings       openings
	stumbled       stumbled
	shut           shutPartitions
	tree           tree
	hashed         clusterHash
	findings       reporting.Findings
	background     kafkaconn.Calls // goroutines of openings; they call no user code
	judging        kafkaconn.Calls // goroutines of reportCommit and audited
	users          *callbacks

	policy       policy
	resetInvalid bool
	interceptors []sarama.ConsumerInterceptor
	observer     func(Event)

	ctx         context.Context         //nolint:containedctx // ends when the member begins to leave
	leave       context.CancelCauseFunc // makes the member leave; called with nil when the user asked for that
	deadline    context.Context         //nolint:containedctx // ends when the time to leave is over
	endDeadline context.CancelFunc
	life        context.Context //nolint:containedctx // outlives ctx, for the work of leaving
	endLife     context.CancelFunc
	done        chan struct{} // closed when the member has left
	err         error         // why the membership ended, or did not leave in time; written before done is closed

	driver *driver
	owns   kafkaconn.Calls // the calls of own
}

// sessionPause is the least time between the beginnings of two sessions, if the first has ended while the member stays. A handler
// that fails at once must not cost more. The pause also holds for a session with other topics.
const sessionPause = time.Second

// closingGrace is how long aborted connections may take to close after the time to leave is over.
const closingGrace = 50 * time.Millisecond

// cleanupGrace is how much of the time to leave is kept for Cleanup, after the partitions.
func cleanupGrace(stopTimeout time.Duration) time.Duration {
	return min(stopTimeout/20, 500*time.Millisecond)
}

// newMembership connects to Kafka and asks for the topics; run joins. It returns errNotJoined when ctx ends. The membership's
// contexts have ctx's values.
func (g *Group) newMembership(ctx context.Context, topics *topiclist.List, kind sessions.Kind) (*membership, error) {
	m := g.emptyMembership(ctx, topics)
	err := m.build(ctx, kind)
	if err == nil {
		return m, nil
	}
	m.leave(nil)
	m.endLife()
	defer m.endDeadline()
	if m.kafka == nil {
		return nil, err
	}
	ended := m.kafka.endUntil(m.deadline)
	if ended != nil && errors.Is(err, errNotJoined) {
		return nil, ended
	}
	return nil, errors.Join(err, ended)
}

func (g *Group) emptyMembership(ctx context.Context, topics *topiclist.List) *membership {
	m := &membership{
		group:        g,
		topics:       topics,
		metrics:      g.metrics,
		report:       g.report,
		pauses:       &g.pauses,
		log:          g.settings.log,
		policy:       g.settings.policy,
		resetInvalid: g.settings.config.Consumer.Group.ResetInvalidOffsets,
		interceptors: g.settings.config.Consumer.Interceptors,
		observer:     g.settings.Observer,
		openLog:      reporting.NewOpenLog(g.settings.log),
		done:         make(chan struct{}),
	}
	m.driver = newDriver(m, g.lastSetup())
	values := context.WithoutCancel(ctx)
	m.ctx, m.leave = context.WithCancelCause(values)
	m.deadline, m.endDeadline = pause.Outlast(m.ctx, g.settings.StopTimeout)
	m.life, m.endLife = context.WithCancel(values)
	m.findings.Reporter, m.findings.Logger = g.report, m.log
	m.findings.Count = func(d offsets.Discord, n int) { g.metrics.discords.WithLabelValues(string(d)).Add(float64(n)) }
	m.refusals = newRefusals(g.name, topics.Names, g.settings.CommitInterval, m.leave)
	m.users = newCallbacks(usercall.Limit(g.settings.RebalanceTimeout), g.settings.log, g.log, g.report.SendEvenAfterClose, m.leave)
	return m
}

// build makes the parts of the membership, which run starts.
func (m *membership) build(ctx context.Context, kind sessions.Kind) error {
	g := m.group
	k, err := newKafka(m.life, g.brokers, g.name, g.settings.config, g.zk.Timeout(), g.fetchOptions(), &g.reach)
	if err != nil {
		return err
	}
	m.kafka, m.fetcher, m.logOffset, m.at = k, k.fetcher, k.logOffset, k.at
	m.catalog = m.newCatalog(k)
	err = m.firstLook(ctx)
	if err == nil {
		err = m.checkGroup(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			return errNotJoined
		}
		return err
	}
	audited := m.audited
	if g.settings.Fence != nil {
		audited = nil // the user's transactions store the offsets
	}
	m.committer = offsets.NewCommitter(offsets.Options{
		Place:       m.place,
		Audited:     audited,
		Reachable:   g.isReachable,
		Store:       k.offsets,
		Abort:       k.abortCommits,
		Auto:        g.settings.autoCommit,
		Interval:    g.settings.CommitInterval,
		Timeout:     g.zk.Timeout(),
		MaxUnmarked: g.settings.MaxUnmarked,
		CurrentID:   m.catalog.ID,
		Elsewhere:   m.isElsewhere,
		Kept:        m.kept,
		Notify:      m.notifyCommitted,
		Report:      m.reportCommit,
		Text:        m.report.Text,
		Logger:      g.settings.log,
		Errors:      g.log,
		Count:       m.countCommit,
	})
	m.reader = offsets.NewReader(k.offsets)
	return m.buildOwner(kind)
}

// fetchOptions returns the options of the fetcher, without those that newKafka sets.
func (g *Group) fetchOptions() fetch.Options {
	return fetch.Options{
		MaxBytes:      g.settings.BufferBytes,
		MaxBatchBytes: g.settings.MaxBatchBytes,
		Errors:        g.log,
		OnReset:       func(topic string, _ int32) { g.metrics.stuck.WithLabelValues(labelOf(topic)).Inc() },
		OnFailure:     g.metrics.failedToFetch,
		Reachable:     g.isReachable,
	}
}

// buildOwner makes the allocator and the Owner. In eager sessions the Owner loses the claim of a handler that does not return
// later than the driver.
func (m *membership) buildOwner(kind sessions.Kind) (err error) {
	g, set := m.group, m.group.settings
	stopTimeout := set.StopTimeout - cleanupGrace(set.StopTimeout)
	var grace time.Duration
	if kind.Eager {
		grace = ownTime(set.RebalanceTimeout)
	}
	m.cluster = m.clusterID()
	opts := set.allocator()
	opts.Seed, opts.Topics, opts.Cluster = m.catalog.Partitions(), m.topics.Entries, m.cluster
	opts.Rejoin, opts.StopTimeout = g.joined.Load(), stopTimeout
	opts.OnError, opts.Registerer = m.allocatorError, g.registerer
	m.allocator, err = allocator.New(g.zk, g.name, set.Name, opts)
	if err != nil {
		return failure("", "", err)
	}
	m.tree.path = m.allocator.GroupPath()
	handler := func(ctx context.Context, cl *ownership.Claim) error { return m.own(ctx, cl) }
	m.owner, err = ownership.New(m.allocator, handler, ownership.Options{
		RebalanceTimeout: set.RebalanceTimeout + grace,
		StopTimeout:      stopTimeout,
		Accept:           m.accept,
		Observer:         m.observer,
		OnError:          m.ownerError,
		Logger:           set.Logger,
		Registerer:       g.registerer,
	})
	if err != nil {
		return failure("", "", err)
	}
	return nil
}

// run joins, and returns when the member has left: because leave was called, or because the membership has ended by itself. run
// calls no user code, and waits for none after late has ended.
func (m *membership) run() {
	defer close(m.done)
	var background sync.WaitGroup
	background.Go(func() { m.committer.Run(m.life) })
	background.Go(func() { m.reader.Run(m.life) })
	background.Go(func() { m.watchTrust(m.life) })
	background.Go(func() { m.watchKafka(m.life) })
	background.Go(func() { m.watchClient(m.ctx) })
	background.Go(func() { m.watchHandlers(m.ctx) })
	background.Go(func() { m.watchShut(m.ctx) })
	background.Go(func() { m.watchStumbled(m.life) })
	background.Go(func() { m.watchEnd(m.ctx) })
	background.Go(func() { m.watchPlans(m.ctx) })
	background.Go(func() { m.prepare(m.ctx) })
	defer context.AfterFunc(m.ctx, m.driver.stop)()
	asked := make(chan struct{}, 1)
	background.Go(func() { m.watcher(asked).Run(m.ctx) })
	if m.group.settings.Zone != "" {
		writer := &topics.ZoneWriter{Kafka: m.catalog.Racks, Group: m.allocator.Zones, Update: m.allocator.UpdateZones}
		background.Go(func() { writer.Run(m.ctx, asked, m.zonesFailed) })
	}

	var owned error
	if err := m.owner.Run(m.ctx); err != nil {
		owned = failure("", "", err)
	}
	byItself := m.ctx.Err() == nil || !errors.Is(context.Cause(m.ctx), context.Canceled)
	m.leave(owned) // StopTimeout begins now, if it has not begun before
	kafkaconn.Await(m.deadline, m.background.Ended())
	last := m.driver.end()
	if last != nil {
		<-last.returned
	}

	m.endLife() // before kafka ends, so that nothing connects again
	background.Wait()
	m.judging.Wait()
	m.catalog.End()
	m.openLog.Flush()
	why := errors.Join(m.refusals.reason(), owned, m.clusterFault())
	m.group.noteRefusal(why, m.refusals.began)
	if byItself && why != nil {
		m.group.log.AllGone(reporting.KindMember)
		m.group.leftOut(why, m.refusals.since())
	} else {
		m.group.log.AllGone()
	}
	err := errors.Join(owned, m.refusals.reason(), m.clusterFault(), m.users.end(m.deadline), m.kafka.endUntil(m.deadline))
	m.endDeadline()
	m.group.setAbandoned(m)
	m.endTenure(err)
	if err != nil && last == nil && !byItself {
		m.group.log.Failed(reporting.KindMember, "", err) // no call runs that could return the error
		m.report.SendEvenAfterClose(err)
		err = nil
	}
	m.err = err
}

// watchTrust aborts the connections that carry commits when trust in the session ends, so that no commit in flight arrives after
// the next owner's commits.
func (m *membership) watchTrust(ctx context.Context) {
	for {
		inc, err := m.group.zk.Incarnation(ctx)
		if err != nil {
			return
		}
		select {
		case <-inc.Context().Done():
			m.kafka.abortCommits()
		case <-ctx.Done():
			return
		}
	}
}

// notifyAsync has the user's Observer notified, and then calls then. It does not block. It returns nil without an Observer.
func (m *membership) notifyAsync(e Event, then func()) *usercall.Call {
	if m.observer == nil {
		return nil
	}
	return m.users.Go(usercall.Callback{Kind: callObserver, About: string(e.Kind)}, func() error { m.observer(e); return nil }, func(err error) {
		if err != nil {
			m.report.Send(err)
		}
		if then != nil {
			then()
		}
	})
}

// notifyCommitted has the Observer notified that an offset was stored, and then calls observed. It returns false without an
// Observer.
func (m *membership) notifyCommitted(s offsets.Committed, observed func()) bool {
	return m.notifyAsync(Event{
		Kind: Committed, Topic: s.Partition.Topic, Partition: s.Partition.ID,
		Token: s.Claim.Token(), Version: s.Claim.Version(), Offset: s.Offset, Since: s.Since,
	}, observed) != nil
}

// lateMark counts and logs a mark of a partition that is not open.
func (m *membership) lateMark(p kiel.Partition, offset int64) {
	m.metrics.ignored.WithLabelValues(lateMark).Inc()
	m.log.Debug("mark came too late", "partition", p.String(), "offset", offset)
}

// countCommit counts the commit of one partition's offset, and passes its result to refusals.
func (m *membership) countCommit(p kiel.Partition, err error, took time.Duration) {
	m.metrics.committed(err, took)
	m.refusals.committed(p, err)
	switch {
	case err == nil:
		m.report.Works(p, reporting.KindCommit)
	case errors.Is(err, offsets.ErrElsewhere):
		m.checkCluster()
	}
}

// accept returns an ErrTopicMismatch for a partition of a topic that this member does not consume. ownership names the partition.
func (m *membership) accept(p kiel.Partition) error {
	if m.topics.Asks(p.Topic) {
		return nil
	}
	return ErrTopicMismatch
}

// ownerError passes an error of ownership, which is in the log, to the user. It skips errors that were passed before.
func (m *membership) ownerError(err error) {
	if errors.Is(err, errReported) {
		return
	}
	if errors.Is(err, ErrTopicMismatch) {
		m.metrics.mismatches.Inc()
	}
	m.tellDriver(err)
	if e, ok := errors.AsType[*ownership.PartitionError](err); ok {
		m.report.SendOf(e.Partition, failure("", "", e.Err))
	} else if e, ok := errors.AsType[*ownership.StuckError](err); ok {
		m.report.SendOf(e.Partition, failure("", "", e))
	} else {
		m.report.Send(failure("", "", err))
	}
}

// tellDriver tells the driver of a handler that is overdue, and of partitions that can't be claimed.
func (m *membership) tellDriver(err error) {
	if e, ok := errors.AsType[*ownership.StuckError](err); ok {
		m.driver.about(e.Partition, sessions.Overtime)
		return
	}
	if errors.Is(err, ownership.ErrLost) {
		return // what has vanished is claimed again
	}
	if e, ok := errors.AsType[*ownership.PartitionError](err); ok {
		m.driver.about(e.Partition, sessions.Blocked) // if it is not held
		return
	}
	for _, blocked := range []error{ownership.ErrPersistentClaim, ownership.ErrForeignClaim, ownership.ErrUnclaimed} {
		if errors.Is(err, blocked) { // that error has no list of partitions
			for _, p := range m.owner.Status().Partitions {
				if p.State == status.Blocked {
					m.driver.about(kiel.Partition{Topic: p.Topic, ID: p.Partition}, sessions.Blocked)
				}
			}
			return
		}
	}
}

// allocatorError passes an error of the allocator, which is in the log, to the user. It skips topics that no member asks for:
// they concern nothing that this member consumes.
func (m *membership) allocatorError(_ context.Context, err error) {
	if !errors.Is(err, allocator.ErrUnwantedTopic) {
		m.report.Send(failure("", "", err))
	}
}
