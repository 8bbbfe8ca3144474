package consumer_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
)

// cuttable makes a member that leaves without Kafka after 30 s, and whose network to Kafka can be taken away.
func (r *rig) cuttable(name string, change func(*consumer.Options)) (*member, *outage) {
	net := &outage{dialer: dialer{r.knet}}
	return r.member(name, func(o *consumer.Options) {
		o.Config.Net.Proxy.Dialer, o.LeaveWithoutKafkaAfter = net, 30*time.Second
		if change != nil {
			change(o)
		}
	}), net
}

// A member that is cut off from Kafka alone leaves, without a last commit, and the others read on. Consume goes on, and the
// member joins again when a broker answers. Nothing that it has marked is stored afterwards.
func TestCutOffFromKafka(t *testing.T) {
	for name, limit := range map[string]time.Duration{"a": 57 * time.Second, "c": 37 * time.Second} { // the first of the names leaves later
		t.Run(name, func(t *testing.T) {
			inRig(t, 4, func(t *testing.T, r *rig) {
				var said lines
				a, net := r.cuttable(name, func(o *consumer.Options) { logAll(&said, o) })
				a.h.delay = time.Second // so that it marks while it is cut off
				h := &sessions{recorder: a.h}
				a.startWith(h, topic)
				b := r.member("b", nil).start()
				until(t, "both have some", func() bool { return len(a.owns()) == 2 && len(b.owns()) == 2 })
				r.produce(20, 0, 1, 2, 3)
				until(t, "some messages", func() bool { return total(a) >= 10 })
				net.begin()
				took := until(t, "b has all", func() bool { return len(b.owns()) == 4 })
				if took < 30*time.Second || took > limit {
					t.Errorf("b has all after %v", took)
				}
				time.Sleep(time.Second)
				if waiting := a.group.NotReady(); !strings.Contains(waiting, "a broker of Kafka") {
					t.Errorf("the status says that the member waits for %q", waiting)
				}
				until(t, "all messages", func() bool { return r.handledAll(a, b) })
				time.Sleep(time.Minute)
				if n := a.log.count(consumer.Joined); n != 1 || len(a.done) > 0 {
					t.Errorf("joined %d times while no broker answers, Consume has returned: %t", n, len(a.done) > 0)
				}
				for p := range int32(4) {
					if at := r.committed(topic, p); at != 20 {
						t.Errorf("%d of partition %d is stored", at, p)
					}
				}
				net.end()
				if took := until(t, "both have some again", func() bool { return len(a.owns()) == 2 && len(b.owns()) == 2 }); took > 20*time.Second {
					t.Errorf("joined again after %v", took)
				}
				if len(h.causes) != 1 || !errors.Is(h.causes[0], sarama.ErrSessionHeartbeatFailed) {
					t.Errorf("the sessions ended by %v", h.causes)
				}
				if n := count(said.take(), "leaving the group, no broker of Kafka answers"); n != 1 {
					t.Errorf("%d lines", n)
				}
				r.produce(1, 0, 1, 2, 3)
				until(t, "the new messages", func() bool { return r.handledAll(a, b) })
				time.Sleep(2 * time.Second)
				for p := range int32(4) {
					if at := r.committed(topic, p); at != 21 {
						t.Errorf("in the end %d of partition %d is stored", at, p)
					}
				}
				quit(a, b)
			})
		})
	}
}

// handledAll reports whether members have handled each message that was sent.
func (r *rig) handledAll(ms ...*member) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, n := range r.sent {
		seen := map[int64]bool{}
		for _, m := range ms {
			for _, o := range m.h.offsets(p.Topic, p.ID) {
				seen[o] = true
			}
		}
		if int64(len(seen)) < n {
			return false
		}
	}
	return true
}

// When Kafka is away from all members, they leave one after the other, the last stays, and each of the others joins once.
func TestAllCutOffFromKafka(t *testing.T) {
	inRig(t, 6, func(t *testing.T, r *rig) {
		var members []*member
		var nets []*outage
		for _, name := range []string{"a", "b", "c"} {
			m, net := r.cuttable(name, nil)
			members, nets = append(members, m.start()), append(nets, net)
		}
		until(t, "all have some", func() bool {
			return len(members[0].owns()) == 2 && len(members[1].owns()) == 2 && len(members[2].owns()) == 2
		})
		for i, net := range nets {
			time.Sleep(time.Duration(i) * time.Second)
			net.begin()
		}
		time.Sleep(5 * time.Minute)
		if left := members[0].log.count(consumer.Left); left != 0 {
			t.Errorf("the last member left %d times", left)
		}
		for _, net := range nets {
			net.end()
		}
		until(t, "all have some again", func() bool {
			return len(members[0].owns()) == 2 && len(members[1].owns()) == 2 && len(members[2].owns()) == 2
		})
		for i, m := range members[1:] {
			if left, joined := m.log.count(consumer.Left), m.log.count(consumer.Joined); left != 1 || joined != 2 {
				t.Errorf("member %d left %d times and joined %d times", i+1, left, joined)
			}
		}
		quit(members...)
		r.check(false)
	})
}

// A member alone stays, and one whose link to Kafka comes and goes joins again after pauses that double.
func TestCutOffAgainAndAgain(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a, net := r.cuttable("b", nil)
		a.start()
		until(t, "it has both", func() bool { return len(a.owns()) == 2 })
		net.begin()
		time.Sleep(3 * time.Minute)
		if a.log.count(consumer.Left) != 0 {
			t.Error("the only member has left")
		}
		net.end()
		b := r.member("a", nil).start()
		until(t, "both have one", func() bool { return len(a.owns()) == 1 && len(b.owns()) == 1 })
		last := time.Duration(0)
		for i := range 4 {
			net.begin()
			until(t, "it leaves", func() bool { return len(b.owns()) == 2 })
			net.end()
			took := until(t, "it is back", func() bool { return len(a.owns()) == 1 && len(b.owns()) == 1 })
			if i > 0 && took < last+last/2 {
				t.Errorf("back after %v, and the time before after %v", took, last)
			}
			last = took
		}
		quit(a, b)
	})
}

// Off by default: a member that is cut off keeps its partitions.
func TestCutOffStaysByDefault(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a, net := r.cuttable("c", func(o *consumer.Options) { o.LeaveWithoutKafkaAfter = 0 })
		a.start()
		b := r.member("b", nil).start()
		until(t, "both have one", func() bool { return len(a.owns()) == 1 && len(b.owns()) == 1 })
		net.begin()
		time.Sleep(10 * time.Minute)
		if a.log.count(consumer.Left) != 0 || len(b.owns()) != 1 {
			t.Error("the member has left")
		}
		net.end()
		quit(a, b)
	})
}
