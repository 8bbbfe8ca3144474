package bench_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/bench/moves"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// TestMoves measures how long a partition stands still when it moves: a fifth member joins four and leaves again, in groups of
// several clients, one after the other. The members are in one process, so what a process starts and ends costs nothing. Each
// partition gets a message each moveBeat.
//
//	go test ./test/bench -run Moves -rounds 20 -v
func TestMoves(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: tick})
	kafka := servers.StartKafka(t, servers.KafkaOptions{})
	kafka.CreateTopic(topic, partitions)
	produce(t, kafka.Brokers(), moveBeat)
	figures := moves.Figures{
		Machine: machine(t), Kafka: servers.Kafka4, ZooKeeper: servers.ZooKeeper39, Partitions: partitions, Every: moveBeat, Rounds: *rounds,
	}
	for _, client := range matching(t, *clients, moves.Clients()) {
		t.Run(string(client), func(t *testing.T) {
			w := &moving{t: t, client: moveClients[client], zookeeper: zk.Addrs(), kafka: kafka.Brokers(), group: "moves-" + string(client)}
			figures.Figures = append(figures.Figures, w.measure(client)...)
		})
	}
	if *keep && !t.Failed() {
		write(t, moves.File, figures)
	}
}

// measure has a fifth member join and leave, so many times and once before, which does not count: the servers have not warmed up
// then.
func (w *moving) measure(client moves.Client) []moves.Figure {
	if client == moves.KielEager {
		w.calm = 11 * time.Second // an eager session lasts up to 10 s when sessions follow each other faster than that
	}
	for i := range 4 {
		w.join(fmt.Sprintf("m%d", i))
	}
	w.settle()
	var join, leave *change
	for round := range *rounds + 1 {
		if round < 2 {
			join, leave = &change{name: moves.Join}, &change{name: moves.Leave}
		}
		w.begin()
		fifth := w.join("m4")
		w.settle()
		join.add(w.end())
		w.begin()
		fifth.leave(w.t)
		w.settle()
		leave.add(w.end())
	}
	for _, m := range slices.Clone(w.members) {
		m.leave(w.t)
	}
	var figures []moves.Figure
	for _, c := range []*change{join, leave} {
		w.t.Log(c)
		if len(c.gap) == 0 {
			w.t.Errorf("%s: nothing moved", c.name)
			continue
		}
		ours := client == moves.Kiel || client == moves.KielEager
		if ours && slices.Max(c.gap) > 5*time.Second {
			w.t.Errorf("%s: a partition without messages for %v", c.name, slices.Max(c.gap))
		}
		if ours && c.repeated+c.missed > 0 {
			w.t.Errorf("%s: %d messages repeated, %d missed", c.name, c.repeated, c.missed)
		}
		figures = append(figures, c.figure(client))
	}
	return figures
}

// moving is a group whose partitions move.
type moving struct {
	t                *testing.T
	client           moveClient
	zookeeper, kafka []string
	group            string
	members          []*mover
	calm             time.Duration // between changes

	mu    sync.Mutex
	now   [partitions]tenure // of the present owner
	was   [partitions]tenure // of the one before
	line  []moved
	since time.Time                 // when the change began
	gap   [partitions]time.Duration // the longest since then
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
	id       int32
	from, to tenure
}

// mover is a member of the group.
type mover struct {
	of   *moving
	name string
	stop func() error
}

// join starts a member.
func (w *moving) join(name string) *mover {
	w.t.Helper()
	m := &mover{of: w, name: name}
	var err error
	if m.stop, err = w.client(m, w); err != nil {
		w.t.Fatal(err)
	}
	w.members = append(w.members, m)
	return m
}

