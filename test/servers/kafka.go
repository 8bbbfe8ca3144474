package servers

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/test/servers/software"
)

// Versions of Kafka that are installed.
const (
	Kafka4 = software.Kafka4
	Kafka3 = software.Kafka3
)

// KafkaOptions says what [StartKafka] starts. The zero value is one broker of version 4.
type KafkaOptions struct {
	Version string            // Kafka4 or Kafka3; "" is Kafka4
	Brokers int               // 1 or more; internal topics get as many replicas, at most 3
	Racks   []string          // where the brokers are, the first one's first; the others are in no rack
	Config  map[string]string // more lines of server.properties
	Heap    string            // of Java, per broker; "" is 400m
	TLS     *TLS              // when not nil, brokers have listeners with TLS, too
	Users   map[string]string // passwords by name; when there are any, brokers have listeners with SASL, too
}

// Kafka is a running cluster. Each of its brokers is a controller too (KRaft).
type Kafka struct {
	tb    testing.TB
	opts  KafkaOptions
	id    string // of the cluster
	nodes []*KafkaNode
}

// tools counts the runs of Kafka's tools, whose logs have names of their own.
var tools atomic.Int64

// StartKafka starts a Kafka cluster and returns when each broker knows all the others. Topics are not created by being asked for,
// see [Kafka.CreateTopic].
func StartKafka(tb testing.TB, opts KafkaOptions) *Kafka {
	tb.Helper()
	opts.Version = cmp.Or(opts.Version, Kafka4)
	opts.Brokers = cmp.Or(opts.Brokers, 1)
	opts.Heap = cmp.Or(opts.Heap, "400m")
	for try := 1; ; try++ {
		k := &Kafka{tb: tb, opts: opts, id: newClusterID()}
		k.configure()
		k.format()
		k.launch()
		err := k.ready()
		if err == nil {
			k.addUsers()
			return k
		}
		if !again(try, err, k.clashed()) {
			tb.Fatalf("start Kafka: %v", err)
		}
		tb.Logf("start Kafka again: %v", err)
		k.Kill()
	}
}

func newClusterID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(id[:])
}

func (k *Kafka) configure() {
	k.tb.Helper()
	secure := k.opts.secureListeners()
	perNode := 2 + len(secure)
	ports := FreePorts(k.tb, perNode*k.opts.Brokers)
	for i := range k.opts.Brokers {
		own := ports[perNode*i : perNode*(i+1)]
		n := &KafkaNode{
			kafka:      k,
			id:         i + 1,
			dir:        newDir(k.tb, fmt.Sprintf("kafka-%d", i+1)),
			port:       own[0],
			controller: own[1],
			secure:     map[string]int{},
		}
		for j, listener := range secure {
			n.secure[listener] = own[2+j]
		}
		k.nodes = append(k.nodes, n)
	}
	for _, n := range k.nodes {
		n.configure()
	}
}

// format prepares the folders of all brokers, which Kafka leaves to a tool of its own.
func (k *Kafka) format() {
	k.tb.Helper()
	var tools []*Process
	for _, n := range k.nodes { // with =, since an id may begin with a dash
		tools = append(tools, n.java("format", "128m", "kafka.tools.StorageTool", "format", "--cluster-id="+k.id, "--config", n.config()))
	}
	for _, p := range tools {
		if err := p.Wait(); err != nil {
			k.tb.Fatalf("format Kafka's storage: %v\n%s", err, p.Log())
		}
	}
}

func (k *Kafka) launch() {
	k.tb.Helper()
	for _, n := range k.nodes {
		n.Start()
	}
}

func (k *Kafka) ready() error {
	for _, n := range k.nodes {
		if err := n.ready(); err != nil {
			return err
		}
	}
	return nil
}

func (k *Kafka) clashed() bool {
	return slices.ContainsFunc(k.nodes, func(n *KafkaNode) bool {
		return strings.Contains(n.Log(), "java.net.BindException") || n.foreign
	})
}

