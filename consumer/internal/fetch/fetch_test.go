package fetch

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
)

func same(t *testing.T, got, want []int64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("offsets %v, want %v", got, want)
	}
}

func committed(o *Options) { o.Config.Consumer.IsolationLevel = sarama.ReadCommitted }

// Readable messages come once, in order, whatever batches they are in, and the
// position goes past what is hidden.
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
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.change, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				k.add(0, c.batches...)
				k.log(0).aborted = c.aborted
				p := open(t, x, 0, c.open, -1)
				same(t, offsets(t, p, c.end), c.want)
				if n, _ := p.Lag(); n != 0 {
					t.Errorf("lag %d", n)
				}
			})
		})
	}
}

// Messages have what the record has; with log-append time the batch's time counts.
func TestMessage(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: []string{"a", "b"}}, batch{values: []string{"c"}, appendTime: true, epoch: 3})
		b, err := next(t, open(t, x, 0, 1, -1), time.Second)
		if err != nil || len(b.Messages) != 2 || b.LeaderEpoch != 3 {
			t.Fatalf("%+v, %v", b, err)
		}
		m := b.Messages[0]
		if string(m.Key) != "k" || string(m.Value) != "b" || string(m.Headers[0].Key) != "h" || m.Topic != "t" || !m.Timestamp.Equal(epochTime.Add(time.Millisecond)) {
			t.Errorf("%+v", m)
		}
		if m := b.Messages[1]; !m.Timestamp.Equal(epochTime.Add(time.Hour)) {
			t.Errorf("log-append time: %v", m.Timestamp)
		}
	})
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

// The memory of all partitions stays in the bound, and each goes on.
func TestMemoryBound(t *testing.T) {
	const parts, limit = 20, 2 << 20
	inBubble(t, func(o *Options) { o.MaxBytes = limit }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		value := strings.Repeat("x", 1000)
		var ps []*Partition
		for id := range int32(parts) {
			for range 100 {
				k.add(id, batch{values: slices.Repeat([]string{value}, 10)})
			}
			ps = append(ps, open(t, x, id, 0, -1))
		}
		time.Sleep(time.Second)
		for round := range 5 {
			held, ask := 0, int64(0)
			x.mu.Lock()
			for _, p := range ps {
				held += p.buffered + p.inHand
			}
			x.mu.Unlock()
			if held > limit+limit/50 || held < limit/4 {
				t.Errorf("round %d: %d bytes held, the bound is %d", round, held, limit)
			}
			for _, f := range k.requests() {
				sum := int64(0)
				for _, a := range f.partitions {
					sum += int64(a.size)
				}
				ask = max(ask, sum)
			}
			if ask > limit {
				t.Errorf("a request asks for %d bytes, the bound is %d", ask, limit)
			}
			for _, p := range ps {
				if _, err := next(t, p, time.Second); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		for _, p := range ps {
			p.Next(t.Context())
			x.mu.Lock()
			at := p.handed
			x.mu.Unlock()
			same(t, offsets(t, p, 1000), seq(at, 1000))
		}
	})
}

// A partition that waits for room is fetched when its share has changed meanwhile:
// when another one was closed, or opened.
func TestRoomByShare(t *testing.T) {
	const limit = 400 << 10
	value := strings.Repeat("x", 1000)
	fill := func(k *fakeCluster, id int32) {
		for range 40 {
			k.add(id, batch{values: slices.Repeat([]string{value}, 30)})
		}
	}
	t.Run("grows", func(t *testing.T) {
		inBubble(t, func(o *Options) { o.MaxBytes = limit }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			fill(k, 0)
			fill(k, 1)
			a, b := open(t, x, 0, 0, -1), open(t, x, 1, 0, -1)
			time.Sleep(time.Second) // both are full
			b.Close()
			began := time.Now()
			same(t, offsets(t, a, 1200), seq(0, 1200))
			if took := time.Since(began); took > time.Second {
				t.Errorf("took %v", took)
			}
		})
	})
	t.Run("shrinks", func(t *testing.T) {
		inBubble(t, func(o *Options) { o.MaxBytes = limit }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, batch{values: []string{strings.Repeat("x", 300<<10)}}, batch{values: vals(1)})
			k.add(1)
			k.log(1).leader = 2
			k.known[key{"t", 1}] = fakeLeader{2, 0}
			a := open(t, x, 0, 0, -1)
			time.Sleep(time.Second) // it is full by one batch
			open(t, x, 1, 0, -1)
			time.Sleep(time.Second)
			began := time.Now()
			same(t, offsets(t, a, 2), seq(0, 2))
			if took := time.Since(began); took > time.Second {
				t.Errorf("took %v", took)
			}
		})
	})
}

