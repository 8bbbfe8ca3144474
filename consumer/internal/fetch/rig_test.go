package fetch

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/errlog"
)

// end closes all connections and waits for what serves them.
func (c *fakeCluster) end() {
	c.mu.Lock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
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
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- x.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ran; err != nil {
				t.Errorf("Run: %v", err)
			}
			c.end()
		}()
		f(t, c, x)
	})
}

func open(t *testing.T, x *Fetcher, id int32, offset int64, leaderEpoch int32) *Partition {
	t.Helper()
	p, err := x.Open(t.Context(), "t", id, offset, leaderEpoch)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// next returns the next batch within limit.
func next(t *testing.T, p *Partition, limit time.Duration) (Batch, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return p.Next(ctx)
}

// offsets reads until the position is end, and returns the offsets that came.
func offsets(t *testing.T, p *Partition, end int64) []int64 {
	t.Helper()
	var out []int64
	for at := int64(-1); at < end; {
		b, err := next(t, p, time.Minute)
		if err != nil {
			t.Fatalf("Next after %v: %v", out, err)
		}
		for i := range b.Messages {
			out = append(out, b.Messages[i].Offset)
		}
		at = b.Next
	}
	return out
}

func seq(from, to int64) []int64 {
	var out []int64
	for ; from < to; from++ {
		out = append(out, from)
	}
	return out
}

func vals(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "v"
	}
	return out
}

func nodeAt(id int32) Node { return Node{ID: id, Addr: strconv.Itoa(int(id))} }

func (c *fakeCluster) Node(id int32) (Node, bool) { return nodeAt(id), true }
