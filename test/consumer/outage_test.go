package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/status"
)

// outage is a network to Kafka that can be taken away.
type outage struct {
	dialer

	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func (o *outage) Dial(network, address string) (net.Conn, error) {
	o.mu.Lock()
	down := o.down
	o.mu.Unlock()
	if down {
		return nil, fmt.Errorf("dial %s: %w", address, syscall.ECONNREFUSED)
	}
	c, err := o.dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.conns = append(o.conns, c)
	return c, nil
}

// begin takes the network away.
func (o *outage) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = true
	for _, c := range o.conns {
		_ = c.Close()
	}
	o.conns = nil
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = false
}

// TestLinesOfKafkaAway: while Kafka is away for a minute, the log tells so now and then, and when it is back. Errors gets each
// error.
func TestLinesOfKafkaAway(t *testing.T) {
	for _, partitions := range []int32{9, 300} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			bubble(t, func(t *testing.T) { takeKafkaAway(t, partitions) })
		})
	}
}

// waitForKafka returns how many partitions wait for Kafka, as the status says.
func waitForKafka(g *consumer.Group) int {
	n := 0
	for _, p := range g.Status().Partitions {
		if strings.HasPrefix(p.WaitsFor, "Kafka to answer its fetches") {
			n++
		}
	}
	return n
}

var recoveryTime = regexp.MustCompile(` after=(\S+)`)

// recoveredAfter returns how long the log says that trouble of a kind has lasted.
func recoveredAfter(t *testing.T, said []string, kind string) time.Duration {
	t.Helper()
	for _, line := range said {
		if m := recoveryTime.FindStringSubmatch(line); m != nil && strings.Contains(line, "msg=recovered ") && strings.Contains(line, " kind="+kind+" ") {
			after, err := time.ParseDuration(m[1])
			if err != nil {
				t.Error(err)
			}
			return after
		}
	}
	return 0
}

func takeKafkaAway(t *testing.T, partitions int32) {
	r := newRig(t, partitions)
	var said lines
	away := &outage{dialer: dialer{r.knet}}
	a := r.member("a", func(o *consumer.Options) {
		logAll(&said, o)
		o.Config.Net.Proxy.Dialer = away
	}).start()
	until(t, "all is open", func() bool { return len(a.owns()) == len(r.all) })
	time.Sleep(time.Second)
	r.produce(5)
	until(t, "all is read", func() bool { return total(a) == 5*len(r.all) })
	said.take()
	before := len(a.errors())

	away.begin() // before the marks are committed
	time.Sleep(12 * time.Second)
	if k := a.group.Status().Self.Kafka; k.Reachable {
		t.Error("Kafka is reachable")
	}
	if waiting := waitForKafka(a.group); waiting != len(r.all) {
		t.Errorf("%d partitions wait for Kafka, want all", waiting)
	}
	time.Sleep(48 * time.Second)
	during := said.take()
	// Five kinds, each once, and the one that explains the others every 10 s.
	wants(t, "Kafka is away", during, 5+6, "level=WARN msg=failed kind=broker", "level=ERROR msg=failed kind=kafka")
	for _, kind := range []string{"fetch", "commit"} {
		if n := count(during, "msg=failed kind="+kind); n != 1 {
			t.Errorf("%d lines tell that %s fails: %s", n, kind, during)
		}
	}
	if n := count(during, `msg="still failing"`); n < 4 || count(during, `msg="still failing" kind=kafka`) != n {
		t.Errorf("%d lines tell what goes on failing: %s", n, during)
	}
	if n := len(a.errors()) - before; n < 40 {
		t.Errorf("%d errors in Errors", n)
	}
	var troubles []string
	for _, trouble := range a.group.Status().Troubles {
		if trouble.Until == nil {
			troubles = append(troubles, trouble.Kind)
		}
	}
	if !slices.Contains(troubles, "commit") || !slices.Contains(troubles, "broker") {
		t.Errorf("the troubles are %v", troubles)
	}

	away.end()
	r.produce(5)
	until(t, "what came meanwhile is read", func() bool { return total(a) == 10*len(r.all) })
	time.Sleep(10 * time.Second)
	for _, trouble := range a.group.Status().Troubles {
		if trouble.Until == nil {
			t.Errorf("10 s after Kafka's return it is in trouble: %+v", trouble)
		}
	}
	back := said.take()
	wants(t, "Kafka is back", back, 8, "msg=recovered kind=commit errors=", "msg=recovered kind=broker errors=", "msg=recovered kind=kafka errors=", "msg=recovered kind=fetch")
	for kind, least := range map[string]time.Duration{"commit": 50 * time.Second, "broker": 59 * time.Second, "kafka": 59 * time.Second} {
		if after := recoveredAfter(t, back, kind); after < least || after > 61*time.Second {
			t.Errorf("%s was away for %v, and not for a minute, or what is left of it after its first failure: %s", kind, after, back)
		}
	}
	if k := a.group.Status().Self.Kafka; !k.Reachable {
		t.Error("Kafka is not reachable")
	}
	if waiting := waitForKafka(a.group); waiting != 0 {
		t.Errorf("%d partitions wait for Kafka, which is back", waiting)
	}
	well := slices.IndexFunc(back, func(line string) bool { return count([]string{line}, "msg=recovered kind=kafka") > 0 })
	if loud := loudLines(back[max(well, 0):]); len(loud) > 0 {
		t.Errorf("warned when all was well: %s", loud)
	}
}