// Messages that wait do not keep the answers alive that they came in with others.
func TestMemoryOfAnswers(t *testing.T) {
	const limit = 4 << 20
	inBubble(t, func(o *Options) { o.MaxBytes = limit }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0)
		k.add(1)
		waits, goesOn := open(t, x, 0, 0, -1), open(t, x, 1, 0, -1)
		value := strings.Repeat("x", 100<<10)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for n := range int64(400) {
			k.change(func() { // one answer for both; the log keeps nothing
				for id, v := range []string{"v", value} {
					l, b := k.log(int32(id)), batch{base: n, values: []string{v}}
					l.batches, l.bytes, l.end = []batch{b}, [][]byte{b.encode()}, n+1
				}
			})
			same(t, offsets(t, goesOn, n+1), []int64{n})
			time.Sleep(20 * time.Millisecond)
		}
		k.change(func() { k.fetches = nil })
		runtime.GC()
		runtime.ReadMemStats(&after)
		if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 2*limit {
			t.Errorf("%d bytes held, the bound is %d", held, limit)
		}
		same(t, offsets(t, waits, 400), seq(0, 400))
		waits.Close()
		goesOn.Close()
		if x.waste != 0 {
			t.Errorf("%d bytes count as kept, though nothing is held", x.waste)
		}
	})
}

// Messages that are hidden take no memory beside those that are seen.
func TestMemoryOfHidden(t *testing.T) {
	inBubble(t, committed, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{producer: 7, values: vals(1000)}, batch{producer: 7, control: true, abort: true}, batch{values: vals(2)})
		k.log(0).aborted = []sarama.AbortedTransaction{{ProducerID: 7, FirstOffset: 0}}
		b, err := next(t, open(t, x, 0, 0, -1), time.Second)
		if err != nil || len(b.Messages) != 2 || cap(b.Messages) > 4 {
			t.Errorf("%d messages in a slice of %d: %v", len(b.Messages), cap(b.Messages), err)
		}
	})
}

// A record batch larger than everything comes through, and the others do not wait for it.
func TestOversize(t *testing.T) {
	inBubble(t, func(o *Options) { o.Config.Consumer.Fetch.Default = 32 << 10; o.MaxBytes = 128 << 10 }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		big := strings.Repeat("x", 5<<20)
		k.busy = true
		k.add(0, batch{values: vals(100)})
		k.add(1, batch{values: vals(2)}, batch{values: []string{big}}, batch{values: vals(2)})
		a, b := open(t, x, 0, 0, -1), open(t, x, 1, 0, -1)
		same(t, offsets(t, a, 100), seq(0, 100))
		same(t, offsets(t, b, 5), seq(0, 5))
		for _, f := range k.requests() {
			for _, ask := range f.partitions {
				if ask.size > 256<<10 {
					t.Errorf("asked for %d bytes of partition %d, though a batch comes whole if it comes alone", ask.size, ask.id)
				}
			}
		}
	})
}

