package attacks_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/zktest"
)

// world is a server in memory, seen through several listeners as an ensemble's servers are, and a group on it, in a bubble.
type world struct {
	*group
	srv *zktest.Server
	net *zktest.Network
}

// bubble runs an execution in virtual time.
func bubble(t *testing.T, opts zktest.Options, run func(w *world) *outcome) *outcome {
	t.Helper()
	var o *outcome
	synctest.Test(t, func(t *testing.T) {
		srv, network := zktest.StartVirtual(t, opts)
		began := time.Now()
		now := func() int64 { return time.Since(began).Nanoseconds() + 1 }
		o = run(&world{group: newGroup(t, "g", now), srv: srv, net: network})
	})
	if o == nil {
		t.FailNow()
	}
	return o
}

// listen has the server serve another address.
func (w *world) listen(address string) {
	w.t.Helper()
	l, err := w.net.Listen(address)
	if err != nil {
		w.t.Fatal(err)
	}
	go func() { _ = w.srv.Serve(l) }()
}

// on fills in how a member reaches the servers.
func (w *world) on(name string, o options) options {
	o.dial = w.net.Client(name).Dial
	if o.servers == nil {
		o.servers = []string{zktest.VirtualAddress}
	}
	return o.seeded()
}

// member starts a member.
func (w *world) member(name string, o options) *member {
	w.t.Helper()
	return w.join(name, w.on(name, o))
}

// hold holds back all that a member sends and is sent.
func (w *world) hold(name string) { w.net.Client(name).BlackHole(zktest.Both) }

// heal ends the faults of the network.
func (w *world) heal() {
	w.net.Heal()
	for _, m := range w.members {
		w.net.Client(m.name).Heal()
	}
}

// close heals, waits until all have come to rest, stops all members and judges.
func (w *world) close() *outcome {
	w.heal()
	time.Sleep(20 * time.Second)
	return w.end()
}

// holder returns the session that holds the claim of partition 0, 0 when nobody does.
func (w *world) holder() int64 { return w.owner("owners", "t:0") }

// owner returns the session that owns a znode of the group, 0 when it does not stand.
func (w *world) owner(path ...string) int64 {
	_, stat, ok := w.srv.Get(w.path(path...))
	if !ok {
		return 0
	}
	return stat.EphemeralOwner
}
