package alerts_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

var full = flag.Bool("full", false, "a real Prometheus scrapes real members through faults, for some minutes")

// A fleet is a group of processes that a Prometheus scrapes.
type fleet struct {
	t     *testing.T
	bin   string
	zk    *servers.ZooKeeper
	kafka *servers.Kafka
	*scraper
	targets map[string]string
	all     []*servers.Process
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	bin, err := members.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{
		t: t, bin: bin, scraper: startPrometheus(t), targets: map[string]string{},
		zk: servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: 500 * time.Millisecond}),
		// Or it looks for members of Kafka's own groups, which there are none of, for half of the test.
		kafka: servers.StartKafka(t, servers.KafkaOptions{}),
	}
	f.kafka.CreateTopic("orders", 6)
	f.kafka.CreateTopic("extra", 2)
	return f
}

// start starts a member and has it scraped.
func (f *fleet) start(name string, args ...string) *servers.Process {
	f.t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", servers.FreePorts(f.t, 1)[0])
	cmd := exec.CommandContext(context.WithoutCancel(f.t.Context()), f.bin, append([]string{
		"consume", "--zookeeper", f.zk.Addr(), "--kafka", f.kafka.Brokers()[0], "--group", "g", "--name", name, "--metrics", address,
		"--session-timeout", "4s", "--max-session-timeout", "10s",
	}, args...)...)
	f.targets[name] = address
	f.aim(f.targets)
	p := servers.Start(f.t, name, cmd)
	f.all = append(f.all, p)
	return p
}

// gone says that a member is no more, so that Prometheus forgets its series.
func (f *fleet) gone(name string) {
	f.t.Helper()
	delete(f.targets, name)
	f.aim(maps.Clone(f.targets))
}

// produce writes lines to a topic, or made-up orders until the process is stopped.
func (f *fleet) produce(topic string, lines ...string) *servers.Process {
	f.t.Helper()
	args := []string{"produce", "--kafka", f.kafka.Brokers()[0], "--topic", topic, "--rate", "50"}
	if len(lines) > 0 {
		args = append(args, "-")
	}
	cmd := exec.CommandContext(context.WithoutCancel(f.t.Context()), f.bin, args...)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	p := servers.Start(f.t, "producer", cmd)
	if len(lines) > 0 && p.Wait() != nil {
		f.t.Fatalf("produce: %v\n%s", p.Wait(), p.Log())
	}
	return p
}

// owns waits until the group's members own so many partitions.
func (f *fleet) owns(partitions int) {
	f.t.Helper()
	owned := func() float64 {
		points := f.now(`sum(kiel_owned_partitions{group="g"})`)
		if len(points) == 0 {
			return 0
		}
		return points[0].Value.V
	}
	wait.Until(f.t, time.Minute, func() bool { return owned() == float64(partitions) },
		func() string { return fmt.Sprintf("%d partitions are owned; %v are", partitions, owned()) })
}

// Each fault sets off its alert and no alert that sends people elsewhere; after it all is quiet again. Then every panel of the
// board has something to show.
func TestFaults(t *testing.T) {
	if !*full {
		t.Log("left to make soak: see -full")
		return
	}
	began := time.Now()
	f := newFleet(t)
	f.start("a")
	f.start("b")
	f.produce("orders")
	f.owns(6)
	f.quiet()

	t.Log("a handler that fails at a message, of the only member that asks for its topic")
	d := f.start("d", "--topic", "extra", "--fail-on", "poison")
	f.owns(8)
	f.produce("extra", "poison")
	f.fires("KielHandlerFailing extra")

	t.Log("nobody asks for the topic")
	d.Stop()
	f.gone("d")
	f.fires("KielUnwantedTopic", "KielHandlerFailing extra")
	f.produce("extra", slices.Repeat([]string{"wait"}, 3000)...)

	t.Log("a handler that hangs at the message")
	e := f.start("e", "--topic", "extra", "--hang-on", "poison")
	f.fires("KielHandlerStuck", "KielHandlerStands", "KielFallingBehind extra", "KielHandlerFailing extra", "KielUnwantedTopic")
	e.Kill()
	f.gone("e")
	c := f.start("c", "--topic", "orders", "--topic", "extra", "--work", "2ms") // the board shows how it catches up
	f.owns(8)
	f.quiet()

	t.Log("a persistent znode in the place of a claim")
	remove := f.squat("extra:0", 0)
	f.fires("KielPersistentClaim")
	remove()
	f.owns(8)
	f.quiet()

	t.Log("an ephemeral znode of no member in the place of a claim")
	remove = f.squat("extra:0", zk.FlagEphemeral)
	f.fires("KielForeignClaim")
	remove()
	f.owns(8)
	f.quiet()

	t.Log("no Kafka")
	f.kafka.Kill()
	f.fires("KielKafkaUnreachable")
	f.kafka.Start()
	f.owns(8)
	f.quiet()

	t.Log("no ZooKeeper")
	f.zk.Kill()
	f.fires("KielZooKeeperUnreachable")
	f.zk.Start()
	f.owns(8)
	f.quiet()

	t.Log("a rolling restart")
	c.Stop()
	f.start("c2", "--topic", "orders", "--topic", "extra")
	f.gone("c")
	f.owns(8)
	if firing := f.firing(); len(firing) > 0 {
		t.Errorf("%v fire", firing)
	}
	f.checkBoard(began)

	t.Log("a program whose topic is misspelt")
	m := f.start("m", "--topic", "order")
	f.fires("KielMembersApart")
	m.Kill()
	f.gone("m")
	f.quiet()

	t.Log("all members gone")
	for _, member := range f.all {
		member.Kill()
	}
	f.targets = map[string]string{}
	f.aim(f.targets)
	f.fires("KielGroupGone")
}

// squat puts a znode where a claim stands, and returns what removes it.
func (f *fleet) squat(partition string, flags int32) (remove func()) {
	f.t.Helper()
	conn, _, err := zk.Connect(f.zk.Addrs(), 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		f.t.Fatal(err)
	}
	path := "/kiel/groups/g/owners/" + partition
	if _, err := conn.Multi(
		&zk.DeleteRequest{Path: path, Version: -1}, &zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll), Flags: flags},
	); err != nil {
		f.t.Fatal(err)
	}
	return func() {
		f.t.Helper()
		if err := conn.Delete(path, -1); err != nil {
			f.t.Error(err)
		}
		conn.Close()
	}
}

// checkBoard asks for all panels as Grafana does.
func (f *fleet) checkBoard(began time.Time) {
	f.t.Helper()
	for _, p := range readBoard(f.t).Panels {
		for _, target := range p.Targets {
			if !slices.ContainsFunc(f.since(began, query(target.Expr, "g", "10s")), line.shows) {
				f.t.Errorf("panel %q shows nothing for %s", p.Title, target.Expr)
			}
		}
	}
}
