package suite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
)

// bridge has the recipes of this library do what kazoo's tests ask of kazoo's. A process of pytest has a connection, on which
// each request is a line of JSON, and so is its answer. Requests are served at the same time.
type bridge struct {
	mu   sync.Mutex
	made map[string]int // how many objects, by kind
}

// request asks for one call. A kind of object reads those fields that it needs.
type request struct {
	ID      int
	Op      string
	Session string // the name of a session
	Object  string // the name of an object

	Hosts           []string
	Chroot          string
	Kind, Path      string
	Identifier      string
	Patterns, Items []string
	Count           int
	Default, Delta  float64
	Duration, Now   float64 // in seconds
	Block           bool
	Persistent      bool
	Timeout         float64 // in seconds; 0: none
	Values          [][]byte
	Priority        int
}

func (r request) timeout() time.Duration { return time.Duration(r.Timeout * float64(time.Second)) }

// answer is what a call has returned.
type answer struct {
	ID    int    `json:"id"`
	Value any    `json:"value"`
	Error string `json:"error,omitempty"`
	Kind  string `json:"kind,omitempty"` // of the error, as the plugin names kazoo's
}

// object is an object of kazoo's in Go: its methods.
type object map[string]func(ctx context.Context, r request) (any, error)

// errCancelled is the cause of a call's end after kazoo's cancel.
var errCancelled = errors.New("cancelled")

// serveBridge serves a bridge until the test ends, and returns its address.
func serveBridge(t *testing.T) (*bridge, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bridge{made: map[string]int{}}
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			clients.Go(func() { b.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		clients.Wait() // their processes have ended
	})
	return b, l.Addr().String()
}

// peer is one process of pytest: its sessions and objects.
type peer struct {
	bridge *bridge
	life   context.Context // that of the connection
	runs   sync.WaitGroup

	mu       sync.Mutex
	sessions map[string]running
	objects  map[string]object
	waiting  map[string]context.CancelCauseFunc // by object: the acquire that is under way
}

// running is a session and what ends it.
type running struct {
	*session.Session

	stop func()
}

func (b *bridge) serve(conn net.Conn) {
	life, end := context.WithCancel(context.Background())
	p := &peer{
		bridge: b, life: life,
		sessions: map[string]running{}, objects: map[string]object{}, waiting: map[string]context.CancelCauseFunc{},
	}
	defer p.runs.Wait()
	defer end()
	defer func() { _ = conn.Close() }()
	var writing sync.Mutex
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		p.runs.Go(func() {
			a := answer{ID: r.ID}
			var err error
			if a.Value, err = p.do(r); err != nil {
				a.Value, a.Error, a.Kind = nil, err.Error(), kindOf(err)
			}
			line, err := json.Marshal(a)
			if err != nil {
				panic(err)
			}
			writing.Lock()
			defer writing.Unlock()
			_, _ = conn.Write(append(line, '\n'))
		})
	}
}

func kindOf(err error) string {
	for _, k := range []struct {
		err  error
		kind string
	}{
		{errCancelled, "cancelled"},
		{context.DeadlineExceeded, "timeout"},
		{lock.ErrNotAcquired, "refused"},
		{semaphore.ErrNotAcquired, "refused"},
		{queue.ErrEmpty, "refused"},
		{lease.ErrNotObtained, "refused"},
		{semaphore.ErrMaxLeases, "invalid"},
		{queue.ErrPriority, "invalid"},
	} {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	return ""
}

func (p *peer) do(r request) (any, error) {
	switch r.Op {
	case "session":
		return nil, p.connect(r)
	case "new":
		return nil, p.create(r)
	case "stop":
		p.session(r).stop()
		return nil, nil
	case "expire":
		p.session(r).GiveUp(errors.New("the test expires it"))
		return nil, nil
	case "cancel":
		p.mu.Lock()
		defer p.mu.Unlock()
		if cancel := p.waiting[r.Object]; cancel != nil {
			cancel(errCancelled)
		}
		return nil, nil
	}
	p.mu.Lock()
	method := p.objects[r.Object][r.Op]
	p.mu.Unlock()
	if method == nil {
		return nil, fmt.Errorf("object %s has no method %s", r.Object, r.Op)
	}
	ctx, cancel := context.WithCancelCause(p.life)
	defer cancel(nil)
	if r.Op == "acquire" {
		p.mu.Lock()
		p.waiting[r.Object] = cancel
		p.mu.Unlock()
	}
	if r.Timeout > 0 {
		var stop func()
		ctx, stop = context.WithTimeout(ctx, r.timeout())
		defer stop()
	}
	return method(ctx, r)
}

func (p *peer) session(r request) running {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[r.Session]
}

// connect begins the session of a client of kazoo's, and returns when it is connected, as that client is. The session ends with
// the connection at the latest.
func (p *peer) connect(r request) error {
	s, err := session.New(r.Hosts, session.Options{Chroot: r.Chroot, Timeout: 10 * time.Second, StopTimeout: time.Second})
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(p.life)
	p.runs.Go(func() { _ = s.Run(life) })
	p.mu.Lock()
	p.sessions[r.Session] = running{s, stop}
	p.mu.Unlock()
	_, err = s.Incarnation(life)
	return err
}

func (p *peer) create(r request) error {
	kind := kinds()[r.Kind]
	if kind == nil {
		return fmt.Errorf("no recipe %q", r.Kind)
	}
	o, err := kind(p.session(r).Session, r)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.objects[r.Object] = o
	p.mu.Unlock()
	p.bridge.mu.Lock()
	defer p.bridge.mu.Unlock()
	p.bridge.made[r.Kind]++
	return nil
}

// objects returns how many objects of a kind were made.
func (b *bridge) objects(kind string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.made[kind]
}
