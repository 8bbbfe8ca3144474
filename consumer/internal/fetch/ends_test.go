package fetch

import (
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/testonly/assert"
)

// fullAndPaused returns a partition that has no room and one that is paused, beside one that is fetched. Each has n messages, of
// which none was taken.
func fullAndPaused(t *testing.T, k *fakeCluster, x *Fetcher, n int) (full, paused, fetched *Partition) {
	t.Helper()
	for range n / 10 {
		k.add(0, batch{values: wide(10, 10000)})
	}
	k.add(1, batch{values: vals(n)})
	k.add(2, batch{values: vals(n)})
	full, paused, fetched = open(t, x, 0, 0, -1), open(t, x, 1, 0, -1), open(t, x, 2, 0, -1)
	time.Sleep(time.Second)
	paused.Pause()
	time.Sleep(time.Second)
	if x.mu.Lock(); full.hasRoom() || !fetched.hasRoom() {
		t.Fatal("not full, or all full: nothing is tested")
	}
	x.mu.Unlock()
	return full, paused, fetched
}

func smallBuffer(o *Options) { o.MaxBytes = 256 << 10 }

// asked returns the numbers of partitions of each request for ends.
func (c *fakeCluster) asked() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ends)
}

// lags checks the lags of partitions, after each has asked for its end.
func lags(t *testing.T, when string, want int64, ps ...*Partition) {
	t.Helper()
	for _, p := range ps {
		p.Freshen(time.Second)
		if lag, _ := p.Lag(); lag != want || p.End() != want || p.HighWatermark() != want {
			t.Errorf("%s: %s: lag %d, end %d, high watermark %d, want %d", when, p, lag, p.End(), p.HighWatermark(), want)
		}
	}
}

// The end of a partition that is not fetched is read when somebody asks and it is old, with those of all others, and at no other
// time.
func TestEndsAreReadAgain(t *testing.T) {
	inBubble(t, smallBuffer, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		full, paused, fetched := fullAndPaused(t, k, x, 100)
		time.Sleep(time.Minute)
		if n := k.asked(); len(n) != 0 {
			t.Errorf("asked for ends though nobody has asked: %v", n)
		}
		lags(t, "nothing is new", 100, full, paused, fetched)
		k.add(0, batch{values: vals(900)})
		k.add(1, batch{values: vals(900)})
		time.Sleep(time.Second)
		for range 100 {
			full.Freshen(time.Second)
			fetched.Freshen(time.Second)
		}
		assert.Slices(t, k.asked(), []int{2}, "asked for ends of so many partitions")
		time.Sleep(endAge)
		lags(t, "two have grown", 1000, full, paused)
		lags(t, "one has not", 100, fetched)
		assert.Slices(t, k.asked(), []int{2, 2}, "asked for ends of so many partitions")
		for range 1000 { // what is old at different moments is asked for together
			time.Sleep(10 * time.Millisecond)
			full.Freshen(0)
			paused.Freshen(0)
		}
		if n := len(k.asked()); n > 4 {
			t.Errorf("asked %d times in 10 s", n-2)
		}
		paused.Resume()
		offsets(t, full, 1000)
		offsets(t, paused, 1000)
		for _, p := range []*Partition{full, paused} {
			_, _ = next(t, p, time.Millisecond) // gives back the memory of the last batch
		}
		before := len(k.asked())
		time.Sleep(time.Minute)
		lags(t, "two are read", 100, fetched)
		full.Freshen(time.Second)
		if lag, _ := full.Lag(); lag != 0 || len(k.asked()) != before {
			t.Errorf("lag %d of a partition that was read; asked for ends that fetches have", lag)
		}
	})
}

// With ReadCommitted the readable messages end at the last stable offset.
func TestStableEndIsReadAgain(t *testing.T) {
	inBubble(t, func(o *Options) { committed(o); smallBuffer(o) }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.committed = true
		full, _, _ := fullAndPaused(t, k, x, 100)
		k.add(0, batch{values: vals(900)})
		k.change(func() { k.log(0).stable = 700 })
		time.Sleep(endAge + 1)
		lags(t, "a transaction is open", 700, full)
	})
}

// While Kafka does not answer, the last known end stays, a question waits for its time once in 5 s, and no other request is sent
// meanwhile.
func TestEndsWithoutAnAnswer(t *testing.T) {
	for name, fault := range map[string]func(k *fakeCluster){
		"refused": func(k *fakeCluster) { k.down[1] = true },
		"silent":  func(k *fakeCluster) { k.down[1] = true; k.slowEnds = 10 * time.Second },
	} {
		subtest(t, name, smallBuffer, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			full, _, _ := fullAndPaused(t, k, x, 100)
			k.add(0, batch{values: vals(900)})
			k.change(func() { fault(k) })
			time.Sleep(endAge)
			began := time.Now()
			waited := time.Duration(0)
			for time.Since(began) < time.Minute {
				before := time.Now()
				full.Freshen(time.Second / 2)
				waited += time.Since(before)
				if lag, _ := full.Lag(); lag != 100 {
					t.Fatalf("lag %d", lag)
				}
				time.Sleep(10 * time.Millisecond)
			}
			if n := len(k.asked()); n < 4 || n > 13 || waited > time.Duration(n)*time.Second/2 {
				t.Errorf("asked %d times in a minute, waited for %v", n, waited)
			}
			k.change(func() { k.down[1], k.slowEnds = false, 0 })
			time.Sleep(15 * time.Second)
			full.Freshen(time.Second / 2)
			if lag, _ := full.Lag(); lag != 1000 {
				t.Errorf("lag %d when Kafka answers again", lag)
			}
		})
	}
}

// The end of a partition that is closed, or can't be fetched, is not asked for.
func TestEndsOfWhatIsNotRead(t *testing.T) {
	inBubble(t, smallBuffer, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		full, paused, fetched := fullAndPaused(t, k, x, 100)
		k.change(func() { k.down[1] = true })
		k.hangUp()
		full.Close()
		time.Sleep(time.Minute)
		full.Freshen(time.Second)
		fetched.Freshen(time.Second)
		if n := k.asked(); len(n) != 0 {
			t.Errorf("asked for the ends of %v partitions", n)
		}
		paused.Freshen(time.Second)
		assert.Slices(t, k.asked(), []int{1}, "asked for ends of so many partitions")
	})
}

// A question about a partition costs no request and no time while a long poll for it is in flight, however long it may wait for
// messages.
func TestEndDuringALongPoll(t *testing.T) {
	inBubble(t, func(o *Options) { o.Config.Consumer.MaxWaitTime = 20 * time.Second }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.slowEnds = time.Second
		k.add(0, batch{values: vals(3)})
		p := open(t, x, 0, 0, -1)
		time.Sleep(18 * time.Second)
		began := time.Now()
		lags(t, "a long poll is in flight", 3, p)
		if n := k.asked(); len(n) != 0 || time.Since(began) != 0 {
			t.Errorf("asked for ends of %v partitions, waited for %v", n, time.Since(began))
		}
	})
}

// The end of a partition that was paused while it could not be fetched is read again as soon as Kafka answers.
func TestEndOfPausedThatWasFailing(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(3)})
		p := open(t, x, 0, 0, -1)
		time.Sleep(time.Second)
		p.Pause() // a long poll is in flight
		k.change(func() { k.log(0).err = sarama.ErrNotLeaderForPartition })
		time.Sleep(2 * time.Second)
		k.change(func() { k.log(0).err = 0 })
		k.add(0, batch{values: vals(997)})
		time.Sleep(endAge)
		lags(t, "paused while it failed", 1000, p)
	})
}
