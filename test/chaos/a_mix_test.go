package chaos_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

var (
	minutes = flag.Float64("minutes", mixMinutes, "how long the random mix of faults goes on")
	seed    = flag.Uint64("seed", 0, "of the random mix; 0 takes one from the clock")
)

const (
	mixLeast, mixMost = 2, 5 // members
	mixAtOnce         = 2    // faults that last

	calm = 5 * time.Second // in which nothing may happen once everything works again and all is owned

	mixed      = 28 // the number of the scenario
	mixMinutes = 3
)

// mix injects faults at random, of which some last for a while.
type mix struct {
	*fleet

	rng     *rand.Rand
	zk      *proxy.Ensemble
	thieves map[*member]*thief // and their links
	lasting []lasting
	leaving []*member // asked to leave; they can't be told to do so properly while something is broken
	doubles []double
	started time.Time
	names   int
	deck    []step         // those that come next, in random order
	taken   map[string]int // how often, by name

	strikes      []strike       // that have hit nothing yet
	hits, missed map[string]int // by kind
	insists      bool           // nothing is broken but what it breaks until that has hit something
	veteran      *member        // lives through all of it

	recovered []measured // from all faults
}

// lasting is a fault that is to be ended.
type lasting struct {
	what  string
	until time.Time
	end   func() bool // false: it can't be ended just now
}

// sure is the end of what can always be ended.
func sure(end func()) func() bool { return func() bool { end(); return true } }

// next takes the first step that can be taken just now. All are before any of them comes again.
func (x *mix) next() (what string, end func() bool, ok bool) {
	if len(x.deck) < len(steps)/2 {
		more := slices.Clone(steps)
		x.rng.Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
		x.deck = append(x.deck, more...)
	}
	for i, s := range x.deck {
		if what, end, ok = s.do(x); ok {
			x.deck = slices.Delete(x.deck, i, i+1)
			x.taken[s.name]++
			return what, end, true
		}
	}
	return "", nil, false
}

// pick returns one of the members that work.
func (x *mix) pick() *member {
	working := x.working()
	return working[x.rng.IntN(len(working))]
}

// mortal returns one of the members that work and may go for good; nil when there is none.
func (x *mix) mortal() *member {
	if m := x.spare(); m != x.veteran {
		return m
	}
	return nil
}

// spare returns one of the members that work and may be taken away; nil when there are too few.
func (x *mix) spare() *member {
	working := x.working()
	if len(working) <= mixLeast {
		return nil
	}
	m := working[x.rng.IntN(len(working))]
	if x.doubled(m) { // which of the two is to stay is not for us to say
		return nil
	}
	return m
}

// between returns a random duration.
func (x *mix) between(from, to time.Duration) time.Duration {
	return from + time.Duration(x.rng.Int64N(int64(to-from)))
}

// broken says whether a fault of the servers, or between them, goes on: only one does at a time.
func (x *mix) broken() bool {
	return slices.ContainsFunc(x.lasting, func(l lasting) bool { return strings.HasPrefix(l.what, "server") })
}

// run injects faults until time is up.
func (x *mix) run(d time.Duration) {
	x.started = time.Now()
	pause := d / 4
	for rest := x.started.Add(pause); time.Since(x.started) < d; {
		x.expire(time.Now())
		x.resolve()
		x.look()
		x.alive()
		if time.Now().After(rest) {
			x.quiet()
			if d-time.Since(x.started) < pause/4 {
				return // what can still be done is little, and nobody need notice it
			}
			rest = time.Now().Add(pause)
		}
		what, end, ok := x.next()
		if !ok {
			wait.Pass(x.t, 50*time.Millisecond) // until something ends
			continue
		}
		until := x.between(timeout/4, 2*timeout)
		x.say("%s", what)
		if end != nil {
			x.lasting = append(x.lasting, lasting{what: what, until: time.Now().Add(until), end: end})
		}
		for wait.Pass(x.t, x.between(200*time.Millisecond, 1500*time.Millisecond)); len(x.lasting) > mixAtOnce; {
			x.expire(time.Now())
			wait.Pass(x.t, 50*time.Millisecond)
		}
	}
	x.quiet()
}

func (x *mix) say(format string, args ...any) {
	x.t.Logf("%6.2f %s", time.Since(x.started).Seconds(), fmt.Sprintf(format, args...))
}

// expire ends the faults whose time has come.
func (x *mix) expire(now time.Time) {
	x.lasting = slices.DeleteFunc(x.lasting, func(l lasting) bool {
		if now.Before(l.until) || !l.end() {
			return false
		}
		x.say("end of: %s", l.what)
		return true
	})
}