// Leader moves cost no error and no message, and few requests.
func TestLeaderMoves(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(5)})
		p := open(t, x, 0, 0, -1)
		same(t, offsets(t, p, 5), seq(0, 5))
		for move := range int64(5) {
			k.change(func() { l := k.log(0); l.leader = 1 + l.leader%2; l.epoch++ })
			k.add(0, batch{values: vals(5)})
			same(t, offsets(t, p, 10+5*move), seq(5+5*move, 10+5*move))
		}
		k.mu.Lock()
		refreshes := k.refreshes
		k.mu.Unlock()
		if refreshes > 10 {
			t.Errorf("%d refreshes for 5 moves", refreshes)
		}
	})
}

// While nobody leads a partition, or its broker is away, requests are few, and Next waits.
func TestAway(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(5)})
		p := open(t, x, 0, 0, -1)
		same(t, offsets(t, p, 5), seq(0, 5))
		k.change(func() {
			k.down[1] = true
			for _, c := range k.conns {
				c.Close()
			}
		})
		if _, err := next(t, p, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		k.mu.Lock()
		dials, refreshes := k.dials, k.refreshes
		k.mu.Unlock()
		if dials > 50 || refreshes > 50 {
			t.Errorf("%d dials and %d refreshes in a minute", dials, refreshes)
		}
		k.change(func() { k.down[1] = false })
		k.add(0, batch{values: vals(1)})
		began := time.Now()
		same(t, offsets(t, p, 6), []int64{5})
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("went on after %v", took)
		}
	})
}

// Next returns an error that does not heal, and goes on returning it.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		err   sarama.KError
		after time.Duration
		calls int
	}{
		"not authorized": {sarama.ErrTopicAuthorizationFailed, 0, 3},
		"unknown topic":  {sarama.ErrUnknownTopicOrPartition, patience, 40},
		"corrupt":        {sarama.ErrInvalidMessage, patience, 40},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				k.add(0, batch{values: vals(1)})
				k.log(0).err = c.err
				p := open(t, x, 0, 0, -1)
				began := time.Now()
				for range 2 {
					if _, err := next(t, p, time.Minute); !errors.Is(err, c.err) {
						t.Fatalf("Next: %v", err)
					}
				}
				if took := time.Since(began); took < c.after || took > c.after+3*time.Second {
					t.Errorf("after %v", took)
				}
				if n := len(k.requests()); n > c.calls {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

// Out of range is an error with what the log has; it counts only from the leader.
func TestOutOfRange(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(10)}, batch{values: vals(10)})
		k.log(0).start = 10
		for _, at := range []int64{3, 50} {
			p := open(t, x, 0, at, -1)
			_, err := next(t, p, time.Second)
			var out *RangeError
			if !errors.As(err, &out) || !errors.Is(err, sarama.ErrOffsetOutOfRange) || out.Start != 10 || out.End != 20 || out.Position != at {
				t.Errorf("at %d: %v", at, err)
			}
			p.Close()
		}
		p := open(t, x, 0, 10, -1)
		same(t, offsets(t, p, 20), seq(10, 20))
		k.change(func() { k.log(0).start = 25; k.log(0).end = 30 }) // DeleteRecords passes the reader
		if _, err := next(t, p, time.Minute); !errors.Is(err, sarama.ErrOffsetOutOfRange) {
			t.Errorf("passed by: %v", err)
		}
	})
}

// A follower that the leader names is fetched from, until its lease ends. What it
// does not have is asked for at the leader.
func TestFollower(t *testing.T) {
	inBubble(t, func(o *Options) { o.Config.Metadata.RefreshFrequency = time.Minute }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(5)})
		k.log(0).follower = 2
		p := open(t, x, 0, 0, -1)
		same(t, offsets(t, p, 5), seq(0, 5))
		at := func() int32 { f := k.requests(); return f[len(f)-1].broker }
		if at() != 2 {
			t.Fatal("not fetched from the follower")
		}
		count := func() (leader int) {
			for _, f := range k.requests() {
				if f.broker == 1 {
					leader++
				}
			}
			return leader
		}
		before := count()
		time.Sleep(3*time.Minute + 10*time.Second)
		if n := count() - before; n != 3 {
			t.Errorf("the leader was asked %d times in three leases", n)
		}
		k.change(func() { k.log(0).lagging = 3; k.log(0).err = 0 })
		if _, err := next(t, p, 10*time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the follower lags: %v", err)
		}
		k.change(func() { k.log(0).lagging = -1; k.log(0).follower = -1 })
		k.add(0, batch{values: vals(1)})
		same(t, offsets(t, p, 6), []int64{5})
		if at() != 1 {
			t.Error("not back at the leader")
		}
	})
}

