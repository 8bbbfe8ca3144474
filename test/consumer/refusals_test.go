package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/status"
)

// The requests that Kafka refuses to a principal without an operation on a topic or a group.
var (
	describeTopic = []kmsg.Key{kmsg.Metadata, kmsg.ListOffsets, kmsg.OffsetFetch}
	readTopic     = []kmsg.Key{kmsg.Fetch, kmsg.OffsetCommit}
	describeGroup = []kmsg.Key{kmsg.FindCoordinator, kmsg.OffsetFetch}
	readGroup     = []kmsg.Key{kmsg.OffsetCommit}
)

// refuseTopic makes Kafka refuse requests for the topic, of the given partitions or of all.
func (r *rig) refuseTopic(keys []kmsg.Key, partitions ...int32) *kfake.FaultHandle {
	return r.kafka.Fault(kfake.Fault{Keys: keys, Topic: topic, Partitions: partitions, Err: kerr.TopicAuthorizationFailed, Count: -1})
}

// refuseGroup makes Kafka refuse requests for the group.
func (r *rig) refuseGroup(keys []kmsg.Key) *kfake.FaultHandle {
	return r.kafka.Fault(kfake.Fault{Keys: keys, Group: group, Err: kerr.GroupAuthorizationFailed, Count: -1})
}

// refusal is what a principal may not do.
type refusal struct {
	refuse func(r *rig) *kfake.FaultHandle
	want   error
	advice string
}

// refusals returns the ways in which a principal lacks access. Whoever may READ may DESCRIBE, too.
func refusals() map[string]refusal {
	onTopic := func(keys ...kmsg.Key) refusal {
		return refusal{func(r *rig) *kfake.FaultHandle { return r.refuseTopic(keys) }, sarama.ErrTopicAuthorizationFailed, `READ on topic "t"`}
	}
	onGroup := func(keys ...kmsg.Key) refusal {
		return refusal{func(r *rig) *kfake.FaultHandle { return r.refuseGroup(keys) }, sarama.ErrGroupAuthorizationFailed, `READ on group "g"`}
	}
	return map[string]refusal{
		"topic":                onTopic(append(readTopic, describeTopic...)...),
		"topic, not described": onTopic(readTopic...),
		"fetching":             onTopic(kmsg.Fetch),
		"commits of the topic": onTopic(kmsg.OffsetCommit),
		"group":                onGroup(append(readGroup, describeGroup...)...),
		"commits of the group": onGroup(kmsg.OffsetCommit),
	}
}

// check waits for what Consume returns and checks it.
func (f refusal) check(t *testing.T, m *member) {
	t.Helper()
	var err error
	select {
	case err = <-m.done:
	case <-time.After(2 * time.Minute):
		t.Fatal("Consume does not return")
	}
	if !errors.Is(err, f.want) || !strings.Contains(err.Error(), f.advice) {
		t.Errorf("Consume: %v, want %v with the advice %s", err, f.want, f.advice)
	}
}

