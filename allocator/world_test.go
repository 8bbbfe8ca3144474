package allocator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

const (
	group      = "g"
	members    = "/kiel/groups/g/members"
	partitions = "/kiel/groups/g/partitions"

	timeout = 6 * time.Second // of sessions
	settle  = 5 * time.Second // after which nothing may be under way
)

// world is a server and the members on it, in a synctest bubble.
type world struct {
	recipetest.TB
	srv   *zktest.Server
	net   *zktest.Network
	nodes map[string]*node // that run
}

func newWorld(t recipetest.TB) *world {
	t.Helper()
	srv, network := zktest.StartVirtual(t, zktest.Options{})
	w := &world{TB: t, srv: srv, net: network, nodes: make(map[string]*node)}
	t.Cleanup(func() {
		for _, n := range w.nodes {
			n.end()
		}
	})
	return w
}

// inWorld runs a test in a bubble, with a world of its own.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newWorld(t)) })
}

// node is a member with a session of its own.
type node struct {
	*allocator.PartitionAllocator
	w           *world
	client      *zktest.Client
	session     *session.Session
	cancel      context.CancelFunc // of Run
	cancelAfter context.CancelFunc // of the session's Run
	ran         chan error         // what Run returned
	after       chan error         // what the session's Run returned

	mu   sync.Mutex
	told []allocator.Rebalance
	errs []error
}

// start starts a member. Its callbacks are noted, unless opts has others.
func (w *world) start(name string, opts allocator.Options) *node {
	w.Helper()
	n := w.make(name, opts)
	var ctx, after context.Context
	ctx, n.cancel = context.WithCancel(w.Context())
	after, n.cancelAfter = context.WithCancel(context.WithoutCancel(w.Context()))
	go func() { n.after <- n.session.Run(after) }()
	go func() { n.ran <- n.Run(ctx) }()
	w.nodes[name] = n
	return n
}

// pair starts a and b with seeds of topic t, and waits until both are ready.
func (w *world) pair(seedA, seedB []int32) (a, b *node) {
	w.Helper()
	with := func(seed []int32) (opts allocator.Options) {
		if len(seed) > 0 {
			opts.Seed = map[string][]int32{"t": seed}
		}
		return opts
	}
	a, b = w.start("a", with(seedA)), w.start("b", with(seedB))
	a.ready()
	b.ready()
	return a, b
}

func (w *world) make(name string, opts allocator.Options) *node {
	w.Helper()
	n := &node{w: w, client: w.net.Client(name), ran: make(chan error, 1), after: make(chan error, 1)}
	var err error
	n.session, err = session.New([]string{zktest.VirtualAddress}, session.Options{Dial: n.client.Dial, Timeout: timeout})
	noerr.Must(w, err)
	if opts.OnRebalance == nil {
		opts.OnRebalance = func(_ context.Context, r allocator.Rebalance) { n.locked(func() { n.told = append(n.told, r) }) }
	}
	if opts.OnError == nil {
		opts.OnError = func(_ context.Context, err error) { n.locked(func() { n.errs = append(n.errs, err) }) }
	}
	n.PartitionAllocator, err = allocator.New(n.session, group, name, opts)
	noerr.Must(w, err)
	return n
}

func (n *node) locked(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// end stops the member and then its session, and returns what Run returned.
func (n *node) end() error {
	delete(n.w.nodes, n.Member())
	return n.shutDown()
}

func (n *node) shutDown() error {
	n.cancel()
	err := <-n.ran
	n.cancelAfter()
	if err := <-n.after; err != nil {
		n.w.Errorf("session of %s: %v", n.Member(), err)
	}
	return err
}

// crash lets the member fall silent; it is gone when its session has expired.
func (n *node) crash() {
	n.client.BlackHole(zktest.Both)
	delete(n.w.nodes, n.Member())
	go n.shutDown()
}

// ready fails unless the member is ready within a moment.
func (n *node) ready() {
	n.w.Helper()
	ctx, cancel := context.WithTimeout(n.w.Context(), settle)
	defer cancel()
	if err := n.Ready(ctx); err != nil {
		n.w.Fatalf("%s: %v", n.Member(), err)
	}
}

func (n *node) kill() {
	if inc := n.session.Current(); inc != nil {
		n.w.srv.KillSession(inc.SessionID())
	}
}

// failed returns what OnError was told, and forgets it.
func (n *node) failed() (err error) {
	synctest.Wait()
	n.locked(func() { err, n.errs = errors.Join(n.errs...), nil })
	return err
}

// rebalanced returns what OnRebalance was told, and forgets it.
func (n *node) rebalanced() (told []allocator.Rebalance) {
	synctest.Wait()
	n.locked(func() { told, n.told = n.told, nil })
	return told
}

// sleep lets virtual time pass.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// agree fails unless all members that run hold the mapping that the function makes of the given members and partitions, and
// returns it.
func (w *world) agree(fn allocfn.Func, names, items []string) string {
	w.Helper()
	var in allocfn.Input
	slices.Sort(names)
	for _, name := range names {
		in.Members = append(in.Members, allocfn.Member{Name: name})
	}
	in.Partitions, in.Places, _ = kiel.ParsePartitions(items)
	a, err := allocfn.Call(fn, in)
	noerr.Must(w, err)
	want := fmt.Sprint(allocfn.Mapping(in, a))
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		n := w.nodes[name]
		s := n.Snapshot()
		if s == nil || fmt.Sprint(s.Mapping()) != want || s.Func != fn.ID() && len(names) > 0 {
			w.Fatalf("%s: %v\nholds %v\n want %v\nset %s, members %v", name, s, s.Mapping(), want, w.set(), w.srv.Children(members))
		}
		if got, want := fmt.Sprint(n.Allocation()), fmt.Sprint(s.Share(name)); got != want || !s.Joined || s.Err != nil {
			w.Fatalf("%s: owns %s, its share is %s, joined %t, error %v", name, got, want, s.Joined, s.Err)
		}
	}
	return want
}

func (w *world) set() string {
	data, _, _ := w.srv.Get(partitions)
	return string(data)
}

func items(topic string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s:%d", topic, i))
	}
	return all
}

func ids(n int) (all []int32) {
	for i := range n {
		all = append(all, int32(i))
	}
	return all
}

// own is how many partitions a member has.
func (n *node) own() int { return len(n.Snapshot().Mine()) }

func list(ps []kiel.Partition) string {
	var all []string
	for _, p := range ps {
		all = append(all, p.String())
	}
	return strings.Join(all, " ")
}

// decodeSet reads a set as Python does.
func decodeSet(data string) (all []string, err error) {
	if data == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(data), &all)
	return all, err
}