// Brokers returns the address of each broker, "127.0.0.1:port".
func (k *Kafka) Brokers() []string {
	var addrs []string
	for _, n := range k.nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// Nodes returns the brokers.
func (k *Kafka) Nodes() []*KafkaNode { return slices.Clone(k.nodes) }

// CreateTopic creates a topic with as many replicas as there are brokers, at most 3, and returns when every broker knows a leader
// for each partition.
func (k *Kafka) CreateTopic(name string, partitions int32) {
	k.tb.Helper()
	config := sarama.NewConfig()
	config.Version = protocol
	admin, err := sarama.NewClusterAdmin(k.Brokers(), config)
	if err != nil {
		k.tb.Fatalf("create topic %s: %v", name, err)
	}
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: int16(k.replicas())}
	err = admin.CreateTopic(name, detail, false)
	if err := errors.Join(err, admin.Close()); err != nil {
		k.tb.Fatalf("create topic %s: %v", name, err)
	}
	k.WaitTopic(name, partitions)
}

// WaitTopic returns when every broker knows a leader for each of the given number of partitions.
func (k *Kafka) WaitTopic(name string, partitions int32) {
	k.tb.Helper()
	for _, n := range k.nodes {
		err := poll(k.tb, n.Process, func() (bool, error) {
			meta, err := n.metadata(name)
			if err != nil || len(meta.Topics) != 1 || len(meta.Topics[0].Partitions) != int(partitions) {
				return false, nil //nolint:nilerr // asked again
			}
			return !slices.ContainsFunc(meta.Topics[0].Partitions, func(p *sarama.PartitionMetadata) bool {
				return !errors.Is(p.Err, sarama.ErrNoError)
			}), nil
		})
		if err != nil {
			k.tb.Fatalf("wait for %d partitions of topic %s: %v", partitions, name, err)
		}
	}
}

// ConsumerGroups runs Kafka's own kafka-consumer-groups.sh with these arguments and returns what it prints.
func (k *Kafka) ConsumerGroups(args ...string) string {
	k.tb.Helper()
	n := k.nodes[0]
	args = append([]string{"org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", n.Addr()}, args...)
	p := n.java(fmt.Sprintf("kafka-consumer-groups.%d", tools.Add(1)), "128m", args...)
	if err := p.Wait(); err != nil {
		k.tb.Fatalf("kafka-consumer-groups.sh %v: %v\n%s", args[1:], err, p.Log())
	}
	return p.Log()
}

func (k *Kafka) replicas() int { return min(3, k.opts.Brokers) }

// Stop ends all brokers by SIGTERM.
func (k *Kafka) Stop() {
	k.tb.Helper()
	for _, n := range k.nodes {
		n.Signal(terminate)
	}
	for _, n := range k.nodes {
		n.Stop()
	}
}

// Kill ends all brokers by SIGKILL.
func (k *Kafka) Kill() {
	k.tb.Helper()
	for _, n := range k.nodes {
		n.Kill()
	}
}

// Start starts all brokers again, with their data and on their ports, and returns when all serve.
func (k *Kafka) Start() {
	k.tb.Helper()
	k.launch()
	if err := k.ready(); err != nil {
		k.tb.Fatalf("start Kafka again: %v", err)
	}
}

// Restart is Stop and Start.
func (k *Kafka) Restart() {
	k.tb.Helper()
	k.Stop()
	k.Start()
}

// Move ends all brokers by SIGTERM and starts them again with their data, on other ports. It returns when all serve.
func (k *Kafka) Move() {
	k.tb.Helper()
	k.Stop()
	ports := FreePorts(k.tb, len(k.nodes))
	for i, n := range k.nodes {
		n.port = ports[i]
	}
	for _, n := range k.nodes {
		n.configure()
	}
	k.Start()
}

// KafkaNode is one broker. Its methods Kill, Stop, Pause, Resume, PID, Log and the like are those of its process.
type KafkaNode struct {
	*Process

	kafka      *Kafka
	id         int
	dir        string
	port       int
	controller int
	secure     map[string]int // ports by listener
	foreign    bool           // somebody else answered on our port
}

// Addr returns the broker's address.
func (n *KafkaNode) Addr() string { return loopback(n.port) }

// ID returns the broker's id, 1 for the first.
func (n *KafkaNode) ID() int32 { return int32(n.id) }

// LogDir returns the folder in which the broker keeps a partition's messages.
func (n *KafkaNode) LogDir(topic string, partition int32) string {
	return filepath.Join(n.data(), fmt.Sprintf("%s-%d", topic, partition))
}

func (n *KafkaNode) data() string { return filepath.Join(n.dir, "data") }

func (n *KafkaNode) config() string { return filepath.Join(n.dir, "server.properties") }