// A member that may not read a topic, or use the group, is told so at once, and does not stay in the group.
func TestRefusedAtStart(t *testing.T) {
	cases := refusals()
	for name, keys := range map[string][]kmsg.Key{"ends of the topic": {kmsg.ListOffsets}, "offsets of the topic": {kmsg.OffsetFetch}} {
		cases[name] = refusal{func(r *rig) *kfake.FaultHandle {
			if keys[0] == kmsg.OffsetFetch {
				r.commitAs("", 0, 0) // kfake has no offsets to refuse of a group that it does not know
			}
			return r.refuseTopic(keys)
		}, sarama.ErrTopicAuthorizationFailed, `READ on topic "t"`}
	}
	for name, keys := range map[string][]kmsg.Key{"coordinator": {kmsg.FindCoordinator}, "offsets of the group": {kmsg.OffsetFetch}} {
		cases[name] = refusal{func(r *rig) *kfake.FaultHandle { return r.refuseGroup(keys) }, sarama.ErrGroupAuthorizationFailed, `READ on group "g"`}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inRig(t, 4, func(t *testing.T, r *rig) {
				r.createTopic("other", 2)
				fault := c.refuse(r)
				a := r.member("a", nil)
				began := time.Now()
				a.start(topic, "other")
				c.check(t, a)
				if d := time.Since(began); d > 5*time.Second {
					t.Errorf("Consume returned after %v", d)
				}
				began = time.Now() // in a loop it does not keep the group rebalancing
				a.start(topic, "other")
				c.check(t, a)
				if d := time.Since(began); d < 5*time.Second || d > 10*time.Second {
					t.Errorf("Consume returned after %v when it was called again", d)
				}
				a.start(topic, "other").leave() // nor does it wait for that when it is stopped
				if d := time.Since(began); d > 10*time.Second {
					t.Errorf("Consume was stopped after %v", d)
				}
				fault.Remove()
				b := r.member("b", nil).start(topic, "other")
				if d := until(t, "b has all", func() bool { return len(b.owns()) == 6 }); d > 5*time.Second {
					t.Errorf("b had all after %v", d)
				}
				a.start(topic, "other") // the refused member, too, may try again
				until(t, "both have some", func() bool { return len(a.owns()) == 3 && len(b.owns()) == 3 })
				a.leave()
				b.leave()
			})
		})
	}
}

// Access that is withdrawn while members consume ends Consume of each after a minute, although other topics can be read.
func TestRefusedAtRunTime(t *testing.T) {
	for name, c := range refusals() {
		t.Run(name, func(t *testing.T) {
			inRig(t, 4, func(t *testing.T, r *rig) {
				r.createTopic("other", 2)
				a, b := r.member("a", nil).start(topic, "other"), r.member("b", nil).start(topic, "other")
				until(t, "both have some", func() bool { return len(a.owns()) == 3 && len(b.owns()) == 3 })
				time.Sleep(2 * time.Minute)
				r.produce(1, 0, 1, 2, 3)
				until(t, "4 messages", func() bool { return total(a, b) == 4 })
				time.Sleep(2 * time.Second)

				defer c.refuse(r).Remove()
				withdrawn := time.Now()
				stop := r.keepProducing()
				for _, m := range []*member{a, b} {
					c.check(t, m)
					if d := time.Since(withdrawn); d < time.Minute || d > 80*time.Second {
						t.Errorf("%s: Consume returned after %v", m.name, d)
					}
				}
				stop()
			})
		})
	}
}

// A refusal goes on when the call has ended, and so does the trouble, until the member is at work again. What it waits for has
// the refusal.
func TestTroubleOutlastsTheCall(t *testing.T) {
	for name, c := range refusals() {
		t.Run(name, func(t *testing.T) {
			inRig(t, 4, func(t *testing.T, r *rig) {
				fault := c.refuse(r)
				began := time.Now()
				a := r.member("a", nil)
				goesOn := func(when, waits string) {
					t.Helper()
					g := a.group.Status()
					i := slices.IndexFunc(g.Troubles, func(tr status.Trouble) bool { return tr.Kind == "member" })
					if i < 0 || g.Troubles[i].Until != nil || !strings.Contains(g.Troubles[i].Last, c.advice) {
						t.Errorf("%s: troubles %+v", when, g.Troubles)
					}
					if w := g.Self.Waiting; !strings.HasPrefix(w, waits+"; the last try: ") || !strings.Contains(w, c.advice) {
						t.Errorf("%s: it waits for %q", when, w)
					}
				}
				for range 3 {
					a.start()
					c.check(t, a)
					goesOn("the call has ended", "Consume has returned and was not called again")
				}
				a.start()
				time.Sleep(4 * time.Second)
				goesOn("another call waits", "Kafka to describe the topics")
				fault.Remove()
				until(t, "it has all", func() bool { return len(a.owns()) == 4 })
				time.Sleep(handlersLookedAt)
				g := a.group.Status()
				for _, tr := range g.Troubles {
					if tr.Until == nil || tr.Kind == "member" && tr.Since.After(began.Add(time.Second)) {
						t.Errorf("at work: trouble %+v, and the refusals began at %v", tr, began)
					}
				}
				if g.Self.Waiting != "" {
					t.Errorf("at work: it waits for %q", g.Self.Waiting)
				}
				a.leave()
			})
		})
	}
}