// An offset that a follower calls out of range is so only when the leader says so, too: the leader is asked for the position itself,
// since the end of the log that it tells consumers may be behind for a while.
func TestOutOfRangeOfAFollower(t *testing.T) {
	for name, missing := range map[string]bool{"the leader has it": false, "the leader lacks it": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				k.add(0, batch{values: vals(10)})
				k.log(0).follower, k.log(0).lagging, k.log(0).told = 2, 10, 5
				p := open(t, x, 0, 0, -1)
				same(t, offsets(t, p, 10), seq(0, 10))
				k.change(func() { k.log(0).follower, k.log(0).replica = -1, 2 }) // the lease lasts
				if missing {
					k.change(func() { k.log(0).end, k.log(0).lagging = 8, 5 })
				} else {
					k.change(func() { k.log(0).lagging = 5 })
				}
				before := len(k.requests())
				_, err := next(t, p, 10*time.Second)
				k.mu.Lock()
				ranges := k.ranges
				k.mu.Unlock()
				brokers := []int32{}
				for _, f := range k.requests()[before:] {
					brokers = append(brokers, f.broker)
				}
				if len(brokers) < 1 || brokers[len(brokers)-1] != 1 {
					t.Errorf("brokers %v were asked, the leader is 1", brokers)
				}
				if missing != errors.Is(err, sarama.ErrOffsetOutOfRange) || missing != (ranges > 0) {
					t.Errorf("Next: %v, the leader was asked %d times what it has", err, ranges)
				}
			})
		})
	}
}

