package pause_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/pause"
)

// A context of Outlast ends as long as it was told to after its parent, or when it is stopped. It has the parent's values.
func TestOutlast(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancelCause(context.WithValue(t.Context(), key{}, 1))
		late, stop := pause.Outlast(ctx, time.Hour)
		defer stop()
		stopped, stopNow := pause.Outlast(ctx, time.Hour)
		time.Sleep(time.Minute)
		stopNow()
		if stopped.Err() == nil {
			t.Error("not stopped")
		}
		time.Sleep(24 * time.Hour)
		end(errEnd)
		began := time.Now()
		<-late.Done()
		if cause := context.Cause(late); time.Since(began) != time.Hour || !errors.Is(cause, context.DeadlineExceeded) || late.Value(key{}) != 1 {
			t.Errorf("ended after %v by %v, value %v", time.Since(began), cause, late.Value(key{}))
		}
	})
}

// several is an error that can't be compared.
type several []error

func (several) Error() string { return "several" }

// sarama is an error that wraps others and has a method Is, as sarama.Wrap returns it.
type sarama []error

func (sarama) Error() string { return "wrapped" }

func (s sarama) Unwrap() []error { return s }

func (s sarama) Is(target error) bool { return errors.Is(errors.Join(s...), target) }

// OnlyEnd is true for the error and the cause of a context that has ended, also when wrapped, and not when another error is with
// them.
func TestOnlyEnd(t *testing.T) {
	errWork := errors.New("the work failed")
	ended, end := context.WithCancelCause(t.Context())
	end(errEnd)
	_, netErr := new(net.Dialer).DialContext(ended, "tcp", "127.0.0.1:1") // an error with a method Is
	if netErr == nil {
		t.Fatal("dialled")
	}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"nil":               {nil, false},
		"the error":         {context.Canceled, true},
		"the cause":         {errEnd, true},
		"wrapped":           {fmt.Errorf("work: %w", context.Canceled), true},
		"wrapped cause":     {fmt.Errorf("work: %w", errEnd), true},
		"of a connection":   {netErr, true},
		"another":           {errWork, false},
		"another context's": {context.DeadlineExceeded, false},
		"joined":            {errors.Join(errWork, context.Canceled), false},
		"joined cause":      {fmt.Errorf("%w: %w", errWork, errEnd), false},
		"joined ends":       {errors.Join(context.Canceled, nil, fmt.Errorf("close: %w", errEnd)), true},
		"of Kafka's client": {sarama{errWork, context.Canceled}, false},
		"not comparable":    {several{errEnd}, false},
		"joined nothing":    {sarama{}, false},
	} {
		if got := pause.OnlyEnd(ended, test.err); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		if pause.OnlyEnd(t.Context(), test.err) {
			t.Errorf("%s: says that a context has ended that lasts", name)
		}
	}
}
