package sharedset_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
)

// Garbage of another kind each second for a minute is some lines in the log, and one more when it is repaired.
func TestLinesAboutGarbage(t *testing.T) {
	inWorld(t, func(w *world) {
		log := new(logtest.Log)
		w.Write(path, `["t:0"]`)
		s := w.set("a", sharedset.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
		recipetest.Run(w, s)
		for i := range 60 {
			w.Write(path, fmt.Sprintf(`[%d]`, i))
			time.Sleep(time.Second)
		}
		if n := log.Count("level=ERROR", "component=sharedset", "kind=set"); n < 2 || n > 7 || log.Count("msg=failed") != 1 || log.Count("") != n {
			w.Errorf("logged\n%s", log)
		}
		w.Write(path, `["t:0"]`)
		w.waitItems(s, "t:0")
		if log.Count("level=INFO", "msg=recovered", "kind=set", "after=1m0s") != 1 {
			w.Errorf("logged\n%s", log)
		}
	})
}
