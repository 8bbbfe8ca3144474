// Package lock_test shares locks between real kazoo clients and this library.
package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

const path = "/interop/lock"

// rig is a real server and what the clients of both languages share.
type rig struct {
	*testing.T
	zk string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return &rig{t, servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: 500 * time.Millisecond}).Addr()}
}

// session runs a session until the test or the returned function ends it.
func (r *rig) session() (s *session.Session, stop func()) {
	r.Helper()
	s, err := session.New([]string{r.zk}, session.Options{Timeout: 4 * time.Second, MinSessionTimeout: time.Second})
	if err != nil {
		r.Fatal(err)
	}
	return s, recipetest.Run(r, s)
}

func (r *rig) lock(identifier string) *lock.Lock {
	r.Helper()
	s, _ := r.session()
	l, err := lock.New(s, path, lock.Options{Identifier: identifier})
	if err != nil {
		r.Fatal(err)
	}
	return l
}

// python is a process with one of kazoo's locks.
type python struct {
	*servers.Talker
	rig  *rig
	name string
}

type request struct {
	Op    string `json:"op"`
	Times int    `json:"times,omitempty"`
	File  string `json:"file,omitempty"`
}

type reply struct {
	Node       string   `json:"node"`
	Contenders []string `json:"contenders"`
	Error      string   `json:"error"`
}

func (r *rig) python(identifier string) *python {
	r.Helper()
	cmd := exec.Command(servers.Python(r), "locker.py", r.zk, path, identifier)
	p := &python{servers.Talk(r, identifier, cmd), r, identifier}
	if _, err := p.answer(); err != nil {
		r.Fatal(err)
	}
	return p
}

func (p *python) answer() (reply, error) {
	var rep reply
	if err := p.Answer(2*time.Minute, &rep); err != nil {
		return rep, err
	}
	if rep.Error != "" {
		return rep, fmt.Errorf("%s: %s", p.name, rep.Error)
	}
	return rep, nil
}

// do has the process do something and waits for it.
func (p *python) do(req request) reply {
	p.rig.Helper()
	if err := p.In.Encode(req); err != nil {
		p.rig.Fatal(err)
	}
	rep, err := p.answer()
	if err != nil {
		p.rig.Fatal(err)
	}
	return rep
}

// later has the process do something and returns how to wait for it.
func (p *python) later(req request) <-chan error {
	done := make(chan error, 1)
	if err := p.In.Encode(req); err != nil {
		done <- err
		return done
	}
	go func() {
		_, err := p.answer()
		done <- err
	}()
	return done
}

func (r *rig) acquire(l *lock.Lock) *lock.Held {
	r.Helper()
	return r.acquireLater(l)()
}

// acquireLater begins to acquire the lock and returns how to wait for it.
func (r *rig) acquireLater(l *lock.Lock) (wait func() *lock.Held) {
	var h *lock.Held
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		var err error
		h, err = l.Acquire(ctx)
		done <- err
	}()
	return func() *lock.Held {
		r.Helper()
		if err := <-done; err != nil {
			r.Fatal(err)
		}
		return h
	}
}

func (r *rig) release(h *lock.Held) {
	r.Helper()
	if err := h.Release(r.Context()); err != nil {
		r.Error(err)
	}
}

