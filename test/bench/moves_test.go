package bench_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// TestMoves measures how long a partition stands still when it moves between members that consume by Run: a fifth member joins four and
// leaves again. They are in one process, so what it starts and ends costs nothing. Each partition gets a message each beat.
//
//	go test ./test/bench -run Moves -rounds 20 -v
func TestMoves(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: tick})
	kafka := servers.StartKafka(t, servers.KafkaOptions{})
	kafka.CreateTopic(topic, partitions)
	produce(t, kafka.Brokers())
	w := &moving{t: t, zookeeper: zk.Addrs(), kafka: kafka.Brokers()}
	for i := range 4 {
		w.join(fmt.Sprintf("m%d", i))
	}
	w.settle()
	join, leave := &moves{name: "join"}, &moves{name: "leave"}
	for range *rounds {
		w.take()
		fifth := w.join("m4")
		w.settle()
		join.add(w.take())
		fifth.leave(t)
		w.settle()
		leave.add(w.take())
	}
	for _, m := range slices.Clone(w.members) {
		m.leave(t)
	}
	for _, m := range []*moves{join, leave} {
		t.Log(m)
		if len(m.gap) == 0 || slices.Max(m.gap) > 5*time.Second {
			t.Errorf("%s: a partition without messages for %v", m.name, m.gap)
		}
		if m.repeated > 0 || m.missed > 0 {
			t.Errorf("%s: %d messages repeated, %d missed", m.name, m.repeated, m.missed)
		}
	}
}

// moving is a group whose partitions move.
type moving struct {
	t                *testing.T
	zookeeper, kafka []string
	members          []*mover

	mu   sync.Mutex
	now  [partitions]tenure // of the present owner
	was  [partitions]tenure // of the one before
	line []moved
}

// tenure is one owner's time with a partition.
type tenure struct {
	owner                      *mover
	revoked, released, claimed time.Time
	opened, first, last        time.Time // when the handler was called, and got its first and its newest message
	firstOffset, lastOffset    int64
	movedOn                    bool // the first message was counted
}

// moved is one move of one partition.
type moved struct {
	from, to tenure
}

// mover is a member of the group.
type mover struct {
	of    *moving
	name  string
	group *consumer.Group
	stop  context.CancelFunc
	done  chan error
}

// join starts a member.
func (w *moving) join(name string) *mover {
	w.t.Helper()
	m := &mover{of: w, name: name, done: make(chan error, 1)}
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	opts := consumer.Options{Name: name, Config: config, From: consumer.Earliest, Logger: slog.New(&steplog{m: m})}
	opts.Session.Timeout = *sessionTimeout
	var err error
	if m.group, err = consumer.NewGroup(w.zookeeper, w.kafka, "moves", opts); err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	w.members = append(w.members, m)
	go func() { m.done <- m.group.Run(ctx, []string{topic}, m.handle) }()
	return m
}

// leave ends a member.
func (m *mover) leave(t *testing.T) {
	t.Helper()
	m.of.members = slices.DeleteFunc(m.of.members, func(other *mover) bool { return other == m })
	m.stop()
	if err := <-m.done; err != nil {
		t.Error(err)
	}
	if err := m.group.Close(); err != nil {
		t.Error(err)
	}
}

func (m *mover) handle(_ context.Context, p *consumer.Partition) error {
	m.of.opened(m, p.ID())
	for msg := range p.Messages() {
		m.of.got(m, msg)
		p.Mark(msg)
	}
	return nil
}

func (w *moving) opened(m *mover, id int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of(m, id).opened = time.Now()
}

// of returns the tenure of m, which begins if m is a new owner. w.mu is held.
func (w *moving) of(m *mover, id int32) *tenure {
	if w.now[id].owner != m {
		w.was[id], w.now[id] = w.now[id], tenure{owner: m}
	}
	return &w.now[id]
}

func (w *moving) got(m *mover, msg *sarama.ConsumerMessage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.of(m, msg.Partition)
	now.last, now.lastOffset = time.Now(), msg.Offset
	if !now.movedOn {
		now.movedOn, now.first, now.firstOffset = true, now.last, msg.Offset
		if w.was[msg.Partition].owner != nil {
			w.line = append(w.line, moved{w.was[msg.Partition], *now})
		}
	}
}

