package fetch

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// No line is written with the lock held, because a writer may ask for the group's status. The lines are about brokers that fail
// and are stopped, partitions that fail and are closed, and brokers that throttle.
func TestLogIsNotWrittenUnderTheLock(t *testing.T) {
	var of *Fetcher
	kinds := map[string]int{} // of lines that were written while nobody held the lock, which guards it
	log := errlog.New(slog.New(writerFunc(func(r slog.Record) {
		line := r.Message
		for a := range r.Attrs {
			if a.Key == "kind" {
				line += " " + a.Value.String()
			}
		}
		for range 100_000 { // others hold it for moments
			if of.mu.TryLock() {
				kinds[line]++
				of.mu.Unlock()
				return
			}
			runtime.Gosched()
		}
		t.Errorf("the log was told %q with the fetcher's lock held", line)
	})))
	inBubble(t, func(o *Options) { o.Errors = log }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		of = x
		p := begun(t, k, x, 1)
		k.change(func() { k.down[1] = true })
		k.hangUp()
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
		if kinds[line] == 0 {
			t.Errorf("no line %q: %v", line, kinds)
		}
	}
}

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
		p := begun(t, k, x, 1)
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
		said := &logtest.Log{}
		log := errlog.New(slog.New(slog.NewTextHandler(said, nil)))
		inBubble(t, func(o *Options) { o.Errors, o.Reachable = log, reachable.Load }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			reachable.Store(true)
			p := begun(t, k, x, 1)
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
			assert.Equal(t, log.Failing(), away, "whether it counts as failing, when the log is %s", said)
			k.change(func() { k.silent[1], k.leaderErr = false, nil })
			same(t, offsets(t, p, 2), []int64{1})
			time.Sleep(time.Second)
			reachable.Store(true)
			lines := strings.Split(strings.TrimSpace(said.String()), "\n")
			givenUp := said.Count("given up while it failed") > 0
			if givenUp == away || away && (!strings.Contains(lines[0], "msg=failed") || !strings.Contains(lines[len(lines)-1], "msg=recovered")) {
				t.Errorf("away %t, logged\n%s", away, said)
			}
		})
	}
}
