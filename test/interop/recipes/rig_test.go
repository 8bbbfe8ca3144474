// Package recipes_test has kazoo's recipes and ours meet on the same znodes.
package recipes_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

// rig is a real server, with a session and a Python process.
type rig struct {
	*testing.T
	zk string
	s  *session.Session
	py *python
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, zk: servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: 500 * time.Millisecond}).Addr()}
	r.s = r.session()
	r.py = r.python("python")
	return r
}

func (r *rig) session() *session.Session {
	r.Helper()
	s, err := session.New([]string{r.zk}, session.Options{Timeout: 4 * time.Second, MinSessionTimeout: time.Second})
	if err != nil {
		r.Fatal(err)
	}
	recipetest.Run(r, s)
	return s
}

// must ends the test on an error.
func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// python is a process with objects of kazoo's recipes; see recipes.py.
type python struct {
	*servers.Talker
	rig  *rig
	name string
}

type request struct {
	Object string `json:"object"`
	Make   string `json:"make,omitempty"`
	Call   string `json:"call,omitempty"`
	Get    string `json:"get,omitempty"`
	List   bool   `json:"list,omitempty"`
	Truth  bool   `json:"truth,omitempty"`
	Bytes  string `json:"bytes,omitempty"`

	ListOfBytes []string `json:"list_of_bytes,omitempty"`
	Function    string   `json:"function,omitempty"`
	Thread      bool     `json:"thread,omitempty"`

	Args    []any          `json:"args,omitempty"`
	Kwargs  map[string]any `json:"kwargs,omitempty"`
	Seconds float64        `json:"seconds,omitempty"`
}

type reply struct {
	Value any    `json:"value"`
	Error string `json:"error"`
}

func (r *rig) python(name string) *python {
	r.Helper()
	cmd := exec.Command(servers.Python(r), "recipes.py", r.zk)
	p := &python{servers.Talk(r, name, cmd), r, name}
	p.Out.UseNumber()
	_, err := p.answer()
	r.must(err)
	return p
}

func (p *python) answer() (any, error) {
	var rep reply
	if err := p.Answer(time.Minute, &rep); err != nil {
		return nil, err
	}
	if rep.Error != "" {
		return nil, fmt.Errorf("%s: %s", p.name, rep.Error)
	}
	return rep.Value, nil
}

// do has the process do something, and returns what came of it as text.
func (p *python) do(req request) string {
	p.rig.Helper()
	value, err := p.later(req)()
	p.rig.must(err)
	return value
}

// later has the process do something, and returns how to wait for it.
func (p *python) later(req request) func() (string, error) {
	p.rig.Helper()
	p.rig.must(p.In.Encode(req))
	type result struct {
		value any
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := p.answer()
		done <- result{value, err}
	}()
	return func() (string, error) {
		res := <-done
		return fmt.Sprint(res.value), res.err
	}
}

var (
	guid     = regexp.MustCompile(`[0-9a-f]{32}`)
	sequence = regexp.MustCompile(`[0-9]{10}`)

	timestamp = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}`)
)

// tree returns the znodes below a path, a line for each znode: its name, "e" if it is ephemeral, and its data. GUIDs and sequence
// numbers are masked.
func (r *rig) tree(path string) string {
	r.Helper()
	inc, err := r.s.Incarnation(r.Context())
	r.must(err)
	var lines []string
	var walk func(path, shown string)
	walk = func(at, shown string) {
		data, stat, err := inc.Get(r.Context(), at)
		r.must(err)
		kind := "p"
		if stat.EphemeralOwner != 0 {
			kind = "e"
		}
		line := fmt.Sprintf("%s %s %q", shown, kind, data)
		lines = append(lines, sequence.ReplaceAllString(guid.ReplaceAllString(line, "<guid>"), "<sequence>"))
		children, _, err := inc.Children(r.Context(), at)
		r.must(err)
		for _, child := range children {
			walk(session.Join(at, child), shown+"/"+child)
		}
	}
	walk(path, "")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// same checks that both languages have written the same.
func (r *rig) same(goPath, pythonPath string) {
	r.Helper()
	if ours, theirs := r.tree(goPath), r.tree(pythonPath); ours != theirs {
		r.Errorf("Go wrote\n%s\nPython wrote\n%s", ours, theirs)
	}
}

func (r *rig) want(got, want string) {
	r.Helper()
	if got != want {
		r.Errorf("got %s, want %s", got, want)
	}
}
