package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/ownership"
)

// watcher is a handler that returns when its session's context ends, as that of sarama's example does.
type watcher struct {
	*recorder
	late   time.Duration // after which it returns
	result func(ctx context.Context) error
}

func (h watcher) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-c.Messages():
			if !ok {
				return nil
			}
			h.take(m)
			s.MarkMessage(m, "")
		case <-s.Context().Done():
			time.Sleep(h.late)
			return h.result(s.Context())
		}
	}
}

// loud returns the lines of a log that tell of more than what happened in order. That a new group starts by policy is in order.
func loud(log string) (lines []string) {
	for line := range strings.Lines(log) {
		if byPolicy := strings.Contains(line, "cause=none policy=earliest"); !byPolicy && !strings.Contains(line, "level=INFO") || strings.Contains(line, "err") {
			lines = append(lines, line)
		}
	}
	return lines
}

// A handler that returns because its session ends has ended well, also when its partition is revoked before it returns: it costs
// no error and no line in the log.
func TestGracefulStopIsSilent(t *testing.T) {
	ends := map[string]func(a *member){
		"ctx":   func(a *member) { a.stop() },
		"Close": func(a *member) { _ = a.group.Close() },
	}
	results := map[string]func(ctx context.Context) error{
		"nil":                 func(context.Context) error { return nil },
		"the context's error": func(ctx context.Context) error { return ctx.Err() },
		"wrapped":             func(ctx context.Context) error { return fmt.Errorf("handle: %w", ctx.Err()) },
		"its cause":           context.Cause,
	}
	for how, end := range ends {
		for name, result := range results {
			for _, late := range []time.Duration{0, 900 * time.Millisecond} { // after a second Close names what it waits for
				for _, returned := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s, %s, after %v, errors returned: %v", how, name, late, returned), func(t *testing.T) {
						bubble(t, func(t *testing.T) { stopGracefully(t, watcher{late: late, result: result}, returned, end) })
					})
				}
			}
		}
	}
}

func stopGracefully(t *testing.T, h watcher, returned bool, end func(a *member)) {
	r := newRig(t, 4)
	r.produce(5, 0, 1, 2, 3)
	said := &logtest.Log{}
	a := r.member("a", func(o *consumer.Options) {
		o.Logger = slog.New(slog.NewTextHandler(said, nil))
		o.Config.Consumer.Return.Errors = returned
	})
	h.recorder = a.h
	a.startWith(h, topic)
	until(t, "all is read", func() bool { return a.h.count() == 20 })
	time.Sleep(time.Minute)
	before := len(said.String())
	end(a)
	if err := <-a.done; err != nil {
		t.Errorf("Consume: %v", err)
	}
	if lines := loud(said.String()[before:]); len(lines) > 0 {
		t.Errorf("logged %s", lines)
	}
	a.close()
	if errs := a.errors(); len(errs) > 0 {
		t.Errorf("reported %v", errs)
	}
	for p := range int32(4) {
		if at := r.committed(topic, p); at != 5 {
			t.Errorf("committed %d of partition %d", at, p)
		}
	}
}

// A Cleanup that returns the end of the session's context costs no error and no line either. Consume returns it, as that of
// sarama does.
func TestCleanupReturnsTheEndOfTheContext(t *testing.T) {
	for name, result := range map[string]func(ctx context.Context) error{"the context's error": context.Context.Err, "its cause": context.Cause} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				said := &logtest.Log{}
				a := r.member("a", func(o *consumer.Options) { o.Logger = slog.New(slog.NewTextHandler(said, nil)) })
				a.startWith(ending{a.h, result}, topic)
				until(t, "both are open", func() bool { return len(a.owns()) == 2 })
				before := len(said.String())
				a.stop()
				if err := <-a.done; !errors.Is(err, context.Canceled) {
					t.Errorf("Consume: %v", err)
				}
				if lines := loud(said.String()[before:]); len(lines) > 0 {
					t.Errorf("logged %s", lines)
				}
				if errs := a.errors(); len(errs) > 0 {
					t.Errorf("reported %v", errs)
				}
			})
		})
	}
}

// ending is a handler whose Cleanup returns what result makes of its session's context.
type ending struct {
	*recorder
	result func(context.Context) error
}

func (h ending) Cleanup(s sarama.ConsumerGroupSession) error { return h.result(s.Context()) }

// A ConsumeClaim that returns the end of its claim's context, because the partition is lost, has ended well: it costs no error.
func TestHandlerReturnsTheEndOfItsClaim(t *testing.T) {
	for name, result := range map[string]func(ctx context.Context) error{"the context's error": context.Context.Err, "its cause": context.Cause} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				a := r.member("a", nil)
				var lost atomic.Bool
				h := &sessions{recorder: a.h, claim: func(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
					ctx := c.(consumer.Claim).Context()
					select {
					case <-ctx.Done():
						lost.Store(true)
						return result(ctx)
					case <-s.Context().Done():
						return nil
					}
				}}
				a.startWith(h, topic)
				until(t, "it is open", func() bool { return a.log.count(consumer.Opened) == 1 })
				a.net.Refuse()
				r.zk.CutAll()
				until(t, "it is lost", lost.Load)
				a.net.Heal()
				until(t, "it is open again", func() bool { return a.log.count(consumer.Opened) == 2 })
				a.leave()
				for _, err := range a.errors() {
					if errors.Is(err, context.Canceled) || errors.Is(err, ownership.ErrLost) {
						t.Errorf("reported %v", err)
					}
				}
			})
		})
	}
}

// A member that is stopped at any moment of its start, or while a partition comes to it, says nothing of the end either.
func TestStopAtAnyMomentIsSilent(t *testing.T) {
	for _, other := range []bool{false, true} {
		t.Run(fmt.Sprintf("a hand-over: %v", other), func(t *testing.T) {
			for i := range 40 {
				bubble(t, func(t *testing.T) { stopAfter(t, time.Duration(i)*5*time.Millisecond+time.Duration(i), other) })
			}
		})
	}
}

func stopAfter(t *testing.T, d time.Duration, handOver bool) {
	r := newRig(t, 4)
	r.produce(5, 0, 1, 2, 3)
	said := &logtest.Log{}
	a := r.member("a", func(o *consumer.Options) { o.Logger = slog.New(slog.NewTextHandler(said, nil)) })
	h := watcher{recorder: a.h, result: context.Context.Err}
	if handOver {
		b := r.member("b", nil).start()
		a.startWith(h, topic)
		until(t, "both have two", func() bool { return a.log.holds() == 2 && len(b.owns()) == 2 })
		go b.leave()
	} else {
		a.startWith(h, topic)
	}
	time.Sleep(d)
	before := len(said.String())
	a.leave()
	if lines := loud(said.String()[before:]); len(lines) > 0 {
		t.Errorf("stopped after %v: logged %s", d, lines)
	}
	if errs := a.errors(); len(errs) > 0 {
		t.Errorf("stopped after %v: reported %v", d, errs)
	}
}
