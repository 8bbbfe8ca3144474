package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer"
)

// series are what a scrape shows, by name and labels without the group: "name{label=value,…}". Of histograms it is the count.
type series map[string]float64

// scrape returns the series of a registry whose names begin with kiel_consumer_, which it leaves out.
func scrape(t *testing.T, reg prometheus.Gatherer) series {
	t.Helper()
	return scrapeOf(t, reg, "kiel_consumer_")
}

// scrapeOf returns the series whose names begin with prefix, which it leaves out.
func scrapeOf(t *testing.T, reg prometheus.Gatherer, prefix string) series {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := series{}
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), prefix)
		if !ok {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "group" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			out[fmt.Sprintf("%s{%s}", name, strings.Join(labels, ","))] =
				m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// is checks series, all of which must be there.
func (s series) is(t *testing.T, when string, want series) {
	t.Helper()
	for name, v := range want {
		if got, ok := s[name]; !ok || got != v {
			t.Errorf("%s: %s is %v, want %v", when, name, got, v)
		}
	}
}

// sum returns the sum of a metric's series.
func (s series) sum(name string) (sum float64) {
	for series, v := range s {
		if strings.HasPrefix(series, name+"{") {
			sum += v
		}
	}
	return sum
}

// watchedMember makes a member with its metrics in the registry that is returned.
func (r *rig) watchedMember(name string, change func(*consumer.Options)) (*member, *prometheus.Registry) {
	r.t.Helper()
	reg := prometheus.NewPedanticRegistry()
	return r.member(name, func(o *consumer.Options) {
		o.Registerer = reg
		if change != nil {
			change(o)
		}
	}), reg
}

// untilReachable waits, in steps of a second, until the metrics say whether Kafka is in reach.
func untilReachable(t *testing.T, reg prometheus.Gatherer, want float64) time.Duration {
	t.Helper()
	start := time.Now()
	for scrape(t, reg)["kafka_reachable{}"] != want {
		if time.Since(start) > 5*time.Minute {
			t.Fatalf("reachable is not %v within 5 minutes", want)
		}
		time.Sleep(time.Second)
	}
	return time.Since(start)
}

// Kafka does not answer for a minute: the metrics say so within 20 s, and count failures by their reason; and that it is back.
func TestMetricsWhileKafkaIsAway(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		r.produce(10, 0, 1, 2, 3)
		deaf := &atomic.Bool{}
		m, reg := r.watchedMember("a", func(o *consumer.Options) { o.Config.Net.Proxy.Dialer = deafDialer{dialer{r.knet}, deaf} })
		m.run()
		until(t, "all is read", func() bool { return total(m) == 40 })
		time.Sleep(5 * time.Second)
		now := scrape(t, reg)
		now.is(t, "all is well", series{"kafka_reachable{}": 1, "last_commit_age_seconds{}": 0, "oldest_mark_age_seconds{}": 0})
		if n := now.sum("fetch_errors_total"); n != 0 {
			t.Errorf("%v fetch errors while all is well", n)
		}
		deaf.Store(true)
		took := untilReachable(t, reg, 0)
		if took < 10*time.Second || took > 20*time.Second {
			t.Errorf("out of reach after %v", took)
		}
		time.Sleep(time.Minute - took)
		now = scrape(t, reg)
		now.is(t, "Kafka is away", series{"kafka_reachable{}": 0})
		if n := now["fetch_errors_total{reason=unreachable}"]; n < 10 || n != now.sum("fetch_errors_total") {
			t.Errorf("%v failures to reach Kafka, of %v", n, now.sum("fetch_errors_total"))
		}
		deaf.Store(false)
		took = untilReachable(t, reg, 1)
		if took > 5*time.Second {
			t.Errorf("back after %v", took)
		}
		r.produce(1, 0, 1, 2, 3)
		until(t, "the rest is read", func() bool { return total(m) == 44 })
		m.leave()
	})
}