// await waits until the lock has the contenders named, in this order, and that both languages see so.
func (r *rig) await(l *lock.Lock, p *python, want ...string) {
	r.Helper()
	var got []string
	wait.Until(r, 30*time.Second, func() bool {
		list, err := l.Contenders(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		got = got[:0]
		for _, c := range list {
			got = append(got, c.Identifier)
		}
		return slices.Equal(got, want)
	}, func() string { return fmt.Sprintf("contenders %q, want %q", got, want) })
	if p != nil {
		if seen := p.do(request{Op: "contenders"}).Contenders; !slices.Equal(seen, want) {
			r.Errorf("kazoo sees %q, want %q", seen, want)
		}
	}
}

// Both languages queue up in one line and are served in its order.
func TestOneLine(t *testing.T) {
	r := newRig(t)
	observer := r.python("observer")
	p1, p2 := r.python("p1"), r.python("p2")
	g1, g2 := r.lock("g1"), r.lock("gö2")
	node := p1.do(request{Op: "acquire"}).Node
	r.await(g1, observer, "p1")
	if _, err := g1.TryAcquire(t.Context()); !errors.Is(err, lock.ErrNotAcquired) || !strings.Contains(err.Error(), node) || !strings.Contains(err.Error(), `"p1"`) {
		t.Errorf("beside %s: %v", node, err)
	}

	first := r.acquireLater(g1)
	r.await(g1, observer, "p1", "g1")
	second := r.acquireLater(g2)
	r.await(g1, observer, "p1", "g1", "gö2")
	waiting := p2.later(request{Op: "acquire"})
	r.await(g1, observer, "p1", "g1", "gö2", "p2")

	p1.do(request{Op: "release"})
	held := first()
	r.await(g1, observer, "g1", "gö2", "p2")
	r.release(held)
	held = second()
	r.await(g1, observer, "gö2", "p2")
	if rep := p1.do(request{Op: "try"}); rep.Node != "" {
		t.Errorf("kazoo's lock got %s beside %s", rep.Node, held.Node())
	}
	r.await(g1, observer, "gö2", "p2")
	r.release(held)
	if err := <-waiting; err != nil {
		t.Fatal(err)
	}
	r.await(g1, observer, "p2")
	p2.do(request{Op: "release"})
	r.await(g1, observer)
}

// A holder of either language dies; the other one gets the lock.
func TestHolderDies(t *testing.T) {
	r := newRig(t)
	p, l := r.python("p"), r.lock("g")
	p.do(request{Op: "acquire"})
	p.Kill()
	h := r.acquire(l)
	r.await(l, nil, "g")

	q := r.python("q")
	waiting := q.later(request{Op: "acquire"})
	r.await(l, nil, "g", "q")
	select {
	case err := <-waiting:
		t.Fatalf("kazoo has the lock beside us: %v", err)
	default:
	}
	r.release(h)
	if err := <-waiting; err != nil {
		t.Fatal(err)
	}

	// Our process would take its session with it: that is what the end of Run does.
	s, stop := r.session()
	mine, err := lock.New(s, path, lock.Options{Identifier: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := mine.Acquire(t.Context())
		failed <- err
	}()
	r.await(l, nil, "q", "mine")
	stop()
	if err := <-failed; !errors.Is(err, session.ErrClosed) {
		t.Errorf("got %v", err)
	}
	r.await(l, q, "q")
}

// Processes of both languages add to a number in a file, which only the lock protects.
func TestExclusion(t *testing.T) {
	const (
		each  = 40
		peers = 2 // of each language
	)
	r := newRig(t)
	file := filepath.Join(t.TempDir(), "number")
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var waiting []<-chan error
	for i := range peers {
		waiting = append(waiting, r.python(fmt.Sprint("p", i)).later(request{Op: "count", Times: each, File: file}))
	}
	var wg sync.WaitGroup
	var last sync.Mutex
	var token int64
	for i := range peers {
		l := r.lock(fmt.Sprint("g", i))
		wg.Go(func() {
			for range each {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				h, err := l.Acquire(ctx)
				cancel()
				if err != nil {
					t.Error(err)
					return
				}
				last.Lock()
				if h.Token() <= token {
					t.Errorf("token %d after %d", h.Token(), token)
				}
				token = h.Token()
				last.Unlock()
				if err := addOne(t, file); err != nil {
					t.Error(err)
				}
				r.release(h)
			}
		})
	}
	wg.Wait()
	for _, done := range waiting {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != strconv.Itoa(2*peers*each) {
		t.Errorf("counted %s, %v, want %d", data, err, 2*peers*each)
	}
	r.await(r.lock("observer"), nil)
}

// addOne reads the number and, after a moment in which another could, writes the next.
func addOne(t *testing.T, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(data))
	if err != nil {
		return err
	}
	wait.Pass(t, time.Millisecond)
	return os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0o600)
}
