package fetch

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

func same(t *testing.T, got, want []int64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("offsets %v, want %v", got, want)
	}
}

func committed(o *Options) { o.Config.Consumer.IsolationLevel = sarama.ReadCommitted }

// Readable messages come once, in order, whatever batches they are in, and the position goes past what is hidden.
func TestReads(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Options)
		batches []batch
		aborted []sarama.AbortedTransaction
		open    int64
		want    []int64
		end     int64
	}{
		"plain":              {batches: []batch{{values: vals(3)}, {values: vals(2)}}, want: seq(0, 5), end: 5},
		"gzip":               {batches: []batch{{values: vals(300), gzip: true}}, want: seq(0, 300), end: 300},
		"inside a batch":     {batches: []batch{{values: vals(10)}}, open: 4, want: seq(4, 10), end: 10},
		"compaction":         {batches: []batch{{base: 2, last: 9, values: vals(2), keep: []int64{1, 4}}, {base: 20, values: vals(1)}}, want: []int64{3, 6, 20}, end: 21},
		"compacted tail":     {batches: []batch{{base: 2, last: 9, values: vals(2), keep: []int64{1, 4}}}, want: []int64{3, 6}, end: 10},
		"empty batch":        {batches: []batch{{last: 4}, {base: 5, values: vals(2)}}, want: []int64{5, 6}, end: 7},
		"only empty batches": {batches: []batch{{last: 4}}, end: 5},
		"control, uncommitted": {
			batches: []batch{{producer: 7, values: vals(2)}, {producer: 7, control: true, abort: true}, {values: vals(1)}},
			want:    []int64{0, 1, 3}, end: 4,
		},
		"aborted": {
			change: committed,
			batches: []batch{
				{producer: 7, values: vals(2)},
				{producer: 8, values: vals(1)},
				{producer: 7, control: true, abort: true},
				{producer: 7, values: vals(1)},
				{producer: 8, control: true},
				{producer: 7, control: true},
			},
			aborted: []sarama.AbortedTransaction{{ProducerID: 7, FirstOffset: 0}}, want: []int64{2, 4}, end: 7,
		},
		"aborted tail": {
			change: committed, batches: []batch{{values: vals(1)}, {producer: 7, values: vals(2)}, {producer: 7, control: true, abort: true}},
			aborted: []sarama.AbortedTransaction{{ProducerID: 7, FirstOffset: 1}}, want: []int64{0}, end: 4,
		},
	} {
		subtest(t, name, c.change, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, c.batches...)
			k.log(0).aborted = c.aborted
			p := open(t, x, 0, c.open, -1)
			same(t, offsets(t, p, c.end), c.want)
			if n, _ := p.Lag(); n != 0 {
				t.Errorf("lag %d", n)
			}
		})
	}
}

// Messages of formats before record batches are read, and none needs a request of its own.
func TestOldFormats(t *testing.T) {
	for name, packed := range map[string]bool{"plain": false, "compressed": true} {
		subtest(t, name, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			old := batch{values: vals(5), legacy: true, gzip: packed}
			k.add(0, batch{values: vals(5)}, old, old, batch{values: vals(5)})
			k.add(1, batch{values: vals(5)})
			p := open(t, x, 0, 0, -1)
			beside := open(t, x, 1, 0, -1)
			same(t, offsets(t, p, 20), seq(0, 20))
			same(t, offsets(t, beside, 5), seq(0, 5))
			if n, _ := asked(k, 0, 0); n > 6 {
				t.Errorf("%d requests", n)
			}
			k.add(0, old)
			same(t, offsets(t, p, 25), seq(20, 25))
			time.Sleep(time.Second)
			from := len(k.requests())
			time.Sleep(time.Minute)
			if n := len(k.requests()) - from; n > 125 {
				t.Errorf("%d requests in an idle minute", n)
			}
			k.add(0, batch{values: vals(5)}, old)
			same(t, offsets(t, p, 35), seq(25, 35))
		})
	}
}

// A partition that is opened or resumed, or has room again, waits for no long poll.
func TestBesideLongPolls(t *testing.T) {
	inBubble(t, func(o *Options) { o.Config.Consumer.MaxWaitTime = 10 * time.Second }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		for id := range int32(4) {
			k.add(id)
			open(t, x, id, 0, -1)
		}
		synctest.Wait()
		for id := int32(4); id < 8; id++ { // one after another, each beside all before
			k.add(id, batch{values: vals(1)})
			began := time.Now()
			if _, err := next(t, open(t, x, id, 0, -1), time.Second); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 10*time.Millisecond {
				t.Errorf("first message of partition %d after %v", id, took)
			}
		}
		p := open(t, x, 8, 0, -1)
		p.Pause()
		k.add(8, batch{values: vals(1)})
		if _, err := next(t, p, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("paused: %v", err)
		}
		began := time.Now()
		p.Resume()
		if _, err := next(t, p, time.Second); err != nil || time.Since(began) > 10*time.Millisecond {
			t.Fatalf("resumed: %v after %v", err, time.Since(began))
		}
		// All come together in the long polls again.
		time.Sleep(11 * time.Second)
		before := len(k.requests())
		time.Sleep(30 * time.Second)
		if n := len(k.requests()) - before; n > 8 {
			t.Errorf("%d requests in 30 s of idle long polls of 10 s", n)
		}
	})
}