// A member that reads nothing asks Kafka once a minute, and so notices.
func TestMetricsOfAnIdleMemberWhileKafkaIsAway(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		deaf := &atomic.Bool{}
		idle, reg := r.watchedMember("a", func(o *consumer.Options) { o.Config.Net.Proxy.Dialer = deafDialer{dialer{r.knet}, deaf} })
		idle.run()
		m := r.member("b", nil).run()
		until(t, "b has the partition", func() bool { return len(m.owns()) == 1 })
		time.Sleep(5 * time.Minute)
		scrape(t, reg).is(t, "all is well", series{"kafka_reachable{}": 1})
		if got := idle.owns(); len(got) != 0 {
			t.Fatalf("a is not idle: it has %v", got)
		}
		deaf.Store(true)
		if took := untilReachable(t, reg, 0); took > 90*time.Second {
			t.Errorf("out of reach after %v", took)
		}
		deaf.Store(false)
		if took := untilReachable(t, reg, 1); took > 90*time.Second {
			t.Errorf("back after %v", took)
		}
		idle.leave()
		m.leave()
	})
}

// commitlessDialer makes connections of which those that carry no fetches fail from some moment on.
type commitlessDialer struct{ deafDialer }

func (d commitlessDialer) Dial(network, address string) (net.Conn, error) {
	if d.deaf.Load() {
		return nil, errDeaf
	}
	c, err := d.dialer.Dial(network, address)
	return &commitlessConn{deafConn{Conn: c, deaf: d.deaf}}, err
}

type commitlessConn struct{ deafConn }

func (c *commitlessConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.deaf.Load() && !c.fetches.Load() {
		return 0, errDeaf
	}
	return n, err
}

// Kafka is in reach while any broker answers on any connection.
func TestMetricsWhileKafkaAnswersFetchesAlone(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		deaf := &atomic.Bool{}
		m, reg := r.watchedMember("a", func(o *consumer.Options) {
			o.Config.Net.Proxy.Dialer = commitlessDialer{deafDialer{dialer{r.knet}, deaf}}
		})
		m.run()
		until(t, "both are open", func() bool { return len(m.owns()) == 2 })
		time.Sleep(5 * time.Second)
		deaf.Store(true)
		r.produce(5, 0, 1)
		time.Sleep(time.Minute)
		now := scrape(t, reg)
		now.is(t, "no request but fetches is answered", series{"kafka_reachable{}": 1, "messages_total{topic=t}": 10})
		if age := now["last_commit_age_seconds{}"]; age < 59 {
			t.Errorf("the last commit is %v s old", age)
		}
		deaf.Store(false)
		until(t, "all is committed", func() bool { return r.committed(topic, 0) == 5 && r.committed(topic, 1) == 5 })
		m.leave()
	})
}

// Kafka refuses to store offsets: both ages grow until it stores them.
func TestMetricsWhileNothingIsCommitted(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		m, reg := r.watchedMember("a", nil)
		m.start()
		until(t, "both are open", func() bool { return len(m.owns()) == 2 })
		time.Sleep(time.Hour)
		scrape(t, reg).is(t, "an hour without a message", series{"last_commit_age_seconds{}": 0, "oldest_mark_age_seconds{}": 0})
		refused := r.refuse(kmsg.OffsetCommit, kerr.CoordinatorLoadInProgress)
		r.produce(10, 0, 1)
		until(t, "all is read", func() bool { return total(m) == 20 })
		began := time.Now()
		for range 4 {
			time.Sleep(time.Minute)
			now, age := scrape(t, reg), time.Since(began).Seconds()
			for _, name := range []string{"last_commit_age_seconds{}", "oldest_mark_age_seconds{}"} {
				if got := now[name]; got < age || got > age+1 {
					t.Errorf("%s is %v after %v s", name, got, age)
				}
			}
		}
		if n := scrape(t, reg)["commits_total{result=error}"]; n < 100 {
			t.Errorf("%v commits have failed", n)
		}
		refused.Remove()
		until(t, "all is committed", func() bool { return r.committed(topic, 0) == 10 && r.committed(topic, 1) == 10 })
		time.Sleep(10 * time.Millisecond)
		scrape(t, reg).is(t, "offsets are stored", series{"last_commit_age_seconds{}": 0, "oldest_mark_age_seconds{}": 0})
		m.leave()
	})
}

