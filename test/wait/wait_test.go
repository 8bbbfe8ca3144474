package wait_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, looks := time.Now(), 0
		wait.Until(t, time.Second, func() bool { looks++; return time.Since(began) >= 500*time.Millisecond }, func() string { return "" })
		if d := time.Since(began); d != 500*time.Millisecond || looks > 30 {
			t.Errorf("%v, %d looks", d, looks)
		}
	})
}

func TestUntilGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, f := time.Now(), &failing{TB: t}
		func() {
			defer func() { _ = recover() }()
			wait.Until(f, time.Second, func() bool { return false }, func() string { return "the reason" })
		}()
		if d := time.Since(began); !strings.Contains(f.said, "the reason") || d < time.Second || d > 2*time.Second {
			t.Errorf("said %q after %v", f.said, d)
		}
	})
}

func TestPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		wait.Pass(t, time.Minute)
		if d := time.Since(began); d != time.Minute {
			t.Error(d)
		}
	})
}

// failing notes what it fails with.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	panic("failed")
}
