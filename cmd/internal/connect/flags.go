// Package connect has the flags by which the commands connect to ZooKeeper and to Kafka, and what they mean.
package connect

import (
	"fmt"
	"strings"

	"github.com/IBM/sarama"
)

// KafkaFlags are where Kafka is, and how to log in there.
type KafkaFlags struct {
	Kafka []string `default:"localhost:9092" env:"KIEL_KAFKA" placeholder:"HOST:PORT,…" help:"Kafka's bootstrap servers (${default})."`

	KafkaTLS     TLSFlags `embed:"" prefix:"kafka-" envprefix:"KIEL_KAFKA_" group:"Security of Kafka:"`
	User         string   `name:"kafka-user" env:"KIEL_KAFKA_USER" group:"Security of Kafka:" help:"Log in to Kafka as this user (SASL)."`
	PasswordFile string   `name:"kafka-password-file" env:"KIEL_KAFKA_PASSWORD_FILE" placeholder:"FILE" group:"Security of Kafka:" help:"File with the user's password; without it the environment variable KIEL_KAFKA_PASSWORD holds it."`
	Mechanism    string   `name:"kafka-mechanism" default:"SCRAM-SHA-512" enum:"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512" env:"KIEL_KAFKA_MECHANISM" group:"Security of Kafka:" help:"How to log in: ${enum} (${default})."`
}

// ZooKeeperFlags are where ZooKeeper is, and how to log in there.
type ZooKeeperFlags struct {
	ZooKeeper string `name:"zookeeper" default:"localhost:2181" env:"KIEL_ZOOKEEPER" placeholder:"HOST:PORT,…[/ROOT]" help:"ZooKeeper's servers, with an optional root behind the last (${default})."`

	ZooKeeperTLS TLSFlags `embed:"" prefix:"zookeeper-" envprefix:"KIEL_ZOOKEEPER_" group:"Security of ZooKeeper:"`
	DigestFile   string   `name:"zookeeper-digest-file" env:"KIEL_ZOOKEEPER_DIGEST_FILE" placeholder:"FILE" group:"Security of ZooKeeper:" help:"File with user:password to log in with; without it the environment variable KIEL_ZOOKEEPER_DIGEST may hold them."`
	ACL          string   `name:"zookeeper-acl" default:"creator" enum:"creator,readable,open" env:"KIEL_ZOOKEEPER_ACL" group:"Security of ZooKeeper:" help:"Who may use the znodes that this process creates (${default}): creator: only who logs in with the same user or certificate; readable: others may read; open: everybody may do everything, as without credentials."`
}

// SplitZooKeeper takes kazoo's form "h1:2181,h2:2181/root" apart. Its error is a [UsageError].
func SplitZooKeeper(hosts string) (servers []string, root string, err error) {
	hosts, path, found := strings.Cut(hosts, "/")
	if found && path != "" {
		root = "/" + strings.TrimSuffix(path, "/")
	}
	for s := range strings.SplitSeq(hosts, ",") {
		if s = strings.TrimSpace(s); s != "" {
			servers = append(servers, s)
		}
	}
	if len(servers) == 0 {
		return nil, "", Usage(fmt.Errorf("--zookeeper %q names no server; give host:port", hosts))
	}
	return servers, root, nil
}

// Usage returns a [UsageError].
func Usage(err error) error { return &UsageError{err} }

// UsageError is a flag value that the parser could not check by itself.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *UsageError) Unwrap() error { return e.Err }

// KafkaConfig returns the configuration of a client with this id, which creates no topics.
func KafkaConfig(clientID string) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = clientID
	config.Version = sarama.V3_6_0_0
	config.Metadata.AllowAutoTopicCreation = false
	return config
}
