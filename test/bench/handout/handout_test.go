//go:build linux

// Package handout_test measures what it costs to hand messages to handlers: by a send that waits, as sarama does, or by
// sends that don't and are tried when the handler may be back, as package consumer does. Run it with
//
//	go test ./bench/handout -run '^$' -bench .
package handout_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

type message struct{ number int }

// A lane leads to one handler.
type lane struct {
	messages chan *message
	back     chan struct{} // holds a hint that the handler comes for the next one; nil when it gives none
	last     time.Time     // when a message was handed out
	hinted   bool          // the handler was found by a hint, the last time
	timer    *time.Timer
}

func newLane(hints bool) *lane {
	l := &lane{messages: make(chan *message), last: time.Now(), timer: time.NewTimer(0)}
	if hints {
		l.back = make(chan struct{}, 1)
	}
	return l
}

func (l *lane) hint() {
	select {
	case l.back <- struct{}{}:
	default:
	}
}

// A way hands a message to the handler. It reports false if ctx ends before.
type way func(ctx context.Context, l *lane, m *message) bool

// offer waits in the channel.
func offer(ctx context.Context, l *lane, m *message) bool {
	select {
	case l.messages <- m:
		return true
	case <-ctx.Done():
		return false
	}
}

const (
	spins    = 50
	minPause = 50 * time.Microsecond
	maxPause = 100 * time.Millisecond

	hintPause = 2 * time.Millisecond
)

// look never waits in the channel: see pump in package consumer.
func look(ctx context.Context, l *lane, m *message) bool {
	tries, pause := 0, minPause
	if l.hinted {
		tries, pause = spins, hintPause
	}
	for l.hinted = false; ctx.Err() == nil; {
		select {
		case l.messages <- m:
			select {
			case <-l.back:
			default:
			}
			l.last = time.Now()
			return true
		default:
		}
		if tries++; tries < spins {
			runtime.Gosched()
			continue
		}
		l.timer.Reset(min(max(time.Since(l.last)/16, pause), maxPause))
		select {
		case <-l.timer.C:
			l.hinted = false
		case <-l.back:
			tries, l.hinted = 0, true
		case <-ctx.Done():
		}
	}
	return false
}

var ways = []struct {
	name  string
	hand  way
	hints bool
}{{"offer", offer, false}, {"look", look, false}, {"look-hinted", look, true}}

// deliver hands n messages to the handlers of some partitions, each with a goroutine that hands out and one that handles.
func deliver(ctx context.Context, hand way, hints bool, partitions, n int, handle func(partition int, m *message)) {
	var running sync.WaitGroup
	for p := range partitions {
		share := n / partitions
		if p < n%partitions {
			share++
		}
		l := newLane(hints)
		running.Go(func() {
			defer close(l.messages)
			for i := range share {
				if !hand(ctx, l, &message{i}) {
					return
				}
			}
		})
		running.Go(func() {
			for m := range l.messages {
				handle(p, m)
				l.hint()
			}
		})
	}
	running.Wait()
}

// Each message is handled once and in order, whichever way it is handed out, and none after the end of the context.
func TestHandOut(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const partitions, n = 7, 10_000
			next := make([]int, partitions)
			deliver(t.Context(), w.hand, w.hints, partitions, n, func(p int, m *message) {
				if m.number != next[p] {
					t.Errorf("partition %d: message %d, want %d", p, m.number, next[p])
				}
				next[p]++
			})
			sum := 0
			for _, handled := range next {
				sum += handled
			}
			if sum != n {
				t.Errorf("%d messages were handled, want %d", sum, n)
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, cancel)
			if w.hand(ctx, newLane(w.hints), &message{}) {
				t.Error("nobody received, and it was handed out")
			}
		})
	}
}

// BenchmarkHandOut prints messages per second, and the time on a processor that one takes, handler included.
func BenchmarkHandOut(b *testing.B) {
	for _, h := range []struct {
		name        string
		busy, waits time.Duration
	}{
		{name: "0"},
		{name: "10us-busy", busy: 10 * time.Microsecond},
		{name: "100us-waiting", waits: 100 * time.Microsecond},
		{name: "1ms-waiting", waits: time.Millisecond},
	} {
		for _, partitions := range []int{1, maxPartitions} {
			for _, w := range ways {
				b.Run(fmt.Sprintf("handler=%s/partitions=%d/way=%s", h.name, partitions, w.name), func(b *testing.B) {
					work := func(int) {}
					switch {
					case h.busy > 0:
						work = spinner(h.busy)
					case h.waits > 0:
						work = startDevice(b, h.waits).ask
					}
					b.ResetTimer()
					began, used := time.Now(), processorTime(b)
					deliver(b.Context(), w.hand, w.hints, partitions, b.N, func(p int, _ *message) { work(p) })
					used, took := processorTime(b)-used, time.Since(began)
					b.ReportMetric(float64(b.N)/took.Seconds(), "messages/s")
					b.ReportMetric(float64(used.Nanoseconds())/1e3/float64(b.N), "cpu-µs/message")
				})
			}
		}
	}
}

// processorTime is what this process has used so far.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// spinner returns what keeps a processor busy for d when nothing interrupts it.
func spinner(d time.Duration) func(int) {
	const sample = 100_000
	best := time.Hour
	for range 20 {
		began := time.Now()
		runtime.KeepAlive(spin(sample))
		best = min(best, time.Since(began))
	}
	n := int(d * sample / best)
	return func(int) { runtime.KeepAlive(spin(n)) }
}

//go:noinline
func spin(n int) uint64 {
	x := uint64(n) | 1
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}
