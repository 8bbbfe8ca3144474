package chaos_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/servers"
)

// step breaks something: it says what, how to end it, if it lasts, and whether it could.
type step struct {
	name string
	do   func(x *mix) (what string, end func() bool, ok bool)
}

// steps are what may happen; what is listed twice happens twice as often.
var steps = []step{
	{"kill", (*mix).kill},
	{"crash", (*mix).crash},
	{"leave", (*mix).leave},
	{"join", (*mix).join},
	{"join", (*mix).join},
	{"duplicate", (*mix).duplicate},
	{"freeze", (*mix).freeze},
	{"freeze", (*mix).freeze},
	{"kill server", (*mix).killServer},
	{"kill server", (*mix).killServer},
	{"kill all servers", (*mix).killAllServers},
	{"freeze server", (*mix).freezeServer},
	{"restart server", (*mix).restartServer},
	{"wipe", (*mix).wipe},
	{"cut follower", (*mix).cutFollower},
	{"cut leader", (*mix).cutLeader},
	{"black hole", (*mix).blackHole},
	{"black hole", (*mix).blackHole},
	{"cut", (*mix).cut},
	{"refuse", (*mix).refuse},
	{"slow", (*mix).slow},
	{"lose reply", (*mix).loseReply},
	{"silence", (*mix).silence},
	{"close session", (*mix).closeSession},
	{"delete znode", (*mix).deleteZnode},
	{"delete parent", (*mix).deleteParent},
	{"garbage", (*mix).garbage},
}

func (x *mix) join() (string, func() bool, bool) {
	if len(x.working()) >= mixMost {
		return "", nil, false
	}
	x.names++
	x.begin(fmt.Sprintf("m%d", x.names))
	return fmt.Sprintf("join m%d", x.names), nil, true
}

func (x *mix) begin(name string) *member {
	links := proxy.To(x.t, x.zk.Addrs())
	m := x.start(name, via(join(links.Addrs()...)))
	x.thieves[m] = newThief(m, links, "")
	return m
}

// crash is a member that is killed and started again under the same name, as a supervisor does.
func (x *mix) crash() (string, func() bool, bool) {
	m := x.mortal()
	if m == nil {
		return "", nil, false
	}
	m.Kill()
	x.begin(m.Name)
	return "kill and start " + m.Name, nil, true
}

func (x *mix) kill() (string, func() bool, bool) {
	m := x.mortal()
	if m == nil {
		return "", nil, false
	}
	m.Kill()
	return "kill " + m.Name, nil, true
}

func (x *mix) leave() (string, func() bool, bool) {
	m := x.mortal()
	if m == nil {
		return "", nil, false
	}
	m.Terminate()
	m.over = true
	x.leaving = append(x.leaving, m)
	return "stop " + m.Name, nil, true
}

func (x *mix) freeze() (string, func() bool, bool) {
	m := x.spare()
	if m == nil {
		return "", nil, false
	}
	m.Pause()
	return "freeze " + m.Name, sure(func() { m.Resume() }), true
}

// wipe has the servers start again with nothing.
func (x *mix) wipe() (string, func() bool, bool) {
	if x.broken() {
		return "", nil, false
	}
	x.fault("all data of ZooKeeper lost")
	at := members.Monotonic()
	x.zk.Kill()
	x.wiped = append(x.wiped, eventlog.Span{From: at, To: members.Monotonic() + int64(x.opts.timeout*2/3)})
	x.zk.Wipe()
	return "server data lost", sure(func() {
		for _, n := range x.zk.Nodes() {
			n.Start()
		}
	}), true
}

// server returns one of the servers, more often than not the leader.
func (x *mix) server() (*servers.ZooKeeperNode, string) {
	if leader := x.zk.Leader(); leader != nil && x.rng.IntN(2) == 0 {
		return leader, "leader"
	}
	i := x.rng.IntN(len(x.zk.Nodes()))
	return x.zk.Nodes()[i], fmt.Sprintf("number %d", i+1)
}

