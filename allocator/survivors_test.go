package allocator_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// logged starts a member, and returns it with what it logs at INFO and above.
func (w *world) logged(name string) (*node, *logtest.Log) {
	w.Helper()
	log := new(logtest.Log)
	n := w.start(name, allocator.Options{Seed: map[string][]int32{"t": ids(9)}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	n.ready()
	sleep(time.Minute)
	return n, log
}

func TestSurvivorsLogWhoDied(t *testing.T) {
	inWorld(t, func(w *world) {
		_, a := w.logged("a")
		dead, _ := w.logged("b")
		_, c := w.logged("c")
		before := a.Count("") + c.Count("")
		dead.crash()
		sleep(time.Minute)
		for _, survivor := range []*logtest.Log{a, c} {
			if survivor.Count("level=INFO", "msg=rebalanced", `reason="member-gone b"`, "gone_count=1", "gone=b", "moved=") != 1 {
				w.Errorf("logged\n%s", survivor)
			}
		}
		if lines := a.Count("") + c.Count("") - before; lines != 2 {
			w.Errorf("%d lines:\n%s%s", lines, a, c)
		}
	})
}

func TestGracefulRestartsWarnOfNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		var logs []*logtest.Log
		for range 2 {
			for _, name := range []string{"a", "b", "c"} {
				if n := w.nodes[name]; n != nil {
					noerr.Want(w, n.end())
				}
				_, log := w.logged(name)
				logs = append(logs, log)
			}
		}
		for _, log := range logs {
			if strings.Contains(log.String(), "level=WARN") || strings.Contains(log.String(), "level=ERROR") {
				w.Errorf("logged\n%s", log)
			}
		}
	})
}