var errBroken = errors.New("broken in a test")

// Errors of handlers are counted by what followed them.
func TestMetricsOfHandlersThatFail(t *testing.T) {
	const errorsTotal = "handler_errors_total{action=%s,topic=t}"
	counts := func(t *testing.T, reg prometheus.Gatherer, session, reopen, report float64) {
		t.Helper()
		scrape(t, reg).is(t, "errors", series{
			fmt.Sprintf(errorsTotal, "session"): session, fmt.Sprintf(errorsTotal, "reopen"): reopen, fmt.Sprintf(errorsTotal, "report"): report,
		})
	}
	t.Run("Run ends", func(t *testing.T) {
		inRig(t, 1, func(t *testing.T, r *rig) {
			r.produce(3, 0)
			m, reg := r.watchedMember("a", nil)
			for i := range 3 {
				if err := m.group.Run(t.Context(), []string{topic}, func(context.Context, *consumer.Partition) error { return errBroken }); !errors.Is(err, errBroken) {
					t.Errorf("Run: %v", err)
				}
				counts(t, reg, float64(i+1), 0, 0)
			}
		})
	})
	t.Run("Consume ends", func(t *testing.T) {
		inRig(t, 1, func(t *testing.T, r *rig) {
			r.produce(3, 0)
			m, reg := r.watchedMember("a", nil)
			m.h.each = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim, *sarama.ConsumerMessage) error {
				panic("in a test")
			}
			m.start()
			if err := <-m.done; err != nil {
				t.Errorf("Consume: %v", err)
			}
			counts(t, reg, 1, 0, 0)
		})
	})
	t.Run("the partition is opened again", func(t *testing.T) {
		inRig(t, 1, func(t *testing.T, r *rig) {
			r.produce(3, 0)
			m, reg := r.watchedMember("a", func(o *consumer.Options) { o.ReopenPartition = true })
			calls := &atomic.Int64{}
			m.runWith(func(ctx context.Context, p *consumer.Partition) error {
				if calls.Add(1) <= 3 {
					return errBroken
				}
				return m.h.handle(ctx, p)
			})
			until(t, "all is read", func() bool { return total(m) == 3 })
			counts(t, reg, 0, 3, 0)
			m.leave()
			counts(t, reg, 0, 3, 0)
		})
	})
	t.Run("the member leaves", func(t *testing.T) {
		inRig(t, 1, func(t *testing.T, r *rig) {
			m, reg := r.watchedMember("a", nil)
			m.runWith(func(ctx context.Context, _ *consumer.Partition) error {
				m.h.note("open t:0")
				<-ctx.Done()
				return errBroken
			})
			until(t, "the partition is open", func() bool { return len(m.owns()) == 1 })
			m.leave()
			counts(t, reg, 0, 0, 1)
		})
	})
}

// A handler that hangs with a message shows, whatever it uses to read.
func TestMetricsOfAHandlerThatHangs(t *testing.T) {
	const stalled, held = "handler_stalled_seconds{topic=t}", "held_back_partitions{topic=t}"
	for name, start := range map[string]func(m *member, hung *gate){
		"Run": func(m *member, hung *gate) {
			m.runWith(func(_ context.Context, p *consumer.Partition) error {
				for range p.Messages() {
					hung.wait()
				}
				return nil
			})
		},
		"Consume": func(m *member, hung *gate) {
			m.h.each = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim, *sarama.ConsumerMessage) error {
				hung.wait()
				return nil
			}
			m.start()
		},
		"Done": func(m *member, hung *gate) { // one worker hangs, the others go on until the window is full
			m.runWith(func(_ context.Context, p *consumer.Partition) error {
				for msg := range p.Messages() {
					if msg.Offset == 2 {
						hung.waiting.Add(1)
					} else {
						p.Done(msg)
					}
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				r.produce(20, 0)
				m, reg := r.watchedMember("a", func(o *consumer.Options) { o.MaxUnmarked = 5 })
				hung := newGate()
				defer hung.open()
				start(m, hung)
				until(t, "it hangs", func() bool { return hung.waiting.Load() == 1 })
				scrape(t, reg)
				time.Sleep(5 * time.Minute)
				now := scrape(t, reg)
				if got := now[stalled]; got < 290 || got > 301 {
					t.Errorf("stalled for %v s", got)
				}
				if got, want := now[held], map[bool]float64{true: 1}[name == "Done"]; got != want {
					t.Errorf("%v partitions are held back, want %v", got, want)
				}
				if lag, age := now["lag_messages{partition=0,topic=t}"], now["lag_seconds{partition=0,topic=t}"]; lag == 0 || age < 290 {
					t.Errorf("the lag is %v, of %v s", lag, age)
				}
				hung.open()
				if name != "Done" {
					until(t, "it goes on", func() bool { return scrape(t, reg)[stalled] == 0 })
				}
				m.leave()
			})
		})
	}
}

