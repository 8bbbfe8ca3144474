package servers

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/servers/software"
)

// OldZooKeepers returns the versions of ZooKeeper that the soak tests besides. `go run ./test/cmd/setup -old` installs them.
func OldZooKeepers() []string { return software.OldZooKeepers() }

// Versions of ZooKeeper that are installed.
const (
	ZooKeeper39 = software.ZooKeeper39
	ZooKeeper38 = software.ZooKeeper38
)

// ZooKeeperOptions says what [StartZooKeeper] starts. The zero value is one server of version 3.9 with ZooKeeper's defaults.
type ZooKeeperOptions struct {
	Version           string                            // ZooKeeper39, ZooKeeper38 or one of OldZooKeepers; "" is ZooKeeper39
	Servers           int                               // 1 or more; more than 1 is an ensemble
	TickTime          time.Duration                     // 0 is 2 s
	MinSessionTimeout time.Duration                     // 0 is 2 ticks
	MaxSessionTimeout time.Duration                     // 0 is 20 ticks
	JuteMaxBuffer     int                               // bytes in a packet; 0 is ZooKeeper's 1 MiB - 1
	TLS               *TLS                              // when set, servers have a TLS port too, that asks clients for a certificate
	Config            map[string]string                 // more lines of zoo.cfg
	ConfigOf          func(index int) map[string]string // when set, more lines for one server of an ensemble
	Heap              string                            // of Java; "" is 64m

	// Peer, when set, says where the server with index from reaches the one with index to, whose own ports these are, so that a
	// test can put a proxy between a follower and its leader. Of the connections for elections it catches only some: a server
	// that is asked by one with a smaller number calls back at the address by which that introduced itself.
	Peer func(from, to int, ports PeerPorts) PeerPorts
}

// PeerPorts are the ports on which servers of an ensemble speak with each other.
type PeerPorts struct{ Quorum, Election int }

// ZooKeeper is a running server or ensemble.
type ZooKeeper struct {
	tb    testing.TB
	opts  ZooKeeperOptions
	nodes []*ZooKeeperNode
}

// StartZooKeeper starts a ZooKeeper server or ensemble and returns when all of it serves.
func StartZooKeeper(tb testing.TB, opts ZooKeeperOptions) *ZooKeeper {
	tb.Helper()
	opts.Version = cmp.Or(opts.Version, ZooKeeper39)
	opts.Servers = cmp.Or(opts.Servers, 1)
	opts.TickTime = cmp.Or(opts.TickTime, 2*time.Second)
	opts.Heap = cmp.Or(opts.Heap, "64m")
	for try := 1; ; try++ {
		z := &ZooKeeper{tb: tb, opts: opts}
		z.configure()
		z.launch()
		err := z.ready()
		if err == nil {
			return z
		}
		if !again(try, err, z.clashed()) {
			tb.Fatalf("start ZooKeeper: %v", err)
		}
		tb.Logf("start ZooKeeper again: %v", err)
		z.Kill()
	}
}

func (z *ZooKeeper) configure() {
	z.tb.Helper()
	const perNode = 4
	ports := FreePorts(z.tb, perNode*z.opts.Servers)
	for i := range z.opts.Servers {
		z.nodes = append(z.nodes, &ZooKeeperNode{
			zk:         z,
			index:      i,
			dir:        newDir(z.tb, fmt.Sprintf("zookeeper-%d", i+1)),
			clientPort: ports[perNode*i],
			tlsPort:    ports[perNode*i+1],
			peer:       PeerPorts{Quorum: ports[perNode*i+2], Election: ports[perNode*i+3]},
		})
	}
	for _, n := range z.nodes {
		n.configure()
	}
}

func (z *ZooKeeper) launch() {
	z.tb.Helper()
	for _, n := range z.nodes {
		n.Start()
	}
}

func (z *ZooKeeper) ready() error {
	for _, n := range z.nodes {
		if err := n.ready(); err != nil {
			return err
		}
	}
	return nil
}

func (z *ZooKeeper) clashed() bool {
	return slices.ContainsFunc(z.nodes, func(n *ZooKeeperNode) bool {
		return strings.Contains(n.Log(), "java.net.BindException") || n.foreign
	})
}

