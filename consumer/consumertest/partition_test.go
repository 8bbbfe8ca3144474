package consumertest_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/consumer/consumertest"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/internal/testonly/conntest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/ownership"
)

func TestMain(m *testing.M) { conntest.Main(m) }

// collector is a handler that marks each message, for Run and for Consume.
type collector struct {
	got     []string
	on      func(i int, value string) // called with each message before it is marked; nil for nothing
	cause   error                     // with which the handler's context had ended when the handler returned
	setup   error
	cleanup func() // called by Cleanup; nil for nothing
}

func (c *collector) take(value []byte) {
	if c.on != nil {
		c.on(len(c.got), string(value))
	}
	c.got = append(c.got, string(value))
}

func (c *collector) handle(ctx context.Context, p *consumer.Partition) error {
	for m := range p.Messages() {
		c.take(m.Value)
		p.Mark(m)
	}
	c.cause = context.Cause(ctx)
	return nil
}

func (c *collector) Setup(sarama.ConsumerGroupSession) error { return c.setup }
func (c *collector) Cleanup(sarama.ConsumerGroupSession) error {
	if c.cleanup != nil {
		c.cleanup()
	}
	return nil
}

func (c *collector) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				c.cause = context.Cause(s.Context())
				return nil
			}
			c.take(m.Value)
			s.MarkMessage(m, "seen")
		case <-s.Context().Done():
			c.cause = context.Cause(s.Context())
			return nil
		}
	}
}

// way consumes partitions with a collector.
type way func(context.Context, *consumertest.Partition, *collector) error

// each runs a test with both ways to consume.
func each(t *testing.T, test func(t *testing.T, run way)) {
	for name, run := range map[string]way{
		"Run": func(ctx context.Context, p *consumertest.Partition, c *collector) error { return p.Run(ctx, c.handle) },
		"Consume": func(ctx context.Context, p *consumertest.Partition, c *collector) error {
			return consumertest.Consume(ctx, c, p)
		},
	} {
		bubble.Run(t, name, func(t *testing.T) { test(t, run) })
	}
}

func wantCommitted(t *testing.T, p *consumertest.Partition, want int64) {
	t.Helper()
	if got, _ := p.Committed(); got != want {
		t.Errorf("committed %d, want %d", got, want)
	}
}

// All messages are handed out, and the marks are committed; the next owner starts there, under a higher token.
func TestAll(t *testing.T) {
	each(t, func(t *testing.T, run way) {
		p := consumertest.NewPartition(consumertest.Options{Topic: "orders", ID: 3, Start: 40}, "a", "b", "c")
		c := &collector{}
		noerr.Must(t, run(t.Context(), p, c))
		if !slices.Equal(c.got, []string{"a", "b", "c"}) || !errors.Is(c.cause, consumertest.ErrEnd) {
			t.Errorf("got %q, ended by %v", c.got, c.cause)
		}
		wantCommitted(t, p, 43)
		p.Send("d")
		c = &collector{}
		noerr.Must(t, run(t.Context(), p, c))
		if !slices.Equal(c.got, []string{"d"}) {
			t.Errorf("the next owner got %q", c.got)
		}
		wantCommitted(t, p, 44)
	})
}

// A partition is revoked, or lost, while a message is in hand: nothing behind it is handed out. If it is revoked, the message's
// mark is committed; if it is lost, nothing is, and the next owner gets all again.
func TestRevokedOrLost(t *testing.T) {
	for _, end := range []struct {
		by        func(*consumertest.Partition)
		why       error
		committed int
	}{
		{(*consumertest.Partition).Revoke, ownership.ErrRevoked, 2},
		{(*consumertest.Partition).Lose, ownership.ErrLost, 0},
	} {
		each(t, func(t *testing.T, run way) {
			values := []string{"a", "b", "c", "d"}
			p := consumertest.NewPartition(consumertest.Options{}, values...)
			c := &collector{on: func(i int, _ string) {
				if i == 1 {
					end.by(p)
					synctest.Wait()
				}
			}}
			noerr.Must(t, run(t.Context(), p, c))
			if !slices.Equal(c.got, []string{"a", "b"}) || !errors.Is(c.cause, end.why) {
				t.Errorf("got %q, ended by %v", c.got, c.cause)
			}
			wantCommitted(t, p, int64(end.committed))
			c = &collector{}
			if err := run(t.Context(), p, c); err != nil || !slices.Equal(c.got, values[end.committed:]) {
				t.Errorf("the next owner got %q, %v", c.got, err)
			}
		})
	}
}

// The last commit of a revoked partition does not wait for Cleanup: the next owner shall not wait for the slowest handler.
func TestRevokedBeforeCleanup(t *testing.T) {
	p := consumertest.NewPartition(consumertest.Options{}, "a", "b")
	c := &collector{on: func(int, string) { p.Revoke() }, cleanup: func() { wantCommitted(t, p, 1) }}
	noerr.Must(t, consumertest.Consume(t.Context(), c, p))
}