// After an unclean election what was read is compared with the new log: at the next
// leader epoch, and at the opening if an epoch is given.
func TestTruncation(t *testing.T) {
	rewrite := func(k *fakeCluster) {
		k.change(func() {
			l := k.log(0)
			l.leader, l.epoch, l.end = 2, 6, 900
			l.batches, l.bytes = l.batches[:90], l.bytes[:90]
		})
		for range 30 {
			k.add(0, batch{values: vals(10)})
		}
	}
	fill := func(k *fakeCluster) {
		k.change(func() { k.log(0).epoch = 5; k.known[key{"t", 0}] = fakeLeader{1, 5} })
		for range 100 {
			k.add(0, batch{values: vals(10)})
		}
	}
	check := func(t *testing.T, p *Partition) {
		t.Helper()
		_, err := next(t, p, time.Minute)
		var cut *TruncatedError
		if !errors.Is(err, ErrTruncated) || !errors.As(err, &cut) || cut.Diverges != 900 || cut.Position != 1000 || cut.Epoch != 5 || cut.Found != 6 {
			t.Fatalf("Next: %v", err)
		}
	}
	t.Run("while reading", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			fill(k)
			p := open(t, x, 0, 0, -1)
			same(t, offsets(t, p, 1000), seq(0, 1000))
			rewrite(k)
			check(t, p)
		})
	})
	t.Run("at the opening", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			fill(k)
			rewrite(k)
			check(t, open(t, x, 0, 1000, 5))
		})
	})
	t.Run("a follower lags behind", func(t *testing.T) {
		for _, end := range []int64{0, 950, 1000} {
			inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				fill(k)
				p := open(t, x, 0, 0, -1)
				same(t, offsets(t, p, 1000), seq(0, 1000))
				rewrite(k)
				k.change(func() { k.log(0).follower, k.log(0).lagging = 1, end })
				time.Sleep(5 * time.Second)
				k.change(func() { k.log(0).lagging = -1 })
				check(t, p)
			})
		}
	})
	t.Run("shorter than the position", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			fill(k)
			p := open(t, x, 0, 0, -1)
			same(t, offsets(t, p, 1000), seq(0, 1000))
			k.change(func() {
				l := k.log(0)
				l.leader, l.epoch, l.end = 2, 6, 900
				l.batches, l.bytes = l.batches[:90], l.bytes[:90]
			})
			for range 3 {
				k.add(0, batch{values: vals(10)})
			}
			check(t, p)
		})
	})
	t.Run("one shorter than the position", func(t *testing.T) {
		for _, later := range []bool{true, false} { // whether the new leader has written anything
			inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				fill(k)
				k.change(func() {
					l := k.log(0)
					l.leader, l.epoch, l.end = 2, 6, 900
					l.batches, l.bytes = l.batches[:90], l.bytes[:90]
				})
				want := int64(999)
				if later {
					want = 900
					k.add(0, batch{values: vals(99)})
				} else {
					k.add(0, batch{values: vals(99), epoch: 5})
				}
				began := time.Now()
				var cut *TruncatedError
				if err := open(t, x, 0, 1000, 5).Opened(t.Context()); !errors.As(err, &cut) || cut.Diverges != want || time.Since(began) > time.Second {
					t.Errorf("later %v: Opened: %v after %v", later, err, time.Since(began))
				}
			})
		}
	})
	t.Run("the end is told late", func(t *testing.T) {
		for _, rewritten := range []bool{true, false} {
			inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				fill(k)
				if rewritten {
					rewrite(k)
				}
				end := k.log(0).end
				k.change(func() { k.log(0).mark = 990 })
				began := time.Now()
				p := open(t, x, 0, 1000, 5)
				if err := p.Opened(t.Context()); err != nil || time.Since(began) > time.Second {
					t.Errorf("rewritten %v: Opened: %v after %v", rewritten, err, time.Since(began))
				}
				before := len(k.requests())
				_, err := next(t, p, 30*time.Second)
				if n := len(k.requests()) - before; !errors.Is(err, context.DeadlineExceeded) || n > 100 {
					t.Errorf("rewritten %v: Next: %v after %d requests in 30 s", rewritten, err, n)
				}
				k.change(func() { k.log(0).mark = 0 })
				if rewritten {
					check(t, p)
					return
				}
				k.add(0, batch{values: vals(1)})
				same(t, offsets(t, p, end+1), []int64{end})
			})
		}
	})
	t.Run("clean", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			fill(k)
			p := open(t, x, 0, 995, 5)
			same(t, offsets(t, p, 1000), seq(995, 1000))
			k.change(func() { k.log(0).leader, k.log(0).epoch = 2, 6 })
			k.add(0, batch{values: vals(10)})
			same(t, offsets(t, p, 1010), seq(1000, 1010))
		})
	})
	t.Run("an epoch that no leader had", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			fill(k)
			same(t, offsets(t, open(t, x, 0, 995, 99), 1000), seq(995, 1000))
		})
	})
	t.Run("taken by retention", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			fill(k)
			k.log(0).start = 1000
			k.add(0, batch{values: vals(1)})
			same(t, offsets(t, open(t, x, 0, 1000, 5), 1001), []int64{1000})
		})
	})
}

// A position that Kafka does not have is an error of the opening, with an epoch to compare too.
func TestOutOfRangeWithAnEpoch(t *testing.T) {
	for _, offset := range []int64{5, 21, 22, 50} {
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.change(func() { k.log(0).epoch = 5; k.known[key{"t", 0}] = fakeLeader{1, 5} })
			k.add(0, batch{values: vals(10)}, batch{values: vals(10)})
			k.log(0).start = 10
			began := time.Now()
			if err := open(t, x, 0, offset, 5).Opened(t.Context()); !errors.Is(err, sarama.ErrOffsetOutOfRange) || time.Since(began) > time.Second {
				t.Errorf("opened at %d: %v after %v", offset, err, time.Since(began))
			}
		})
	}
}