// quiet ends all faults. Then everything must be owned soon, and after that nothing must happen.
func (x *mix) quiet() {
	x.t.Helper()
	wait.Until(x.t, settleLimit, func() bool {
		x.expire(time.Now().Add(time.Hour))
		return len(x.lasting) == 0
	}, func() string { return fmt.Sprintf("end of %v", x.lasting) })
	for _, links := range x.thieves {
		links.links.Heal() // no reply is to be lost any more
	}
	wait.Until(x.t, settleLimit, func() bool {
		return !slices.ContainsFunc(x.zk.Nodes(), func(n *servers.ZooKeeperNode) bool { return n.Mode() == "" })
	}, func() string { return "all servers serve" })
	took, broken := time.Duration(0), x.unsettled // nothing may have come of what was tried
	if broken {
		x.healed()
	}
	x.say("faults off")
	wait.Pass(x.t, aftermath) // what comes of the last one has begun
	x.left()
	wait.Until(x.t, settleLimit, func() bool { x.resolve(); return len(x.doubles) == 0 },
		func() string { return "one of two members with one name gives up: " + x.String() })
	x.settle()
	x.look()
	x.forget()
	if broken {
		x.last().name = fmt.Sprintf("faults until %.0fs", time.Since(x.started).Seconds())
		r := x.measured()
		x.recovered, took = append(x.recovered, r), r.owned
	}
	at := members.Monotonic()
	wait.Pass(x.t, calm)
	x.read()
	if did := unrest(x.working(), at, x.stalled); len(did) > 0 {
		x.t.Errorf("while nothing happens: %s", strings.Join(did, "; "))
	}
	x.say("all is owned after %v, and nothing happened since; %s: %v", ms(took), x.veteran.Name, x.veteran.resources())
}

// left waits for those who were asked to leave. Who could not do so properly ends with an error; nobody panics.
func (x *mix) left() {
	x.t.Helper()
	for _, m := range x.leaving {
		select {
		case <-m.Done():
		case <-time.After(stopBound):
			x.t.Fatalf("%s does not leave:\n%s", m.Name, m.Log())
		}
		var exit *exec.ExitError
		if err := m.Wait(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
			x.t.Errorf("%s left with %v:\n%s", m.Name, err, m.Log())
		}
	}
	x.leaving = nil
}

// Scenario 28: all kinds of faults, at random.
func TestMix(t *testing.T) {
	t.Parallel()
	number := *seed
	if number == 0 {
		number = uint64(time.Now().UnixNano())
	}
	t.Attr("seed", fmt.Sprint(number))
	zk := proxy.StartEnsemble(t, servers.ZooKeeperOptions{TickTime: tick})
	x := &mix{
		// A server that comes back and catches up with the creation of a session gives it its time again, without anybody being
		// told, though its client is dead: who waits for its name has the time for that.
		fleet: newFleet(t, mixed, options{zookeeper: join(zk.Addrs()...), granted: 2 * timeout}),
		rng:   rand.New(rand.NewPCG(number, 0)), zk: zk, thieves: map[*member]*thief{},
		taken: map[string]int{}, hits: map[string]int{}, missed: map[string]int{},
	}
	x.started = time.Now()
	for range 3 {
		x.join()
	}
	x.veteran = x.all[0]
	x.settle()
	young := x.veteran.resources()
	x.run(time.Duration(*minutes * float64(time.Minute)))
	if *minutes >= mixMinutes {
		x.insist()
	}
	old := x.veteran.resources()
	t.Attr("resources", fmt.Sprintf("%v when it had just begun to work, %v at the end", young, old))
	for _, wrong := range old.grown(young) {
		t.Errorf("%s, which has lived through all of it: %s; %v in the beginning", x.veteran.Name, wrong, young)
	}
	crashed(t, "owned-after-all-faults", x.recovered...)
	report := x.finish()
	t.Attr("exempt-overlaps", fmt.Sprint(report.Exempted))
	t.Attr("processes", fmt.Sprint(len(x.all)))
	t.Attr("steps", fmt.Sprint(x.taken))
	t.Attr("strikes", fmt.Sprintf("hit %v, missed %v", x.hits, x.missed))
	for _, s := range steps {
		if x.taken[s.name] == 0 && *minutes >= mixMinutes {
			t.Errorf("%s: never happened", s.name)
		}
	}
	causes := slices.Sorted(maps.Keys(report.Repeated))
	t.Attr("read-again-after", fmt.Sprint(causes))
	x.repeatedOnlyAfter(report, "killed", eventlog.Untrusted, eventlog.Lost)
}