// A reader that takes 20 ms for a message costs the partition beside it nothing.
func TestSlowNeighbour(t *testing.T) {
	inBubble(t, func(o *Options) { o.Config.Consumer.Fetch.Default = 64 << 10 }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		for range 50 {
			k.add(0, batch{values: vals(100)})
			k.add(1, batch{values: vals(100)})
		}
		slow := open(t, x, 0, 0, -1)
		var readers sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		readers.Go(func() {
			for {
				b, err := slow.Next(ctx)
				if err != nil {
					return
				}
				for range b.Messages {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
		began := time.Now()
		same(t, offsets(t, open(t, x, 1, 0, -1), 5000), seq(0, 5000))
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("5,000 messages took %v", took)
		}
		stop()
		readers.Wait()
	})
}

// Lag counts to what may be read, and the age is that of the next message.
func TestLag(t *testing.T) {
	inBubble(t, committed, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(3)}, batch{values: vals(7)})
		k.log(0).stable = 8
		p := open(t, x, 0, 0, -1)
		time.Sleep(time.Second)
		n, behind := p.Lag()
		if n != 8 || behind != time.Since(epochTime) {
			t.Errorf("lag %d, %v", n, behind)
		}
		offsets(t, p, 10)
		if n, behind := p.Lag(); n != 0 || behind != 0 {
			t.Errorf("at the end: lag %d, %v", n, behind)
		}
		if stable := p.read(func() int64 { return p.stable }); p.HighWatermark() != 10 || stable != 8 {
			t.Errorf("%d, %d", p.HighWatermark(), stable)
		}
	})
}

// Close works in every phase, at once, and the partition can be opened again.
func TestClose(t *testing.T) {
	inBubble(t, func(o *Options) { o.Config.Consumer.MaxWaitTime = 10 * time.Second }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0)
		for range 3 {
			p := open(t, x, 0, 0, -1)
			if _, err := x.Open(t.Context(), "t", 0, 0, -1); !errors.Is(err, ErrOpen) {
				t.Errorf("opened twice: %v", err)
			}
			got := make(chan error, 1)
			go func() { _, err := p.Next(t.Context()); got <- err }()
			synctest.Wait() // in its long poll
			began := time.Now()
			p.Close()
			p.Close()
			if err := <-got; !errors.Is(err, ErrClosed) || time.Since(began) > 0 {
				t.Errorf("Next: %v after %v", err, time.Since(began))
			}
		}
		p := open(t, x, 0, 0, -1)
		k.add(0, batch{values: vals(1)})
		same(t, offsets(t, p, 1), []int64{0})
	})
}

// Run ends at once in every phase, and leaves nothing behind.
func TestEnd(t *testing.T) {
	for name, phase := range map[string]func(*testing.T, *fakeCluster, *Fetcher){
		"nothing open": func(*testing.T, *fakeCluster, *Fetcher) {},
		"just opened":  func(t *testing.T, k *fakeCluster, x *Fetcher) { k.add(0); open(t, x, 0, 0, -1) },
		"long poll":    func(t *testing.T, k *fakeCluster, x *Fetcher) { k.add(0); open(t, x, 0, 0, -1); synctest.Wait() },
		"silent": func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.silent[1] = true
			k.add(0)
			open(t, x, 0, 0, -1)
			synctest.Wait()
		},
		"broker is away": func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.down[1] = true
			k.add(0)
			open(t, x, 0, 0, -1)
			synctest.Wait()
		},
		"full": func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, batch{values: vals(1000)})
			open(t, x, 0, 0, -1)
			synctest.Wait()
		},
		"throttled": func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.throttle = time.Hour
			k.add(0, batch{values: vals(1)})
			open(t, x, 0, 0, -1)
			time.Sleep(time.Second)
		},
		"slow answer": func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.slow = time.Second
			k.add(0, batch{values: vals(5000)})
			open(t, x, 0, 0, -1)
			time.Sleep(3 * time.Second)
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			k := newCluster()
			x, err := New(k, Options{Config: testConfig(), Dialer: k})
			noerr.Must(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- x.Run(ctx) }()
			synctest.Wait()
			phase(t, k, x)
			began := time.Now()
			cancel()
			if err := <-ran; err != nil || time.Since(began) > 0 {
				t.Errorf("Run: %v after %v", err, time.Since(began))
			}
			if _, err := x.Open(t.Context(), "t", 9, 0, -1); !errors.Is(err, ErrClosed) {
				t.Errorf("Open after the end: %v", err)
			}
			assert.Error(t, x.Run(t.Context()), kiel.ErrRunTwice, "Run after the end")
			k.end()
		})
	}
}

// There are two goroutines for each connection, and none for a partition.
func TestGoroutines(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		before := runtime.NumGoroutine()
		for id := range int32(200) {
			k.add(id, batch{values: vals(1)})
			open(t, x, id, 0, -1)
		}
		time.Sleep(time.Minute)
		if n := runtime.NumGoroutine() - before; n > 8 { // half of them the fake broker's
			t.Errorf("%d goroutines for 200 partitions on one broker", n)
		}
	})
}

// Opened waits for the first answer, which waits for no message.
func TestOpened(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(3)})
		k.add(1)
		open(t, x, 1, 0, -1)
		time.Sleep(time.Second)
		began := time.Now()
		for at, want := range map[int64]error{3: nil, 4: sarama.ErrOffsetOutOfRange} {
			p := open(t, x, 0, at, -1)
			assert.Error(t, p.Opened(t.Context()), want, "at %d", at)
			p.Close()
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("answered after %v", took)
		}
		k.change(func() { k.log(0).err = sarama.ErrLeaderNotAvailable })
		p := open(t, x, 0, 0, -1)
		if err := p.Opened(t.Context()); !errors.Is(err, ErrNoAnswer) || !errors.Is(err, sarama.ErrLeaderNotAvailable) {
			t.Errorf("without a leader: %v", err)
		}
	})
}