// A batch says from which offset on its record batches have the leader epoch of the last one.
func TestEpochFrom(t *testing.T) {
	for name, c := range map[string]struct {
		offset int64
		epoch  int32
		want   int64
	}{
		"one epoch, known before": {7, 4, 7},
		"one epoch":               {7, -1, 6},
		"two epochs":              {1, 3, 6},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				k.change(func() { k.log(0).epoch = 4; k.known[key{"t", 0}] = fakeLeader{1, 4} })
				k.add(0, batch{values: vals(6), epoch: 3}, batch{values: vals(2), epoch: 4})
				b, err := next(t, open(t, x, 0, c.offset, c.epoch), time.Second)
				if err != nil || b.Next != 8 || b.LeaderEpoch != 4 || b.EpochFrom != c.want {
					t.Errorf("next %d, epoch %d from %d, %v", b.Next, b.LeaderEpoch, b.EpochFrom, err)
				}
			})
		})
	}
}

// A broker that takes a request and answers nothing is left after MaxWait and 5 s.
func TestSilent(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(1)})
		k.silent[1] = true
		p := open(t, x, 0, 0, -1)
		time.Sleep(time.Millisecond)
		k.change(func() { k.log(0).leader, k.log(0).epoch = 2, 1 })
		began := time.Now()
		same(t, offsets(t, p, 1), []int64{0})
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("the silent connection was left after %v", took)
		}
	})
}

// A connection on which bytes arrive is kept, however long the answer takes.
func TestSlowLink(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.slow = time.Second // for 1 KiB
		k.add(0, batch{values: []string{strings.Repeat("x", 100<<10)}})
		p := open(t, x, 0, 0, -1)
		began := time.Now()
		b, err := next(t, p, 10*time.Minute)
		if err != nil || len(b.Messages) != 1 || time.Since(began) < 90*time.Second {
			t.Fatalf("%d messages, %v after %v", len(b.Messages), err, time.Since(began))
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.dials != 1 {
			t.Errorf("%d connections", k.dials)
		}
	})
}

// Opened waits for an answer that is on its way, however long that takes: who gave up would ask for all of it again.
func TestOpenedOnASlowLink(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.slow = time.Second // for 1 KiB
		k.add(0, batch{values: []string{strings.Repeat("x", 100<<10)}})
		began := time.Now()
		err := open(t, x, 0, 0, -1).Opened(t.Context())
		if took := time.Since(began); err != nil || took < 90*time.Second || took > 110*time.Second {
			t.Errorf("opened after %v: %v", took, err)
		}
		k.mu.Lock()
		k.silent[1] = true
		k.mu.Unlock()
		k.add(1, batch{values: vals(1)})
		began = time.Now()
		err = open(t, x, 1, 0, -1).Opened(t.Context())
		if took := time.Since(began); !errors.Is(err, ErrNoAnswer) || took > 2*patience {
			t.Errorf("a silent broker: %v after %v", err, took)
		}
	})
}

// Kafka's throttling is waited for, on both connections, and ends early when the fetcher does.
func TestThrottle(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(1)})
		k.add(1)
		k.throttle = 20 * time.Second
		began := time.Now()
		p := open(t, x, 0, 0, -1)
		same(t, offsets(t, p, 1), []int64{0})
		time.Sleep(time.Second)
		open(t, x, 1, 0, -1)
		k.add(0, batch{values: vals(1)})
		same(t, offsets(t, p, 2), []int64{1})
		if took := time.Since(began); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("asked again after %v", took)
		}
		k.change(func() { k.throttle = time.Hour })
		time.Sleep(time.Second)
	})
}

