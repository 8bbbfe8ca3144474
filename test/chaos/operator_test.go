package chaos_test

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// aftermath is when whatever comes of a change has come: changes are gathered for a second at most.
const aftermath = 1500 * time.Millisecond

// operator is somebody with a ZooKeeper client of his own.
type operator struct {
	*zk.Conn

	f    *fleet
	root string // of the group
}

type quietLogger struct{}

func (quietLogger) Printf(string, ...any) {}

// operator returns one who is connected until the test ends.
func (f *fleet) operator(zookeeper *servers.ZooKeeper) *operator {
	f.t.Helper()
	o, done := f.visitor(zookeeper.Addrs())
	f.t.Cleanup(done)
	return o
}

// visitor returns one who is connected until done.
func (f *fleet) visitor(addrs []string) (o *operator, done func()) {
	f.t.Helper()
	conn, events, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(quietLogger{}))
	if err != nil {
		f.t.Fatal(err)
	}
	return &operator{Conn: conn, f: f, root: "/kiel/groups/" + f.topic}, func() {
		conn.Close()
		for range events { // until its goroutines have ended
		}
	}
}

func (o *operator) path(elements ...string) string {
	return path.Join(append([]string{o.root}, elements...)...)
}

// tree lists a znode and all below it, children first.
func (o *operator) tree(of string) ([]string, error) {
	names, _, err := o.Children(of)
	if err != nil {
		return nil, fmt.Errorf("children of %s: %w", of, err)
	}
	var list []string
	for _, name := range names {
		below, err := o.tree(of + "/" + name)
		if err != nil {
			return nil, err
		}
		list = append(list, below...)
	}
	return append(list, of), nil
}

// remove deletes a znode and all below it, at once, and returns the time just before.
func (o *operator) remove(of string) int64 {
	o.f.t.Helper()
	var at int64
	var err error
	wait.Until(o.f.t, settleLimit, func() bool { // something may come or go just now
		at = members.Monotonic()
		err = o.tryRemove(of)
		return err == nil
	}, func() string { return err.Error() })
	return at
}

func (o *operator) tryRemove(of string) error {
	paths, err := o.tree(of)
	if err != nil {
		return err
	}
	var ops []any
	for _, p := range paths {
		ops = append(ops, &zk.DeleteRequest{Path: p, Version: -1})
	}
	at := members.Monotonic()
	if _, err := o.Multi(ops...); err != nil {
		return fmt.Errorf("delete %s: %w", of, err)
	}
	o.f.faultAt("znode deleted", at)
	return nil
}

func (o *operator) get(of string) []byte {
	o.f.t.Helper()
	data, _, err := o.Get(of)
	if err != nil {
		o.f.t.Fatalf("%s: %v", of, err)
	}
	return data
}