func (n *KafkaNode) log4j() string { return filepath.Join(n.dir, "log4j.properties") }

func (n *KafkaNode) configure() {
	n.kafka.tb.Helper()
	var voters []string
	for _, other := range n.kafka.nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", other.id, loopback(other.controller)))
	}
	replicas := fmt.Sprint(n.kafka.replicas())
	config := map[string]string{
		"process.roles":                                    "broker,controller",
		"node.id":                                          fmt.Sprint(n.id),
		"controller.quorum.voters":                         strings.Join(voters, ","),
		"controller.listener.names":                        "CONTROLLER",
		"listeners":                                        "PLAINTEXT://" + n.Addr() + ",CONTROLLER://" + loopback(n.controller),
		"advertised.listeners":                             "PLAINTEXT://" + n.Addr(),
		"listener.security.protocol.map":                   "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":                       "PLAINTEXT",
		"log.dirs":                                         n.data(),
		"auto.create.topics.enable":                        "false",
		"group.initial.rebalance.delay.ms":                 "0",
		"offsets.topic.num.partitions":                     "5",
		"offsets.topic.replication.factor":                 replicas,
		"transaction.state.log.num.partitions":             "5",
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.num.partitions":     "5",
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            "1",
		"num.network.threads":                              "2",
		"num.io.threads":                                   "2",
		"background.threads":                               "2",
		"num.recovery.threads.per.data.dir":                "1",
		"log.cleaner.dedupe.buffer.size":                   "4194304",
	}
	if racks := n.kafka.opts.Racks; n.id <= len(racks) {
		config["broker.rack"] = racks[n.id-1]
	}
	n.configureSecure(config)
	maps.Copy(config, n.kafka.opts.Config)
	writeConfig(n.kafka.tb, n.config(), config)
	writeFile(n.kafka.tb, n.log4j(), log4j)
}

// Start starts the broker (again), with its data and on its port. It does not wait: see [KafkaNode.WaitReady].
func (n *KafkaNode) Start() {
	n.kafka.tb.Helper()
	n.Process = n.java("kafka", n.kafka.opts.Heap, "kafka.Kafka", n.config())
}

func (n *KafkaNode) java(name, heap string, args ...string) *Process {
	tb, version := n.kafka.tb, n.kafka.opts.Version
	tb.Helper()
	jars, err := software.Kafka(version)
	if err != nil {
		tb.Fatalf("Kafka %s: %v", version, err)
	}
	args = append([]string{"-Dlog4j.configuration=file:" + n.log4j()}, args...)
	return start(tb, fmt.Sprintf("%s-%d", name, n.id), javaCommand(tb, heap, jars, args...), n.dir)
}

// WaitReady waits until the broker serves and knows all the others.
func (n *KafkaNode) WaitReady() {
	n.kafka.tb.Helper()
	if err := n.ready(); err != nil {
		n.kafka.tb.Fatal(err)
	}
}

func (n *KafkaNode) ready() error {
	return poll(n.kafka.tb, n.Process, func() (bool, error) {
		meta, err := n.metadata()
		if err != nil {
			return false, nil //nolint:nilerr // asked again
		}
		if meta.ClusterID == nil || *meta.ClusterID != n.kafka.id {
			n.foreign = true
			return false, fmt.Errorf("on %s answers a broker that is not ours", n.Addr())
		}
		return len(meta.Brokers) == len(n.kafka.nodes), nil
	})
}

// protocol is the oldest of the brokers' versions.
var protocol = sarama.V3_9_0_0

// metadata asks this very broker.
func (n *KafkaNode) metadata(topics ...string) (*sarama.MetadataResponse, error) {
	config := sarama.NewConfig()
	config.Version = protocol
	broker := sarama.NewBroker(n.Addr())
	if err := broker.Open(config); err != nil {
		return nil, err
	}
	const version = 8 // tells the cluster's id, and an empty list means no topics
	meta, err := broker.GetMetadata(&sarama.MetadataRequest{Version: version, Topics: topics})
	if err := errors.Join(err, broker.Close()); err != nil {
		return nil, err
	}
	return meta, nil
}

const log4j = `log4j.rootLogger=INFO, out
log4j.logger.org.apache.kafka=WARN
log4j.logger.kafka=WARN
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss.SSS} %-5p [%t] %c{1} %m%n
`
