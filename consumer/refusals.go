package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/pause"
)

// refusalLimit is how long Kafka may refuse a topic or the group, after it has granted them, before the member leaves. An ACL
// that is replaced, or was deleted by mistake, is back sooner.
const refusalLimit = time.Minute

// refusalProof is how long one refusal counts at most, until the next: between two distant refusals access may have been granted.
const refusalProof = refusalLimit / 2

// The pauses after a refusal, before the member joins again. Each membership that is refused takes partitions from the other
// members and gives them back. So the pause doubles from one to the next, and begins anew after a membership that has lasted for
// maxRefusalPause. A member that is refused before it joins costs the others nothing, so it always waits for refusalPause.
const (
	refusalPause    = 5 * time.Second
	maxRefusalPause = 5 * time.Minute
)

// refusals counts how long ACLs refuse a topic or the group to the member, and makes the member leave when they go on to refuse
// it. A refused password does not count: it may be accepted again after the brokers' next restart. It is only reported.
type refusals struct {
	group string
	named []string      // the topics that are asked for by name
	leave func(error)   // makes the member leave; it does not block
	gap   time.Duration // the longest time between two refusals of one stretch
	began time.Time     // when the membership began

	mu      sync.Mutex
	owned   map[kiel.Partition]answer // the answers for the partitions that the member owns
	topics  map[string]*stretch       // the refusals of each topic
	commits stretch                   // the refusals to commit offsets of the group
	reads   stretch                   // the refusals to read offsets of the group, which ACLs may refuse alone
	ended   error                     // why the member was made to leave; nil if it was not
	first   time.Time                 // when the stretch of refusals began for which it was
}

// answer is Kafka's last answer for a partition, and when the member claimed it.
type answer struct {
	access
	claimed time.Time
}

// access is what Kafka's last answer for a partition allows.
type access int

const (
	unknown       access = iota // no answer yet
	works                       // the partition may be read, and its offset may be committed
	unreadable                  // the partition may not be read
	uncommittable               // the partition may be read, and its offset may not be committed
)

// stretch is a time in which Kafka has refused a topic, or the group, without granting it in between.
type stretch struct {
	since, last time.Time     // the first and the last refusal; zero when the last answer was none
	proven      time.Duration // the time that counts as refused; each refusal counts for refusalProof at most
	granted     bool          // access was granted once since the membership began
}

// newRefusals returns the refusals of a membership that begins now. named are the topics that it asks for by name, interval is
// the time between two commits.
func newRefusals(group string, named []string, interval time.Duration, leave func(error)) *refusals {
	return &refusals{
		group: group, named: named, leave: leave, gap: 2 * max(refusalLimit, interval), began: time.Now(),
		owned: map[kiel.Partition]answer{}, topics: map[string]*stretch{},
	}
}

// claimed adds p to the member's partitions, until released is called.
func (r *refusals) claimed(p kiel.Partition) (released func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owned[p] = answer{unknown, time.Now()}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.owned, p)
	}
}

// opened stores that Kafka lets the member read p.
func (r *refusals) opened(p kiel.Partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.worked(p)
}

// worked stores that p may be read and committed. r.mu is held.
func (r *refusals) worked(p kiel.Partition) {
	r.owned[p] = answer{works, r.owned[p].claimed}
	r.topic(p).grant()
}

// readOffset stores that Kafka lets the member read offsets of the group.
func (r *refusals) readOffset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads.grant()
}

// failed handles the error with which p could not be opened or read. It reports whether the member leaves because of a refusal.
func (r *refusals) failed(p kiel.Partition, err error) bool { return r.judge(p, err, unreadable) }

