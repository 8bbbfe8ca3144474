package chaos_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// rate counts what count counts, over a while that begins after the first moments.
func rate(t *testing.T, count func() int) float64 {
	t.Helper()
	wait.Pass(t, 9*time.Second) // pauses grow for 8 s
	before, begun := count(), time.Now()
	wait.Pass(t, 5*time.Second)
	return float64(count()-before) / time.Since(begun).Seconds()
}

// patient says that something refused is tried, and not all the time.
func patient(t *testing.T, what string, perSecond float64) {
	t.Helper()
	t.Attr(what, fmt.Sprintf("%.1f attempts a second", perSecond))
	if perSecond > 2 {
		t.Errorf("%s: %.1f attempts a second, want 2 at most", what, perSecond)
	}
	if perSecond == 0 {
		t.Errorf("%s: nothing is tried", what)
	}
}

// refused waits until a process has ended because of what can't get better, which it says.
func (m *member) refused(says string) {
	m.f.t.Helper()
	m.down, m.over = true, true
	select {
	case <-m.Done():
	case <-time.After(settleLimit):
		m.f.t.Fatalf("%s goes on: %s", m.Name, m.Log())
	}
	if err := m.Wait(); err == nil || !strings.Contains(m.Log(), says) {
		m.f.t.Errorf("%s ended with %v, want it to say %q: %s", m.Name, err, says, m.Log())
	}
}

// Scenario 19: the server has too many connections of this address.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	zookeeper := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: tick, Config: map[string]string{"maxClientCnxns": "3"}})
	f := newFleet(t, 19, options{zookeeper: zookeeper.Addr()})
	m := f.startAll(3)
	f.fault("too many connections")
	fourth := f.start("m3")
	fourth.paused = true // it can own nothing
	patient(t, "connections", rate(t, func() int { return strings.Count(zookeeper.Nodes()[0].Log(), "Too many connections") }))
	if !strings.Contains(fourth.Log(), "connection failed") {
		t.Errorf("it says nothing: %s", fourth.Log())
	}
	f.settle()
	fourth.paused = false
	f.measure("let-in", m[0].Stop)
	f.repeatedOnlyAfter(f.finish())
}

// Scenario 19: the servers want credentials, and a member has none.
func TestNoCredentials(t *testing.T) {
	t.Parallel()
	zookeeper := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: tick, Config: map[string]string{
		"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest",
	}})
	f := newFleet(t, 19, options{})
	f.startAll(1)
	f.fault("credentials missing")
	f.start("m1", via(zookeeper.Addr())).refused("the servers demand other credentials")
	f.noticed() // by who is refused
	f.settle()
	f.repeatedOnlyAfter(f.finish())
}

// Scenario 19: others own the group's znodes, all of them or those of claims.
func TestNoPermission(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 19, options{})
	o := f.operator(sharedZooKeeper(t))
	everything := zk.WorldACL(zk.PermAll)
	create := func(path string, acl []zk.ACL) {
		if _, err := o.Create(path, nil, 0, acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatal(err)
		}
	}
	create("/kiel", everything)
	create("/kiel/groups", everything)
	readOnly := append(zk.WorldACL(zk.PermRead|zk.PermAdmin), zk.DigestACL(zk.PermAll, "owner", "secret")...)
	create(o.root, readOnly)
	f.fault("no permission")
	f.start("m0").refused("not allowed by the acl")
	f.noticed() // by who is refused

	if _, err := o.SetACL(o.root, everything, -1); err != nil {
		t.Fatal(err)
	}
	create(o.path("owners"), readOnly)
	f.fault("no permission")
	m := f.start("m1", with("--verbose")) // which shows each error, and not some with a count
	attempt := regexp.MustCompile(`(?m)^.* msg="error of the group" .*consumer: claim`)
	tried := func() int { return len(attempt.FindAllString(m.Log(), -1)) }
	patient(t, "each-claim", rate(t, tried)/float64(f.opts.partitions))
	f.healed()
	if _, err := o.SetACL(o.path("owners"), everything, -1); err != nil {
		t.Fatal(err)
	}
	f.settle()
	f.repeatedOnlyAfter(f.finish())
}
