package history_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// checkTimeout is for how long a history is looked at. Most take less than a millisecond; one of which nothing is known in the
// end has failed.
const checkTimeout = 30 * time.Second

// verdict says what is wrong with a history.
type verdict struct {
	result porcupine.CheckResult
	wrong  []string
	ops    []porcupine.Operation
}

func (v verdict) ok() bool { return v.result == porcupine.Ok && len(v.wrong) == 0 }

// judge checks a subject's history. It is not to be called in a bubble, where no time passes meanwhile.
func (s *subject) judge() verdict {
	ops := s.hist.operations()
	if s.resolve != nil {
		ops = s.resolve(ops)
	}
	if s.narrow != nil && porcupine.CheckOperationsTimeout(s.model, s.narrow(ops), checkTimeout/10) == porcupine.Ok {
		return verdict{porcupine.Ok, s.hist.wrong, ops}
	}
	return verdict{porcupine.CheckOperationsTimeout(s.model, ops, checkTimeout), s.hist.wrong, ops}
}

// report fails the test with what is wrong, a picture of the history, and how to run it again.
func (s *subject) report(t *testing.T, v verdict, again string) {
	t.Helper()
	text := &strings.Builder{}
	fmt.Fprintf(text, "%s: %d operations: %s", s.name, len(v.ops), v.result)
	for _, wrong := range v.wrong {
		fmt.Fprintf(text, "\n  %s", wrong)
	}
	if v.result != porcupine.Ok {
		fmt.Fprintf(text, "\n  the history: %s", s.draw(t, v))
	}
	t.Errorf("%s\n  again: %s", text, again)
}

// draw writes a picture of a history and returns its path.
func (s *subject) draw(t *testing.T, v verdict) string {
	t.Helper()
	dir, err := filepath.Abs("../../out")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err.Error()
	}
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" /", r) {
			return '-'
		}
		return r
	}, "history "+t.Name()+" "+s.name)
	path := filepath.Join(dir, name+".html")
	_, info := porcupine.CheckOperationsVerbose(s.model, v.ops, checkTimeout)
	if err := porcupine.VisualizePath(s.model, info, path); err != nil {
		return err.Error()
	}
	return path
}

// sum is what many histories came to.
type sum struct {
	mu     sync.Mutex
	runs   int
	faults int
	ops    int
	seen   map[string]int // by what happened to which recipe
}

func newSum() *sum { return &sum{seen: map[string]int{}} }

func (s *sum) add(one *subject, v verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops += len(v.ops)
	for what, n := range one.hist.seen {
		s.seen[one.name+": "+what] += n
	}
}

// reached fails the test if something never happened.
func (s *sum) reached(t *testing.T, all ...string) {
	t.Helper()
	for _, what := range all {
		if s.seen[what] == 0 {
			t.Errorf("never happened: %s", what)
		}
	}
}

// often fails the test if something happened less often than it must in each 200 runs.
func (s *sum) often(t *testing.T, least map[string]int) {
	t.Helper()
	for what, n := range least {
		if n = n * s.runs / 200; s.seen[what] < n {
			t.Errorf("%s: %d times, want %d at least", what, s.seen[what], n)
		}
	}
}

// tell tells the figures.
func (s *sum) tell(t *testing.T, took time.Duration) {
	t.Helper()
	t.Attr("runs", fmt.Sprint(s.runs))
	t.Attr("faults", fmt.Sprint(s.faults))
	t.Attr("operations", fmt.Sprint(s.ops))
	t.Attr("runs_per_second", fmt.Sprintf("%.1f", float64(s.runs)/took.Seconds()))
	for _, what := range slices.Sorted(maps.Keys(s.seen)) {
		t.Logf("%s: %d", what, s.seen[what])
	}
}
