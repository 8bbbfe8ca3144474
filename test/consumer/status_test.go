package consumer_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/health"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/status"
)

var _ health.Source = (*consumer.Group)(nil)

// partitionOf returns what a member says of a partition.
func partitionOf(t *testing.T, m *member, id int32) status.Partition {
	t.Helper()
	g := m.group.Status()
	i := slices.IndexFunc(g.Partitions, func(p status.Partition) bool { return p.Topic == topic && p.Partition == id })
	if i < 0 {
		t.Fatalf("%s says nothing of %s:%d: %+v", m.name, topic, id, g.Partitions)
	}
	return g.Partitions[i]
}

// alive fails unless the member's loops answer at once.
func alive(t *testing.T, m *member) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := m.group.Alive(ctx); err != nil {
		t.Errorf("%s is not alive: %v", m.name, err)
	}
}

// TestStatusOfALife asks a member at all times of its life.
func TestStatusOfALife(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		away := &outage{dialer: dialer{r.knet}}
		a := r.member("a", func(o *consumer.Options) { o.Config.Net.Proxy.Dialer = away })
		check := func(when, waiting string) *status.Group {
			t.Helper()
			g := a.group.Status()
			if got := a.group.NotReady(); got != waiting || g.Self.Waiting != waiting || g.Self.Ready != (waiting == "") {
				t.Errorf("%s: it waits for %q, and the status says %q, want %q", when, got, g.Self.Waiting, waiting)
			}
			if _, err := json.Marshal(g); err != nil || g.Version != status.Version || g.Group != group || g.Self.Name != "a" || g.Self.Kafka == nil {
				t.Errorf("%s: %+v, self %+v: %v", when, g, g.Self, err)
			}
			alive(t, a)
			return g
		}
		time.Sleep(time.Second)
		if g := check("at first", "Consume was not called"); g.Self.Session.State != "connected" || g.Self.Kafka.Since != nil || len(g.Partitions) != 0 {
			t.Errorf("at first: %+v, Kafka %+v", g.Self.Session, g.Self.Kafka)
		}
		hung := newGate()
		a.h.before(func(_ sarama.ConsumerGroupClaim, _ *sarama.ConsumerMessage) {
			hung.wait()
		})
		a.start()
		until(t, "all is open", func() bool { return len(a.owns()) == 4 })
		began := time.Now()
		r.produce(3, 0)
		time.Sleep(10 * time.Second)
		g := check("at work", "")
		if k := g.Self.Kafka; !k.Reachable || k.Since == nil || len(g.Members) != 1 || *g.Members[0].Owned != 4 || g.Mapping == nil || len(g.Changes) == 0 {
			t.Errorf("at work: %+v, Kafka %+v", g, k)
		}
		p := partitionOf(t, a, 0)
		if p.State != status.Owned || p.Owner != "a" || p.Token == 0 || p.Since == nil || p.Since.After(began) || p.Reason == nil || p.WaitsFor != "" {
			t.Errorf("at work: %+v", p)
		} else if r := p.Reason.Code; r != status.TopicAdded && r != status.Started { // the set had its seed when it was read first, or not
			t.Errorf("at work: reason %s", r)
		}
		if o := p.Offsets; o == nil || o.Committed != 0 || o.Marked != 0 || o.End != 3 || o.Position+o.Lag != 3 {
			t.Errorf("at work: offsets %+v", o)
		}
		if p.Times == nil || p.Times.Settle+p.Times.Claim+p.Times.Open > 1 || p.Times.FirstMessage <= 0 || p.Times.FirstMessage > 1 {
			t.Errorf("at work: times %+v", p.Times)
		}
		hung.open()
		until(t, "all is read", func() bool { return a.h.count() == 3 })
		time.Sleep(5 * time.Second)
		if o := partitionOf(t, a, 0).Offsets; *o != (status.Offsets{Position: 3, Committed: 3, Marked: 3, End: 3}) {
			t.Errorf("when all is read: offsets %+v", o)
		}

		a.leave()
		if g := check("when Consume has returned", "Consume has returned and was not called again"); len(g.Partitions) != 0 {
			t.Errorf("when Consume has returned: %+v", g.Partitions)
		}
		away.begin()
		go func() { a.done <- a.group.Consume(t.Context(), []string{topic}, a.h) }()
		time.Sleep(time.Millisecond)
		check("while it asks Kafka", "Kafka to describe the topics")
		if err := <-a.done; err == nil {
			t.Error("Consume joined without Kafka")
		}
		a.close()
		check("when it is closed", "nothing: the group is closed")
	})
}

