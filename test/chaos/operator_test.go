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

// repairBound is how long it may take until what an operator has broken is whole again, with room for a busy machine; what is
// promised is 1 s. It is less than a session timeout, after which members would look again without having been told.
const repairBound = 3 * time.Second

// operator is somebody with a ZooKeeper client of his own.
type operator struct {
	*zk.Conn

	f    *fleet
	root string // of the group
}

type silent struct{}

func (silent) Printf(string, ...any) {}

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
	conn, events, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(silent{}))
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
	if _, err := o.Multi(ops...); err != nil {
		return fmt.Errorf("delete %s: %w", of, err)
	}
	o.f.fault("znode deleted")
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

// stopped lists the partitions whose owner was made to stop after a time.
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
				list = append(list, -1)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// repaired waits until all is owned, and what else is asked for is so, and reports what an operator's deed has caused.
// Only these partitions may have been stopped.
func (f *fleet) repaired(name string, at int64, may []int32, ok func() bool) {
	f.t.Helper()
	f.until(name, func() bool { return f.owned() && (ok == nil || ok()) })
	took := time.Duration(members.Monotonic() - at)
	stopped := f.stopped(at)
	f.t.Attr(name, fmt.Sprintf("%v, whole after %v, stopped %d", f.since(at), ms(took), stopped))
	if took > repairBound {
		f.t.Errorf("%s: whole after %v, want %v at most", name, took, repairBound)
	}
	for _, id := range stopped {
		if !slices.Contains(may, id) {
			f.t.Errorf("%s: partition %d was stopped, only %d may be", name, id, may)
		}
	}
}

// claimedAfter says whether a partition was claimed after a time.
func (f *fleet) claimedAfter(id int32, at int64) bool {
	return slices.ContainsFunc(f.all, func(m *member) bool { return m.held[id] != nil && m.held[id].claimed > at })
}

// Scenario 12: an operator deletes what members rely on.
func TestDeleted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, options{})
	f.startAll(3)
	o := f.operator(sharedZooKeeper(t))
	all := make([]int32, f.opts.partitions)
	for i := range all {
		all[i] = int32(i)
	}
	excuse := func(ids []int32, from int64) { // a claim that somebody else has deleted is free at once
		for _, id := range ids {
			f.exemptOverlap(id, from, from+int64(repairBound))
		}
	}

	for range 2 {
		at := o.remove(o.path("owners", f.partition(3)))
		f.repaired("claim", at, []int32{3}, func() bool { return f.claimedAfter(3, at) })
		excuse([]int32{3}, at)
	}

	at := o.remove(o.path("epochs", f.partition(5)))
	f.repaired("epoch", at, []int32{5}, func() bool { return f.claimedAfter(5, at) })

	set := o.get(o.path("partitions"))
	at = o.remove(o.path("partitions"))
	f.repaired("set", at, nil, func() bool {
		found, _, err := o.Get(o.path("partitions"))
		return err == nil && bytes.Equal(found, set)
	})

	at = o.remove(o.path("members", "m1"))
	f.repaired("member", at, all, func() bool { return o.there("members", "m1") })

	at = o.remove(o.path("members"))
	f.repaired("parent-of-members", at, all, func() bool {
		return o.there("members", "m0") && o.there("members", "m1") && o.there("members", "m2")
	})

	at = o.remove(o.path("owners"))
	f.repaired("parent-of-claims", at, all, func() bool {
		return !slices.ContainsFunc(all, func(id int32) bool { return !f.claimedAfter(id, at) || !o.there("owners", f.partition(id)) })
	})
	excuse(all, at)

	at = o.remove(o.root)
	f.repaired("whole-group", at, all, func() bool {
		return !slices.ContainsFunc(all, func(id int32) bool { return !f.claimedAfter(id, at) || !o.there("owners", f.partition(id)) })
	})
	excuse(all, at)
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
	f := newFleet(t, options{})
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
	t.Attr("garbage", fmt.Sprintf("%v, stopped %d", during, f.stopped(at)))
	if during.rebalances > 0 || len(f.stopped(at)) > 0 {
		t.Errorf("garbage: %v, stopped %d", during, f.stopped(at))
	}
	if found := o.get(o.path("partitions")); !bytes.HasPrefix(found, []byte("\x1f\x8b")) {
		t.Errorf("members have written over what they could not read: %q", found)
	}

	at = write(set)
	f.repaired("repaired", at, nil, func() bool {
		return !slices.ContainsFunc(f.all, func(m *member) bool { return m.countAfter(at, eventlog.Snapshot) == 0 })
	})
	at = write(bytes.Replace(set, []byte(f.partition(11)), []byte(f.partition(12)), 1))
	f.until("the set is followed again", func() bool { return slices.Contains(f.stopped(at), 11) })
	write(set)
	f.settle()
	f.repeatedOnlyAfter(f.finish())
}
