package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/testonly/assert"
)

// asked returns how many requests for a partition there were, from the first one on that from counts, and how many of them asked
// for as much as usual.
func asked(k *fakeCluster, id int32, from int) (requests, large int) {
	for _, f := range k.requests()[from:] {
		for _, a := range f.partitions {
			if a.id == id {
				requests++
				if a.size >= 1<<20 {
					large++
				}
			}
		}
	}
	return requests, large
}

func many(n int, b batch) []batch { return slices.Repeat([]batch{b}, n) }

// The messages before a batch with a wrong checksum are handed out. The error has the first offset that can't be read, and the
// first one behind the batch. When the partition is opened again, the batch alone is asked for, and reading goes on behind it.
func TestSpoiltBatch(t *testing.T) {
	good, bad := batch{values: wide(10, 1000)}, batch{values: wide(10, 1000), brokenBytes: true}
	large, one := batch{values: wide(1, 3<<20)}, batch{values: vals(1)}
	for name, c := range map[string]struct {
		batches     []batch
		open        int64
		first, next int64
		end         int64
	}{
		"behind others":         {batches: slices.Concat(many(40, good), many(1, bad), many(40, good)), first: 400, next: 410, end: 810},
		"the first":             {batches: slices.Concat(many(1, bad), many(3, good)), next: 10, end: 40},
		"the last":              {batches: slices.Concat(many(3, good), many(1, bad)), first: 30, next: 40, end: 40},
		"alone":                 {batches: many(1, bad), next: 10, end: 10},
		"opened inside":         {batches: slices.Concat(many(1, good), many(1, bad), many(3, good)), open: 15, first: 15, next: 20, end: 50},
		"of one message":        {batches: slices.Concat(many(200, one), many(1, batch{values: vals(1), brokenBytes: true}), many(3, good)), first: 200, next: 201, end: 231},
		"equal ones":            {batches: slices.Concat(many(3, good), many(3, bad), many(3, good)), first: 30, next: 60, end: 90},
		"larger than a request": {batches: slices.Concat(many(3, good), many(1, batch{values: wide(2, 3<<20), brokenBytes: true}), many(3, good)), first: 30, next: 32, end: 62},
		"before a large one":    {batches: []batch{bad, large}, next: 10, end: 11},
		"behind a large one":    {batches: []batch{large, bad, good}, first: 1, next: 11, end: 21},
		"before a gap":          {batches: []batch{good, bad, {base: 100, values: vals(2)}}, first: 10, next: 20, end: 102},
		"legacy":                {batches: []batch{{values: vals(5), legacy: true}, bad, {values: vals(5), legacy: true}}, first: 5, next: 15, end: 20},
	} {
		subtest(t, name, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, c.batches...)
			k.add(1, batch{values: vals(5)})
			beside := open(t, x, 1, 0, -1)
			began := time.Now()
			err := stops(t, x, c.open, -1, c.first, c.next)
			if ReasonOf(err) != Undecodable || unreadable(t, err, c.first, c.next).Size != 0 {
				t.Errorf("%+v", err)
			}
			says(t, err, "read t:0 at "+fmt.Sprint(c.first), "CRC", "go on at "+fmt.Sprint(c.next))
			if n, large := asked(k, 0, 0); n > 100 || large > 4 || time.Since(began) > time.Second {
				t.Errorf("%d requests, %d of them large, in %v", n, large, time.Since(began))
			}
			same(t, offsets(t, beside, 5), seq(0, 5))
			for range 5 {
				from := len(k.requests())
				stopsAtOnce(t, x, c.first, c.next)
				if n, large := asked(k, 0, from); n != 1 || large > 0 {
					t.Errorf("%d requests when it was opened again, %d of them large", n, large)
				}
			}
			if c.next < c.end {
				p := open(t, x, 0, c.next, -1)
				if b, err := next(t, p, time.Second); err != nil || b.Messages[0].Offset < c.next {
					t.Fatalf("behind the batch: %v", err)
				}
				assert.Equal(t, p.read(func() int64 { return int64(len(x.unreadable)) }), 0, "batches that are kept")
			}
		})
	}
}

