// Package chaos_test breaks what a group stands on, one thing at a time and then at random: whole processes against a real
// ensemble of three ZooKeeper servers and a real Kafka. What the processes log of themselves is judged by a program of its own,
// check-events: never two owners, nothing lost, no commit by who does not own.
//
// A scenario is a test: it starts a [fleet], lets it settle, breaks something by way of [fleet.measure], and ends with
// [fleet.finish]. What it measured is reported as attributes of the test. Times must keep what is promised at best of a few, see
// [bound]: there are many more processes than processors; and no try may take longer than what it is told by that something else
// has happened. What must not be at all, two owners or a lost message, must never be, and nobody may lose his trust by the way,
// unless [stalls] tells that the machine stood still in that moment, which must be rare. A fault counts when it has hit
// something, see [strike].
//
// Every scenario reports the same six figures, see [fleet.figures]: how long it took from a fault, and whatever else is an
// [incident], until somebody noticed (detect); from its end, or from the beginning if it does not last, until all was owned for
// good (owned; 0 if it was all the while); how many pairs of owners a partition had at a time (overlap); the messages that were
// handed out again (duplicates) or never (lost); and for how many views each member took or gave up something, from the first
// fault on (rebalances). They are taken from the members' logs, not by hand: a scenario without them fails.
//
// When a member has stopped is known from its own log, for nobody else can tell. Who stops others at the latest moment is not
// believed without more: nothing that it handed out or committed may be later, and the next owner's claim may not be earlier, for
// which check-events looks in all logs, and a message after the end of the ephemeral fails [fleet.stopsBefore] too. Logs are
// written by the clock of the machine, which no test sets wrong: clocks that are wrong tell members when trust ends, not what
// time it is in their logs.
//
// Scenarios have numbers: 1 a session closed by a third party; 2 a member that is cut off, 3 its server; 4 frozen, 5 killed, 6
// leaving, 7 restarted members; ZooKeeper's leader 8 killed and 9 frozen; 10 no quorum; 11 data lost; 12 znodes deleted; 13
// garbage in the set; 14 lost replies; 15 slow networks; 16 wrong clocks; 17 names; 19 refusals; 20 sessions that end again and
// again; 21 useless servers; 22 leaving at any moment; 23 an upgrade from an earlier version, and with -full the way back; 24
// five processes restarted, static ones and others, and static ones beside an earlier version; 28 all at random. For 16 nobody
// but root could change the clock of a process: members live in the test, with clocks of their own. Clocks that are slow or fast,
// and machines that sleep with all that runs on them, are in test/sim ("slow clock", "suspended" …) and in session's
// TestTrustClocks and TestClockJumps. Many members that join at once, 18, are test/stack's TestStormOfJoins.
package chaos_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
)

const (
	timeout = 4 * time.Second        // of sessions: T
	tick    = 500 * time.Millisecond // of servers

	minFaults = 40 // injected by a whole run, at least
)

// Built binaries.
var demo, checker string

// world is what scenarios that leave it alone share: see [sharedZooKeeper] and [sharedKafka].
var world = &packageTB{ctx: context.Background()}

func TestMain(m *testing.M) {
	logtest.Silence()
	flag.Parse()
	parallel() // tests wait most of the time
	dir, err := os.MkdirTemp("", "kiel-chaos-")
	if err == nil {
		demo, err = members.Build(context.Background(), dir)
	}
	if err == nil {
		checker, err = members.BuildChecker(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	endStalls := stalls.start()
	code := m.Run()
	endStalls()
	if err := table.write(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	world.end(code != 0)
	_ = os.RemoveAll(dir)
	if code == 0 {
		code = verdict()
	}
	os.Exit(code)
}

// parallel lets more tests run at a time than there are processors, unless somebody has said how many.
func parallel() {
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if said {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
}

// verdict is what can be said only when all tests have run.
func verdict() int {
	// sarama's meters share a goroutine that never ends.
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")); err != nil {
		fmt.Fprintln(os.Stderr, "goleak:", err)
		return 1
	}
	total, kinds := injected.count()
	fmt.Printf("%d faults injected: %s\n%v\n", total, strings.TrimSuffix(kinds, ", "), &stalls)
	if most := stallsARun + longer(); stalls.excused("") > most {
		fmt.Fprintf(os.Stderr, "want %d excuses at most\n", most)
		return 1
	}
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return 0 // what follows is for whole runs
		}
	}
	if total < minFaults {
		fmt.Fprintf(os.Stderr, "only %d faults were injected, want %d\n", total, minFaults)
		return 1
	}
	if missing := table.missing(); len(missing) > 0 {
		fmt.Fprintf(os.Stderr, "no figures of the scenarios %d\n", missing)
		return 1
	}
	return 0
}

// injected counts the faults that were injected by all scenarios, by kind.
var injected = faultCount{kinds: map[string]int{}}

type faultCount struct {
	mu    sync.Mutex
	kinds map[string]int
}

// add counts a fault.
func (c *faultCount) add(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kinds[kind]++
}

func (c *faultCount) count() (total int, kinds string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(c.kinds)) {
		total += c.kinds[kind]
		kinds += fmt.Sprintf("%d × %s, ", c.kinds[kind], kind)
	}
	return total, kinds
}

