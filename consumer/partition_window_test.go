package consumer

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Messages that are done alone are committed as far as there is no hole, and a full window holds the next messages back.
func TestDoneFillsAWindow(t *testing.T) {
	for name, batches := range map[string]bool{"messages": false, "batches": true} {
		t.Run(name, func(t *testing.T) { testWindow(t, batches) })
	}
}

func testWindow(t *testing.T, batches bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t, tp("t", 0))
		got := make(chan *sarama.ConsumerMessage, 64)
		parts, start := make(chan *Partition, 1), make(chan struct{})
		r := newRunRig(t, func(_ context.Context, p *Partition) error {
			parts <- p
			<-start
			if batches {
				for b := range p.Batches() {
					_ = append(b, sarama.ConsumerMessage{Offset: -1}) // changes no message behind
					for i := range b {
						got <- &b[i]
					}
				}
				return nil
			}
			for m := range p.Messages() {
				got <- m
			}
			return nil
		}, func(o *Options) { o.MaxUnmarked, o.CommitInterval = 4, time.Second })
		var log lockedBuffer
		r.logTo(slog.NewTextHandler(&log, nil))
		r.observer, r.fetch.ready = nil, 10
		done := r.owned(h)
		p := <-parts
		p.Done(&sarama.ConsumerMessage{Topic: "t", Offset: -1}) // from now on the window counts
		close(start)
		var ms []*sarama.ConsumerMessage
		expect := func(n int) {
			t.Helper()
			synctest.Wait()
			for len(got) > 0 {
				ms = append(ms, <-got)
			}
			if len(ms) != n {
				t.Fatalf("%d messages were handed out, want %d", len(ms), n)
			}
			for i, m := range ms {
				if m.Offset != int64(i) {
					t.Fatalf("message %d has offset %d", i, m.Offset)
				}
			}
		}
		expect(4)
		p.Done(ms[2])
		p.Done(ms[1])
		expect(4)
		time.Sleep(2 * time.Second)
		if at := r.store.Get(tp("t", 0)).Offset; at != 0 {
			t.Errorf("stored %d, though 0 is not done", at)
		}
		p.Done(ms[0])
		expect(7)
		time.Sleep(2 * time.Second)
		if at := r.store.Get(tp("t", 0)).Offset; at != 3 {
			t.Errorf("stored %d", at)
		}
		heldBack := r.metrics.heldBack.WithLabelValues("t")
		time.Sleep(heldBackLimit - 5*time.Second)
		synctest.Wait()
		if testutil.ToFloat64(heldBack) != 0 || strings.Contains(log.String(), "held back") {
			t.Errorf("reported too early: %s", log.String())
		}
		time.Sleep(2 * heldBackLimit)
		synctest.Wait()
		if testutil.ToFloat64(heldBack) != 1 || strings.Count(log.String(), "held back") != 1 || !strings.Contains(log.String(), "the one at 3 is") {
			t.Errorf("reported %v: %s", testutil.ToFloat64(heldBack), log.String())
		}
		p.Mark(ms[6])
		expect(10)
		if testutil.ToFloat64(heldBack) != 0 {
			t.Error("it is still reported")
		}
		if !strings.Contains(log.String(), "msg=recovered kind=held-back") {
			t.Errorf("logged no end: %s", log.String())
		}
		h.release(t, done)
		if at := r.store.Get(tp("t", 0)).Offset; at != 7 {
			t.Errorf("stored %d at the end", at)
		}
	})
}