// committed handles the result of a commit of p's offset.
func (r *refusals) committed(p kiel.Partition, err error) {
	if err != nil {
		r.judge(p, err, uncommittable)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commits.grant()
	r.reads.grant()
	if r.owned[p].access == uncommittable {
		r.worked(p)
	}
}

// judge makes the member leave if err is a refusal and refusals have lasted long enough. It reports whether the member leaves.
func (r *refusals) judge(p kiel.Partition, err error, now access) bool {
	var (
		reason error
		first  time.Time
	)
	r.mu.Lock()
	switch {
	case errors.Is(err, sarama.ErrGroupAuthorizationFailed):
		g := &r.reads // also when an opening's commit was refused: committed has counted that before
		if now == uncommittable {
			g = &r.commits
		}
		if g.refuse(r.gap); r.atStart(g) || g.stays() {
			reason, first = reporting.Refused("group", r.group, g.lasted(), err), g.since
		}
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		t := r.topic(p)
		if was, owned := r.owned[p]; owned && was.access != unreadable {
			if was.access == works {
				t.since = time.Time{} // p was readable until now, so a new stretch begins
			}
			r.owned[p] = answer{now, was.claimed}
		}
		if t.refuse(r.gap); r.atStart(t) && slices.Contains(r.named, p.Topic) || t.stays() && r.allRefused(p.Topic) {
			reason, first = reporting.Refused("topic", p.Topic, t.lasted(), err), t.since
		}
	}
	if r.ended == nil {
		r.ended, r.first = reason, first
	}
	r.mu.Unlock()
	if reason != nil {
		r.leave(reason)
	}
	return reason != nil || now == unreadable && r.reason() != nil
}

// atStart reports whether the last refusal came within refusalLimit after the membership's beginning, and access was never
// granted. r.mu is held.
func (r *refusals) atStart(s *stretch) bool { return !s.granted && s.last.Sub(r.began) < refusalLimit }

// topic returns the stretch of p's topic. r.mu is held.
func (r *refusals) topic(p kiel.Partition) *stretch {
	t := r.topics[p.Topic]
	if t == nil {
		t = &stretch{}
		r.topics[p.Topic] = t
	}
	return t
}

// allRefused reports whether all partitions of a topic that the member owns are refused. A partition that has had no answer for
// refusalLimit, because it has no leader or its Fence is slow, does not count. r.mu is held.
func (r *refusals) allRefused(topic string) bool {
	for p, a := range r.owned {
		if p.Topic == topic && (a.access == works || a.access == unknown && time.Since(a.claimed) < refusalLimit) {
			return false
		}
	}
	return true
}

// reason returns why the member was made to leave, or nil.
func (r *refusals) reason() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// since returns when the refusals began for which the member was made to leave; zero if it was not.
func (r *refusals) since() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

// some reports whether Kafka's last answers refuse the group, or a topic of which the member owns a partition.
func (r *refusals) some() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.owned {
		if t := r.topics[p.Topic]; t != nil && !t.since.IsZero() {
			return true
		}
	}
	return !r.commits.since.IsZero() || !r.reads.since.IsZero()
}

// grant ends the stretch: Kafka has granted access.
func (s *stretch) grant() { *s = stretch{granted: true} }

// refuse adds a refusal to the stretch, or begins a new stretch if the last refusal is older than gap.
func (s *stretch) refuse(gap time.Duration) {
	now := time.Now()
	if s.since.IsZero() || now.Sub(s.last) > gap {
		s.since, s.last, s.proven = now, now, 0
	}
	s.proven += min(now.Sub(s.last), refusalProof)
	s.last = now
}

// lasted returns the time from the first to the last refusal.
func (s *stretch) lasted() time.Duration { return s.last.Sub(s.since) }

// stays reports whether refusals have lasted so long that the member leaves.
func (s *stretch) stays() bool { return s.proven >= refusalLimit }

// groupCheckTimeout is how long a member waits for Kafka to answer whether it may use the group, before it joins without knowing.
const groupCheckTimeout = 2 * time.Second

// checkGroup returns the refusal if Kafka lets the member not read the group's offsets. So a member without access does not join,
// and takes no partitions from the others. Other errors are left to the openings, which try again.
func (m *membership) checkGroup(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, groupCheckTimeout)
	defer cancel()
	for topic, ids := range m.catalog.Partitions() {
		if len(ids) == 0 {
			continue
		}
		p := kiel.Partition{Topic: topic, ID: ids[0]}
		found, err := m.kafka.offsets.Fetch(ctx, []kiel.Partition{p})
		if err = errors.Join(err, found[p].Err); errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
			return reporting.Refused("group", m.group.name, 0, err)
		}
		break // one is enough: access is to the whole group
	}
	return nil
}

// noteRefusal sets when the next membership may join, if err, with which this one has ended, is a refusal, by Kafka or by the
// members of another cluster. joined is when this one began; zero if it has not joined.
func (g *Group) noteRefusal(err error, joined time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.joinAfter = time.Time{}
	if !joined.IsZero() && time.Since(joined) >= maxRefusalPause {
		g.refusals = 0
	}
	if errors.Is(err, ErrOtherCluster) {
		joined = time.Time{} // such a member takes nothing from the others, so the pause need not grow
	} else if !errors.Is(err, sarama.ErrTopicAuthorizationFailed) && !errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
		return
	}
	wait := refusalPause
	if !joined.IsZero() {
		wait = pause.Doubling(refusalPause, maxRefusalPause).After(g.refusals)
		g.refusals++
	}
	g.joinAfter = time.Now().Add(wait)
}

// awaitRefusal waits until the pause after a refusal is over, or ctx ends. It logs a pause that is longer than the first.
func (g *Group) awaitRefusal(ctx context.Context) {
	g.mu.Lock()
	wait := time.Until(g.joinAfter)
	g.mu.Unlock()
	if wait > refusalPause {
		g.settings.log.WarnContext(ctx, "refused by Kafka again, waiting before the next join", "after", wait.Round(time.Second))
	}
	_ = pause.Sleep(ctx, wait)
}