// packageTB lets servers live as long as the package's tests instead of one of them: it is a [testing.TB] as far as package
// servers needs one. What would end a test panics; [shared] makes an error of it.
type packageTB struct {
	testing.TB // nil: the methods that are not below

	ctx      context.Context
	mu       sync.Mutex
	cleanups []func()
	failed   bool
}

// fatal is what packageTB panics with.
type fatal string

func (p *packageTB) Helper()                  {}
func (p *packageTB) Context() context.Context { return p.ctx }
func (p *packageTB) Name() string             { return "chaos" }

func (p *packageTB) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func (p *packageTB) Errorf(format string, args ...any) {
	p.Logf(format, args...)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = true
}

func (p *packageTB) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	panic(fatal(fmt.Sprintf(format, args...)))
}

func (p *packageTB) Fatal(args ...any) { p.Fatalf("%s", fmt.Sprintln(args...)) }

func (p *packageTB) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

func (p *packageTB) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

// end runs the cleanups, the newest first.
func (p *packageTB) end(failed bool) {
	p.mu.Lock()
	p.failed = p.failed || failed
	cleanups := p.cleanups
	p.mu.Unlock()
	for _, f := range slices.Backward(cleanups) {
		f()
	}
}

// shared returns what start starts for the whole package; who asks first waits for it.
func shared[T any](start func(testing.TB) T) func(*testing.T) T {
	once := sync.OnceValues(func() (v T, err error) {
		defer func() {
			if r := recover(); r != nil {
				why, ok := r.(fatal)
				if !ok {
					panic(r)
				}
				err = fmt.Errorf("%s", string(why))
			}
		}()
		return start(world), nil
	})
	return func(t *testing.T) T {
		t.Helper()
		v, err := once()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// sharedZooKeeper is an ensemble of three that no scenario may break; sharedKafka a broker.
var (
	sharedZooKeeper = shared(func(tb testing.TB) *servers.ZooKeeper {
		tb.Helper()
		return servers.StartZooKeeper(tb, servers.ZooKeeperOptions{Servers: 3, TickTime: tick})
	})
	sharedKafka = shared(func(tb testing.TB) *servers.Kafka {
		tb.Helper()
		kafka := servers.StartKafka(tb, servers.KafkaOptions{})
		// The first group of all has to wait until there is a place for offsets.
		client, err := sarama.NewClient(kafka.Brokers(), sarama.NewConfig())
		if err != nil {
			tb.Fatal(err)
		}
		defer client.Close()
		begun := time.Now()
		defer func() { tb.Logf("offsets after %v", time.Since(begun)) }()
		for err = sarama.ErrConsumerCoordinatorNotAvailable; errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable); {
			_, err = client.Coordinator("first")
		}
		if err != nil {
			tb.Fatal(err)
		}
		return kafka
	})
)

// startEnsemble starts an ensemble for a scenario that breaks it.
func startEnsemble(t *testing.T, opts servers.ZooKeeperOptions) *servers.ZooKeeper {
	t.Helper()
	opts.Servers = 3
	if opts.TickTime == 0 {
		opts.TickTime = tick
	}
	return servers.StartZooKeeper(t, opts)
}

// logDir makes a folder that stays when the test fails.
func logDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kiel-chaos-logs-") //nolint:usetesting // it has to outlive a test that failed
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the event logs are in", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