// A handler that asks finds that a lost partition is not trusted, and a revoked one is.
func TestTrusted(t *testing.T) {
	for _, lose := range []bool{false, true} {
		p := consumertest.NewPartition(consumertest.Options{}, "a")
		err := p.Run(t.Context(), func(ctx context.Context, open *consumer.Partition) error {
			if lose {
				p.Lose()
			} else {
				p.Revoke()
			}
			if open.Trusted() == lose {
				t.Errorf("trusted: %t, after Lose: %t", open.Trusted(), lose)
			}
			return context.Cause(ctx)
		})
		noerr.Want(t, err)
	}
}

// A partition that is kept open waits for messages until it is revoked.
func TestKeepOpen(t *testing.T) {
	each(t, func(t *testing.T, run way) {
		p := consumertest.NewPartition(consumertest.Options{KeepOpen: true}, "a")
		c := &collector{}
		done := make(chan error, 1)
		go func() { done <- run(t.Context(), p, c) }()
		time.Sleep(3 * time.Second)
		wantCommitted(t, p, 1) // by the interval
		p.Send("b")
		time.Sleep(3 * time.Second)
		if p.Marked() != 2 {
			t.Errorf("marked %d, want 2", p.Marked())
		}
		p.Revoke()
		if err := <-done; err != nil || !slices.Equal(c.got, []string{"a", "b"}) {
			t.Errorf("got %q, %v", c.got, err)
		}
	})
}

// A handler of Run that returns by itself ends the call with an ErrHandler, with and without an error of its own.
func TestReturnsByItself(t *testing.T) {
	ours := errors.New("out of paper")
	for _, err := range []error{nil, ours} {
		p := consumertest.NewPartition(consumertest.Options{}, "a")
		got := p.Run(t.Context(), func(context.Context, *consumer.Partition) error { return err })
		if !errors.Is(got, consumer.ErrHandler) || err != nil && !errors.Is(got, err) {
			t.Errorf("a handler that returned %v: %v", err, got)
		}
		wantCommitted(t, p, 0)
	}
}

// Several partitions of one session, with marks of Setup and of Cleanup, tokens and metadata.
func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := consumertest.NewPartition(consumertest.Options{ID: 1, Token: 70, Metadata: "before"}, "a0", "a1", "a2")
		b := consumertest.NewPartition(consumertest.Options{ID: 2}, "b0")
		h := &sessionHandler{t: t}
		noerr.Must(t, consumertest.Consume(t.Context(), h, a, b))
		if offset, text := a.Committed(); offset != 3 || text != "done" {
			t.Errorf("committed %d %q", offset, text)
		}
		if offset, text := b.Committed(); offset != 1 || text != "done" {
			t.Errorf("committed %d %q", offset, text)
		}
		h.session.MarkOffset("test", 1, 99, "")
		if late := a.Late(); !slices.Equal(late, []int64{50, 99}) {
			t.Errorf("late marks %v", late)
		}
	})
}

type sessionHandler struct {
	t       *testing.T
	session sarama.ConsumerGroupSession
}

func (h *sessionHandler) Setup(s sarama.ConsumerGroupSession) error {
	h.session = s
	if got := s.Claims()["test"]; !slices.Equal(got, []int32{1, 2}) {
		h.t.Errorf("claims %v", got)
	}
	s.MarkOffset("test", 1, 2, "skipped")
	return nil
}

func (h *sessionHandler) Cleanup(s sarama.ConsumerGroupSession) error {
	s.MarkOffset("test", 1, 50, "too late: its ConsumeClaim has returned, and the session was not ended by it")
	return nil
}

func (h *sessionHandler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	own, ok := consumer.SessionOf(s)
	if !ok || own.Token("test", 1) != 70 && c.Partition() == 1 || !own.Trusted("test", c.Partition()) {
		h.t.Errorf("no session of ours")
	}
	want := map[int32]int64{1: 2, 2: 0}[c.Partition()]
	if c.InitialOffset() != want {
		h.t.Errorf("%d starts at %d, want %d", c.Partition(), c.InitialOffset(), want)
	}
	for m := range c.Messages() {
		if m.Offset != want {
			h.t.Errorf("got offset %d, want %d", m.Offset, want)
		}
		s.MarkMessage(m, "done")
		want++
	}
	return nil
}

// The error of Setup ends the call; nothing is opened.
func TestSetupFails(t *testing.T) {
	p := consumertest.NewPartition(consumertest.Options{}, "a")
	c := &collector{setup: errors.New("no database")}
	if err := consumertest.Consume(t.Context(), c, p); !errors.Is(err, c.setup) || len(c.got) > 0 {
		t.Errorf("got %q, %v", c.got, err)
	}
}

