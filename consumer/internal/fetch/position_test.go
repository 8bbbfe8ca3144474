package fetch

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/testonly/assert"
)

// An out-of-range error has the bounds of the log, with an epoch to compare, too, and is an error of the opening. Only the
// leader's answer counts.
func TestOutOfRange(t *testing.T) {
	for _, epoch := range []int32{-1, 5} {
		inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.change(func() { k.log(0).epoch = 5; k.known[key{"t", 0}] = fakeLeader{1, 5} })
			k.add(0, batch{values: vals(10)}, batch{values: vals(10)})
			k.log(0).start = 10
			for _, at := range []int64{3, 5, 21, 22, 50} {
				began := time.Now()
				p := open(t, x, 0, at, epoch)
				err := p.Opened(t.Context())
				if !errors.Is(err, sarama.ErrOffsetOutOfRange) || time.Since(began) > time.Second {
					t.Errorf("opened at %d: %v after %v", at, err, time.Since(began))
				}
				_, err = next(t, p, time.Second)
				var out *RangeError
				if !errors.As(err, &out) || !errors.Is(err, sarama.ErrOffsetOutOfRange) || out.Start != 10 || out.End != 20 || out.Position != at {
					t.Errorf("at %d: %v", at, err)
				}
				p.Close()
			}
			p := open(t, x, 0, 10, epoch)
			same(t, offsets(t, p, 20), seq(10, 20))
			k.change(func() { k.log(0).start = 25; k.log(0).end = 30 }) // DeleteRecords passes the reader
			_, err := next(t, p, time.Minute)
			assert.Error(t, err, sarama.ErrOffsetOutOfRange, "the read of what was deleted meanwhile")
		})
	}
}

// A follower that the leader names is fetched from, until its lease ends. What it does not have is asked for at the leader.
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
		assert.Equal(t, count()-before, 3, "questions to the leader in three leases")
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

// An offset that a follower calls out of range is out of range only when the leader says so, too. The leader is asked for the
// position itself, because the end of the log that it tells consumers may lag behind for a while.
func TestOutOfRangeOfAFollower(t *testing.T) {
	for name, missing := range map[string]bool{"the leader has it": false, "the leader lacks it": true} {
		subtest(t, name, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
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
	}
}

// After an unclean election the last batch that was read is compared with the new log: at the next leader epoch, and at the
// opening if an epoch is given (KIP-320).
func TestTruncation(t *testing.T) {
	elect := func(k *fakeCluster) { // the new leader has the first 900
		k.change(func() {
			l := k.log(0)
			l.leader, l.epoch, l.end = 2, 6, 900
			l.batches, l.bytes = l.batches[:90], l.bytes[:90]
		})
	}
	rewrite := func(k *fakeCluster, batches int) {
		elect(k)
		k.add(0, many(batches, batch{values: vals(10)})...)
	}
	all := func(t *testing.T, x *Fetcher) *Partition {
		t.Helper()
		p := open(t, x, 0, 0, -1)
		same(t, offsets(t, p, 1000), seq(0, 1000))
		return p
	}
	check := func(t *testing.T, p *Partition) {
		t.Helper()
		_, err := next(t, p, time.Minute)
		var cut *TruncatedError
		if !errors.Is(err, ErrTruncated) || !errors.As(err, &cut) || cut.Diverges != 900 || cut.Position != 1000 || cut.Epoch != 5 || cut.Found != 6 {
			t.Fatalf("Next: %v", err)
		}
	}
	tests := map[string]func(t *testing.T, k *fakeCluster, x *Fetcher){
		"while reading": func(t *testing.T, k *fakeCluster, x *Fetcher) {
			p := all(t, x)
			rewrite(k, 30)
			check(t, p)
		},
		"at the opening": func(t *testing.T, k *fakeCluster, x *Fetcher) {
			rewrite(k, 30)
			check(t, open(t, x, 0, 1000, 5))
		},
		"shorter than the position": func(t *testing.T, k *fakeCluster, x *Fetcher) {
			p := all(t, x)
			rewrite(k, 3)
			check(t, p)
		},
		"clean": func(t *testing.T, k *fakeCluster, x *Fetcher) {
			p := open(t, x, 0, 995, 5)
			same(t, offsets(t, p, 1000), seq(995, 1000))
			k.change(func() { k.log(0).leader, k.log(0).epoch = 2, 6 })
			k.add(0, batch{values: vals(10)})
			same(t, offsets(t, p, 1010), seq(1000, 1010))
		},
		"an epoch that no leader had": func(t *testing.T, _ *fakeCluster, x *Fetcher) {
			same(t, offsets(t, open(t, x, 0, 995, 99), 1000), seq(995, 1000))
		},
		"taken by retention": func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.log(0).start = 1000
			k.add(0, batch{values: vals(1)})
			same(t, offsets(t, open(t, x, 0, 1000, 5), 1001), []int64{1000})
		},
	}
	for _, end := range []int64{0, 950, 1000} {
		tests[fmt.Sprintf("a follower lags behind at %d", end)] = func(t *testing.T, k *fakeCluster, x *Fetcher) {
			p := all(t, x)
			rewrite(k, 30)
			k.change(func() { k.log(0).follower, k.log(0).lagging = 1, end })
			time.Sleep(5 * time.Second)
			k.change(func() { k.log(0).lagging = -1 })
			check(t, p)
		}
	}
	for epoch, want := range map[int32]int64{5: 999, 6: 900} { // of what the new leader has after the first 900
		tests[fmt.Sprintf("one shorter than the position, epoch %d", epoch)] = func(t *testing.T, k *fakeCluster, x *Fetcher) {
			elect(k)
			k.add(0, batch{values: vals(99), epoch: epoch})
			began := time.Now()
			var cut *TruncatedError
			if err := open(t, x, 0, 1000, 5).Opened(t.Context()); !errors.As(err, &cut) || cut.Diverges != want || time.Since(began) > time.Second {
				t.Errorf("Opened: %v after %v", err, time.Since(began))
			}
		}
		// Compaction has emptied the batch to compare; its header has its leader epoch all the same.
		tests[fmt.Sprintf("the batch to compare was emptied, epoch %d", epoch)] = func(t *testing.T, k *fakeCluster, x *Fetcher) {
			elect(k)
			k.add(0, batch{base: 900, last: 999, epoch: epoch}, batch{values: vals(10)})
			k.known[key{"t", 0}] = fakeLeader{2, 6}
			p := open(t, x, 0, 1000, 5)
			if epoch == 6 {
				check(t, p)
				return
			}
			same(t, offsets(t, p, 1010), seq(1000, 1010))
		}
	}
	for _, rewritten := range []bool{true, false} {
		tests[fmt.Sprintf("the end is told late, rewritten %t", rewritten)] = func(t *testing.T, k *fakeCluster, x *Fetcher) {
			if rewritten {
				rewrite(k, 30)
			}
			end := k.log(0).end
			k.change(func() { k.log(0).mark = 990 })
			began := time.Now()
			p := open(t, x, 0, 1000, 5)
			if err := p.Opened(t.Context()); err != nil || time.Since(began) > time.Second {
				t.Errorf("Opened: %v after %v", err, time.Since(began))
			}
			before := len(k.requests())
			_, err := next(t, p, 30*time.Second)
			if n := len(k.requests()) - before; !errors.Is(err, context.DeadlineExceeded) || n > 100 {
				t.Errorf("Next: %v after %d requests in 30 s", err, n)
			}
			k.change(func() { k.log(0).mark = 0 })
			if rewritten {
				check(t, p)
				return
			}
			k.add(0, batch{values: vals(1)})
			same(t, offsets(t, p, end+1), []int64{end})
		}
	}
	for name, test := range tests {
		subtest(t, name, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.change(func() { k.log(0).epoch = 5; k.known[key{"t", 0}] = fakeLeader{1, 5} })
			k.add(0, many(100, batch{values: vals(10)})...)
			test(t, k, x)
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
		subtest(t, name, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.change(func() { k.log(0).epoch = 4; k.known[key{"t", 0}] = fakeLeader{1, 4} })
			k.add(0, batch{values: vals(6), epoch: 3}, batch{values: vals(2), epoch: 4})
			b, err := next(t, open(t, x, 0, c.offset, c.epoch), time.Second)
			if err != nil || b.Next != 8 || b.LeaderEpoch != 4 || b.LeaderEpochFrom != c.want {
				t.Errorf("next %d, epoch %d from %d, %v", b.Next, b.LeaderEpoch, b.LeaderEpochFrom, err)
			}
		})
	}
}