func (x *mix) killServer() (string, func() bool, bool) {
	if x.broken() {
		return "", nil, false
	}
	n, who := x.server()
	x.fault("kill -9 of a server")
	n.Kill()
	return "server kill " + who, sure(n.Start), true
}

func (x *mix) restartServer() (string, func() bool, bool) {
	if x.broken() {
		return "", nil, false
	}
	n, who := x.server()
	x.fault("restart of a server")
	n.Stop()
	n.Start()
	return "restart server " + who, nil, true
}

func (x *mix) freezeServer() (string, func() bool, bool) {
	if x.broken() {
		return "", nil, false
	}
	n, who := x.server()
	x.fault("SIGSTOP of a server")
	n.Pause()
	return "server freeze " + who, sure(n.Resume), true
}

func (x *mix) killAllServers() (string, func() bool, bool) {
	if x.broken() {
		return "", nil, false
	}
	nodes := x.zk.Nodes()
	x.rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	nodes = nodes[:2+x.rng.IntN(2)]
	x.fault("quorum away")
	for _, n := range nodes {
		n.Kill()
	}
	return fmt.Sprintf("server kill %d of 3", len(nodes)), sure(func() {
		for _, n := range nodes {
			n.Start()
		}
	}), true
}

func (x *mix) cutFollower() (string, func() bool, bool) {
	leader := x.zk.Leader()
	if x.broken() || leader == nil {
		return "", nil, false
	}
	i := slices.IndexFunc(x.zk.Nodes(), func(n *servers.ZooKeeperNode) bool { return n != leader })
	x.fault("follower cut off")
	x.zk.CutFollower(i)
	return fmt.Sprintf("server cut follower %d", i+1), sure(x.zk.Heal), true
}

func (x *mix) cutLeader() (string, func() bool, bool) {
	if x.broken() || x.zk.Leader() == nil {
		return "", nil, false
	}
	x.fault("leader cut off on one side")
	i := x.zk.CutLeaderOneSide()
	return fmt.Sprintf("server cut leader %d", i+1), sure(x.zk.Heal), true
}

// breaks breaks a member's links and returns what tells whether that has hit something.
type breaks func(m *member, links proxy.Links) (hit func() bool)

// holds breaks links that go on to take in requests.
func holds(do func(proxy.Links)) breaks {
	return func(_ *member, links proxy.Links) func() bool { do(links); return held(links) }
}

// drops breaks links so that connections end.
func (x *mix) drops(do func(proxy.Links)) breaks {
	return func(m *member, links proxy.Links) func() bool {
		at := members.Monotonic()
		do(links)
		soon := time.Second
		if x.insists {
			soon = settleLimit // nothing else can be why
		}
		return m.dropped(links, at, at+int64(soon))
	}
}

// network breaks a member's links until it is healed, unless they are broken already.
func (x *mix) network(what string, do breaks) (string, func() bool, bool) {
	m := x.pick()
	if slices.ContainsFunc(x.lasting, func(l lasting) bool { return strings.HasSuffix(l.what, " of "+m.Name) }) {
		return "", nil, false
	}
	links := x.thieves[m].links
	x.happens(what, members.Monotonic())
	x.strikes = append(x.strikes, strike{what, m, do(m, links)})
	return what + " of " + m.Name, sure(func() { x.heal(m) }), true
}

func (x *mix) blackHole() (string, func() bool, bool) {
	way := []proxy.Direction{proxy.ToServer, proxy.ToClient, proxy.Both}[x.rng.IntN(3)]
	return x.network("black hole", holds(func(ls proxy.Links) { ls.BlackHole(way) }))
}

func (x *mix) refuse() (string, func() bool, bool) {
	return x.network("refusal", x.drops(proxy.Links.Refuse))
}

