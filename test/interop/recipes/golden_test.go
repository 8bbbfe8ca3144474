package recipes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/wait"
	"github.com/kielgo/kiel/zktest"
)

var update = flag.Bool("update", false, "have kazoo write testdata/golden.json")

const goldenFile = "testdata/golden.json"

// golden is what kazoo 2.11 wrote: for each scenario all znodes, with "e" if they are ephemeral, and their data. GUIDs and the
// ends of leases are masked, sequence numbers are not.
func golden(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]string
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// writer writes what a scenario says with our recipes.
type writer struct {
	*testing.T
	path    string           // where
	s       *session.Session // who
	another *session.Session // and somebody else
	after   []func()
}

// must ends the test on an error.
func (w *writer) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// later has something done in the background that does not end by itself.
func (w *writer) later(f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	w.finally(func() {
		cancel()
		wg.Wait()
	})
}

// finally has something done when the scenario has been looked at.
func (w *writer) finally(f func()) { w.after = append(w.after, f) }

// looker reads what has been written.
type looker struct {
	*testing.T
	s *session.Session
}

// nodes returns the znodes below a path.
func (l looker) nodes(path string) []string {
	l.Helper()
	inc, err := l.s.Incarnation(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	var lines []string
	var walk func(path, shown string)
	walk = func(at, shown string) {
		data, stat, err := inc.Get(l.Context(), at)
		if err != nil {
			return // it has gone meanwhile
		}
		kind := "p"
		if stat.EphemeralOwner != 0 {
			kind = "e"
		}
		line := guid.ReplaceAllString(fmt.Sprintf("%s %s %q", shown, kind, data), "<guid>")
		lines = append(lines, timestamp.ReplaceAllString(line, "<end>"))
		children, _, err := inc.Children(l.Context(), at)
		if err != nil {
			return
		}
		for _, child := range children {
			walk(session.Join(at, child), shown+"/"+child)
		}
	}
	walk(path, "")
	slices.Sort(lines)
	return lines
}

// becomes waits until the znodes below a path are as wanted.
func (l looker) becomes(what, path string, want []string) {
	l.Helper()
	var got []string
	wait.Until(l, 20*time.Second, func() bool {
		got = l.nodes(path)
		return slices.Equal(got, want)
	}, func() string {
		return fmt.Sprintf("%s: wrote\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	})
}

// settles waits until the znodes below a path have not changed for a while.
func (l looker) settles(path string) {
	l.Helper()
	var last []string
	var since time.Time
	wait.Until(l, time.Minute, func() bool {
		now := l.nodes(path)
		if !slices.Equal(now, last) {
			last, since = now, time.Now()
		}
		return time.Since(since) > 3*time.Second
	}, func() string { return "changes all the time" })
}

// write has a scenario written by Go, and checks what has come of it.
func (l looker) write(sc scenario, another *session.Session, want []string) {
	l.Helper()
	w := &writer{T: l.T, path: sc.root("go") + "/at", s: l.s, another: another}
	defer func() {
		for _, f := range slices.Backward(w.after) {
			f()
		}
	}()
	sc.golang(w)
	l.becomes("Go, "+sc.name, sc.root("go"), want)
}

// root is where a language writes a scenario.
func (sc scenario) root(language string) string {
	return "/" + language + "/" + strings.ReplaceAll(sc.name, " ", "-")
}

// asked has Python write scenarios.
func (r *rig) asked(list ...scenario) {
	r.Helper()
	for _, sc := range list {
		for _, req := range sc.python {
			for i, arg := range req.Args {
				if text, ok := arg.(string); ok {
					req.Args[i] = strings.Replace(text, here, sc.root("python")+"/at", 1)
				}
			}
			r.py.do(req)
		}
	}
}

// kazoo and our recipes write, for each scenario, exactly what is checked in. With -update kazoo writes that.
func TestGolden(t *testing.T) {
	r := newRig(t)
	l := looker{t, r.s}
	if *update {
		r.asked(scenarios()...)
		l.record()
		return
	}
	all := golden(t)
	another := r.session()
	for _, sc := range scenarios() {
		r.asked(sc)
		l.becomes("Python, "+sc.name, sc.root("python"), all[sc.name])
		l.write(sc, another, all[sc.name])
	}
}

// record writes down what Python has written.
func (l looker) record() {
	l.Helper()
	l.settles("/python")
	all := make(map[string][]string)
	for _, sc := range scenarios() {
		all[sc.name] = l.nodes(sc.root("python"))
		if len(all[sc.name]) < 2 {
			l.Errorf("%s: nothing was written", sc.name)
		}
	}
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(all); err != nil {
		l.Fatal(err)
	}
	if err := os.WriteFile(goldenFile, data.Bytes(), 0o644); err != nil {
		l.Fatal(err)
	}
}

// Without servers and without Python: our recipes write what is checked in.
func TestGoldenInMemory(t *testing.T) {
	all := golden(t)
	names := make(map[string]bool)
	for _, sc := range scenarios() {
		names[sc.name] = true
	}
	for name := range all {
		if !names[name] {
			t.Errorf("a scenario that is not there: %s", name)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		_, nw := zktest.StartVirtual(t, zktest.Options{})
		l, another := looker{t, recipetest.Session(t, nw, "one")}, recipetest.Session(t, nw, "another")
		for _, sc := range scenarios() {
			l.write(sc, another, all[sc.name])
		}
	})
}