// Whoever goes on where the error says gets every message that can be read, though there are several batches that can't be, and
// good ones between them.
func TestGoingOnBehindSpoiltBatches(t *testing.T) {
	good := func(n int) batch { return batch{values: vals(n)} }
	bad := func(n int, value string) batch {
		return batch{values: slices.Repeat([]string{value}, n), brokenBytes: true}
	}
	for name, batches := range map[string][]batch{
		"one behind the other":   {good(10), bad(10, "a"), bad(16, "b"), bad(3, "c"), good(10)},
		"a good one between":     {good(10), bad(10, "a"), good(4), bad(16, "b"), good(10)},
		"between two of a size":  {good(10), bad(10, "a"), good(4), bad(10, "b"), good(10)},
		"single messages":        {good(1), bad(1, "a"), bad(1, "b"), bad(1, "c"), bad(1, "d"), good(1), bad(1, "e"), bad(1, "f"), bad(1, "g"), good(1)},
		"far apart":              slices.Concat([]batch{bad(10, "a")}, many(500, good(1)), []batch{bad(100, "b")}, many(3, good(1))),
		"many good ones between": slices.Concat([]batch{bad(9, "a")}, many(7, good(1)), []batch{bad(5000, "b")}, many(3, good(1))),
	} {
		subtest(t, name, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, batches...)
			var want, all []int64
			end := int64(0)
			for _, b := range batches {
				if n := int64(len(b.values)); !b.brokenBytes {
					want, end = append(want, seq(end, end+n)...), end+n
				} else {
					end += n
				}
			}
			for at := int64(0); at < end; {
				p := open(t, x, 0, at, -1)
				if e, ok := errors.AsType[*UnreadableError](p.Opened(t.Context())); ok {
					at = e.Next
					p.Close()
					continue
				}
				for at < end {
					b, err := next(t, p, time.Second)
					if e, ok := errors.AsType[*UnreadableError](err); ok {
						at = e.Next
						break
					} else if err != nil {
						t.Fatal(err)
					}
					for i := range b.Messages {
						all = append(all, b.Messages[i].Offset)
					}
					at = b.Next
				}
				p.Close()
			}
			same(t, all, want)
		})
	}
}

// The end of a batch that one leader has sent says nothing about another leader's log.
func TestSpoiltBatchOfAnotherLeader(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(10), brokenBytes: true}, batch{values: vals(10)})
		stopsAtOnce(t, x, 0, 10)
		k.change(func() { *k.log(0) = fakeLog{leader: 2, epoch: 1, stable: -1, follower: -1, lagging: -1} })
		k.add(0, batch{values: vals(4), brokenBytes: true}, batch{values: vals(16)})
		stopsAtOnce(t, x, 0, 4)
	})
}

// A batch is forgotten when the log does not have it any more, as when the topic was made anew.
func TestSpoiltBatchOfAnotherLog(t *testing.T) {
	for _, at := range []int64{0, 10} {
		subtest(t, fmt.Sprint(at), nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, batch{values: vals(10)}, batch{values: vals(10), brokenBytes: true})
			p := open(t, x, 0, 0, -1)
			if _, err := readTo(t, p); !errors.Is(err, ErrUnreadable) {
				t.Fatal(err)
			}
			p.Close()
			k.change(func() { *k.log(0) = fakeLog{leader: 1, stable: -1, follower: -1, lagging: -1} })
			k.add(0, batch{values: vals(5)})
			p = open(t, x, 0, at, -1)
			_, err := next(t, p, time.Second)
			if e, ok := errors.AsType[*RangeError](err); ok != (at == 10) {
				t.Errorf("opened at %d: %v, %v", at, err, e)
			}
			if n := p.read(func() int64 { return int64(len(x.unreadable)) }); n > 0 {
				t.Errorf("opened at %d: %d batches are kept", at, n)
			}
		})
	}
}

// A partition that is opened before the batch again hands out the messages before it again, and does not have others fetched
// anew.
func TestOpenedBeforeASpoiltBatch(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(10)}, batch{values: vals(10)}, batch{values: vals(10), brokenBytes: true}, batch{values: vals(10)})
		for range 3 {
			stops(t, x, 5, -1, 20, 30)
		}
	})
}

// Messages that have come count as an opening, though what is behind them was found to be spoilt before Opened was called.
func TestOpenedLate(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(4)}, batch{values: vals(10), brokenBytes: true})
		p := open(t, x, 0, 0, -1)
		time.Sleep(time.Second)
		assert.Error(t, p.Opened(t.Context()), nil, "Opened")
		if got, err := readTo(t, p); !errors.Is(err, ErrUnreadable) {
			t.Error(err)
		} else {
			same(t, got, seq(0, 4))
		}
	})
}