// The end of the context ends a call that would wait, without an error, and a call after that does nothing.
func TestContextEnds(t *testing.T) {
	each(t, func(t *testing.T, run way) {
		p := consumertest.NewPartition(consumertest.Options{KeepOpen: true}, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 {
			c := &collector{}
			if err := run(ctx, p, c); err != nil || len(c.got) > 1 {
				t.Errorf("got %q, %v", c.got, err)
			}
			wantCommitted(t, p, 1)
		}
	})
}

// A handler that ends its caller's context and returns has done what it was asked to.
func TestHandlerEndsTheContext(t *testing.T) {
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		p := consumertest.NewPartition(consumertest.Options{}, "a", "b")
		err := p.Run(ctx, func(_ context.Context, open *consumer.Partition) error {
			for m := range open.Messages() {
				open.Mark(m)
				cancel()
				break
			}
			return nil
		})
		if cancel(); err != nil {
			t.Fatal(err)
		}
		wantCommitted(t, p, 1)
	}
}

// The context does not end under the last message: work under it, and work that goes on when the loop has ended, is marked.
func TestLastMessage(t *testing.T) {
	each(t, func(t *testing.T, run way) {
		p := consumertest.NewPartition(consumertest.Options{}, "a", "b")
		c := &collector{on: func(int, string) { time.Sleep(4 * time.Second) }}
		if err := run(t.Context(), p, c); err != nil || len(c.got) != 2 {
			t.Errorf("got %q, %v", c.got, err)
		}
		wantCommitted(t, p, 2)
	})
	synctest.Test(t, func(t *testing.T) {
		p := consumertest.NewPartition(consumertest.Options{}, "a", "b", "c")
		err := p.Run(t.Context(), func(ctx context.Context, open *consumer.Partition) error {
			var working sync.WaitGroup
			for m := range open.Messages() {
				working.Go(func() {
					select {
					case <-time.After(3 * time.Second):
						open.Done(m)
					case <-ctx.Done():
					}
				})
			}
			working.Wait()
			return nil
		})
		noerr.Want(t, err)
		wantCommitted(t, p, 3)
	})
}

// A panic, or Goexit as of a failed assertion, is an error of the handler, as in a group.
func TestPanicAndGoexit(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("out of paper") }, "Goexit": runtime.Goexit} {
		p := consumertest.NewPartition(consumertest.Options{}, "a")
		if err := p.Run(t.Context(), func(context.Context, *consumer.Partition) error { end(); return nil }); !errors.Is(err, ownership.ErrCallback) || !errors.Is(err, consumer.ErrHandler) {
			t.Errorf("%s: %v", name, err)
		}
		c := &collector{on: func(int, string) { end() }}
		if err := consumertest.Consume(t.Context(), c, p); !errors.Is(err, ownership.ErrCallback) {
			t.Errorf("%s in ConsumeClaim: %v", name, err)
		}
		wantCommitted(t, p, 0)
	}
}

// A ConsumeClaim that returns by itself ends the session of all partitions.
func TestOneEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := consumertest.NewPartition(consumertest.Options{ID: 1, KeepOpen: true}, "a")
		b := consumertest.NewPartition(consumertest.Options{ID: 2, KeepOpen: true})
		c := &collector{on: func(int, string) { runtime.Goexit() }} // b has no message
		if err := consumertest.Consume(t.Context(), &onlyEnds{c}, a, b); !errors.Is(err, ownership.ErrCallback) {
			t.Error(err)
		}
	})
}

// onlyEnds is a collector whose goroutines write nothing when they end.
type onlyEnds struct{ *collector }

func (h *onlyEnds) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		h.on(0, string(m.Value))
		s.MarkMessage(m, "")
	}
	return nil
}

// A revocation before a handler runs revokes the next one.
func TestRevokedBefore(t *testing.T) {
	p := consumertest.NewPartition(consumertest.Options{KeepOpen: true})
	p.Revoke()
	c := &collector{}
	if err := p.Run(t.Context(), c.handle); err != nil || !errors.Is(c.cause, ownership.ErrRevoked) {
		t.Errorf("%v, ended by %v", err, c.cause)
	}
}

// Two partitions of one name are a mistake of the test.
func TestSameNameTwice(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	_ = consumertest.Consume(t.Context(), &collector{}, consumertest.NewPartition(consumertest.Options{}), consumertest.NewPartition(consumertest.Options{}))
}

type valueKey struct{}

// The values of the caller's context are those of the handler's.
func TestValues(t *testing.T) {
	p := consumertest.NewPartition(consumertest.Options{}, "a")
	err := p.Run(context.WithValue(t.Context(), valueKey{}, "kept"), func(ctx context.Context, open *consumer.Partition) error {
		for m := range open.Messages() {
			open.Mark(m)
		}
		if ctx.Value(valueKey{}) != "kept" || open.Context().Value(valueKey{}) != "kept" {
			t.Error("a value is lost")
		}
		return nil
	})
	noerr.Want(t, err)
}
