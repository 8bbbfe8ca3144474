package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/party"
)

// sessionTimeout is that of the members' ZooKeeper sessions.
const sessionTimeout = 10 * time.Second

var errNoDatabase = errors.New("no database")

// failSetup runs one Consume call that Setup's error ends.
func (m *member) failSetup(topics ...string) {
	m.t.Helper()
	m.h.mu.Lock()
	m.h.setupErr = errNoDatabase
	m.h.mu.Unlock()
	m.start(topics...)
	if err := <-m.done; !errors.Is(err, errNoDatabase) {
		m.t.Errorf("%s: Consume: %v", m.name, err)
	}
	m.stop()
	m.h.mu.Lock()
	m.h.setupErr = nil
	m.h.mu.Unlock()
}

// count says how many events of a kind a member saw.
func (l *log) count(kind consumer.EventKind) int {
	n := 0
	for _, e := range l.events() {
		if e.Event == string(kind) {
			n++
		}
	}
	return n
}

// holds says how many claims a member has.
func (l *log) holds() int {
	return l.count(consumer.Claimed) - l.count(consumer.Releasing) - l.count(consumer.Lost)
}

// Between two calls the claims stand, and nothing is read.
func TestClaimsStandBetweenConsumes(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		a := r.member("a", nil)
		b := r.member("b", nil).start()
		until(t, "b has all", func() bool { return len(b.owns()) == 4 })
		for range 3 {
			a.failSetup()
			time.Sleep(sessionTimeout - time.Second)
			if n := a.log.holds(); n != 2 {
				t.Errorf("a has %d claims between calls, want 2", n)
			}
		}
		r.produce(5, 0, 1, 2, 3)
		time.Sleep(time.Second / 2)
		if n := a.h.count(); n != 0 {
			t.Errorf("a read %d messages between calls", n)
		}
		a.start()
		until(t, "all is read", func() bool { return total(a, b) == 20 })
		if n := a.h.count(); n != 10 {
			t.Errorf("a read %d messages, want 10", n)
		}
		if n := a.log.count(consumer.Joined); n != 1 {
			t.Errorf("a joined %d times", n)
		}
		if n := a.log.count(consumer.Claimed); n != 2 {
			t.Errorf("a claimed %d times", n)
		}
		quit(a, b)
		calls := slices.DeleteFunc(a.h.called(), func(call string) bool { return call != "setup" && call != "cleanup" })
		if want := slices.Repeat([]string{"setup", "cleanup"}, 4); !slices.Equal(calls, want) {
			t.Errorf("called: %v", calls)
		}
		r.check(false)
	})
}

// Between two calls the plan is followed: what goes to another member is released at once, what comes is claimed.
func TestPlanIsFollowedBetweenConsumes(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		r.produce(5, 0, 1, 2, 3)
		a := r.member("a", nil)
		a.failSetup()
		until(t, "a has claimed all", func() bool { return a.log.holds() == 4 })
		b := r.member("b", nil).start()
		if d := until(t, "b has its half", func() bool { return len(b.owns()) == 2 }); d > 2*time.Second {
			t.Errorf("b had its half after %v", d)
		}
		until(t, "b has read its half", func() bool { return total(b) == 10 })
		if n := a.log.holds(); n != 2 {
			t.Errorf("a has %d claims", n)
		}
		b.leave()
		if d := until(t, "a has claimed all again", func() bool { return a.log.holds() == 4 }); d > 2*time.Second {
			t.Errorf("a had claimed all after %v", d)
		}
		if n := a.h.count(); n != 0 {
			t.Errorf("a read %d messages between calls", n)
		}
		a.start()
		until(t, "a has read its half", func() bool { return total(a) == 10 })
		quit(a)
		b.close()
		if n := a.log.count(consumer.Joined); n != 1 {
			t.Errorf("a joined %d times", n)
		}
		r.check(false)
	})
}