// The comparison with a new leader's log does not blame the position for a batch that is before it or behind it.
func TestSpoiltBatchBesideACheck(t *testing.T) {
	good, bad := batch{values: vals(10)}, batch{values: vals(10), brokenBytes: true}
	for name, c := range map[string]struct {
		batches     []batch
		first, next int64
	}{
		"behind": {[]batch{good, good, bad, good}, 20, 30},
		"at":     {[]batch{good, bad, good}, 10, 20},
		"before": {[]batch{bad, good, bad}, 20, 30},
	} {
		subtest(t, name, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.change(func() { k.log(0).epoch = 5; k.known[key{"t", 0}] = fakeLeader{1, 5} })
			k.add(0, c.batches...)
			few := func(from, most, mostLarge int) {
				t.Helper()
				if n, large := asked(k, 0, from); n > most || large > mostLarge {
					t.Errorf("%d requests, %d of them large", n, large)
				}
			}
			for range 2 {
				from := len(k.requests())
				stops(t, x, 10, 5, c.first, c.next)
				few(from, 60, 4)
			}
			from := len(k.requests())
			assert.Error(t, open(t, x, 0, c.first, 5).Opened(t.Context()), ErrUnreadable, "opened at the batch")
			few(from, 2, 0)
		})
	}
}

// A batch whose copy on another broker is good is read there: on the leader, when a follower's copy is spoilt, and on the next
// leader.
func TestSpoiltCopy(t *testing.T) {
	subtest(t, "of the follower", func(o *Options) { o.Config.RackID = "a" }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.racks = true
		k.add(0, many(5, batch{values: vals(10)})...)
		k.change(func() { k.log(0).follower, k.log(0).spoilt = 2, 2 })
		p := open(t, x, 0, 0, -1)
		same(t, offsets(t, p, 50), seq(0, 50))
		time.Sleep(time.Second)
		k.change(func() { k.log(0).spoilt = 0 })
		k.add(0, batch{values: vals(10)})
		same(t, offsets(t, p, 60), seq(50, 60))
		if all := k.requests(); all[len(all)-1].broker != 2 {
			t.Error("the follower is not asked again")
		}
	})
	subtest(t, "of the leader", nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, many(5, batch{values: vals(10)})...)
		k.change(func() { k.log(0).spoilt = 1 })
		p := open(t, x, 0, 0, -1)
		if err := p.Opened(t.Context()); !errors.Is(err, ErrUnreadable) {
			t.Fatalf("Opened: %v", err)
		}
		p.Close()
		k.change(func() { k.log(0).leader, k.log(0).epoch = 2, 1 })
		same(t, offsets(t, open(t, x, 0, 0, -1), 50), seq(0, 50))
	})
}

// An answer above sarama.MaxResponseSize is named, with the variable. It is not asked for again at once, but when the variable
// has changed.
func TestAnswerTooLarge(t *testing.T) {
	limit := sarama.MaxResponseSize
	defer func() { sarama.MaxResponseSize = limit }()
	for name, before := range map[string]int{"the first": 0, "behind others": 5} {
		sarama.MaxResponseSize = 200_000
		subtest(t, name, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			first := int64(before * 10)
			k.add(0, slices.Concat(many(before, batch{values: vals(10)}), []batch{{values: wide(1, 300_000)}, {values: vals(10)}})...)
			err := stops(t, x, 0, -1, first, first+1)
			if bad := unreadable(t, err, first, first+1); bad.Size < 300_000 || bad.Size > 301_000 {
				t.Errorf("%d bytes", bad.Size)
			}
			says(t, err, fmt.Sprintf("read t:0 at %d", first), "sarama.MaxResponseSize is 200000: set that variable", fmt.Sprintf("go on at %d", first+1))
			from := len(k.requests())
			for range 5 {
				stopsAtOnce(t, x, first, first+1)
				time.Sleep(5 * time.Second)
			}
			assert.Equal(t, len(k.requests())-from, 0, "requests in the first half minute")
			time.Sleep(tooLargeAgain)
			stopsAtOnce(t, x, first, first+1)
			assert.Equal(t, len(k.requests())-from, 1, "requests after a minute")
			sarama.MaxResponseSize = 400_000
			same(t, offsets(t, open(t, x, 0, first, -1), first+11), seq(first, first+11))
		})
	}
}

