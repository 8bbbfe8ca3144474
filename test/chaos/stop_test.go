package chaos_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// Limits of leaving: where nothing answers a member has 30 s, its StopTimeout, and its process a moment. That is all that is
// promised; else it should be gone at once, or in a second if it has a handshake to give up, and as soon as a busy machine lets
// it.
const (
	leaveBound = 5 * time.Second
	stopBound  = 32 * time.Second
)

// leave asks a process to leave and returns how long it took; an exit code but 0 is an error.
func (m *member) leave(bound time.Duration) time.Duration {
	m.f.t.Helper()
	at := members.Monotonic()
	m.Stop()
	m.over = true
	took := time.Duration(members.Monotonic() - at)
	if took > bound {
		m.f.t.Errorf("%s left after %v, want %v at most", m.Name, took, bound)
	}
	return took
}

// silent returns an address that accepts connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String() // the kernel accepts
}

// Scenario 22: members are asked to leave at any moment.
func TestStopWhileConnecting(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 22, options{})
	refused := fmt.Sprintf("127.0.0.1:%d", servers.FreePorts(t, 1)[0])
	for name, address := range map[string]string{"refused": refused, "silent": silent(t), "unknown-host": "zookeeper.invalid:2181"} {
		f.begin("ZooKeeper "+name, members.Monotonic())
		f.fault("no ZooKeeper")
		f.unnoticed("it leaves before it gives up on the server")
		m := f.start(name, via(address))
		wait.Pass(t, time.Second) // until it is at it
		t.Attr(name, ms(m.leave(leaveBound)).String())
	}
	f.healed()
	f.start("m0")
	f.settle() // there was nothing to own before
	f.repeatedOnlyAfter(f.finish())
}

func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 22, options{})
	f.startAll(2)
	most := time.Duration(0)
	for i := range 12 {
		m := f.start(fmt.Sprintf("newcomer%d", i))
		wait.Until(t, settleLimit, func() bool { // it heeds signals
			_, err := os.Stat(m.Events)
			return err == nil
		}, func() string { return "the process has begun" })
		wait.Pass(t, time.Duration(i)*40*time.Millisecond) // each time it has come a bit further
		most = max(most, m.leave(leaveBound))
	}
	f.settle()
	t.Attr("newcomers", fmt.Sprintf("at most %v", ms(most)))
	f.repeatedOnlyAfter(f.finish())
}

func TestStopInARebalance(t *testing.T) {
	t.Parallel()
	// Handing over takes as long as what a handler has in hand, which it nearly always has: many times the time between two
	// looks.
	f := newFleet(t, 22, options{beat: 400 * time.Millisecond, flags: []string{"--work", "400ms"}})
	f.startAll(3)
	most, within := time.Duration(0), 0
	for i := range 4 {
		begun := members.Monotonic()
		f.start(fmt.Sprintf("m%d", 3+i))
		victim := f.all[i]
		f.until("the rebalance has begun", func() bool {
			_, ok := victim.after(begun, eventlog.Revoking)
			return ok || f.owned() // it has come and gone between two looks
		})
		most = max(most, victim.leave(leaveBound))
		f.settle()
		if victim.revokingAt(victim.asked) {
			within++
		}
	}
	t.Attr("in-a-rebalance", fmt.Sprintf("at most %v; %d of 4 had something to hand over when they were asked to leave", ms(most), within))
	if within == 0 {
		t.Error("nobody was asked to leave while it had something to hand over")
	}
	f.repeatedOnlyAfter(f.finish())
}

// revokingAt says whether a member was about to hand something over at a time: it had been told to, and had not done so.
func (m *member) revokingAt(at int64) bool {
	revoking := map[int32]bool{}
	for _, e := range m.events {
		if e.T > at {
			break
		}
		switch e.Event {
		case eventlog.Revoking:
			revoking[*e.Partition] = true
		case eventlog.Releasing, eventlog.Lost:
			delete(revoking, *e.Partition)
		case eventlog.Untrusted:
			clear(revoking)
		}
	}
	return len(revoking) > 0
}

func TestStopInAHandler(t *testing.T) {
	t.Parallel()
	const work = 2 * time.Second
	f := newFleet(t, 22, options{partitions: 4, beat: 3 * time.Second, flags: []string{"--work", work.String()}})
	m := f.startAll(2)
	took := m[0].leave(work + leaveBound) // both are handling their first messages
	t.Attr("handler-of-2s", ms(took).String())
	f.settle()
	f.repeatedOnlyAfter(f.finish())
}

func TestStopWithoutZooKeeper(t *testing.T) {
	t.Parallel()
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: tick})
	f := newFleet(t, 22, options{zookeeper: zk.Addr()})
	m := f.startAll(4)
	f.fault("all ZooKeeper servers down")
	zk.Kill()
	down := members.Monotonic()
	m[0].Terminate()
	f.until("nobody trusts his session", func() bool { _, ok := m[1].after(down, eventlog.Untrusted); return ok })
	m[1].Terminate()
	asked := members.Monotonic()
	for i, since := range []int64{down, asked} {
		select {
		case <-m[i].Done():
		case <-time.After(stopBound):
			t.Fatalf("%s does not leave: %s", m[i].Name, m[i].Log())
		}
		m[i].over = true
		// It could not take its name from the group, and says so.
		err := m[i].Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(m[i].Log(), `msg="command failed" command=consume`) {
			t.Errorf("%s left with %v: %s", m[i].Name, err, m[i].Log())
		}
		t.Attr([]string{"asked-at-once", "asked-when-untrusted"}[i], ms(time.Duration(members.Monotonic()-since)).String())
	}
	zk.Start()
	f.healed()
	f.settle()
	f.repeatedOnlyAfter(f.finish(), eventlog.Untrusted)
}
