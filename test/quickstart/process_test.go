package quickstart_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
	"github.com/kielgo/kiel/zktest"
)

// soon is how long a program may take to end once it was told to.
const soon = 5 * time.Second

// process is a program that runs, of which lines are the lines of its standard output.
type process struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr bytes.Buffer
}

// The servers' addresses in the programs of the documentation.
const (
	zookeeperServers = `"zk1:2181", "zk2:2181", "zk3:2181"`
	kafkaServers     = `"kafka1:9092", "kafka2:9092"`
)

// start builds and starts a program of the documentation, in which servers replaces addresses by those of servers of this test.
func start(t *testing.T, name string, servers map[string][]string) *process {
	t.Helper()
	text := programs(t)[name]
	for documented, addresses := range servers {
		if !strings.Contains(text, documented) {
			t.Fatalf("%s has no servers %s:\n%s", name, documented, text)
		}
		text = strings.Replace(text, documented, `"`+strings.Join(addresses, `", "`)+`"`, 1)
	}
	return run(t, text)
}

// run builds and starts a program.
func run(t *testing.T, text string) *process {
	t.Helper()
	folder := module(t, map[string]string{"program": text})
	goCommand(t, folder, "build", "-o", "program.exe", "./program")

	p := &process{cmd: exec.CommandContext(t.Context(), filepath.Join(folder, "program.exe"))}
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(stdout)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// waitFor reads what the program prints up to a line.
func (p *process) waitFor(t *testing.T, line string) {
	t.Helper()
	for p.lines.Scan() {
		if p.lines.Text() == line {
			return
		}
	}
	t.Fatalf("the program never printed %q; it ended with %v\n%s", line, p.cmd.Wait(), &p.stderr)
}

const (
	// open is what a session warns of that has neither credentials nor an ACL, as in programs of the documentation.
	open = "znodes will be open to everybody"
	// byPolicy is what a consumer logs that is the first of its group.
	byPolicy = "new group starts"
)

// terminate sends SIGTERM to the program, which has to end soon, with success, and with nothing in its log but [open], [byPolicy]
// and what else is expected.
func (p *process) terminate(t *testing.T, expected ...string) {
	t.Helper()
	told := time.Now()
	late := time.AfterFunc(4*soon, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for p.lines.Scan() { // to its end, as Wait demands
	}
	err := p.cmd.Wait()
	took := time.Since(told)
	t.Attr("ended-after", took.Round(time.Millisecond).String())
	if err != nil || took > soon {
		t.Errorf("after SIGTERM the program took %v and ended with %v", took, err)
	}
	for line := range strings.Lines(p.stderr.String()) {
		if !slices.ContainsFunc(append(expected, open, byPolicy), func(text string) bool { return strings.Contains(line, text) }) {
			t.Errorf("the program logged %s", line)
		}
	}
}

// The consumer's examples, of which one is the README's quick start with a main function, consume until they are told to end;
// what they have done is committed then.
func TestConsumerProgram(t *testing.T) {
	for _, example := range []string{"consumer/Example", "consumer/ExampleGroup_Run", "consumer/ExamplePartition_Poll"} {
		t.Run(example, func(t *testing.T) { testConsumerProgram(t, example) })
	}
}

func testConsumerProgram(t *testing.T, example string) {
	t.Helper()
	_, zookeeper := zktest.Start(t, zktest.Options{})
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Close()
	produce(t, kafka.ListenAddrs(), "one", "two", "three")

	p := start(t, example, map[string][]string{zookeeperServers: {zookeeper}, kafkaServers: kafka.ListenAddrs()})
	for _, value := range []string{"one", "two", "three"} {
		p.waitFor(t, value)
	}
	p.terminate(t)

	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err = kafka.WaitGroupInfo(ctx, "billing", func(info *kfake.GroupInfo) bool {
		return info != nil && info.Commits["orders"][0].Offset == 3
	})
	if err != nil {
		t.Errorf("what was consumed is not committed: %v", err)
	}
}

// The process of the guide to deploying consumes, and answers the probes and Prometheus.
func TestDeployedProgram(t *testing.T) {
	_, zookeeper := zktest.Start(t, zktest.Options{})
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	noerr.Must(t, err)
	defer kafka.Close()
	produce(t, kafka.ListenAddrs(), "one")
	port := servers.FreePorts(t, 1)[0]
	text := between(t, filepath.Join(root, "docs", "deploying.md"), "```go\n", "```")
	text = strings.NewReplacer(zookeeperServers, strconv.Quote(zookeeper), kafkaServers, strconv.Quote(kafka.ListenAddrs()[0]), "9400", strconv.Itoa(port)).Replace(text)
	t.Setenv("POD_IP", "127.0.0.1")

	p := run(t, text)
	for path, want := range map[string]string{"/readyz": "", "/metrics": `kiel_owned_partitions{group="billing",topic="orders"} 1`, "/status": `"billing"`} {
		wait.Until(t, soon, func() bool {
			resp, err := http.Get("http://127.0.0.1:" + strconv.Itoa(port) + path)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return err == nil && resp.StatusCode == http.StatusOK && strings.Contains(string(body), want)
		}, func() string { return "an answer of " + path })
	}
	p.terminate(t, `"level":"INFO"`)
}

// The example with patterns consumes the topics that match, and no others.
func TestPatternsProgram(t *testing.T) {
	_, zookeeper := zktest.Start(t, zktest.Options{})
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders-eu", "orders-test-1", "orders", "audit"))
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Close()
	for _, topic := range []string{"orders-eu", "orders-test-1", "orders", "audit"} {
		produceTo(t, kafka.ListenAddrs(), topic, "one")
	}
	p := start(t, "consumer/ExampleGroup_Run_patterns", map[string][]string{zookeeperServers: {zookeeper}, kafkaServers: kafka.ListenAddrs()})
	var printed []string // in any order
	for len(printed) < 2 && p.lines.Scan() {
		printed = append(printed, p.lines.Text())
	}
	slices.Sort(printed)
	if !slices.Equal(printed, []string{"audit one", "orders-eu one"}) {
		t.Errorf("printed %q: %s", printed, &p.stderr)
	}
	p.terminate(t)
	if topics := slices.Sorted(maps.Keys(kafka.GroupInfo("billing").Commits)); !slices.Equal(topics, []string{"audit", "orders-eu"}) {
		t.Errorf("topics %q were consumed", topics)
	}
}

// The example with transactions writes the result of each message once.
func TestTransactionsProgram(t *testing.T) {
	_, zookeeper := zktest.Start(t, zktest.Options{})
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "invoices"))
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Close()
	produce(t, kafka.ListenAddrs(), "one", "two", "three")

	p := start(t, "consumer/ExampleGroup_Consume_transactions", map[string][]string{
		zookeeperServers: {zookeeper}, kafkaServers: kafka.ListenAddrs(),
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = kafka.WaitGroupInfo(ctx, "billing", func(info *kfake.GroupInfo) bool {
		return info != nil && info.Commits["orders"][0].Offset == 3
	})
	if err != nil {
		t.Fatalf("the orders are not processed: %v\n%s", err, &p.stderr)
	}
	p.terminate(t)
	produceTo(t, kafka.ListenAddrs(), "invoices", "last")
	if got, want := readCommitted(t, kafka.ListenAddrs(), "invoices", "last"), []string{"for one", "for two", "for three"}; !slices.Equal(got, want) {
		t.Errorf("invoices %q, want %q", got, want)
	}
}

// The program of recipe/README.md, which holds a lock, gives it back and ends when it is told to.
func TestLockProgram(t *testing.T) {
	zk, zookeeper := zktest.Start(t, zktest.Options{})
	p := start(t, readmeOfRecipes, map[string][]string{zookeeperServers: {zookeeper}})
	p.waitFor(t, "working")
	p.terminate(t)
	if left := zk.Children("/app/lock"); len(left) > 0 {
		t.Errorf("the contender is left: %v", left)
	}
}

// The program of recipe/README.md ends at once, and with success, though no server can be reached: the contender goes with the
// session.
func TestLockProgramWithoutServers(t *testing.T) {
	zk, zookeeper := zktest.Start(t, zktest.Options{})
	p := start(t, readmeOfRecipes, map[string][]string{zookeeperServers: {zookeeper}})
	p.waitFor(t, "working")
	zk.Down()
	p.terminate(t, "connection lost", "connection failed")
}

// The program of recipe/README.md ends in the same way while it waits for the lock.
func TestLockProgramThatWaits(t *testing.T) {
	zk, zookeeper := zktest.Start(t, zktest.Options{})
	if err := zk.Create("/app/lock/00000000000000000000000000000000__lock__0000000000", nil); err != nil {
		t.Fatal(err)
	}
	p := start(t, readmeOfRecipes, map[string][]string{zookeeperServers: {zookeeper}})
	wait.Until(t, time.Minute, func() bool { return len(zk.Children("/app/lock")) == 2 }, func() string { return "the program never queued up" })
	p.terminate(t)
	if left := zk.Children("/app/lock"); len(left) > 1 {
		t.Errorf("the contender is left: %v", left)
	}
}

// The programs of the recipes' pages end when they are told to while they hold what the page is about. Here their work lasts
// until its context ends.
func TestRecipesPrograms(t *testing.T) {
	effect := regexp.MustCompile(`(?m)^.*may go on.*$`) // the line with which they say that they work
	all := programs(t)
	for _, name := range []string{
		"recipe/lock/ExampleLock_Acquire",
		"recipe/lock/ExampleLock_Do",
		"recipe/semaphore/ExampleSemaphore_Do",
		"recipe/lease/ExampleNonBlockingLease_Do",
		"recipe/election/ExampleElection_Run",
		"recipe/queue/ExampleLockingQueue_Do",
	} {
		t.Run(path.Base(name), func(t *testing.T) {
			if n := len(effect.FindAllString(all[name], -1)); n != 1 {
				t.Fatalf("%d lines work in\n%s", n, all[name])
			}
			p := run(t, effect.ReplaceAllString(all[name], "$0\nfmt.Println(`holding`)\n<-ctx.Done()"))
			p.waitFor(t, "holding")
			p.terminate(t)
		})
	}
}
