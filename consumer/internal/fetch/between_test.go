package fetch

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The tests in this file are of rules that hold only between two requests.

// A batch without messages that comes while messages wait to be read raises the position after these messages, and its leader
// epoch. Else a reader that has read all stands before the end for ever, and commits an epoch that is over.
func TestEmptyBatchRaisesWhatWaits(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(3)})
		p := open(t, x, 0, 0, -1)
		synctest.Wait() // the messages wait to be read, and a long poll asks for the next ones
		k.add(0, batch{producer: 7, control: true, epoch: 4})
		synctest.Wait()
		b, err := next(t, p, time.Second)
		if err != nil || len(b.Messages) != 3 || b.Next != 4 {
			t.Errorf("%d messages, next %d, %v: the log has 3 messages and a control record", len(b.Messages), b.Next, err)
		}
		if b.LeaderEpoch != 4 || b.LeaderEpochFrom != 3 {
			t.Errorf("leader epoch %d from %d on, want 4 from 3 on", b.LeaderEpoch, b.LeaderEpochFrom)
		}
		if lag, _ := p.Lag(); lag != 0 {
			t.Errorf("lag %d after all was read", lag)
		}
	})
}

// The broker throttles in the answer on one connection. The answer on the other one, which does not, ends no throttle.
func TestLongestThrottleCounts(t *testing.T) {
	inBubble(t, func(o *Options) { o.Config.Consumer.MaxWaitTime = time.Minute }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0)
		k.add(1, batch{values: vals(1)})
		p := open(t, x, 0, 0, -1)
		synctest.Wait() // a long poll is in flight
		k.mu.Lock()
		k.throttle = 20 * time.Second
		k.mu.Unlock()
		began := time.Now()
		same(t, offsets(t, open(t, x, 1, 0, -1), 1), []int64{0})
		time.Sleep(time.Second)
		k.add(0, batch{values: vals(1)}) // the answer to the long poll
		same(t, offsets(t, p, 1), []int64{0})
		time.Sleep(25 * time.Second)
		k.change(func() {
			if k.throttle != 0 {
				t.Error("no answer has told of the throttle")
			}
		})
		later := 0
		for _, f := range k.requests() {
			switch after := f.at.Sub(began); {
			case after > 0 && after < 20*time.Second:
				t.Errorf("a request %v after the broker asked for none in 20 s", after)
			case after > 0:
				later++
			}
		}
		if later == 0 {
			t.Error("no request after the throttle")
		}
	})
}

// A partition's share may shrink while a request is in flight. What the answer has beyond it is dropped, and fetched again later.
func TestAnswerAfterTheShareShrank(t *testing.T) {
	const limit = 2 << 20
	change := func(o *Options) {
		o.MaxBytes = limit
		o.Config.Consumer.MaxWaitTime = 10 * time.Second
	}
	inBubble(t, change, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0)
		p := open(t, x, 0, 0, -1)
		synctest.Wait() // a long poll is in flight, which asks for as much as the only partition may have
		for id := int32(1); id < 16; id++ {
			k.add(id)
			open(t, x, id, 0, -1)
		}
		value := strings.Repeat("x", 4000)
		k.add(0, slices.Repeat([]batch{{values: slices.Repeat([]string{value}, 10)}}, 20)...)
		synctest.Wait()
		x.mu.Lock()
		held, share := p.buffered+p.inHand, p.share()
		x.mu.Unlock()
		if held > share {
			t.Errorf("%d bytes wait to be read, the share is %d", held, share)
		}
		same(t, offsets(t, p, 200), seq(0, 200))
	})
}