func (x *mix) silence() (string, func() bool, bool) {
	return x.network("silence", x.drops(func(ls proxy.Links) { ls.Silence(); ls.Cut() }))
}

func (x *mix) slow() (string, func() bool, bool) {
	latency := x.between(50*time.Millisecond, 600*time.Millisecond)
	return x.network("slowness", holds(func(ls proxy.Links) {
		ls.Slow(proxy.Both, proxy.Speed{Latency: latency / 2, Jitter: latency})
	}))
}

func (x *mix) cut() (string, func() bool, bool) {
	what, _, ok := x.network("cut", x.drops(proxy.Links.Cut))
	return what, nil, ok
}

func (x *mix) loseReply() (string, func() bool, bool) {
	what, _, ok := x.network("lost reply", losesReply)
	return what, nil, ok
}

// closeSession ends a member's session behind its back; what it held may have two owners for a moment.
func (x *mix) closeSession() (string, func() bool, bool) {
	leader := x.zk.Leader()
	if x.broken() || leader == nil || len(x.lasting) > 0 {
		return "", nil, false
	}
	m := x.pick()
	th := x.thieves[m]
	th.addr = leader.Addr()
	if !th.close() {
		return "", nil, false // it has none just now
	}
	return "close the session of " + m.Name, nil, true
}

// operate lets an operator do something, if there are servers that answer. His client is a stock one, which would hang for a
// minute in a server that does not.
func (x *mix) operate(do func(*operator) error) bool {
	leader := x.zk.Leader()
	if x.broken() || leader == nil {
		return false
	}
	o, done := x.visitor([]string{leader.Addr()})
	defer done()
	return do(o) == nil
}

// deleteZnode does what an operator should not.
func (x *mix) deleteZnode() (string, func() bool, bool) {
	id := int32(x.rng.IntN(x.opts.partitions))
	switch x.rng.IntN(4) {
	case 0:
		return x.delete([]int32{id}, "owners", x.partition(id)) // the partition is free at once
	case 1:
		return x.delete(nil, "epochs", x.partition(id))
	case 2:
		return x.delete(nil, "members", x.pick().Name)
	default:
		return x.delete(nil, "partitions")
	}
}

// deleteParent does what an operator should not at all.
func (x *mix) deleteParent() (string, func() bool, bool) {
	switch x.rng.IntN(4) {
	case 0:
		return x.delete(x.ids(), "owners")
	case 1:
		return x.delete(nil, "epochs")
	case 2:
		return x.delete(nil, "members")
	default:
		return x.delete(x.ids())
	}
}

// delete deletes a znode of the group and all below it, by which some partitions are free at once.
func (x *mix) delete(free []int32, elements ...string) (what string, end func() bool, ok bool) {
	ok = x.operate(func(o *operator) error {
		at := members.Monotonic()
		if err := o.tryRemove(o.path(elements...)); err != nil {
			return err // it is not there just now
		}
		for _, id := range free {
			x.exemptOverlap(id, at, members.Monotonic()+int64(x.opts.timeout*2/3))
		}
		return nil
	})
	return "delete " + path.Join(append([]string{"…"}, elements...)...), nil, ok
}

// garbage overwrites the set, until it is repaired.
func (x *mix) garbage() (what string, end func() bool, ok bool) {
	var set []byte
	write := func(data []byte) func(*operator) error {
		return func(o *operator) error {
			_, err := o.Set(o.path("partitions"), data, -1)
			return err
		}
	}
	ok = x.operate(func(o *operator) (err error) {
		if set, _, err = o.Get(o.path("partitions")); err != nil {
			return err
		}
		if !json.Valid(set) || len(set) < 10 {
			return errors.New("there is no set to spoil")
		}
		if err = write([]byte(`["half`))(o); err == nil {
			x.fault("garbage in the set")
		}
		return err
	})
	return "garbage in the set", func() bool { return x.operate(write(set)) }, ok
}