// A throttle time that no honest broker asks for is cut short, with a warning.
func TestThrottleIsBounded(t *testing.T) {
	for name, told := range map[string]time.Duration{"an hour": time.Hour, "the longest": math.MaxInt32 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			inBubble(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				k.add(0, batch{values: vals(1)})
				k.throttle = told
				p := open(t, x, 0, 0, -1)
				same(t, offsets(t, p, 1), []int64{0})
				began := time.Now()
				time.Sleep(time.Second)
				open(t, x, 1, 0, -1) // wakes the connections
				k.add(0, batch{values: vals(1)})
				_, err := next(t, p, 2*maxThrottle)
				if took := time.Since(began); err != nil || took < maxThrottle || took > maxThrottle+time.Second {
					t.Errorf("the next message after %v: %v", took, err)
				}
				if n := strings.Count(log.String(), "throttle"); n != 1 {
					t.Errorf("%d warnings:\n%s", n, log.String())
				}
			})
		})
	}
}

// A partition that stands still is fetched anew after 30 s, once a minute. One that
// can't move is left alone.
func TestWatchdog(t *testing.T) {
	var resets []time.Time
	var mu sync.Mutex
	inBubble(t, func(o *Options) {
		committed(o)
		o.OnReset = func(string, int32) { mu.Lock(); defer mu.Unlock(); resets = append(resets, time.Now()) }
	}, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(1)})
		p := open(t, x, 0, 0, -1)
		same(t, offsets(t, p, 1), []int64{0})
		k.change(func() { k.log(0).stable = 1 }) // a transaction is open
		k.add(0, batch{producer: 7, values: vals(1)})
		time.Sleep(5 * time.Minute)
		mu.Lock()
		if len(resets) > 0 {
			t.Errorf("%d resets behind an open transaction", len(resets))
		}
		mu.Unlock()
		// The end moves and nothing comes.
		k.change(func() { l := k.log(0); l.stable, l.end = -1, 10; l.batches, l.bytes = nil, nil })
		began := time.Now()
		time.Sleep(5 * time.Minute)
		mu.Lock()
		n := len(resets)
		if n < 4 || n > 5 || resets[0].Sub(began) < stuckAfter || resets[0].Sub(began) > stuckAfter+2*watchInterval {
			t.Errorf("resets %v, since %v", resets, began)
		}
		mu.Unlock()
		p.Pause()
		time.Sleep(5 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(resets) > n {
			t.Error("a paused partition was reset")
		}
	})
}

// An answer that can't be decoded stops the partition that it comes from, not the others.
func TestCorrupt(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(1), brokenBytes: true})
		k.add(1, batch{values: vals(3)})
		bad, good := open(t, x, 0, 0, -1), open(t, x, 1, 0, -1)
		same(t, offsets(t, good, 3), seq(0, 3))
		if _, err := next(t, bad, time.Minute); !isDecoding(err) {
			t.Errorf("Next: %v", err)
		}
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
		if p.HighWatermark() != 10 || p.LastStable() != 8 || p.LogStart() != 0 {
			t.Errorf("%d, %d, %d", p.HighWatermark(), p.LastStable(), p.LogStart())
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newCluster()
				x, err := New(k, Options{Config: testConfig(), Dialer: k})
				if err != nil {
					t.Fatal(err)
				}
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
				if err := x.Run(t.Context()); !errors.Is(err, ErrClosed) {
					t.Errorf("Run after the end: %v", err)
				}
				k.end()
			})
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
			if err := p.Opened(t.Context()); !errors.Is(err, want) {
				t.Errorf("at %d: %v", at, err)
			}
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

// Answers that no sane broker gives cost no message twice, and no requests without end.
func TestHostileAnswers(t *testing.T) {
	t.Run("offsets", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			// The header says that the batch ends at 1; the records are out of order and go to 9.
			k.add(0, batch{last: 1, values: vals(5), keep: []int64{0, 3, 2, 3, 9}}, batch{base: 10, values: vals(1)})
			p := open(t, x, 0, 0, -1)
			same(t, offsets(t, p, 11), []int64{0, 3, 9, 10})
		})
	})
	t.Run("end", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0)
			k.log(0).endless = true
			p := open(t, x, 0, 0, -1)
			time.Sleep(time.Minute)
			if n := len(k.requests()); n > 200 {
				t.Errorf("%d requests in a minute", n)
			}
			if err := p.Opened(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
}
