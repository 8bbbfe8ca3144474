// Package suite is what sarama's functional tests of consumer groups find around them: constructors that make our groups, and
// servers that are ours. The tests themselves are generated when package functional's test runs; without them there is nothing to
// run here.
package suite

import (
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
)

// The environment of a run: the servers' addresses with commas between, Kafka's version, and whether the tests run on sarama's
// own groups.
const (
	EnvBrokers   = "KIEL_SUITE_BROKERS"
	EnvZooKeeper = "KIEL_SUITE_ZOOKEEPER"
	EnvKafka     = "KIEL_SUITE_KAFKA"
	EnvOwn       = "KIEL_SUITE_OWN"
)

// Topics are the topics that the tests use, and their numbers of partitions.
func Topics() map[string]int32 { return map[string]int32{"test.1": 1, "test.4": 4, "test.1_to_2": 1} }

// TestEnvironment is what the tests know of the servers.
type TestEnvironment struct {
	KafkaBrokerAddrs []string
	KafkaVersion     string
}

// FunctionalTestEnv has the servers of this run.
var FunctionalTestEnv = TestEnvironment{
	KafkaBrokerAddrs: strings.Split(os.Getenv(EnvBrokers), ","),
	KafkaVersion:     os.Getenv(EnvKafka),
}

// NewFunctionalTestConfig returns a configuration that uses the newest versions of requests.
func NewFunctionalTestConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	return config
}

// CheckKafkaVersion fails the test when Kafka is older than required.
func CheckKafkaVersion(t *testing.T, required string) {
	t.Helper()
	if slices.Compare(numbers(t, FunctionalTestEnv.KafkaVersion), numbers(t, required)) < 0 {
		t.Fatalf("Kafka %s, want at least %s", FunctionalTestEnv.KafkaVersion, required)
	}
}

// numbers returns the parts of a version.
func numbers(t *testing.T, version string) []int {
	t.Helper()
	var parts []int
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		require.NoError(t, err)
		parts = append(parts, n)
	}
	return parts
}

// SetupFunctionalTest does nothing: the servers are ready, and nothing stands between them and the test.
func SetupFunctionalTest(*testing.T) {}

// TeardownFunctionalTest does nothing.
func TeardownFunctionalTest(*testing.T) {}

// SafeClose closes c.
func SafeClose(t *testing.T, c io.Closer) {
	t.Helper()
	require.NoError(t, c.Close())
}

// sessions has the newest session of each member.
var sessions sync.Map

// Joined notes the session that a member's Setup was called with.
func Joined(member sarama.ConsumerGroupHandler, s sarama.ConsumerGroupSession) {
	sessions.Store(member, s)
}

// Claims returns how many partitions of each topic a member's newest session has at this moment.
func Claims(member sarama.ConsumerGroupHandler) map[string]int {
	claims := map[string]int{}
	newest, _ := sessions.Load(member)
	if s, ok := newest.(sarama.ConsumerGroupSession); ok {
		for topic, partitions := range s.Claims() {
			claims[topic] = len(partitions)
		}
	}
	return claims
}

// joining is the state of a member that calls Consume and was not set up.
const joining = 1

// Reached returns the state for which a test waits if the member has reached it, and the member's state if not. A state is
// reached when it is the member's. The one before Setup is reached from then on: it lasts for less time than lies between two
// looks.
func Reached(want, state int32) int32 {
	if want == joining && state > joining {
		return want
	}
	return state
}

// NewConsumerGroup makes a member with a session of its own.
func NewConsumerGroup(brokers []string, name string, config *sarama.Config) (sarama.ConsumerGroup, error) {
	if os.Getenv(EnvOwn) != "" {
		return sarama.NewConsumerGroup(brokers, name, config)
	}
	return consumer.NewGroup([]string{os.Getenv(EnvZooKeeper)}, brokers, name, consumer.Options{
		Config: config, Func: ranges(), Session: session.Options{Timeout: config.Consumer.Group.Session.Timeout},
	})
}

// NewConsumerGroupFromClient makes a member with a client's configuration.
func NewConsumerGroupFromClient(name string, client sarama.Client) (sarama.ConsumerGroup, error) {
	if os.Getenv(EnvOwn) != "" {
		return sarama.NewConsumerGroupFromClient(name, client)
	}
	zk, err := session.New([]string{os.Getenv(EnvZooKeeper)}, session.Options{})
	if err != nil {
		return nil, err
	}
	return consumer.NewFromClient(zk, client, name, consumer.Options{})
}
