package fetch

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/status"
)

// Leader moves cost no error and no message, and few requests.
func TestLeaderMoves(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		p := begun(t, k, x, 5)
		for move := range int64(5) {
			k.change(func() { l := k.log(0); l.leader = 1 + l.leader%2; l.epoch++ })
			k.add(0, batch{values: vals(5)})
			same(t, offsets(t, p, 10+5*move), seq(5+5*move, 10+5*move))
		}
		if n := k.refreshed(); n > 10 {
			t.Errorf("%d refreshes for 5 moves", n)
		}
	})
}

// While nobody leads a partition, or its broker is away, requests are few, and Next waits.
func TestAway(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		p := begun(t, k, x, 5)
		k.change(func() { k.down[1] = true })
		k.hangUp()
		if _, err := next(t, p, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if dials, refreshes := k.dialled(), k.refreshed(); dials > 50 || refreshes > 50 {
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
		subtest(t, name, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
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
	}
}

// Opened waits for an answer whose bytes arrive, however long that takes: another attempt would ask for all of it again. The
// connection is kept.
func TestOpenedOnASlowLink(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.slow = time.Second // for 1 KiB
		k.add(0, batch{values: wide(1, 100<<10)})
		began := time.Now()
		p := open(t, x, 0, 0, -1)
		err := p.Opened(t.Context())
		if took := time.Since(began); err != nil || took < 90*time.Second || took > 110*time.Second {
			t.Errorf("opened after %v: %v", took, err)
		}
		same(t, offsets(t, p, 1), []int64{0})
		assert.Equal(t, k.dialled(), 1, "connections")
		k.change(func() { k.silent[1] = true })
		k.add(1, batch{values: vals(1)})
		began = time.Now()
		err = open(t, x, 1, 0, -1).Opened(t.Context())
		if took := time.Since(began); !errors.Is(err, ErrNoAnswer) || took > 2*patience {
			t.Errorf("a silent broker: %v after %v", err, took)
		}
	})
}

// No request is sent on either connection while the broker throttles (KIP-219). The wait ends early when the fetcher does.
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

// A throttle time above maxThrottle is cut short, with a warning.
func TestThrottleIsBounded(t *testing.T) {
	for name, told := range map[string]time.Duration{"an hour": time.Hour, "the longest": math.MaxInt32 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			inBubble(t, func(o *Options) { o.Errors = errlog.New(slog.New(slog.NewTextHandler(&log, nil))) }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
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
				synctest.Wait() // what happened may be logged after the message was handed out
				if n := strings.Count(log.String(), "level=WARN"); n != 1 {
					t.Errorf("%d warnings:\n%s", n, log.String())
				}
			})
		})
	}
}

// A partition that stands still is fetched anew after 30 s, once a minute. One that can't move is left alone.
func TestWatchdog(t *testing.T) {
	var resets []time.Time
	var mu sync.Mutex
	inBubble(t, func(o *Options) {
		committed(o)
		o.OnReset = func(string, int32) { mu.Lock(); defer mu.Unlock(); resets = append(resets, time.Now()) }
	}, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		p := begun(t, k, x, 1)
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

// Nonsensical answers of a broker cause no message twice, and no endless requests.
func TestHostileAnswers(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		// The records are out of order.
		k.add(0, batch{last: 9, values: vals(5), keep: []int64{0, 3, 2, 3, 9}}, batch{base: 10, values: vals(1)})
		same(t, offsets(t, open(t, x, 0, 0, -1), 11), []int64{0, 3, 9, 10})
		k.add(1)
		k.log(1).endless = true
		from := len(k.requests())
		p := open(t, x, 1, 0, -1)
		time.Sleep(time.Minute)
		if n := len(k.requests()) - from; n > 200 {
			t.Errorf("%d requests in a minute", n)
		}
		noerr.Want(t, p.Opened(t.Context()))
	})
}

// The error about a batch that can't be read lasts in the log while the messages before the batch are read again, and ends when
// reading has passed it.
func TestSpoiltBatchLasts(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, slices.Concat(many(3, batch{values: vals(10)}), many(1, batch{values: vals(10), brokenBytes: true}), many(1, batch{values: vals(10)}))...)
		for range 3 {
			x.settings.Errors.Failed(kindFetch, "t:0", stops(t, x, 0, -1, 30, 40))
			time.Sleep(5 * time.Second)
		}
		last := func() status.Trouble { return x.settings.Errors.Troubles()[0] }
		if n := len(x.settings.Errors.Troubles()); n != 1 || last().Until != nil {
			t.Errorf("%d troubles while the batch can't be read, the last %+v", n, last())
		}
		same(t, offsets(t, open(t, x, 0, 40, -1), 10), seq(40, 50))
		synctest.Wait()
		if last().Until == nil {
			t.Error("the trouble lasts, though reading has passed the batch")
		}
	})
}