// Addrs returns the address of each server, "127.0.0.1:port".
func (z *ZooKeeper) Addrs() []string {
	var addrs []string
	for _, n := range z.nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// Addr returns the address of the first server.
func (z *ZooKeeper) Addr() string { return z.nodes[0].Addr() }

// TLSAddr returns the address of the first server's TLS port.
func (z *ZooKeeper) TLSAddr() string { return z.nodes[0].TLSAddr() }

// Nodes returns the servers.
func (z *ZooKeeper) Nodes() []*ZooKeeperNode { return slices.Clone(z.nodes) }

// Leader asks the servers who leads and returns that one; nil when none does at the moment.
func (z *ZooKeeper) Leader() *ZooKeeperNode {
	i := slices.IndexFunc(z.nodes, func(n *ZooKeeperNode) bool { return n.Mode() == "leader" })
	if i < 0 {
		return nil
	}
	return z.nodes[i]
}

// Stop ends all servers by SIGTERM.
func (z *ZooKeeper) Stop() {
	z.tb.Helper()
	for _, n := range z.nodes {
		n.Stop()
	}
}

// Kill ends all servers by SIGKILL. What they have acknowledged is kept, see [ZooKeeper.Start].
func (z *ZooKeeper) Kill() {
	z.tb.Helper()
	for _, n := range z.nodes {
		n.Kill()
	}
}

// Start starts all servers again, with their data and on their ports, and returns when all serve.
func (z *ZooKeeper) Start() {
	z.tb.Helper()
	z.launch()
	if err := z.ready(); err != nil {
		z.tb.Fatalf("start ZooKeeper again: %v", err)
	}
}

// Wipe removes the data of all servers, which must be down: when they start again they know nothing.
func (z *ZooKeeper) Wipe() {
	z.tb.Helper()
	for _, n := range z.nodes {
		if err := os.RemoveAll(filepath.Join(n.dataDir(), "version-2")); err != nil {
			z.tb.Fatalf("wipe %s: %v", n.name, err)
		}
	}
}

// Backup copies the data of all servers, which must be down. restore puts the copies in the place of what is there then, also
// while the servers are down.
func (z *ZooKeeper) Backup() (restore func()) {
	z.tb.Helper()
	dir := z.tb.TempDir()
	for _, n := range z.nodes {
		if err := os.CopyFS(filepath.Join(dir, n.name), os.DirFS(n.dataDir())); err != nil {
			z.tb.Fatalf("back up %s: %v", n.name, err)
		}
	}
	return func() {
		z.tb.Helper()
		for _, n := range z.nodes {
			err := os.RemoveAll(n.dataDir())
			if err == nil {
				err = os.CopyFS(n.dataDir(), os.DirFS(filepath.Join(dir, n.name)))
			}
			if err != nil {
				z.tb.Fatalf("restore %s: %v", n.name, err)
			}
		}
	}
}

// Restart is Stop and Start.
func (z *ZooKeeper) Restart() {
	z.tb.Helper()
	z.Stop()
	z.Start()
}

// Pause stops all servers in their tracks (SIGSTOP).
func (z *ZooKeeper) Pause() {
	z.tb.Helper()
	for _, n := range z.nodes {
		n.Pause()
	}
}

// Resume lets paused servers go on.
func (z *ZooKeeper) Resume() {
	z.tb.Helper()
	for _, n := range z.nodes {
		n.Resume()
	}
}

// ZooKeeperNode is one server. Its methods Kill, Stop, Pause, Resume, PID, Log and the like are those of its process.
type ZooKeeperNode struct {
	*Process

	zk         *ZooKeeper
	index      int
	dir        string
	clientPort int
	tlsPort    int
	peer       PeerPorts
	foreign    bool // somebody else answered on our port
}

// Addr returns the server's address.
func (n *ZooKeeperNode) Addr() string { return loopback(n.clientPort) }

// TLSAddr returns the address of the server's TLS port.
func (n *ZooKeeperNode) TLSAddr() string { return loopback(n.tlsPort) }

// PeerPorts returns the ports on which the other servers of the ensemble reach this one.
func (n *ZooKeeperNode) PeerPorts() PeerPorts { return n.peer }

func (n *ZooKeeperNode) logback() string { return filepath.Join(n.dir, "logback.xml") }

func (n *ZooKeeperNode) dataDir() string { return filepath.Join(n.dir, "data") }

func (n *ZooKeeperNode) configure() {
	tb, opts := n.zk.tb, n.zk.opts
	tb.Helper()
	config := map[string]string{
		"tickTime":                fmt.Sprint(opts.TickTime.Milliseconds()),
		"dataDir":                 n.dataDir(),
		"clientPortAddress":       "127.0.0.1",
		"clientPort":              fmt.Sprint(n.clientPort),
		"clientPortListenBacklog": "4096",
		"maxClientCnxns":          "0",
		"admin.enableServer":      "false",
		"4lw.commands.whitelist":  "*",
		"initLimit":               "20",
		"syncLimit":               "10",
	}
	if opts.MinSessionTimeout > 0 {
		config["minSessionTimeout"] = fmt.Sprint(opts.MinSessionTimeout.Milliseconds())
	}
	if opts.MaxSessionTimeout > 0 {
		config["maxSessionTimeout"] = fmt.Sprint(opts.MaxSessionTimeout.Milliseconds())
	}
	if opts.TLS != nil {
		maps.Copy(config, opts.TLS.zooKeeper())
		config["secureClientPortAddress"] = "127.0.0.1"
		config["secureClientPort"] = fmt.Sprint(n.tlsPort)
	}
	if opts.Servers > 1 {
		for _, other := range n.zk.nodes {
			ports := other.peer
			if other != n && opts.Peer != nil {
				ports = opts.Peer(n.index, other.index, ports)
			}
			config[fmt.Sprintf("server.%d", other.index+1)] = fmt.Sprintf("127.0.0.1:%d:%d", ports.Quorum, ports.Election)
		}
	}
	maps.Copy(config, opts.Config)
	if opts.ConfigOf != nil {
		maps.Copy(config, opts.ConfigOf(n.index))
	}
	if err := os.MkdirAll(n.dataDir(), 0o755); err != nil {
		tb.Fatalf("make ZooKeeper's data folder: %v", err)
	}
	writeFile(tb, filepath.Join(n.dataDir(), "myid"), fmt.Sprint(n.index+1))
	writeConfig(tb, filepath.Join(n.dir, "zoo.cfg"), config)
	writeFile(tb, n.logback(), logback)
}

// Start starts the server (again), with its data and on its ports. It does not wait: see [ZooKeeperNode.WaitReady].
func (n *ZooKeeperNode) Start() {
	tb, opts := n.zk.tb, n.zk.opts
	tb.Helper()
	jars, err := software.ZooKeeper(opts.Version)
	if err != nil {
		tb.Fatalf("ZooKeeper %s: %v", opts.Version, err)
	}
	args := []string{
		"-Dzookeeper.forceSync=no",    // a killed process loses nothing, a machine without power may
		"-Dzookeeper.preAllocSize=64", // KiB
		"-Dzookeeper.quiet=true",
		"-Dlogback.configurationFile=" + n.logback(),
	}
	if opts.JuteMaxBuffer > 0 {
		args = append(args, fmt.Sprintf("-Djute.maxbuffer=%d", opts.JuteMaxBuffer))
	}
	args = append(args, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(n.dir, "zoo.cfg"))
	n.Process = start(tb, fmt.Sprintf("zookeeper-%d", n.index+1), javaCommand(tb, opts.Heap, jars, args...), n.dir)
}

// WaitReady waits until the server serves clients.
func (n *ZooKeeperNode) WaitReady() {
	n.zk.tb.Helper()
	if err := n.ready(); err != nil {
		n.zk.tb.Fatal(err)
	}
}

func (n *ZooKeeperNode) ready() error {
	limit := firstAnswer
	return poll(n.zk.tb, n.Process, func() (bool, error) {
		began := time.Now()
		answer, err := n.ask("srvr", limit)
		if time.Since(began) >= limit {
			limit = min(2*limit, startAnswer)
		}
		if err != nil || mode(answer) == "" {
			return false, nil //nolint:nilerr // asked again
		}
		conf, err := n.ask("conf", limit)
		if err != nil || !strings.Contains(conf, "dataDir=") { // its ensemble may elect another leader in between
			return false, nil //nolint:nilerr // asked again
		}
		if !strings.Contains(conf, n.dataDir()) {
			n.foreign = true
			return false, fmt.Errorf("on %s answers a server that is not ours:\n%s", n.Addr(), conf)
		}
		return true, nil
	})
}

// Mode asks the server for its mode: standalone, leader, follower, or "" while it does not serve.
func (n *ZooKeeperNode) Mode() string {
	answer, err := n.Ask("srvr")
	if err != nil {
		return ""
	}
	return mode(answer)
}

// mode returns the mode that an answer to srvr has, or "".
func mode(answer string) string {
	for line := range strings.Lines(answer) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode)
		}
	}
	return ""
}

const logback = `<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level [%thread] %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="out"/></root>
</configuration>
`