// Reposition and Pause while a large batch is handed out in parts: reading goes on where it should, and nothing counts as held in
// the end.
func TestSeekingInsideOfLargeBatches(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxBytes = 256 << 10 }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		big := batch{values: wide(1000, 1000)}
		k.add(0, big, big, big, big)
		p := open(t, x, 0, 0, -1)
		for i := range 40 {
			b, err := next(t, p, 10*time.Second)
			if err != nil {
				t.Fatal(i, err)
			}
			switch i % 4 {
			case 0:
				p.Reposition(int64(i * 97 % 3900))
			case 1:
				p.Pause()
				p.Resume()
			case 2:
				p.Reposition(b.Next)
				p.Reposition(int64(i * 31 % 3900))
			}
			b, err = next(t, p, 10*time.Second)
			if err != nil || len(b.Messages) == 0 {
				t.Fatal(i, err, p.inHand, p.buffered)
			}
		}
		p.Reposition(0)
		same(t, offsets(t, p, 4000), seq(0, 4000))
		next(t, p, time.Second)
		if p.inHand != 0 || p.buffered != 0 {
			t.Error(p.inHand, p.buffered)
		}
	})
}

// The rest of a batch that was handed out in part is dropped when reading goes on elsewhere.
func TestRepositionInsideOfABatch(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(50_000), gzip: true}, batch{values: vals(50_000)})
		p := open(t, x, 0, 0, -1)
		for _, at := range []int64{70_000, 10, 49_999, 0, 99_990} {
			b, err := next(t, p, time.Second)
			if err != nil || b.Next >= 100_000 {
				t.Fatal(b.Next, err)
			}
			p.Reposition(at)
			if lag, _ := p.Lag(); lag != 100_000-at {
				t.Errorf("lag %d at %d", lag, at)
			}
			if b, err = next(t, p, time.Second); err != nil || len(b.Messages) == 0 || b.Messages[0].Offset != at {
				t.Fatalf("at %d: %d messages to %d, %v", at, len(b.Messages), b.Next, err)
			}
			p.Reposition(0)
		}
	})
}

// A batch that is being decompressed while reading goes on elsewhere is not handed out, and does not set the position.
func TestRepositionWhileDecompressing(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(10)}, batch{values: vals(10)})
		p := open(t, x, 0, 0, -1)
		synctest.Wait()
		out, _ := p.begin()
		if _, ok, err := p.pop(&out); !ok || err != nil {
			t.Fatal(ok, err)
		}
		p.Reposition(15)
		if err := p.unpack(&out, maxHandOut, 0); err != nil || len(out.Messages) != 10 {
			t.Fatal(err)
		}
		if p.finish(&out) {
			t.Error("handed out")
		}
		same(t, offsets(t, p, 20), seq(15, 20))
	})
}
