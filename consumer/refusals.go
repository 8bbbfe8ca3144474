package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/pause"
)

// refusalLimit is for how long Kafka may refuse a topic or the group to a member that has worked before it leaves. An ACL that is
// replaced, or was deleted by mistake, is back sooner.
const refusalLimit = time.Minute

// refusalProof is for how long one refusal tells that access is refused, until the next: what was asked seldom may have been granted
// in between.
const refusalProof = refusalLimit / 2

// refusalPause is how long a member that was refused waits before it joins again.
const refusalPause = 5 * time.Second

// refusals judges Kafka's refusals to let a member read a topic, or use the group, and makes the member leave when they stay.
// Only these two count: a refused password, too, may be good again after the brokers' next restart, and it is reported.
type refusals struct {
	group string
	named []string      // the topics that are asked for by name
	leave func(error)   // makes the member leave; it does not block
	gap   time.Duration // between two refusals, of which the second begins a new stretch
	began time.Time     // when the membership began

	mu      sync.Mutex
	owned   map[kiel.Partition]answer // of the partitions that the member owns
	topics  map[string]*stretch
	commits stretch // of the group
	reads   stretch // of the group: of what it has stored. It is another operation than commits, which may be granted alone
	ended   error   // why the member was made to leave; nil if it was not
}

// answer is what Kafka's last answers for a partition said, and when the member came to own it.
type answer struct {
	access
	claimed time.Time
}

// access is what Kafka's last answers for a partition said.
type access int

const (
	unknown access = iota
	works
	unreadable    // it may not be opened, or read
	uncommittable // it is read, and its offset may not be stored
)

// stretch is the time in which Kafka has refused a topic, or the group, and granted it never.
type stretch struct {
	since, last time.Time     // the first and the last refusal; zero when the last answer was another one
	proven      time.Duration // of it, as far as refusals prove: one does for refusalProof at most
	granted     bool          // once since the membership began
}

// newRefusals returns refusals for a membership that begins now, asks for the topics named by name, and commits once per interval.
func newRefusals(group string, named []string, interval time.Duration, leave func(error)) *refusals {
	return &refusals{
		group: group, named: named, leave: leave, gap: 2 * max(refusalLimit, interval), began: time.Now(),
		owned: map[kiel.Partition]answer{}, topics: map[string]*stretch{},
	}
}

// claimed notes that the member owns p, until released is called.
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

// opened notes that Kafka lets the member read p.
func (r *refusals) opened(p kiel.Partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.worked(p)
}

// worked notes that p works. r.mu is held.
func (r *refusals) worked(p kiel.Partition) {
	r.owned[p] = answer{works, r.owned[p].claimed}
	r.topic(p).grant()
}

// readOffset notes that Kafka lets the member read what the group has stored.
func (r *refusals) readOffset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads.grant()
}

// failed notes why p could not be opened, or can't be read any more. It returns whether the member leaves because of that.
func (r *refusals) failed(p kiel.Partition, err error) bool { return r.judge(p, err, unreadable) }

// committed notes what became of the commit of p's offset.
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

// judge makes the member leave if err is a refusal and there have been enough, and returns whether it has.
func (r *refusals) judge(p kiel.Partition, err error, now access) bool {
	var reason error
	r.mu.Lock()
	switch {
	case errors.Is(err, sarama.ErrGroupAuthorizationFailed):
		g := &r.reads // of a commit that an opening has failed with, committed was told, too
		if now == uncommittable {
			g = &r.commits
		}
		if g.refuse(r.gap); r.atStart(g) || g.stays() {
			reason = refused("group", r.group, g.lasted(), err)
		}
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		t := r.topic(p)
		if was, owned := r.owned[p]; owned && was.access != unreadable {
			if was.access == works {
				t.since = time.Time{} // until now
			}
			r.owned[p] = answer{now, was.claimed}
		}
		if t.refuse(r.gap); r.atStart(t) && slices.Contains(r.named, p.Topic) || t.stays() && r.allRefused(p.Topic) {
			reason = refused("topic", p.Topic, t.lasted(), err)
		}
	}
	if r.ended == nil {
		r.ended = reason
	}
	r.mu.Unlock()
	if reason != nil {
		r.leave(reason)
	}
	return reason != nil || now == unreadable && r.reason() != nil
}

// atStart returns whether the membership is young and nothing was granted to it. r.mu is held.
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

// allRefused returns whether all partitions of a topic that the member owns are refused. One that gets no answer for long, since it
// has no leader or its Fence is slow, tells nothing. r.mu is held.
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

// grant notes that Kafka has refused nothing now.
func (s *stretch) grant() { *s = stretch{granted: true} }

// refuse notes a refusal.
func (s *stretch) refuse(gap time.Duration) {
	now := time.Now()
	if s.since.IsZero() || now.Sub(s.last) > gap {
		s.since, s.last, s.proven = now, now, 0
	}
	s.proven += min(now.Sub(s.last), refusalProof)
	s.last = now
}

// lasted returns how long the stretch is.
func (s *stretch) lasted() time.Duration { return s.last.Sub(s.since) }

// stays returns whether the stretch is so long that it is not waited for its end.
func (s *stretch) stays() bool { return s.proven >= refusalLimit }

// refused returns the error for what Kafka has refused for a while, with what to do about it.
func refused(what, name string, lasted time.Duration, err error) error {
	if lasted > 0 {
		err = fmt.Errorf("refused for %v: %w", lasted.Round(time.Second), err)
	}
	return fmt.Errorf("consumer: Kafka's ACLs must allow READ on %s %q: %w", what, name, err)
}

// noteRefusal notes when a membership that ended with err was refused, if it was.
func (g *Group) noteRefusal(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = time.Time{}
	if errors.Is(err, sarama.ErrTopicAuthorizationFailed) || errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
		g.refused = time.Now()
	}
}

// awaitRefusal waits until the pause after a refusal is over, or ctx ends.
func (g *Group) awaitRefusal(ctx context.Context) {
	g.mu.Lock()
	refused := g.refused
	g.mu.Unlock()
	if !refused.IsZero() {
		_ = pause.Sleep(ctx, time.Until(refused.Add(refusalPause)))
	}
}