// TestStatusOfOpenings: the status says what a partition waits for that is owned and not open.
func TestStatusOfOpenings(t *testing.T) {
	for name, c := range map[string]struct {
		change func(o *consumer.Options, hung *gate)
		setup  bool
		want   string
	}{
		"Setup": {setup: true, want: "Consume to be called and Setup to return"},
		"Observer": {want: "the Observer to return", change: func(o *consumer.Options, hung *gate) {
			o.Observer = func(e consumer.Event) {
				if e.Kind == consumer.Opened {
					hung.wait()
				}
			}
		}},
		"Fence": {want: "Fence to return", change: func(o *consumer.Options, hung *gate) {
			o.Fence = func(context.Context, string, int32) error { hung.wait(); return nil }
		}},
		"Fence that fails": {want: "Fence to return; the last try: consumer: fence t:0: can't work", change: func(o *consumer.Options, hung *gate) {
			var second atomic.Bool
			o.Fence = func(context.Context, string, int32) error {
				if second.Swap(true) {
					hung.wait()
				}
				return errWork
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, hung := newRig(t, 1), newGate()
				a := r.member("a", func(o *consumer.Options) {
					if c.change != nil {
						c.change(o, hung)
					}
				})
				if c.setup {
					a.startWith(hanger{recorder: a.h, setup: hung.wait}, topic)
				} else {
					a.start()
				}
				time.Sleep(4 * time.Second)
				if p := partitionOf(t, a, 0); p.State != status.Opening || p.WaitsFor != c.want {
					t.Errorf("it is %s and waits for %q, want %q", p.State, p.WaitsFor, c.want)
				} else if o := p.Offsets; (o != nil) != (name == "Observer") || o != nil && *o != (status.Offsets{End: -1}) { // the start position is known by then
					t.Errorf("offsets %+v", o)
				}
				if got := a.group.NotReady(); got != "" { // the claim is settled
					t.Errorf("the member waits for %q", got)
				}
				alive(t, a)
				hung.open()
				if name == "Fence that fails" {
					a.leave()
					return
				}
				until(t, "it is open", func() bool { return len(a.owns()) == 1 })
				if p := partitionOf(t, a, 0); p.State != status.Owned || p.WaitsFor != "" {
					t.Errorf("it is %s and waits for %q", p.State, p.WaitsFor)
				}
				a.leave()
			})
		})
	}
}

// TestStatusOfAMissingTopic: a partition waits for its topic.
func TestStatusOfAMissingTopic(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		a := r.member("a", nil).start()
		until(t, "it is open", func() bool { return len(a.owns()) == 1 })
		time.Sleep(time.Second)
		r.deleteTopic(topic)
		time.Sleep(time.Minute)
		p := partitionOf(t, a, 0)
		if p.State != status.Opening || !strings.Contains(p.WaitsFor, "the topic is not in Kafka any more: t") {
			t.Errorf("it is %s and waits for %q", p.State, p.WaitsFor)
		}
		if g := a.group.Status(); len(g.Troubles) == 0 || g.Troubles[0].Kind != "missing-topic" || !slices.Equal(g.Troubles[0].About, []string{topic}) {
			t.Errorf("the troubles are %+v", g.Troubles)
		}
		a.leave()
		if g := a.group.Status(); len(g.Troubles) == 0 || g.Troubles[0].Until == nil {
			t.Errorf("the troubles are %+v when the member has left", g.Troubles)
		}
	})
}

