package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
)

// Close that is called from the program's code waits for itself. After a second the log says so and names that code; in the end
// the error of Close does, too.
func TestCloseWithinTheProgramsCode(t *testing.T) {
	const advice = "must not be called from it"
	for name, start := range map[string]func(a *member, end func()){
		"handler of t:0": func(a *member, end func()) {
			a.runWith(func(context.Context, *consumer.Partition) error { end(); return nil })
		},
		"Setup": func(a *member, end func()) {
			a.startWith(settingUp{a.h, end}, topic)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				var said lines
				a := r.owning("a", func(o *consumer.Options) {
					logAll(&said, o)
					o.Observer, o.StopTimeout = nil, 10*time.Second
				})
				closed := make(chan error, 1)
				start(a, func() { closed <- a.group.Close() })
				time.Sleep(2 * time.Second)
				loud := slices.DeleteFunc(loudLines(said.take()), func(line string) bool { return !strings.Contains(line, "Close") })
				if len(loud) != 1 || !strings.Contains(loud[0], name) || !strings.Contains(loud[0], advice) {
					t.Errorf("the log says %q", loud)
				}
				if err := <-closed; !errors.Is(err, ownership.ErrStuck) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), advice) {
					t.Errorf("Close: %v", err)
				}
				if err := <-a.done; !errors.Is(err, ownership.ErrStuck) {
					t.Errorf("the call returned %v", err)
				}
			})
		})
	}
}

// settingUp is a handler that calls a function in Setup.
type settingUp struct {
	*recorder
	end func()
}

func (h settingUp) Setup(sarama.ConsumerGroupSession) error {
	h.end()
	return nil
}

// Close that waits for a handler which then returns is no error, and quick handlers cause no line.
func TestCloseWaitsForHandlers(t *testing.T) {
	for name, slow := range map[string]time.Duration{"quick": 900 * time.Millisecond, "slow": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				var said lines
				a := r.member("a", func(o *consumer.Options) { logAll(&said, o) })
				a.runWith(func(_ context.Context, p *consumer.Partition) error {
					for range p.Messages() {
					}
					time.Sleep(slow)
					return nil
				})
				time.Sleep(5 * time.Second)
				if err := a.group.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				if n, want := count(said.take(), "Close waits"), map[string]int{"slow": 1}[name]; n != want {
					t.Errorf("%d lines, want %d", n, want)
				}
				if err := <-a.done; err != nil {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}