// TestTroubleOfKafkaLasts: while no broker answers the status has a trouble that goes on and began with that. It ends when Kafka
// is back, and is not given up before.
func TestTroubleOfKafkaLasts(t *testing.T) {
	for _, length := range []time.Duration{73 * time.Second, 200 * time.Second, 20 * time.Minute} {
		t.Run(length.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) { kafkaIsAwayFor(t, length) })
		})
	}
}

func kafkaIsAwayFor(t *testing.T, outageOf time.Duration) {
	r := newRig(t, 3)
	var said lines
	away := &outage{dialer: dialer{r.knet}}
	a := r.member("a", func(o *consumer.Options) {
		logAll(&said, o)
		o.Config.Net.Proxy.Dialer = away
	}).start()
	until(t, "all is open", func() bool { return len(a.owns()) == 3 })
	r.produce(5, 0, 1, 2)
	until(t, "all is read", func() bool { return total(a) == 15 })
	time.Sleep(time.Minute)
	said.take()

	began := time.Now()
	away.begin()
	current := func() (kafka *status.Trouble, others []status.Trouble) {
		for _, trouble := range a.group.Status().Troubles {
			switch {
			case trouble.Kind == "kafka":
				kafka = new(trouble)
			case trouble.Until == nil:
				others = append(others, trouble)
			}
		}
		return kafka, others
	}
	for time.Since(began) < outageOf {
		time.Sleep(5 * time.Second)
		kafka, _ := current()
		if time.Since(began) > 20*time.Second && (kafka == nil || kafka.Until != nil || kafka.Since.Sub(began) > 10*time.Second) {
			t.Fatalf("after %v the trouble is %+v", time.Since(began), kafka)
		}
	}
	during := said.take()
	if n, m := count(during, "msg=failed kind=kafka"), count(during, `msg="given up`)+count(during, "msg=recovered"); n != 1 || m != 0 {
		t.Errorf("%d lines tell that Kafka is away, %d that something has ended: %s", n, m, during)
	}

	away.end()
	ended := time.Now()
	until(t, "Kafka is back", func() bool { return a.group.Status().Self.Kafka.Reachable })
	r.produce(5, 0, 1, 2)
	until(t, "what came meanwhile is read", func() bool { return total(a) == 30 })
	time.Sleep(time.Minute)
	kafka, others := current()
	if kafka == nil || kafka.Until == nil || kafka.Until.Before(ended) || len(others) > 0 {
		t.Errorf("when Kafka is back the trouble is %+v, and others go on: %+v", kafka, others)
	}
	if back := said.take(); count(back, "msg=recovered kind=kafka") != 1 || count(back, `msg="given up`) > 0 {
		t.Errorf("Kafka is back: %s", back)
	}
	a.leave()
}