// While a partition is opened again and again at a batch that can't be read, the log has no line about its broker, which works.
func TestSpoiltBatchIsNoFaultOfTheBroker(t *testing.T) {
	var log bytes.Buffer
	inBubble(t, func(o *Options) { o.Errors = errlog.New(slog.New(slog.NewTextHandler(&log, nil))) }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(10)}, batch{values: vals(10), brokenBytes: true})
		k.add(1)
		beside := open(t, x, 1, 0, -1)
		at := int64(0)
		for n := range int64(7) {
			p := open(t, x, 0, at, -1)
			if _, err := readTo(t, p); !errors.Is(err, ErrUnreadable) {
				t.Fatal(err)
			}
			at = 10
			p.Close()
			k.add(1, batch{values: vals(1)})
			same(t, offsets(t, beside, n+1), []int64{n})
			time.Sleep(5 * time.Second)
		}
		synctest.Wait() // for lines about what has happened
		if log.Len() > 0 {
			t.Errorf("logged:\n%s", log.String())
		}
	})
}

// If nothing of what a broker sends can be decoded, no batch is blamed.
func TestGarbage(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: vals(1)})
		k.garbage = true
		began := time.Now()
		_, err := next(t, open(t, x, 0, 0, -1), time.Minute)
		if took := time.Since(began); !isDecoding(err) || errors.Is(err, ErrUnreadable) || took < patience || took > 2*patience {
			t.Errorf("Next: %v after %v", err, took)
		}
		if n := len(k.requests()); n > 1000 {
			t.Errorf("%d requests", n)
		}
	})
}

// sarama says how large an answer is that it does not read. If this fails after an update of sarama, find out how it says so now.
func TestSaramaSaysHowLargeAnAnswerIs(t *testing.T) {
	limit := sarama.MaxResponseSize
	defer func() { sarama.MaxResponseSize = limit }()
	sarama.MaxResponseSize = 1000
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{values: wide(1, 5000)})
		var bad *UnreadableError
		if _, err := next(t, open(t, x, 0, 0, -1), time.Second); !errors.As(err, &bad) || bad.Size < 5000 {
			t.Errorf("Next: %v", err)
		}
	})
	for _, err := range []error{nil, context.Canceled, sarama.PacketDecodingError{Info: "message of length 4 too large or too small"}, sarama.PacketDecodingError{Info: "CRC"}} {
		assert.Equal(t, sizeTooLarge(err), 0, "bytes of %v", err)
	}
}

// Under a quota an answer has no partition. The partition stays where it is, is asked for when the throttle has ended, and the
// error names the quota.
func TestQuota(t *testing.T) {
	var failures tally
	var log bytes.Buffer
	change := func(o *Options) {
		o.OnFailure, o.Errors = failures.add, errlog.New(slog.New(slog.NewTextHandler(&log, nil)))
	}
	inBubble(t, change, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		p := begun(t, k, x, 1)
		refreshes := k.refreshed()
		starve := func(times int) {
			for range times {
				k.change(func() { k.starving, k.throttle = true, 3*time.Second })
				time.Sleep(3 * time.Second)
			}
			synctest.Wait() // for lines about what has happened
		}
		goesOn := func(end int64) {
			k.change(func() { k.starving, k.throttle = false, 0 })
			k.add(0, batch{values: vals(1)})
			same(t, offsets(t, p, end), []int64{end - 1})
			synctest.Wait()
		}
		starve(2)
		goesOn(2)
		failures.only(t, Quota, 2, 3)
		assert.Equal(t, log.String(), "", "log")
		starve(10)
		if text := log.String(); !strings.Contains(text, "kind=fetch") || !strings.Contains(text, "quota") || strings.Contains(text, "lacks") {
			t.Errorf("logged:\n%s", text)
		}
		if since := p.FailingSince(); since.IsZero() {
			t.Error("the partition does not fail")
		}
		goesOn(3)
		assert.Equal(t, k.refreshed(), refreshes, "refreshes")
		assert.Equal(t, k.dialled(), 1, "connections")
	})
}