// step takes in a line of a member's log about a partition.
func (w *moving) step(m *mover, what string, id int32, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if what == "claimed" {
		w.of(m, id).claimed = at
		return
	}
	for _, t := range []*tenure{&w.now[id], &w.was[id]} {
		if t.owner != m {
			continue
		}
		switch what {
		case "revoked":
			t.revoked = at
		case "released": // the line may be written after the next owner has claimed
			t.released = at
		}
	}
}

// take returns what has moved since the last call.
func (w *moving) take() []moved {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := w.line
	w.line = nil
	return line
}

// settle waits until the members have everything evenly, and each partition has had a message.
func (w *moving) settle() {
	w.t.Helper()
	wait.Until(w.t, time.Minute, w.even, func() string { return "the partitions are not shared evenly" })
	wait.Pass(w.t, 300*time.Millisecond) // so that moves do not follow on each other's heels
}

func (w *moving) even() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := map[*mover]int{}
	for i := range w.now {
		if t := &w.now[i]; !t.movedOn || !slices.Contains(w.members, t.owner) {
			return false
		}
		count[w.now[i].owner]++
	}
	for _, m := range w.members {
		if n := count[m]; n < partitions/len(w.members) || n > partitions/len(w.members)+1 {
			return false
		}
	}
	return true
}

// moves are the moves of one kind.
type moves struct {
	name                                  string
	all, drain, claim, open, message, gap []time.Duration
	repeated, missed                      int64
}

func (m *moves) add(line []moved) {
	var begin, end time.Time
	for _, l := range line {
		m.gap = append(m.gap, l.to.first.Sub(l.from.last))
		m.claim = append(m.claim, l.to.claimed.Sub(l.from.released))
		m.open = append(m.open, l.to.opened.Sub(l.to.claimed))
		m.message = append(m.message, l.to.first.Sub(l.to.opened))
		if !l.from.revoked.IsZero() {
			m.drain = append(m.drain, l.from.released.Sub(l.from.revoked))
			if begin.IsZero() || l.from.revoked.Before(begin) {
				begin = l.from.revoked
			}
		}
		if l.to.first.After(end) {
			end = l.to.first
		}
		m.repeated += max(0, l.from.lastOffset+1-l.to.firstOffset)
		m.missed += max(0, l.to.firstOffset-l.from.lastOffset-1)
	}
	if !begin.IsZero() {
		m.all = append(m.all, end.Sub(begin))
	}
}

func (m *moves) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d moves, %d repeated, %d missed", m.name, len(m.gap), m.repeated, m.missed)
	for _, l := range []struct {
		name string
		ds   []time.Duration
	}{
		{"from the first revocation to the last first message", m.all},
		{"revoked to released", m.drain},
		{"released to claimed", m.claim},
		{"claimed to handler", m.open},
		{"handler to first message", m.message},
		{"gap of a partition", m.gap},
	} {
		if len(l.ds) == 0 {
			continue
		}
		slices.Sort(l.ds)
		fmt.Fprintf(&b, "\n  %-52s median %6.1f ms, worst %6.1f ms", l.name, ms(l.ds[(len(l.ds)-1)/2]), ms(l.ds[len(l.ds)-1]))
	}
	return b.String()
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// steplog takes the steps of hand-overs from a member's log.
type steplog struct{ m *mover }

func (*steplog) Enabled(context.Context, slog.Level) bool { return true }
func (s *steplog) WithAttrs([]slog.Attr) slog.Handler     { return s }
func (s *steplog) WithGroup(string) slog.Handler          { return s }

func (s *steplog) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "partition" {
			return true
		}
		var id int32
		if _, err := fmt.Sscanf(strings.TrimPrefix(a.Value.String(), topic+":"), "%d", &id); err == nil {
			s.m.of.step(s.m, r.Message, id, r.Time)
		}
		return false
	})
	return nil
}
