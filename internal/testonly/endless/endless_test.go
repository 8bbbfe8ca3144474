package endless_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/endless"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContexts(t *testing.T) {
	all := endless.Contexts(t)
	if len(all) != 3 {
		t.Errorf("%d contexts", len(all))
	}
	for name, ctx := range all {
		if ctx.Done() != nil || ctx.Err() != nil {
			t.Errorf("%s can end", name)
		}
	}
}
