//go:build linux

// Package handout_test measures what it costs to hand messages to handlers: by a send that waits, or by sends that don't
// and are tried again and again. Run it with
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

// A way hands a message to whoever receives from ch. It reports false if ctx ends before.
type way func(ctx context.Context, ch chan<- *message, m *message) bool

// park waits in the channel.
func park(ctx context.Context, ch chan<- *message, m *message) bool {
	select {
	case ch <- m:
		return true
	case <-ctx.Done():
		return false
	}
}

const (
	yieldFor = 20 * time.Microsecond
	nap      = 50 * time.Microsecond // the runtime makes 1 ms of it when the process has nothing else to do
)

// poll never waits in the channel: it offers the message while others run, and after a while between naps.
func poll(ctx context.Context, ch chan<- *message, m *message) bool {
	var began time.Time
	for ctx.Err() == nil {
		select {
		case ch <- m:
			return true
		default:
		}
		switch {
		case began.IsZero():
			began = time.Now()
			runtime.Gosched()
		case time.Since(began) < yieldFor:
			runtime.Gosched()
		default:
			select {
			case <-time.After(nap):
			case <-ctx.Done():
			}
		}
	}
	return false
}

var ways = []struct {
	name string
	hand way
}{{"park", park}, {"poll", poll}}

// deliver hands n messages to the handlers of some partitions, each with a goroutine that hands out and one that handles.
func deliver(ctx context.Context, hand way, partitions, n int, handle func(partition int, m *message)) {
	var running sync.WaitGroup
	for p := range partitions {
		share := n / partitions
		if p < n%partitions {
			share++
		}
		ch := make(chan *message)
		running.Go(func() {
			defer close(ch)
			for i := range share {
				if !hand(ctx, ch, &message{i}) {
					return
				}
			}
		})
		running.Go(func() {
			for m := range ch {
				handle(p, m)
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
			deliver(t.Context(), w.hand, partitions, n, func(p int, m *message) {
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
			if w.hand(ctx, make(chan *message), &message{}) {
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
					deliver(b.Context(), w.hand, partitions, b.N, func(p int, _ *message) { work(p) })
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
