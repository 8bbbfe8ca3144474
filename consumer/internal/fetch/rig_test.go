package fetch

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// end closes all connections and waits for what serves them.
func (c *fakeCluster) end() {
	c.hangUp()
	c.served.Wait()
}

func testConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V2_6_0_0
	c.ApiVersionsRequest = false
	return c
}

// inBubble runs f with a fetcher that runs, in virtual time.
func inBubble(t *testing.T, change func(*Options), f func(t *testing.T, c *fakeCluster, x *Fetcher)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		opts := Options{Config: testConfig(), Dialer: c, Errors: errlog.New(slog.New(slog.DiscardHandler))}
		if change != nil {
			change(&opts)
		}
		x, err := New(c, opts)
		noerr.Must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- x.Run(ctx) }()
		defer func() {
			cancel()
			assert.Error(t, <-ran, nil, "Run")
			c.end()
		}()
		f(t, c, x)
	})
}

// subtest is inBubble in a subtest.
func subtest(t *testing.T, name string, change func(*Options), f func(t *testing.T, c *fakeCluster, x *Fetcher)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, change, f) })
}

func open(t *testing.T, x *Fetcher, id int32, offset int64, leaderEpoch int32) *Partition {
	t.Helper()
	p, err := x.Open(t.Context(), "t", id, offset, leaderEpoch)
	noerr.Must(t, err)
	return p
}

// next returns the next batch within limit.
func next(t *testing.T, p *Partition, limit time.Duration) (Batch, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return p.Next(ctx)
}

func nodeAt(id int32) Node { return Node{ID: id, Addr: strconv.Itoa(int(id))} }

func (c *fakeCluster) Node(id int32) (Node, bool) { return nodeAt(id), true }

// messages reads until the position is end, and returns what came.
func messages(t *testing.T, p *Partition, end int64) (out []*sarama.ConsumerMessage) {
	t.Helper()
	for at := int64(-1); at < end; {
		b, err := next(t, p, time.Minute)
		if err != nil {
			t.Fatalf("Next after %d messages: %v", len(out), err)
		}
		for i := range b.Messages {
			out = append(out, &b.Messages[i])
		}
		at = b.Next
	}
	return out
}

// offsets is messages, but returns their offsets.
func offsets(t *testing.T, p *Partition, end int64) (out []int64) {
	t.Helper()
	for _, m := range messages(t, p, end) {
		out = append(out, m.Offset)
	}
	return out
}

// readTo reads a partition until Next returns an error, and returns the offsets that came.
func readTo(t *testing.T, p *Partition) (got []int64, _ error) {
	t.Helper()
	for {
		b, err := next(t, p, time.Minute)
		if err != nil {
			return got, err
		}
		for i := range b.Messages {
			got = append(got, b.Messages[i].Offset)
		}
	}
}

// unreadable checks that err is of the record batch whose first offset that can't be read is first, and returns it.
func unreadable(t *testing.T, err error, first, next int64) *UnreadableError {
	t.Helper()
	var bad *UnreadableError
	if !errors.As(err, &bad) || bad.First != first || bad.Next != next {
		t.Fatalf("%v, want the batch from %d to %d", err, first, next)
	}
	return bad
}

// stops opens partition 0 and checks that reading stops at a batch that can't be read. It returns the error.
func stops(t *testing.T, x *Fetcher, from int64, leaderEpoch int32, first, next int64) error {
	t.Helper()
	p := open(t, x, 0, from, leaderEpoch)
	defer p.Close()
	got, err := readTo(t, p)
	same(t, got, seq(from, first))
	unreadable(t, err, first, next)
	return err
}

// stopsAtOnce checks that opening partition 0 at a batch that can't be read fails.
func stopsAtOnce(t *testing.T, x *Fetcher, first, next int64) {
	t.Helper()
	p := open(t, x, 0, first, -1)
	defer p.Close()
	unreadable(t, p.Opened(t.Context()), first, next)
}

// allocated returns how many bytes f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// heap returns how many bytes are in use.
func heap() int {
	runtime.GC()
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int(now.HeapAlloc)
}

func seq(from, to int64) []int64 {
	var out []int64
	for ; from < to; from++ {
		out = append(out, from)
	}
	return out
}

func vals(n int) []string { return slices.Repeat([]string{"v"}, n) }

// wide returns n values of size bytes.
func wide(n, size int) []string { return slices.Repeat([]string{strings.Repeat("x", size)}, n) }

// begun adds n messages to partition 0, which it opens and reads.
func begun(t *testing.T, k *fakeCluster, x *Fetcher, n int) *Partition {
	t.Helper()
	k.add(0, batch{values: vals(n)})
	p := open(t, x, 0, 0, -1)
	same(t, offsets(t, p, int64(n)), seq(0, int64(n)))
	return p
}

// hangUp ends all connections.
func (c *fakeCluster) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
}

// refreshed returns how often metadata were asked for, and dialled how many connections were made.
func (c *fakeCluster) refreshed() int { return c.read(&c.refreshes) }
func (c *fakeCluster) dialled() int   { return c.read(&c.dials) }

func (c *fakeCluster) read(n *int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *n
}
