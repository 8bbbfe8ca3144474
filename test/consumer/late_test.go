package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/ownership"
)

// lateCount returns what the group has counted as too late.
func lateCount(t *testing.T, reg *prometheus.Registry, kind string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "kiel_consumer_ignored_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "kind" && l.GetValue() == kind {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	t.Fatalf("nothing counts late ones of kind %q", kind)
	return 0
}

// lastLook is a registry that is looked at a last time before the first of its collectors is unregistered.
type lastLook struct {
	*prometheus.Registry
	once sync.Once
	look func()
}

func (l *lastLook) Unregister(c prometheus.Collector) bool {
	l.once.Do(l.look)
	return l.Registry.Unregister(c)
}

// A handler's error during the end goes to Errors as it is, in sarama's type; after the beginning of Close it is dropped, as by
// sarama, and counted.
func TestErrorsDuringTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(a *member)
		sent bool
	}{
		"ctx":   {func(a *member) { a.stop() }, true},
		"Close": {func(a *member) { _ = a.group.Close() }, false},
	} {
		for _, returned := range []bool{true, false} {
			t.Run(name+", errors "+map[bool]string{true: "returned", false: "logged"}[returned], func(t *testing.T) {
				inRig(t, 2, func(t *testing.T, r *rig) {
					said, reg, n := &logtest.Log{}, &lastLook{Registry: prometheus.NewRegistry()}, 0.0
					reg.look = func() { n = lateCount(t, reg.Registry, "error") }
					a := r.member("a", func(o *consumer.Options) {
						o.Logger = slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
						o.Registerer, o.Config.Consumer.Return.Errors = reg, returned
					})
					a.startWith(watcher{recorder: a.h, late: time.Second, result: func(context.Context) error { return errWork }}, topic)
					until(t, "both are claimed", func() bool { return a.log.holds() == 2 })
					time.Sleep(time.Second)
					c.end(a)
					if err := <-a.done; err != nil {
						t.Errorf("Consume: %v", err)
					}
					a.close()
					sent, logged, late := 0, 0, 2
					if c.sent {
						sent, logged, late = 2, 1, 0 // those of a kind are one line, unless the first partition is given up before the second fails
					}
					if !returned {
						sent = 0
					}
					errs := a.errors()
					if dropped := said.Count("level=DEBUG", "error came too late", errWork.Error()); n != float64(late) || dropped != late {
						t.Errorf("counted %v, and %d lines say so, want %d", n, dropped, late)
					}
					if lines := said.Count("level=ERROR"); len(errs) != sent || lines < logged || lines > 2*logged {
						t.Errorf("reported %v, logged %s", errs, said)
					}
					for _, err := range errs {
						if ce, ok := errors.AsType[*sarama.ConsumerError](err); !ok || ce.Err != errWork { //nolint:errorlint // as it is
							t.Errorf("reported %#v", err)
						}
					}
				})
			})
		}
	}
}

// A mark that comes when its partition is closed, or the call is over, has no effect and is counted.
func TestLateMarks(t *testing.T) {
	for name, start := range map[string]func(a *member, kept chan func()){
		"Consume": func(a *member, kept chan func()) {
			a.h.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) error {
				kept <- func() { s.MarkMessage(m, ""); s.ResetOffset(m.Topic, m.Partition, 0, "") }
				return nil
			}
			a.start()
		},
		"Run": func(a *member, kept chan func()) {
			a.runWith(func(_ context.Context, p *consumer.Partition) error {
				for m := range p.Messages() {
					kept <- func() { p.Mark(m); p.Done(m) }
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				r.produce(1, 0, 1)
				said, reg := &logtest.Log{}, prometheus.NewRegistry()
				a := r.member("a", func(o *consumer.Options) {
					o.Logger = slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
					o.Registerer = reg
				})
				kept := make(chan func(), 2)
				start(a, kept)
				until(t, "both are read", func() bool { return len(kept) == 2 })
				if n := lateCount(t, reg, "mark"); n != 0 {
					t.Errorf("%v late marks during the call", n)
				}
				a.leave()
				(<-kept)()
				(<-kept)()
				if n, lines := lateCount(t, reg, "mark"), said.Count("level=DEBUG", "mark came too late", "partition="+topic+":"); n != 4 || lines != 4 {
					t.Errorf("counted %v, and %d lines say so, want 4", n, lines)
				}
				for p := range int32(2) {
					if at := r.committed(topic, p); at != 0 {
						t.Errorf("committed %d of partition %d", at, p)
					}
				}
				if errs := a.errors(); len(errs) > 0 {
					t.Errorf("reported %v", errs)
				}
			})
		})
	}
}

// Errors of ownership about one partition are of sarama's type, too.
func TestStuckHandlerIsAConsumerError(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		hung := newGate()
		defer hung.open()
		a := r.member("a", func(o *consumer.Options) { o.RebalanceTimeout = 5 * time.Second })
		a.h.ending = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) { hung.wait() }
		a.start()
		until(t, "a has both", func() bool { return len(a.owns()) == 2 })
		b := r.member("b", nil).start()
		until(t, "b has one", func() bool { return len(b.owns()) == 1 })
		hung.open()
		synctest.Wait() // until the handler has returned
		a.leave()
		b.leave()
		errs := a.errors()
		if len(errs) == 0 {
			t.Error("nothing was reported")
		}
		for _, err := range errs {
			if ce, ok := errors.AsType[*sarama.ConsumerError](err); !ok || ce.Topic != topic || !errors.Is(ce.Err, ownership.ErrStuck) {
				t.Errorf("reported %#v", err)
			}
		}
	})
}