// A member whose next call does not come in time leaves, and says so; a call after that joins again.
func TestMemberLeavesWhenNoConsumeFollows(t *testing.T) {
	said := logtest.Capture(t)
	inRig(t, 4, func(t *testing.T, r *rig) {
		r.produce(5, 0, 1, 2, 3)
		a := r.member("a", nil)
		b := r.member("b", nil).start()
		until(t, "b has all", func() bool { return len(b.owns()) == 4 })
		a.failSetup()
		time.Sleep(sessionTimeout - time.Second)
		if len(b.owns()) != 2 || a.log.holds() != 2 || said.Count("level=WARN", "no Consume call", "member=a") != 0 {
			t.Errorf("a did not wait for the next call: b owns %v", b.owns())
		}
		if d := until(t, "b has all", func() bool { return len(b.owns()) == 4 }); d > 2*time.Second {
			t.Errorf("b had all after %v", d)
		}
		if n := said.Count("level=WARN", "no Consume call", "member=a"); n != 1 {
			t.Errorf("%d warnings", n)
		}
		if a.log.count(consumer.Left) != 1 || a.log.holds() != 0 {
			t.Error("a has not left")
		}
		a.start()
		until(t, "a has its half", func() bool { return len(a.owns()) == 2 })
		if n := a.log.count(consumer.Joined); n != 2 {
			t.Errorf("a joined %d times", n)
		}
		a.leave()
		b.leave()
		if errs := a.errors(); len(errs) != 0 {
			t.Errorf("a's errors: %v", errs)
		}
		r.check(false)
	})
}

// takeName has somebody else take a member's name for good, and returns the znode's path. The server stands still meanwhile: a
// member that saw its znode missing would put it back, or wait for the other's as for a dead session's.
func (r *rig) takeName(name string) string {
	r.t.Helper()
	node := "/kiel/groups/" + group + "/members/" + name
	r.zk.Freeze()
	defer r.zk.Thaw()
	if err := errors.Join(r.zk.Delete(node), r.zk.Create(node, nil)); err != nil {
		r.t.Fatal(err)
	}
	return node
}

// takeNameForAWhile is takeName, undone after five seconds.
func (r *rig) takeNameForAWhile(name string) {
	r.t.Helper()
	node := r.takeName(name)
	time.Sleep(5 * time.Second)
	if err := r.zk.Delete(node); err != nil {
		r.t.Fatal(err)
	}
}

// When no call follows, Close reports it.
func TestCloseReportsWhyTheMemberEnded(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", nil)
		a.failSetup()
		r.takeNameForAWhile("a")
		a.close()
		if errs := a.errors(); len(errs) != 1 || !errors.Is(errs[0], party.ErrNameTaken) {
			t.Errorf("reported: %v", errs)
		}
	})
}

// The error of a membership that ended between two calls is the next call's; the one after that joins again.
func TestNextConsumeReturnsWhyTheMemberEnded(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(5, 0, 1)
		a := r.member("a", nil)
		a.failSetup()
		r.takeNameForAWhile("a")
		calls := len(a.h.called())
		a.start()
		select {
		case err := <-a.done:
			if !errors.Is(err, party.ErrNameTaken) {
				t.Errorf("Consume: %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("Consume joined again")
		}
		if n := len(a.h.called()); n != calls {
			t.Errorf("called: %v", a.h.called())
		}
		a.start()
		until(t, "all is read", func() bool { return total(a) == 10 })
		a.leave()
	})
}

// A call with other topics leaves and joins again, with another record.
func TestOtherTopicsJoinAnew(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		if err := r.kafka.CreateTopic("u", 2, nil); err != nil {
			t.Fatal(err)
		}
		r.produce(5, 0, 1)
		r.produceTo("u", 5, 0, 1)
		a := r.member("a", nil)
		a.failSetup(topic)
		until(t, "a has claimed", func() bool { return a.log.holds() == 2 })
		a.start("u", topic)
		until(t, "all is read", func() bool { return total(a) == 20 })
		a.leave()
		if joined, left := a.log.count(consumer.Joined), a.log.count(consumer.Left); joined != 2 || left != 2 {
			t.Errorf("joined %d times, left %d times", joined, left)
		}
		r.check(false)
	})
}

