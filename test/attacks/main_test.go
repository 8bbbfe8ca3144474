package attacks_test

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/defaultlog/logtest"
	"github.com/kielgo/kiel/internal/sabotage"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	if config := os.Getenv(childEnv); config != "" {
		if err := beChild(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if code == 0 && flag.Lookup("test.run").Value.String() == "" {
			code = rules.check()
		}
		os.Exit(code)
	}))
}

// rules notes which rules were switched off: each there is must have been.
var rules used

type used struct {
	mu  sync.Mutex
	off map[sabotage.Rule]bool
}

func (u *used) note(off []sabotage.Rule) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.off == nil {
		u.off = map[sabotage.Rule]bool{}
	}
	for _, r := range off {
		u.off[r] = true
	}
}

func (u *used) check() (code int) {
	for r := range sabotage.StuckLosesClaim + 1 {
		if !u.off[r] {
			fmt.Fprintf(os.Stderr, "rule %d of internal/sabotage was never switched off\n", r)
			code = 1
		}
	}
	return code
}