// TestStatusWhileServersAreAway: a member answers for itself, whatever servers do.
func TestStatusWhileServersAreAway(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		away := &outage{dialer: dialer{r.knet}}
		a := r.member("a", func(o *consumer.Options) { o.Config.Net.Proxy.Dialer = away }).start()
		until(t, "both are open", func() bool { return len(a.owns()) == 2 })
		r.produce(3, 0, 1)
		until(t, "all is read", func() bool { return a.h.count() == 6 })
		down := time.Now()
		away.begin()
		r.zk.Down()
		for range 60 {
			time.Sleep(time.Second)
			began := time.Now()
			alive(t, a)
			_, _ = a.group.Status(), a.group.NotReady()
			if took := time.Since(began); took > 0 {
				t.Fatalf("an answer took %v", took)
			}
		}
		g := a.group.Status()
		if g.Self.Ready || g.Self.Session.TrustLeft != 0 || g.Self.Kafka.Reachable || g.Self.Kafka.Since.Before(down) || g.Self.Kafka.Since.After(down.Add(time.Second)) {
			t.Errorf("%+v, Kafka %+v", g.Self, g.Self.Kafka)
		}
		away.end()
		r.zk.Restart(false)
		until(t, "it is ready", func() bool { return a.group.NotReady() == "" && len(a.owns()) == 2 })
		a.leave()
	})
}

// TestStatusFromCallbacks: the user's code may ask at any time.
func TestStatusFromCallbacks(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		var a *member
		var asked atomic.Int64
		ask := func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			began := time.Now()
			g, _ := a.group.Status(), a.group.NotReady()
			if err := a.group.Alive(ctx); err != nil || g.Self == nil || time.Since(began) > 0 {
				t.Errorf("asked from a callback: %v after %v", err, time.Since(began))
			}
			asked.Add(1)
		}
		a = r.member("a", func(o *consumer.Options) {
			observe := o.Observer
			o.Observer = func(e consumer.Event) { observe(e); ask() }
			o.Logger = slog.New(asking{slog.DiscardHandler, func() { _ = a.group.NotReady() }})
		})
		a.h.each = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim, *sarama.ConsumerMessage) error {
			ask()
			return nil
		}
		a.h.ending = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) { ask() }
		a.start()
		r.produce(3, 0, 1)
		until(t, "all is read", func() bool { return a.h.count() == 6 })
		quit(a)
		synctest.Wait()
		if n := asked.Load(); n < 20 {
			t.Errorf("asked %d times", n)
		}
	})
}

// asking asks at each record.
type asking struct {
	slog.Handler
	ask func()
}

func (h asking) Enabled(context.Context, slog.Level) bool  { return true }
func (h asking) Handle(context.Context, slog.Record) error { h.ask(); return nil }
func (h asking) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h asking) WithGroup(string) slog.Handler             { return h }

// TestNotAliveWithoutSession: a member whose session has ended for good can't join any more, whether or not Consume is called
// again.
func TestNotAliveWithoutSession(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		a, b := r.member("a", nil).start(), r.member("b", nil)
		until(t, "it is open", func() bool { return len(a.owns()) == 1 })
		alive(t, a)
		alive(t, b)
		a.kill()
		b.kill()
		time.Sleep(time.Minute)
		for _, m := range []*member{a, b} {
			if err := m.group.Alive(t.Context()); err == nil {
				t.Errorf("%s is alive", m.name)
			}
		}
		a.close()
		b.close()
		alive(t, a)
	})
}

// TestEventsSayWhy: events of a consumer have the reasons and the names that ownership's have.
func TestEventsSayWhy(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		events := make(chan consumer.Event, 100)
		keep := func(o *consumer.Options) {
			o.Observer = func(e consumer.Event) {
				if e.Kind == consumer.Claimed || e.Kind == consumer.Revoking {
					events <- e
				}
			}
		}
		a := r.member("a", keep).start()
		until(t, "both are open", func() bool { return len(a.owns()) == 2 })
		// The first mapping is computed before the member has added the topic to the set, or right afterwards.
		first := []status.Code{status.Started, status.TopicAdded}
		for range 2 {
			if e := <-events; e.Kind != consumer.Claimed || !slices.Contains(first, e.Reason.Code) || e.Previous != "" {
				t.Errorf("%+v", e)
			}
		}
		b := r.member("b", keep).start()
		until(t, "each has one", func() bool { return len(a.owns()) == 1 && len(b.owns()) == 1 })
		joined := statuswrite.Reason(status.MemberJoined, "b").String()
		if e := <-events; e.Kind != consumer.Revoking || e.Reason.String() != joined || e.Next != "b" {
			t.Errorf("%+v", e)
		}
		if e := <-events; e.Kind != consumer.Claimed || e.Previous != "a" || e.Reason.IsZero() {
			t.Errorf("%+v", e)
		}
		b.leave()
		a.leave()
	})
}