// Close between two calls leaves, as it does while the member leaves because no call came, twice and from several goroutines.
func TestCloseBetweenConsumes(t *testing.T) {
	for name, wait := range map[string]time.Duration{
		"at once": 0, "between": sessionTimeout / 2, "while leaving": sessionTimeout + 5*time.Millisecond, "after": 2 * sessionTimeout,
	} {
		for _, cut := range []bool{false, true} {
			if cut {
				name += ", no ZooKeeper"
			}
			t.Run(name, func(t *testing.T) {
				inRig(t, 4, func(t *testing.T, r *rig) {
					a := r.member("a", func(o *consumer.Options) { o.StopTimeout = 10 * time.Second; o.Registerer = prometheus.NewRegistry() })
					a.failSetup()
					if cut {
						a.net.Refuse()
						r.zk.CutAll()
					}
					time.Sleep(wait)
					began := time.Now()
					var closing sync.WaitGroup
					for range 3 {
						closing.Go(func() {
							if err := a.group.Close(); err != nil {
								t.Errorf("Close: %v", err)
							}
						})
					}
					closing.Wait()
					if d := time.Since(began); d > 10*time.Second+100*time.Millisecond || !cut && d > time.Second {
						t.Errorf("Close took %v", d)
					}
					if a.log.count(consumer.Left) != 1 || !cut && a.log.holds() != 0 {
						t.Error("it has not left")
					}
					if err := a.group.Consume(t.Context(), []string{topic}, a.h); !errors.Is(err, sarama.ErrClosedConsumerGroup) {
						t.Errorf("Consume after Close: %v", err)
					}
					a.net.Heal()
				})
			})
		}
	}
}

// A loop around Consume, as sarama's users write it, with calls that fail and pauses between them: Close returns in time wherever
// it stands, and ends all.
func TestCloseInEveryPhaseOfALoop(t *testing.T) {
	const schedules = 50
	first := rand.Uint64()
	t.Attr("seeds_from", strconv.FormatUint(first, 10))
	hit := map[string]int{}
	for i := range schedules {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { hit[closeInALoop(t, rand.New(rand.NewPCG(seed, 0)))]++ })
		})
	}
	t.Logf("closed: %v", hit)
	for _, phase := range []string{"in a call", "between calls", "after leaving"} {
		if hit[phase] == 0 {
			t.Errorf("none was closed %s", phase)
		}
	}
}

// closeInALoop closes a group at a random moment of its loop, and returns where it stood.
func closeInALoop(t *testing.T, rnd *rand.Rand) string {
	names := slices.Sorted(maps.Keys(troubles()))
	trouble := names[rnd.IntN(len(names))]
	limit := time.Duration(5+rnd.IntN(11)) * time.Second
	r := newRig(t, 4)
	r.produce(20, 0, 1, 2, 3)
	b := r.member("b", nil).start()
	deaf := &atomic.Bool{}
	a := stopper{r.member("a", func(o *consumer.Options) {
		o.StopTimeout = limit
		o.Config.Net.Proxy.Dialer = deafDialer{dialer{r.knet}, deaf}
	}), deaf}
	var calling atomic.Bool
	looped := make(chan struct{})
	pauses := rand.New(rand.NewPCG(rnd.Uint64(), 0))
	go func() {
		defer close(looped)
		for {
			var fail func() error
			if pauses.IntN(4) > 0 {
				fail = func() error { return errNoDatabase }
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+pauses.IntN(20))*time.Second)
			calling.Store(true)
			err := a.group.Consume(ctx, []string{topic}, failing{a.h, fail})
			calling.Store(false)
			cancel()
			if errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
			time.Sleep(time.Duration(pauses.Int64N(int64(15 * time.Second))))
		}
	}()
	time.Sleep(time.Duration(rnd.Int64N(int64(30 * time.Second))))
	heal := troubles()[trouble](r, a)
	time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Second))))

	phase := "between calls"
	switch events := a.log.events(); {
	case calling.Load():
		phase = "in a call"
	case len(events) > 0 && events[len(events)-1].Event == string(consumer.Left):
		phase = "after leaving"
	}
	began := time.Now()
	var closing sync.WaitGroup
	for range 2 {
		closing.Go(func() { _ = a.group.Close() })
	}
	closing.Wait()
	if took := time.Since(began); took > limit+100*time.Millisecond {
		t.Errorf("%s, %s: Close took %v, allowed are %v", trouble, phase, took, limit)
	}
	<-a.errs
	events, stuck := len(a.log.events()), errors.Is(errors.Join(a.errors()...), ownership.ErrStuck)
	heal()
	<-looped
	b.stop()
	<-b.done
	time.Sleep(20 * time.Second)
	if more := len(a.log.events()) - events; more > 0 && !stuck {
		t.Errorf("%s, %s: %d events after Close: %v", trouble, phase, more, a.log.events()[events:])
	}
	return phase
}

// failing is a handler whose Setup fails, if fail is not nil.
type failing struct {
	*recorder
	fail func() error
}

func (f failing) Setup(s sarama.ConsumerGroupSession) error {
	if f.fail != nil {
		return f.fail()
	}
	return f.recorder.Setup(s)
}