// handlersLookedAt is how long it takes until a member has looked at its handlers again.
const handlersLookedAt = 10*time.Second + time.Millisecond

// keepProducing appends a message to each of the topic's partitions once a second, until stop is called.
func (r *rig) keepProducing() (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
			}
			for p := range int32(4) {
				if r.prod.ProduceSync(r.t.Context(), &kgo.Record{Topic: topic, Partition: p}).FirstErr() == nil { // it may be refused, too
					r.mu.Lock()
					r.sent[partition{Topic: topic, ID: p}]++
					r.mu.Unlock()
				}
			}
		}
	}()
	return func() {
		close(done)
		<-stopped
	}
}

// Access that is given back within the minute costs nothing: the members read on, and no message is lost. That it is withdrawn
// often makes no minute of it.
func TestAccessIsGivenBack(t *testing.T) {
	for name, c := range refusals() {
		t.Run(name, func(t *testing.T) {
			inRig(t, 4, func(t *testing.T, r *rig) {
				a, b := r.member("a", nil).start(), r.member("b", nil).start()
				until(t, "both have two", func() bool { return len(a.owns()) == 2 && len(b.owns()) == 2 })
				for range 5 {
					fault := c.refuse(r)
					stop := r.keepProducing()
					time.Sleep(45 * time.Second)
					fault.Remove()
					stop()
					time.Sleep(15 * time.Second)
				}
				r.produce(10, 0, 1, 2, 3)
				time.Sleep(10 * time.Second)
				a.leave()
				b.leave()
				for p := range int32(4) {
					all := slices.Concat(a.h.offsets(topic, p), b.h.offsets(topic, p)) // what was not committed is read again
					slices.Sort(all)
					if n := int64(len(slices.Compact(all))); n != r.sent[partition{Topic: topic, ID: p}] {
						t.Errorf("%d messages of %d of %d were read", n, r.sent[partition{Topic: topic, ID: p}], p)
					}
				}
			})
		})
	}
}

// One partition that is refused ends nothing while another of the topic works.
func TestOnePartitionIsRefused(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", nil).start()
		until(t, "a has all", func() bool { return len(a.owns()) == 2 })
		defer r.refuseTopic(readTopic, 0).Remove()
		time.Sleep(10 * time.Minute)
		r.produce(5, 1)
		until(t, "5 messages", func() bool { return total(a) == 5 })
		if errs := a.errors(); len(errs) == 0 || !errors.Is(errs[0], sarama.ErrTopicAuthorizationFailed) {
			t.Errorf("reported %v", errs)
		}
		a.leave()
	})
}

// A group with Fence commits nothing. A refusal in the first minute, when the group was read before, is one that may pass.
func TestGroupIsRefusedWithFence(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(5, 0, 1)
		a := r.member("a", func(o *consumer.Options) {
			o.Config.Consumer.Offsets.AutoCommit.Enable = false
			o.Fence = func(context.Context, string, int32) error { return nil }
		}).start()
		until(t, "10 messages", func() bool { return a.h.count() == 10 })
		fault := r.refuseGroup(describeGroup)
		r.grow(3)
		until(t, "a refusal", func() bool {
			return slices.ContainsFunc(a.errors(), func(err error) bool { return errors.Is(err, sarama.ErrGroupAuthorizationFailed) })
		})
		time.Sleep(5 * time.Second)
		fault.Remove()
		until(t, "all are open", func() bool { return len(a.owns()) == 3 })

		defer r.refuseGroup(describeGroup).Remove()
		r.grow(4)
		refusal{want: sarama.ErrGroupAuthorizationFailed, advice: `READ on group "g"`}.check(t, a)
	})
}

