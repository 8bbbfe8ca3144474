package consumer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/bubble"
)

var (
	errTopic = fmt.Errorf("read: %w", sarama.ErrTopicAuthorizationFailed)
	errGroup = fmt.Errorf("commit: %w", sarama.ErrGroupAuthorizationFailed)
)

// TestRefusals checks which refusals make a member leave. Each case ends with that refusal, if there is one.
func TestRefusals(t *testing.T) {
	p0, p1, other := tp("t", 0), tp("t", 1), tp("other", 0)
	type run struct {
		*refusals
		left error
	}
	every := func(d, limit time.Duration, f func()) {
		for began := time.Now(); time.Since(began) < limit; time.Sleep(d) {
			f()
		}
	}
	for name, c := range map[string]struct {
		do     func(r *run)
		leaves error
		says   string
	}{
		"all refused for a minute": {func(r *run) {
			every(time.Second, time.Minute, func() { r.failed(p0, errTopic); r.failed(p1, errTopic) })
			r.failed(p0, errTopic)
		}, errTopic, `READ on topic "t": refused for 1m0s: read: kafka server`},
		"all refused for less": {func(r *run) {
			every(time.Second, 59*time.Second, func() { r.failed(p0, errTopic); r.failed(p1, errTopic) })
		}, nil, ""},
		"refused twice, in between nothing": {func(r *run) {
			every(time.Second, 30*time.Second, func() { r.failed(p0, errTopic); r.failed(p1, errTopic) })
			time.Sleep(time.Hour)
			every(time.Second, 59*time.Second, func() { r.failed(p0, errTopic) })
		}, nil, ""},
		"one works now and then": {func(r *run) {
			every(time.Second, 10*time.Minute, func() {
				r.failed(p0, errTopic)
				r.failed(p1, errTopic)
				if time.Now().Second() == 0 {
					r.opened(p1)
				}
			})
		}, nil, ""},
		"one works until it is refused, too": {func(r *run) {
			every(time.Second, 10*time.Minute, func() { r.failed(p0, errTopic) })
			every(time.Second, 59*time.Second, func() { r.failed(p0, errTopic); r.failed(p1, errTopic) })
		}, nil, ""},
		"one is given to another member": {func(r *run) {
			every(time.Second, 10*time.Minute, func() { r.failed(p0, errTopic) })
			delete(r.owned, p1)
			r.failed(p0, errTopic)
		}, errTopic, `READ on topic "t"`},
		"one comes when the other is refused": {func(r *run) {
			delete(r.owned, p1)
			every(time.Second, time.Minute-time.Second, func() { r.failed(p0, errTopic) })
			r.claimed(p1)
			time.Sleep(2 * time.Second)
			r.failed(p0, errTopic)
			if r.left != nil { // too early
				r.left = nil
				return
			}
			r.failed(p1, errTopic)
		}, errTopic, `READ on topic "t"`},
		"marks can't be stored": {func(r *run) {
			every(time.Second, time.Minute, func() { r.committed(p0, errTopic); r.committed(p1, errTopic) })
			r.committed(p1, errTopic)
		}, errTopic, `READ on topic "t"`},
		"marks can be stored, but nothing is read": {func(r *run) {
			every(time.Second, time.Minute, func() {
				r.committed(p0, nil)
				r.committed(p1, nil)
				r.failed(p0, errTopic)
				r.failed(p1, errTopic)
			})
			r.failed(p0, errTopic)
		}, errTopic, `READ on topic "t"`},
		"one mark is stored again": {func(r *run) {
			every(time.Second, 50*time.Second, func() { r.committed(p0, errTopic); r.committed(p1, errTopic) })
			r.committed(p1, nil)
			every(time.Second, 50*time.Second, func() { r.committed(p0, errTopic); r.committed(p1, errTopic) })
		}, nil, ""},
		"the group": {func(r *run) {
			every(time.Second, time.Minute, func() { r.committed(p0, errGroup) })
			r.committed(p0, errGroup)
		}, errGroup, `READ on group "g": refused for 1m0s: commit: kafka server`},
		"the group, with marks that come seldom": {func(r *run) {
			every(110*time.Second, 5*time.Minute, func() { r.committed(p0, errGroup) })
		}, errGroup, `READ on group "g": refused for 3m40s`},
		"the group twice, and nothing in between": {func(r *run) {
			r.committed(p0, errGroup)
			time.Sleep(time.Minute)
			r.committed(p0, errGroup)
		}, nil, ""},
		"the topic twice, and nothing in between": {func(r *run) {
			r.failed(p0, errTopic)
			r.failed(p1, errTopic)
			time.Sleep(time.Minute)
			r.failed(p0, errTopic)
			r.failed(p1, errTopic)
		}, nil, ""},
		"the group, when offsets are read": {func(r *run) {
			every(time.Second, time.Minute, func() { r.failed(p0, errGroup) })
			r.failed(p0, errGroup)
		}, errGroup, `READ on group "g": refused for 1m0s`},
		"the group's commits, while offsets are read": {func(r *run) {
			every(time.Second, time.Minute, func() { r.readOffset(); r.committed(p0, errGroup); r.failed(p0, errGroup) })
			r.committed(p0, errGroup)
			if !r.failed(p0, errGroup) {
				r.left = nil
			}
		}, errGroup, `READ on group "g": refused for 1m0s`},
		"one without a leader": {func(r *run) {
			r.claimed(p1)
			every(time.Second, time.Minute, func() { r.failed(p0, errTopic) })
			r.failed(p0, errTopic)
		}, errTopic, `READ on topic "t": refused for 1m0s`},
		"the group, now and then": {func(r *run) {
			every(30*time.Second, 10*time.Minute, func() { r.committed(p0, errGroup); r.committed(p1, nil) })
		}, nil, ""},
		"the group, once in a while": {func(r *run) {
			every(time.Hour, 10*time.Hour, func() { r.committed(p0, errGroup) })
		}, nil, ""},
		"a topic that comes later": {func(r *run) {
			r.claimed(other)
			every(time.Second, time.Minute, func() { r.failed(other, errTopic) })
			r.failed(other, errTopic)
		}, errTopic, `READ on topic "other": refused for 1m0s`},
		"a topic that comes later, for less": {func(r *run) {
			r.claimed(other)
			every(time.Second, 59*time.Second, func() { r.failed(other, errTopic) })
		}, nil, ""},
		"another error": {func(r *run) {
			every(time.Second, 10*time.Minute, func() { r.failed(p0, sarama.ErrSASLAuthenticationFailed); r.committed(p1, errors.New("no")) })
		}, nil, ""},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			r := &run{}
			r.refusals = newRefusals("g", []string{"t", "other"}, time.Second, func(err error) { r.left = err })
			for _, p := range []kiel.Partition{p0, p1} {
				r.claimed(p)
				r.committed(p, nil)
				r.opened(p)
			}
			time.Sleep(time.Hour)
			c.do(r)
			if !errors.Is(r.left, c.leaves) || (c.leaves == nil) != (r.left == nil) || !errors.Is(r.reason(), r.left) {
				t.Fatalf("left because of %v, want %v", r.left, c.leaves)
			}
			if r.left != nil && !strings.Contains(r.left.Error(), c.says) {
				t.Errorf("%q does not say %q", r.left, c.says)
			}
		})
	}
}

