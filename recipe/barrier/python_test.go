package barrier_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/zktest"
)

// python is a Python process in a DoubleBarrier: it sends the requests of kazoo's recipe, in their order. Each of its watches is
// good for one event of any kind.
type python struct {
	*zk.Conn
	wg     *sync.WaitGroup
	node   string                  // its name
	before func(step string)       // is called before each request
	ended  map[string]chan error   // of its calls
	cancel context.CancelCauseFunc // ends its waiting at the end of the test
	ctx    context.Context
}

// python returns a Python process whose znode has that name. The process does nothing yet.
func (x *execution) python(node string) *python {
	w := x.world
	w.Helper()
	client := "python " + node
	conn, events, err := zk.Connect([]string{zktest.VirtualAddress}, 10*time.Second, zk.WithLogger(silence{}), zk.WithHostProvider(&oneHost{}),
		zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), timeout)
			defer cancel()
			return w.Net.Client(client).Dial(ctx, network, address)
		}))
	w.Must(err)
	p := &python{Conn: conn, node: node, wg: &x.wg, before: func(string) {}, ended: map[string]chan error{}}
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(w.Context()))
	w.Cleanup(func() {
		p.cancel(errors.New("the test is over"))
		conn.Close()
		for range events { // until the client has ended
		}
	})
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	return p
}

// begin calls enter or leave in the background.
func (p *python) begin(what string, f func() error) {
	done := make(chan error, 1)
	p.ended[what] = done
	p.wg.Go(func() { done <- f() })
}

// over reports whether a call has returned, within a minute.
func (p *python) over(w *world, what string) bool {
	w.Helper()
	select {
	case err := <-p.ended[what]:
		if err != nil {
			w.Errorf("%s: %s: %v", p.node, what, err)
		}
		return true
	case <-time.After(time.Minute):
		return false
	}
}

func (p *python) wait(events <-chan zk.Event, want zk.EventType) error {
	select {
	case e := <-events:
		if e.Type == want {
			return nil
		}
	case <-p.ctx.Done():
		return nil
	}
	<-p.ctx.Done() // the watch is used up
	return nil
}

// enter is kazoo's _inner_enter. The directory exists.
func (p *python) enter(clients int) error {
	p.before("enter: create")
	if _, err := p.Create(path+"/"+p.node, []byte("python"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		return err
	}
	p.before("enter: exists")
	_, _, events, err := p.ExistsW(path + "/ready")
	if err != nil {
		return err
	}
	p.before("enter: children")
	children, _, err := p.Children(path)
	if err != nil {
		return err
	}
	if len(children) < clients {
		p.before("enter: wait")
		return p.wait(events, zk.EventNodeCreated)
	}
	p.before("enter: ready")
	if there, _, err := p.Exists(path + "/ready"); there || err != nil {
		return err
	}
	if _, err := p.Create(path+"/ready", []byte{}, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return err
	}
	return nil
}

// leave is kazoo's leave, which swallows errors, and its _inner_leave.
func (p *python) leave() error {
	p.before("leave: ready")
	if err := p.Delete(path+"/ready", -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	for p.ctx.Err() == nil {
		p.before("leave: children")
		children, _, err := p.Children(path)
		if err != nil {
			return err
		}
		slices.Sort(children)
		switch {
		case len(children) == 0:
			return nil
		case len(children) == 1 && children[0] == p.node:
			return p.Delete(path+"/"+p.node, -1)
		}
		other := children[0]
		if other == p.node {
			other = children[len(children)-1]
		} else if err := p.Delete(path+"/"+p.node, -1); errors.Is(err, zk.ErrNoNode) {
			return nil
		} else if err != nil {
			return err
		}
		p.before("leave: exists")
		there, _, events, err := p.ExistsW(path + "/" + other)
		if err != nil {
			return err
		}
		if there {
			p.before("leave: wait")
			if err := p.wait(events, zk.EventNodeDeleted); err != nil {
				return err
			}
		}
	}
	return nil
}

type silence struct{}

func (silence) Printf(string, ...any) {}

// oneHost is a host provider that sends no DNS requests.
type oneHost struct{ again bool }

func (h *oneHost) Init([]string) error { return nil }
func (h *oneHost) Len() int            { return 1 }
func (h *oneHost) Connected()          { h.again = false }

func (h *oneHost) Next() (string, bool) {
	again := h.again
	h.again = true
	return zktest.VirtualAddress, again
}
