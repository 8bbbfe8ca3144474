package fetch

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/errlog"
)

// asking is a writer of the log that calls the fetcher, as a writer does that asks for the group's status.
type asking struct {
	slog.Handler
	t     *testing.T
	kinds map[string]int // of lines, that were written while nobody held the lock
	of    *Fetcher
}

// Handle sees whether the lock can be had. Others hold it for moments.
func (a *asking) Handle(_ context.Context, r slog.Record) error {
	kind := ""
	r.Attrs(func(attr slog.Attr) bool {
		if attr.Key == "kind" {
			kind = attr.Value.String()
		}
		return true
	})
	for range 100_000 {
		if a.of.mu.TryLock() {
			a.kinds[r.Message+" "+kind]++ // the lock guards it
			a.of.mu.Unlock()
			return nil
		}
		runtime.Gosched()
	}
	a.t.Errorf("the log was told %q of kind %s with the fetcher's lock held", r.Message, kind)
	return nil
}

// No line is written with the lock held. The lines are about brokers that fail and are stopped, partitions that fail and are
// closed, and brokers that throttle.
func TestLogIsNotWrittenUnderTheLock(t *testing.T) {
	w := &asking{Handler: slog.DiscardHandler, t: t, kinds: map[string]int{}}
	log := errlog.New(slog.New(enabled{w}))
	inBubble(t, func(o *Options) { o.Errors = log }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		w.of = x
		k.add(0, batch{values: vals(1)})
		p := open(t, x, 0, 0, -1)
		same(t, offsets(t, p, 1), []int64{0})
		k.change(func() {
			k.down[1] = true
			for _, c := range k.conns {
				c.Close()
			}
		})
		time.Sleep(time.Minute)
		k.change(func() { k.down[1], k.throttle = false, time.Hour })
		k.add(0, batch{values: vals(1)})
		same(t, offsets(t, p, 2), []int64{1})
		time.Sleep(2 * maxThrottle)
		k.change(func() { k.down[1], k.throttle = true, 0 })
		time.Sleep(5 * time.Minute)
		p.Close()
		time.Sleep(2 * idleTimeout)
	})
	for _, line := range []string{
		"failed broker", "still failing broker", "recovered broker", "failed fetch", "recovered fetch", "failed throttle",
	} {
		if w.kinds[line] == 0 {
			t.Errorf("no line %q: %v", line, w.kinds)
		}
	}
}

// enabled takes all records.
type enabled struct{ slog.Handler }

func (enabled) Enabled(context.Context, slog.Level) bool { return true }

// A writer that blocks holds up neither callers of the fetcher nor messages. The lines that waited are written in order, and are
// bounded.
func TestLogThatBlocks(t *testing.T) {
	blocks := make(chan struct{})
	var lines []string
	w := writerFunc(func(r slog.Record) {
		<-blocks
		lines = append(lines, r.Message)
	})
	log := errlog.New(slog.New(w))
	inBubble(t, func(o *Options) { o.Errors = log }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		blocks = make(chan struct{}) // of the bubble
		k.add(0, batch{values: vals(1)})
		p := open(t, x, 0, 0, -1)
		same(t, offsets(t, p, 1), []int64{0})
		x.mu.Lock()
		x.failed(kindBroker, "1", errors.New("refused in a test"))
		go x.unlock()
		time.Sleep(time.Second)
		k.add(0, batch{values: vals(1)})
		same(t, offsets(t, p, 2), []int64{1})
		for range 3 * maxNotes {
			x.mu.Lock()
			x.failed(kindBroker, "1", errors.New("refused in a test"))
			x.unlock()
		}
		x.mu.Lock()
		x.gone("1")
		if n := len(x.notes); n > maxNotes+1 {
			t.Errorf("%d notes are kept", n)
		}
		x.unlock()
		close(blocks)
		time.Sleep(time.Second)
		if log.Failing() || len(lines) == 0 || lines[0] != "failed" {
			t.Errorf("told %q; it fails still: %v", lines, log.Failing())
		}
	})
}

// writerFunc is a writer of the log.
type writerFunc func(r slog.Record)

func (w writerFunc) Enabled(context.Context, slog.Level) bool      { return true }
func (w writerFunc) Handle(_ context.Context, r slog.Record) error { w(r); return nil }
func (w writerFunc) WithAttrs([]slog.Attr) slog.Handler            { return w }
func (w writerFunc) WithGroup(string) slog.Handler                 { return w }

// A broker that fails is kept while no broker answers, although no partition is assigned to it: its errors end when it works. A
// broker that is away alone is stopped when other brokers lead its partitions.
func TestBrokerIsNotGivenUpWhileKafkaIsAway(t *testing.T) {
	for _, away := range []bool{true, false} {
		var reachable atomic.Bool
		var mu sync.Mutex
		var said []string
		log := errlog.New(slog.New(writerFunc(func(r slog.Record) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, r.Message)
		})))
		told := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(said)
		}
		inBubble(t, func(o *Options) { o.Errors, o.Reachable = log, reachable.Load }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			reachable.Store(true)
			k.add(0, batch{values: vals(1)})
			p := open(t, x, 0, 0, -1)
			same(t, offsets(t, p, 1), []int64{0})
			k.change(func() {
				k.silent[1] = true
				if away {
					k.leaderErr = sarama.ErrOutOfBrokers
				}
			})
			k.add(0, batch{values: vals(1)})
			time.Sleep(20 * time.Second)
			if !away {
				k.change(func() { k.log(0).leader, k.log(0).epoch = 2, 1 })
			}
			reachable.Store(!away)
			time.Sleep(10 * time.Minute)
			if away != log.Failing() {
				t.Errorf("away %v, it fails: %v, told %q", away, log.Failing(), told())
			}
			k.change(func() { k.silent[1], k.leaderErr = false, nil })
			same(t, offsets(t, p, 2), []int64{1})
			time.Sleep(time.Second)
			reachable.Store(true)
			lines := told()
			if away && (len(lines) == 0 || lines[0] != "failed" || slices.Contains(lines, "given up while it failed") || lines[len(lines)-1] != "recovered") {
				t.Errorf("told %q", lines)
			}
			if !away && !slices.Contains(lines, "given up while it failed") {
				t.Errorf("a broker that is not needed: told %q", lines)
			}
		})
	}
}