// TestIdleMemberSeesKafkaBack: a member without partitions asks Kafka once a minute alone. When that has failed, it notices
// within seconds that Kafka is back.
func TestIdleMemberSeesKafkaBack(t *testing.T) {
	for _, topics := range [][]string{{topic}, {"^t$"}} {
		t.Run(fmt.Sprint(topics), func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				away := &outage{dialer: dialer{r.knet}}
				said := map[*member]*lines{}
				for _, name := range []string{"a", "b"} {
					var log lines
					said[r.member(name, func(o *consumer.Options) {
						logAll(&log, o)
						o.Config.Net.Proxy.Dialer = away
					}).start(topics...)] = &log
				}
				time.Sleep(time.Minute)
				var idle *member
				for m := range said {
					if len(m.owns()) == 0 {
						idle = m
					}
				}
				said[idle].take()
				away.begin()
				time.Sleep(5 * time.Minute)
				during := said[idle].take()
				if n := count(during, "msg=failed kind=metadata"); n != 1 || idle.group.Status().Self.Kafka.Reachable {
					t.Errorf("%d lines tell that Kafka is away; is it: %+v: %s", n, idle.group.Status().Self.Kafka, during)
				}
				away.end()
				time.Sleep(10 * time.Second)
				wants(t, "Kafka is back", said[idle].take(), 4, "msg=recovered kind=metadata")
				if k := idle.group.Status().Self.Kafka; !k.Reachable {
					t.Errorf("Kafka is not reachable: %+v", k)
				}
				for m := range said {
					m.leave()
				}
			})
		})
	}
}

// TestLinesOfLeavingWithoutKafka: what could not be committed when a member leaves is not a line for each partition.
func TestLinesOfLeavingWithoutKafka(t *testing.T) {
	const partitions = 300
	inRig(t, partitions, func(t *testing.T, r *rig) {
		var said lines
		away := &outage{dialer: dialer{r.knet}}
		a := r.member("a", func(o *consumer.Options) {
			logAll(&said, o)
			o.Config.Net.Proxy.Dialer = away
		}).start()
		until(t, "all is open", func() bool { return len(a.owns()) == partitions })
		time.Sleep(time.Second)
		for p := range int32(partitions) {
			r.produce(1, p)
		}
		until(t, "all is read", func() bool { return total(a) == partitions })
		said.take()
		away.begin()
		quit(a)
		wants(t, "left without Kafka", said.take(), 12, "level=ERROR msg=failed kind=commit")
	})
}

// A partition that is owned and does not come to be read shows, though Kafka is in reach.
func TestMetricsOfAPartitionThatIsNotOpened(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const unreadable = "oldest_unreadable_partition_seconds{}"
		r := newRig(t, 2)
		r.produce(5, 0, 1)
		fails := &atomic.Bool{}
		fails.Store(true)
		m, reg := r.watchedMember("a", func(o *consumer.Options) {
			o.Fence = func(_ context.Context, _ string, partition int32) error {
				if partition == 1 && fails.Load() {
					return errors.New("refused in a test")
				}
				return nil
			}
		})
		m.run()
		until(t, "one partition is read", func() bool { return total(m) == 5 })
		time.Sleep(5 * time.Minute)
		if now := scrape(t, reg); now[unreadable] < 299 || now[unreadable] > 310 || now["kafka_reachable{}"] != 1 {
			t.Errorf("not read for %v s, Kafka in reach: %v", now[unreadable], now["kafka_reachable{}"])
		}
		fails.Store(false)
		until(t, "both are read", func() bool { return total(m) == 10 })
		scrape(t, reg).is(t, "all is well", series{unreadable: 0})
		m.leave()
		scrape(t, reg).is(t, "the member has left", series{unreadable: 0})
	})
}