// In the first minute of a membership one refusal is enough if access was never granted.
func TestRefusalsAtStart(t *testing.T) {
	for name, c := range map[string]struct {
		do     func(r *refusals)
		leaves error
	}{
		"a topic":                            {func(r *refusals) { r.failed(tp("t", 0), errTopic) }, errTopic},
		"the group":                          {func(r *refusals) { r.failed(tp("t", 0), errGroup) }, errGroup},
		"a topic, after the other":           {func(r *refusals) { r.opened(tp("other", 0)); r.failed(tp("t", 0), errTopic) }, errTopic},
		"a topic, after one partition":       {func(r *refusals) { r.opened(tp("t", 1)); r.failed(tp("t", 0), errTopic) }, nil},
		"the group, after a commit":          {func(r *refusals) { r.committed(tp("t", 1), nil); r.failed(tp("t", 0), errGroup) }, nil},
		"the group, after a read":            {func(r *refusals) { r.readOffset(); r.failed(tp("t", 0), errGroup) }, nil},
		"commits of the group, after a read": {func(r *refusals) { r.readOffset(); r.committed(tp("t", 0), errGroup) }, errGroup},
		"a topic that a pattern has found":   {func(r *refusals) { r.failed(tp("found", 0), errTopic) }, nil},
		"a topic, late":                      {func(r *refusals) { time.Sleep(time.Minute); r.failed(tp("t", 0), errTopic) }, nil},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			var left error
			r := newRefusals("g", []string{"t", "other"}, time.Second, func(err error) { left = err })
			for _, p := range []kiel.Partition{tp("t", 0), tp("t", 1), tp("other", 0)} {
				r.claimed(p)
			}
			c.do(r)
			if !errors.Is(left, c.leaves) || (c.leaves == nil) != (left == nil) {
				t.Errorf("left because of %v, want %v", left, c.leaves)
			}
		})
	}
}

// A commit that is refused after its partition was released leaves nothing behind that would count later.
func TestRefusalsOfReleasedPartitions(t *testing.T) {
	r := newRefusals("g", []string{"t", "other"}, time.Second, func(error) {})
	r.claimed(tp("t", 0))()
	r.committed(tp("t", 0), errTopic)
	if len(r.owned) > 0 {
		t.Errorf("owned: %v", r.owned)
	}
}

// A topic of which this member owns nothing any more is refused by nobody: it must not keep the trouble "member" for ever.
func TestRefusalOfATopicThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tp("t", 0)
		r := newRefusals("g", nil, 0, func(error) {})
		released := r.claimed(p)
		r.failed(p, errTopic)
		released()
		time.Sleep(24 * time.Hour)
		if r.some() {
			t.Error("a day after the partition was given up Kafka still refuses it")
		}
	})
}
