package eventlog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
)

// A moment is the same whenever it is asked for, though the process was stopped while the clocks were compared.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ahead = 1_000_000_000_000
		start, reads := time.Now(), 0
		clock := eventlog.NewClock(func() int64 {
			if reads++; reads%4 == 0 {
				time.Sleep(time.Second) // the process was stopped between two readings
			}
			return ahead + time.Since(start).Nanoseconds()
		})
		moment := time.Now()
		want := ahead + moment.Sub(start).Nanoseconds()
		for range 3 {
			if got := clock.Of(moment); got != want {
				t.Errorf("%d, want %d", got, want)
			}
			time.Sleep(time.Hour)
		}
	})
}
