package consumer_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// A handler that stands for a minute is warned of, with its partition and offset, until it goes on; one that works is not.
func TestHandlerThatStandsIsWarnedOf(t *testing.T) {
	said := logtest.Capture(t)
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(20, 0, 1)
		hung := newGate()
		defer hung.open()
		m := r.member("a", nil)
		m.h.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, msg *sarama.ConsumerMessage) error {
			if msg.Partition == 1 && msg.Offset == 7 {
				hung.wait()
			}
			s.MarkMessage(msg, "")
			return nil
		}
		m.start()
		until(t, "it hangs", func() bool { return hung.waiting.Load() == 1 })
		time.Sleep(50 * time.Second)
		if n := said.Count("kind=stands"); n > 0 {
			t.Errorf("warned of too early:\n%s", said)
		}
		time.Sleep(4 * time.Minute)
		if n := said.Count("level=WARN", "kind=stands", "about=t:1", "before offset 8", "since="); n != 1 || said.Count("kind=stands", "about=t:0") > 0 {
			t.Errorf("%d warnings:\n%s", n, said)
		}
		troubles := m.group.Status().Troubles
		if len(troubles) != 1 || troubles[0].Kind != "stands" || strings.Join(troubles[0].About, "") != "t:1" || troubles[0].Until != nil {
			t.Errorf("troubles %+v", troubles)
		}
		hung.open()
		time.Sleep(30 * time.Second)
		if troubles = m.group.Status().Troubles; len(troubles) != 1 || troubles[0].Until == nil {
			t.Errorf("it goes on: troubles %+v", troubles)
		}
		m.leave()
	})
}

// Handlers that stand at the same time are all found in the log, and the trouble began when the first of them began to stand.
func TestHandlersThatStandAtOnce(t *testing.T) {
	said := logtest.Capture(t)
	inRig(t, 8, func(t *testing.T, r *rig) {
		r.produce(3, 0, 1, 2, 3, 4, 5, 6)
		hung := newGate()
		defer hung.open()
		m := r.member("a", nil)
		m.h.each = func(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim, msg *sarama.ConsumerMessage) error {
			hung.wait()
			s.MarkMessage(msg, "")
			return nil
		}
		m.start()
		until(t, "all hang", func() bool { return hung.waiting.Load() == 7 })
		began := time.Now()
		time.Sleep(55 * time.Second)
		r.produce(3, 7)
		time.Sleep(30 * time.Second)
		if n := said.Count("kind=stands"); n != 1 || said.Count("kind=stands", "and marked none: t:", " before offset 1, ", ", 2 more") != 1 {
			t.Errorf("%d lines:\n%s", n, said)
		}
		time.Sleep(time.Minute)
		if n := said.Count("kind=stands"); n != 2 || said.Count("kind=stands", "about=t:7", "and marked none: t:7 before offset 1") != 1 {
			t.Errorf("%d lines:\n%s", n, said)
		}
		troubles := m.group.Status().Troubles
		if len(troubles) != 1 || len(troubles[0].About) != 8 || troubles[0].Since.Sub(began).Abs() > 11*time.Second {
			t.Errorf("they stand since %v, troubles %+v", began, troubles)
		}
		hung.open()
		time.Sleep(30 * time.Second)
		m.leave()
	})
}

// A handler that marks nothing is warned of two minutes after its first message, unless the program stores offsets itself.
func TestHandlerThatMarksNothingIsWarnedOf(t *testing.T) {
	for name, fenced := range map[string]bool{"without Fence": false, "with Fence": true} {
		t.Run(name, func(t *testing.T) {
			said := logtest.Capture(t)
			inRig(t, 2, func(t *testing.T, r *rig) {
				r.produce(5, 0)
				m := r.member("a", func(o *consumer.Options) {
					if fenced {
						o.Fence = func(context.Context, string, int32) error { return nil }
					}
				})
				var got atomic.Int64
				m.h.each = func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim, *sarama.ConsumerMessage) error {
					got.Add(1)
					return nil
				}
				m.start()
				until(t, "it has all", func() bool { return got.Load() == 5 })
				warned := func() int { return said.Count("level=WARN", "kind=unmarked", "about=t:0") }
				time.Sleep(110 * time.Second)
				if warned() > 0 {
					t.Errorf("warned of too early:\n%s", said)
				}
				time.Sleep(3 * time.Minute)
				if want := map[bool]int{false: 1}[fenced]; warned() != want || said.Count("kind=unmarked", "about=t:1") > 0 {
					t.Errorf("%d warnings, want %d:\n%s", warned(), want, said)
				}
				m.leave()
			})
		})
	}
}

// hasty returns at once from ConsumeClaim.
type hasty struct{ *recorder }

func (hasty) ConsumeClaim(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error { return nil }

// A ConsumeClaim that returns nil at once is warned of from the second time in a row on, in which it got no further.
func TestHandlerThatReturnsAtOnceIsWarnedOf(t *testing.T) {
	said := logtest.Capture(t)
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(5, 0)
		m := r.member("a", nil)
		warned := func() int { return said.Count("level=WARN", "kind=handler", "about=t:0") }
		for call := range 10 {
			if err := m.group.Consume(t.Context(), []string{topic}, hasty{m.h}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			if call == 0 && warned() > 0 {
				t.Errorf("warned of at once:\n%s", said)
			}
		}
		if n := warned(); n == 0 || n > 3 {
			t.Errorf("%d warnings in half a minute:\n%s", n, said)
		}
		m.close()
	})
}
