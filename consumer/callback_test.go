package consumer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/ownership"
)

// newTestCallbacks returns callbacks that log to w.
func newTestCallbacks(w io.Writer) *callbacks {
	log := slog.New(slog.NewTextHandler(w, nil))
	return newCallbacks(time.Minute, log, errlog.New(log), func(error) {}, func(error) {})
}

// intercepting returns a member with interceptors, and its log.
func intercepting(all ...sarama.ConsumerInterceptor) (*membership, *bytes.Buffer) {
	log := &bytes.Buffer{}
	return &membership{users: newTestCallbacks(log), interceptors: all}, log
}

// endedContext returns a context that is over.
func endedContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// When no time is left, Cleanup is not called.
func TestNothingIsTriedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, late := newTestCallbacks(io.Discard), endedContext(t)
		var called atomic.Bool
		result := make(chan error, 1)
		u.goUntil(late, callCleanup, func() error { called.Store(true); return nil }, func(err error) { result <- err })
		err := <-result
		if !errors.Is(err, usercall.ErrNotStarted) || !errors.Is(err, ownership.ErrStuck) || !strings.Contains(err.Error(), callCleanup) {
			t.Errorf("result: %v", err)
		}
		assert.Error(t, u.end(late), nil, "end")
		synctest.Wait()
		if called.Load() {
			t.Error("it was called")
		}
	})
}

// A callback whose goroutine starts to run after end is not called, and not reported as stuck.
func TestNoCallBeginsAfterTheEnd(t *testing.T) {
	skipped := 0
	for range 100 {
		u, late := newTestCallbacks(io.Discard), endedContext(t)
		var called, failed atomic.Bool
		c := u.Go(usercall.Callback{Kind: callObserver}, func() error { called.Store(true); return nil }, func(err error) { failed.Store(err != nil) })
		err := u.end(late)
		<-c.Returned()
		if failed.Load() {
			t.Error("then was told an error")
		}
		if !called.Load() {
			skipped++
			assert.Error(t, err, nil, "end, when nothing was called")
		}
	}
	if skipped == 0 {
		t.Error("each was called: the goroutine was always first, or the end is not looked at")
	}
}

// When the time for callbacks ends while an interceptor runs, the next interceptor is not called.
func TestNoInterceptorAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		var second atomic.Bool
		c, _ := intercepting(
			interceptorFunc(func(*sarama.ConsumerMessage) { <-block }), interceptorFunc(func(*sarama.ConsumerMessage) { second.Store(true) }),
		)
		call := c.intercept(&sarama.ConsumerMessage{})
		synctest.Wait()
		assert.Error(t, c.users.end(endedContext(t)), ownership.ErrStuck, "end")
		close(block)
		<-call.Returned()
		assert.Equal(t, second.Load(), false, "the second interceptor was called after the end")
	})
}

// An interceptor that ends its goroutine ends its own call alone, and is logged once.
func TestGoexitOfAnInterceptor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var second atomic.Bool
		c, log := intercepting(
			interceptorFunc(func(*sarama.ConsumerMessage) { runtime.Goexit() }), interceptorFunc(func(*sarama.ConsumerMessage) { second.Store(true) }),
		)
		noerr.Want(t, c.intercept(&sarama.ConsumerMessage{}).Result())
		assert.Equal(t, strings.Count(log.String(), "level=ERROR"), 1, "errors that are logged")
		assert.Equal(t, second.Load(), true, "the next interceptor has seen the message")
	})
}

// The panics of an interceptor that panics at each message share log lines. They do not count as recovered when other callbacks
// work.
func TestInterceptorThatPanicsAtEachMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log := intercepting(interceptorFunc(func(*sarama.ConsumerMessage) { panic("ouch") }), &counting{})
		for range 1000 {
			noerr.Want(t, c.intercept(&sarama.ConsumerMessage{}).Result())
			time.Sleep(20 * time.Millisecond)
		}
		said := log.String()
		if lines, stacks := strings.Count(said, "\n"), strings.Count(said, "stack="); lines != 2 || stacks != 1 || !strings.Contains(said, `kind="panic in an interceptor" about=consumer.interceptorFunc`) {
			t.Errorf("%d lines with %d stacks for 1000 panics in 20 s:\n%s", lines, stacks, said)
		}
	})
}

// counting is an interceptor that panics never.
type counting struct{ n int }

func (c *counting) OnConsume(*sarama.ConsumerMessage) { c.n++ }

// The Observer may call Commit.
func TestCommitFromTheObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMarkRig(t, nil)
		var most atomic.Int64
		tell := r.observer
		r.observer = func(e Event) {
			tell(e)
			began := time.Now()
			r.session.Commit()
			most.Store(max(most.Load(), int64(time.Since(began))))
		}
		h := newHolder(t, tp("t", 0))
		_, done := r.opened(h, 0, 1)
		time.Sleep(10 * time.Second)
		h.release(t, done)
		if at := r.store.Get(tp("t", 0)).Offset; at != 2 || most.Load() > 0 {
			t.Errorf("stored %d, Commit took %v", at, time.Duration(most.Load()))
		}
	})
}