// A partition has series while it is open, a topic's stay.
func TestMetricsOfPartitionsThatComeAndGo(t *testing.T) {
	inRig(t, 4, func(t *testing.T, r *rig) {
		m, reg := r.watchedMember("a", nil)
		m.h.delay = 100 * time.Millisecond
		m.run()
		until(t, "all are open", func() bool { return len(m.owns()) == 4 })
		m.group.Pause(map[string][]int32{topic: {0, 1}})
		time.Sleep(time.Second)
		r.produce(50, 0, 1, 2, 3)
		time.Sleep(2 * time.Second)
		now := scrape(t, reg)
		now.is(t, "all are open", series{
			"paused_partitions{topic=t}": 2, "lag_messages{partition=0,topic=t}": 0, "lag_messages{partition=1,topic=t}": 0,
		})
		if lag := now["lag_messages{partition=2,topic=t}"]; lag < 25 || lag > 35 {
			t.Errorf("the lag is %v", lag)
		}
		if age := now["lag_seconds{partition=2,topic=t}"]; age < 1.9 || age > 2.1 {
			t.Errorf("the next message is %v s old", age)
		}
		for _, name := range []string{"handler_duration_seconds{topic=t}", "message_age_seconds{topic=t}"} {
			if n := now[name]; n < 36 || n > 44 { // two partitions have had some 20 each
				t.Errorf("%s has measured %v", name, n)
			}
		}
		other := r.member("b", nil).run()
		until(t, "each has two", func() bool { return len(m.owns()) == 2 && len(other.owns()) == 2 })
		time.Sleep(10 * time.Millisecond)
		if n := scrape(t, reg).count("lag_messages") + scrape(t, reg).count("lag_seconds"); n != 4 {
			t.Errorf("%d series of the lag of 2 partitions", n)
		}
		m.net.Freeze()
		until(t, "trust has ended", func() bool { return len(m.owns()) == 0 })
		time.Sleep(time.Second)
		none := series{
			"paused_partitions{topic=t}": 0, "handler_stalled_seconds{topic=t}": 0, "held_back_partitions{topic=t}": 0,
			"kafka_reachable{}": 1, "last_commit_age_seconds{}": 0, "oldest_mark_age_seconds{}": 0,
		}
		now = scrape(t, reg)
		now.is(t, "without trust", none)
		if n := now.count("lag_messages") + now.count("lag_seconds"); n != 0 {
			t.Errorf("%d series of the lag without a partition", n)
		}
		m.net.Heal()
		until(t, "trust is back", func() bool { return len(m.owns()) == 2 })
		m.leave()
		scrape(t, reg).is(t, "the member has left", none)
		other.leave()
		m.close()
		if now := scrape(t, reg); len(now) != 0 {
			t.Errorf("after Close there is %v", now)
		}
	})
}

// count returns how many series a metric has.
func (s series) count(name string) (n int) {
	for series := range s {
		if strings.HasPrefix(series, name+"{") {
			n++
		}
	}
	return n
}