// leave ends a member.
func (m *mover) leave(t *testing.T) {
	t.Helper()
	m.of.members = slices.DeleteFunc(m.of.members, func(other *mover) bool { return other == m })
	if err := m.stop(); err != nil {
		t.Error(err)
	}
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

func (w *moving) got(m *mover, id int32, offset int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, last := time.Now(), w.now[id].last
	now := w.of(m, id)
	now.last, now.lastOffset = at, offset
	if !last.IsZero() && at.After(w.since) {
		w.gap[id] = max(w.gap[id], at.Sub(last))
	}
	if !now.movedOn {
		now.movedOn, now.first, now.firstOffset = true, at, offset
		if w.was[id].owner != nil {
			w.line = append(w.line, moved{id, w.was[id], *now})
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
		case "revoking":
			t.revoked = at
		case "released": // the line may be written after the next owner has claimed
			t.released = at
		}
	}
}

// begin begins a change.
func (w *moving) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line, w.since, w.gap = nil, time.Now(), [partitions]time.Duration{}
}

// end returns what has moved since begin was called, and the longest gaps of all partitions.
func (w *moving) end() (line []moved, since time.Time, gaps []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.line, w.since, slices.Clone(w.gap[:])
}

// settle waits until the members have everything evenly, and each partition has had a message.
func (w *moving) settle() {
	w.t.Helper()
	wait.Until(w.t, time.Minute, w.even, func() string { return "the partitions are not shared evenly" })
	// Moves shall not follow on each other's heels, nor always as long after the last heartbeats.
	wait.Pass(w.t, w.calm+300*time.Millisecond+rand.N(5*time.Second))
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

// change is what a change cost, in all rounds.
type change struct {
	name                                                string
	everywhere, all, drain, claim, open, message, stays []time.Duration
	gap                                                 []time.Duration // of each partition that moved
	repeated, missed                                    int64
}

func (c *change) add(line []moved, since time.Time, gaps []time.Duration) {
	var begin, end time.Time
	went := map[int32]bool{}
	for _, l := range line {
		went[l.id] = true
		c.gap = append(c.gap, l.to.first.Sub(l.from.last))
		if l.to.first.After(end) {
			end = l.to.first
		}
		c.repeated += max(0, l.from.lastOffset+1-l.to.firstOffset)
		c.missed += max(0, l.to.firstOffset-l.from.lastOffset-1)
		if l.from.released.IsZero() || l.to.claimed.IsZero() {
			continue // not of our log
		}
		c.claim = append(c.claim, l.to.claimed.Sub(l.from.released))
		c.open = append(c.open, l.to.opened.Sub(l.to.claimed))
		c.message = append(c.message, l.to.first.Sub(l.to.opened))
		if !l.from.revoked.IsZero() {
			c.drain = append(c.drain, l.from.released.Sub(l.from.revoked))
			if begin.IsZero() || l.from.revoked.Before(begin) {
				begin = l.from.revoked
			}
		}
	}
	c.everywhere = append(c.everywhere, end.Sub(since))
	if !begin.IsZero() {
		c.all = append(c.all, end.Sub(begin))
	}
	for id, gap := range gaps {
		if !went[int32(id)] {
			c.stays = append(c.stays, gap)
		}
	}
}

func (c *change) figure(client moves.Client) moves.Figure {
	f := moves.Figure{
		Client: client, Change: c.name, Moved: len(c.gap), Everywhere: moves.SpreadOf(c.everywhere), Gap: moves.SpreadOf(c.gap),
		Repeated: c.repeated, Missed: c.missed,
	}
	if len(c.stays) > 0 {
		f.Stays = moves.SpreadOf(c.stays)
	}
	return f
}

func (c *change) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d moves, %d repeated, %d missed", c.name, len(c.gap), c.repeated, c.missed)
	for _, l := range []struct {
		name string
		ds   []time.Duration
	}{
		{"from the call to the last first message", c.everywhere},
		{"from the first revocation to the last first message", c.all},
		{"revoked to released", c.drain},
		{"released to claimed", c.claim},
		{"claimed to handler", c.open},
		{"handler to first message", c.message},
		{"gap of a partition that moves", c.gap},
		{"longest gap of a partition that stays", c.stays},
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