// stopped lists the partitions whose owner was made to stop after a time; -1 are all of a member.
func (f *fleet) stopped(since int64) []int32 {
	var list []int32
	for _, m := range f.all {
		for _, e := range m.events {
			if e.T <= since {
				continue
			}
			switch e.Event {
			case eventlog.Revoking, eventlog.Lost:
				list = append(list, *e.Partition)
			case eventlog.Untrusted:
				if !f.stalled(e) {
					list = append(list, -1)
				}
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// repairs breaks something, which do does and says when, and waits until all is owned and what else is asked for is so. Only some
// partitions may be stopped by it; the others stay with their owners, under the same claims.
func (f *fleet) repairs(name string, may []int32, do func() int64, ok func(since int64) bool) {
	f.t.Helper()
	bestOf(f.t, name, repairBound, func() time.Duration {
		before := f.tokens()
		at := do()
		f.happens(name, at)
		f.last().name = name
		f.until(name, func() bool { return f.owned() && ok(at) })
		took := time.Duration(members.Monotonic() - at)
		f.noticed() // by who has repaired it
		wait.Pass(f.t, aftermath)
		f.settle()
		stopped := f.stopped(at)
		f.t.Attr(name+"-stopped", fmt.Sprint(stopped))
		for _, id := range stopped {
			if !slices.Contains(may, id) {
				f.t.Errorf("%s: partition %d was stopped, only %d may be", name, id, may)
			}
		}
		for _, m := range f.all {
			for id, token := range before[m.Name] {
				if own := m.held[id]; !slices.Contains(may, id) && (own == nil || own.token != token) {
					f.t.Errorf("%s: partition %d did not stay with %s", name, id, m.Name)
				}
			}
		}
		return took
	})
}

// claimedAfter says whether a partition was claimed after a time.
func (f *fleet) claimedAfter(id int32, at int64) bool {
	return slices.ContainsFunc(f.all, func(m *member) bool { return m.held[id] != nil && m.held[id].claimed > at })
}

// Scenario 12: an operator deletes what members rely on.
func TestDeleted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 12, options{})
	f.startAll(3)
	o := f.operator(sharedZooKeeper(t))
	all, none := f.ids(), []int32{}

	// deleted deletes a znode and all below it, by which the claims of some partitions may go.
	deleted := func(name string, may, claims []int32, ok func(since int64) bool, elements ...string) {
		t.Helper()
		f.repairs(name, may, func() int64 {
			at := o.remove(o.path(elements...))
			for _, id := range claims { // from now on anybody may claim them, and their owners hear of it a moment later
				f.exemptOverlap(id, at, at+int64(f.opts.timeout*2/3))
			}
			return at
		}, ok)
	}
	claimed := func(ids []int32) func(since int64) bool {
		return func(since int64) bool {
			return !slices.ContainsFunc(ids, func(id int32) bool {
				return !f.claimedAfter(id, since) || !o.there("owners", f.partition(id)) || !o.there("epochs", f.partition(id))
			})
		}
	}
	joined := func(names ...string) func(since int64) bool {
		return func(int64) bool {
			return !slices.ContainsFunc(names, func(name string) bool { return !o.there("members", name) })
		}
	}
	three, five := []int32{3}, []int32{5}
	deleted("claim", three, three, claimed(three), "owners", f.partition(3))
	deleted("claim-again", three, three, claimed(three), "owners", f.partition(3))
	deleted("epoch", five, none, claimed(five), "epochs", f.partition(5))
	set := o.get(o.path("partitions"))
	deleted("set", none, none, func(int64) bool {
		found, _, err := o.Get(o.path("partitions"))
		return err == nil && bytes.Equal(found, set)
	}, "partitions")
	deleted("member", f.moved("m1", "m0", "m1", "m2"), none, joined("m1"), "members", "m1")
	deleted("parent-of-members", all, none, joined("m0", "m1", "m2"), "members")
	deleted("parent-of-claims", all, all, claimed(all), "owners")
	deleted("parent-of-epochs", all, none, claimed(all), "epochs")
	deleted("whole-group", all, all, claimed(all))
	f.repeatedOnlyAfter(f.finish(), eventlog.Lost)
}

// there says whether a znode of the group is there.
func (o *operator) there(elements ...string) bool {
	there, _, err := o.Exists(o.path(elements...))
	return err == nil && there
}

// Scenario 13: the set is overwritten by garbage, again and again, then repaired.
func TestGarbage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 13, options{})
	f.startAll(2)
	o := f.operator(sharedZooKeeper(t))
	set := o.get(o.path("partitions"))
	write := func(data []byte) int64 {
		at := members.Monotonic()
		if _, err := o.Set(o.path("partitions"), data, -1); err != nil {
			t.Fatal(err)
		}
		return at
	}

	at := members.Monotonic()
	for _, garbage := range []string{`["orders:0", `, `{"orders": [0, 1]}`, strings.Repeat("[", 100_000), "\x1f\x8b\x08\x00"} {
		f.fault("garbage in the set")
		write([]byte(garbage))
		wait.Pass(t, f.opts.timeout/4) // in which nothing is to happen
	}
	f.settle()
	during := f.since(at)
	if during.rebalances > 0 || len(f.stopped(at)) > 0 {
		t.Errorf("garbage: %v, stopped %d", during, f.stopped(at))
	}
	if found := o.get(o.path("partitions")); !bytes.HasPrefix(found, []byte("\x1f\x8b")) {
		t.Errorf("members have written over what they could not read: %q", found)
	}

	spoilt := true
	f.repairs("repaired", nil, func() int64 {
		if !spoilt {
			write([]byte("["))
			wait.Pass(t, f.opts.timeout/4) // until all have seen it
		}
		spoilt = false
		return write(set)
	}, func(since int64) bool {
		return !slices.ContainsFunc(f.all, func(m *member) bool { return m.countAfter(since, eventlog.Snapshot) == 0 })
	})
	f.measure("followed again", func() {
		at := write(bytes.Replace(set, []byte(f.partition(11)), []byte(f.partition(12)), 1))
		f.until("the set is followed again", func() bool { return slices.Contains(f.stopped(at), 11) })
		write(set)
		f.healed()
	})
	f.repeatedOnlyAfter(f.finish())
}
