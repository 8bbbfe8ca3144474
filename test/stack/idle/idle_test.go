package idle_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/wait"
	"github.com/kielgo/kiel/zktest"
)

// serverEnv makes this program the servers alone, so that what they cost is not counted with the members.
const serverEnv = "KIEL_STACK_SERVER"

// serve runs a ZooKeeper and a Kafka, both in memory, until standard input ends.
func serve() {
	s := &serving{}
	_, zk := zktest.Start(s, zktest.Options{})
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(idleMembers, topic))
	if err != nil {
		s.Fatalf("kfake: %v", err)
	}
	fmt.Println(zk, kafka.ListenAddrs()[0])
	_, _ = io.Copy(io.Discard, os.Stdin)
	kafka.Close()
	for _, f := range s.cleanups {
		f()
	}
}

// serving is a [zktest.TB] without a test.
type serving struct{ cleanups []func() }

func (*serving) Helper()            {}
func (s *serving) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }
func (*serving) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

// servers starts them in a process of their own and returns their addresses.
func servers(t *testing.T) (zk, kafka string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), serverEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("servers: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("servers: %v", err)
	}
	zk, kafka, _ = strings.Cut(strings.TrimSpace(line), " ")
	return zk, kafka
}

const (
	group = "g"
	topic = "t"

	idleMembers = 50
	startLimit  = time.Minute
)

// cost is what a process has.
type cost struct {
	heap       uint64
	stacks     uint64
	goroutines int
}

func measure() cost {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return cost{heap: m.HeapAlloc, stacks: m.StackInuse, goroutines: runtime.NumGoroutine()}
}

// empty waits until nothing is left of the tests before, and returns what there is then.
func empty(t *testing.T) (c cost) {
	t.Helper()
	wait.Until(t, startLimit, func() bool {
		c = measure()
		return c.heap < 8<<20
	}, func() string { return fmt.Sprintf("what ended is freed: %d KiB of heap", c.heap>>10) })
	return c
}

// report prints what each of n members costs, and fails if it is far more than it was.
func (c cost) report(t *testing.T, before cost, n int, mostHeap uint64, mostGoroutines int) {
	t.Helper()
	heap, stacks := (c.heap-before.heap)/uint64(n), (max(c.stacks, before.stacks)-before.stacks)/uint64(n)
	goroutines := float64(c.goroutines-before.goroutines) / float64(n)
	t.Attr("heap_a_member", fmt.Sprintf("%d KiB", heap>>10))
	t.Attr("stacks_a_member", fmt.Sprintf("%d KiB", stacks>>10))
	t.Attr("goroutines_a_member", fmt.Sprintf("%.1f", goroutines))
	if heap > mostHeap {
		t.Errorf("%d bytes of heap a member, allowed are %d", heap, mostHeap)
	}
	if goroutines > float64(mostGoroutines) {
		t.Errorf("%.1f goroutines a member, allowed are %d", goroutines, mostGoroutines)
	}
}

// running is what runs, to be ended again; nothing of it may be held by the test, which would count for the next one.
type running struct {
	t   *testing.T
	zk  string
	end []func()
}

// run runs f until the end.
func (r *running) run(what string, f func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	r.end = append(r.end, func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("%s: %v", what, err)
		}
	})
}

// over ends what runs, the last first.
func (r *running) over() {
	for _, v := range slices.Backward(r.end) {
		v()
	}
	*r = running{}
}

func (r *running) session() *session.Session {
	r.t.Helper()
	s, err := session.New([]string{r.zk}, session.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.run("session", s.Run)
	return s
}

// TestIdleMember measures what a member with one partition costs while it has nothing to do: with a session, an allocator and an
// owner, in one process with 49 others.
func TestIdleMember(t *testing.T) {
	zk, _ := servers(t)
	r := &running{t: t, zk: zk}
	defer r.over()
	before := empty(t)
	var owners []*ownership.Owner
	for i := range idleMembers {
		a, err := allocator.New(r.session(), group, "m"+strconv.Itoa(i), allocator.Options{Seed: seed(idleMembers)})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ownership.New(a, func(ctx context.Context, _ *ownership.Claim) error {
			<-ctx.Done()
			return nil
		}, ownership.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r.run("owner", o.Run)
		owners = append(owners, o)
	}
	wait.Until(t, startLimit, func() bool {
		n := 0
		for _, o := range owners {
			if len(o.Owned()) == 1 {
				n++
			}
		}
		return n == idleMembers
	}, func() string { return "each member owns one partition" })
	wait.Pass(t, 2*time.Second) // heartbeats come and go, what starting took is freed
	measure().report(t, before, idleMembers, 8<<20, 60)
}

// The same with a session alone.
func TestIdleSession(t *testing.T) {
	zk, _ := servers(t)
	r := &running{t: t, zk: zk}
	defer r.over()
	before := empty(t)
	var all []*session.Session
	for range idleMembers {
		all = append(all, r.session())
	}
	wait.Until(t, startLimit, func() bool {
		for _, s := range all {
			if s.Current() == nil {
				return false
			}
		}
		return true
	}, func() string { return "all sessions are trusted" })
	wait.Pass(t, 2*time.Second)
	measure().report(t, before, idleMembers, 4<<20, 20)
}

// idler is a handler that waits for messages that don't come.
type idler struct{ open chan struct{} }

func (idler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (idler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (i idler) ConsumeClaim(_ sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	i.open <- struct{}{}
	for range c.Messages() {
		continue
	}
	return nil
}

// The same with a consumer.Group that has one partition: sarama's client, its fetches and its connections included.
func TestIdleConsumer(t *testing.T) {
	zk, kafka := servers(t)
	r := &running{t: t, zk: zk}
	defer func() {
		r.over()
		wait.Pass(t, 200*time.Millisecond) // until sarama's fetch loops have noticed
	}()
	before := empty(t)
	h := idler{make(chan struct{}, 100*idleMembers)}
	for i := range idleMembers {
		config := sarama.NewConfig()
		config.Version = sarama.V3_6_0_0
		g, err := consumer.New(r.session(), []string{kafka}, "idle", consumer.Options{Name: "m" + strconv.Itoa(i), Config: config})
		if err != nil {
			t.Fatal(err)
		}
		r.run("consume", func(ctx context.Context) (err error) {
			for err == nil && ctx.Err() == nil {
				err = g.Consume(ctx, []string{topic}, h)
			}
			return err
		})
	}
	wait.Until(t, 2*startLimit, func() bool { return len(h.open) >= idleMembers }, func() string {
		return fmt.Sprintf("all partitions are open, of %d", len(h.open))
	})
	wait.Pass(t, 5*time.Second)
	measure().report(t, before, idleMembers, 16<<20, 120)
}

// seed is the first n partitions of the topic.
func seed(n int) map[string][]int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i)
	}
	return map[string][]int32{topic: ids}
}