// An operator may create a topic that a pattern finds, and give access a little later.
func TestFoundTopicIsRefusedAtFirst(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		a := r.member("a", func(o *consumer.Options) { o.Config.Metadata.RefreshFrequency = 10 * time.Second }).start("^t.*")
		until(t, "a has one", func() bool { return len(a.owns()) == 1 })
		time.Sleep(10 * time.Second)
		refuse := func(name string) *kfake.FaultHandle {
			return r.kafka.Fault(kfake.Fault{Keys: append(readTopic, kmsg.ListOffsets), Topic: name, Err: kerr.TopicAuthorizationFailed, Count: -1})
		}
		fault := refuse("t2")
		r.createTopic("t2", 1)
		until(t, "a refusal", func() bool {
			return slices.ContainsFunc(a.errors(), func(err error) bool { return errors.Is(err, sarama.ErrTopicAuthorizationFailed) })
		})
		b := r.member("b", nil).start("^t.*") // so for one that joins now
		time.Sleep(10 * time.Second)
		fault.Remove()
		until(t, "all is open", func() bool { return len(a.owns())+len(b.owns()) == 2 })
		b.leave()

		defer refuse("t3").Remove()
		r.createTopic("t3", 1)
		refusal{want: sarama.ErrTopicAuthorizationFailed, advice: `READ on topic "t3"`}.check(t, a)
	})
}

// A member that Kafka refuses the group, and that is called again and again, costs two healthy members next to nothing. It has
// another Kafka of the same cluster's id, which refuses the group to it alone.
func TestRefusedGroupDoesNotDisturbTheOthers(t *testing.T) {
	for name, test := range map[string]struct {
		keys  []kmsg.Key
		joins int // at most, in 10 minutes
	}{
		"all":     {append(readGroup, describeGroup...), 0},
		"commits": {readGroup, 8},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 4, func(t *testing.T, r *rig) {
				a, b := r.member("a", nil).start(), r.member("b", nil).start()
				until(t, "both have some", func() bool { return len(a.owns()) == 2 && len(b.owns()) == 2 })
				other := newRig(t, 4)
				fault := other.refuseGroup(test.keys)
				c := r.member("c", func(o *consumer.Options) { o.Config.Net.Proxy.Dialer = dialer{other.knet} })
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					for ctx.Err() == nil {
						if err := c.group.Consume(ctx, []string{topic}, c.h); err != nil && !errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
							t.Errorf("Consume: %v", err)
						}
					}
				}()
				before := a.log.count(consumer.Revoking) + b.log.count(consumer.Revoking) // one of them had all before
				revoked := func() int { return a.log.count(consumer.Revoking) + b.log.count(consumer.Revoking) - before }
				time.Sleep(time.Minute)
				t.Attr("revocations-of-others/"+name, strconv.Itoa(revoked()))
				time.Sleep(9 * time.Minute)
				if joins := c.log.count(consumer.Joined); joins > test.joins || test.joins > 0 && joins < 5 || revoked() > 3*test.joins {
					t.Errorf("c has joined %d times, %d partitions were revoked", joins, revoked())
				}
				fault.Remove()
				if time.Sleep(5*time.Minute + time.Second); len(c.owns()) == 0 {
					t.Error("c has none after the longest pause")
				}
				time.Sleep(6 * time.Minute) // a good time
				joins := c.log.count(consumer.Joined)
				defer other.refuseGroup(readGroup).Remove()
				stopProducing := other.keepProducing()
				time.Sleep(2 * time.Minute)
				if again := c.log.count(consumer.Joined) - joins; test.joins > 0 && again < 2 {
					t.Errorf("c joined %d times after access was withdrawn again", again)
				}
				stopProducing()
				stop()
				<-done
				quit(a, b)
			})
		})
	}
}
