package servers

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/IBM/sarama"
)

// Listeners of brokers besides the plain one. With SASL, brokers know PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
const (
	ListenerTLS     = "SSL"
	ListenerSASL    = "SASL_PLAINTEXT"
	ListenerSASLTLS = "SASL_SSL"
)

// secureListeners names the listeners that the options ask for.
func (o KafkaOptions) secureListeners() []string {
	var names []string
	if o.TLS != nil {
		names = append(names, ListenerTLS)
	}
	if len(o.Users) > 0 {
		names = append(names, ListenerSASL)
	}
	if len(names) == 2 {
		names = append(names, ListenerSASLTLS)
	}
	return names
}

// SecureBrokers returns the address of a listener of each broker.
func (k *Kafka) SecureBrokers(listener string) []string {
	k.tb.Helper()
	var addrs []string
	for _, n := range k.nodes {
		port, ok := n.secure[listener]
		if !ok {
			k.tb.Fatalf("Kafka has no listener %s", listener)
		}
		addrs = append(addrs, loopback(port))
	}
	return addrs
}

// configureSecure adds the listeners to the lines of server.properties.
func (n *KafkaNode) configureSecure(config map[string]string) {
	for listener, port := range n.secure {
		address := "," + listener + "://" + loopback(port)
		config["listeners"] += address
		config["advertised.listeners"] += address
		config["listener.security.protocol.map"] += fmt.Sprintf(",%s:%s", listener, listener)
	}
	opts := n.kafka.opts
	if opts.TLS != nil {
		maps.Copy(config, map[string]string{
			"ssl.keystore.location":   opts.TLS.ServerFile,
			"ssl.keystore.type":       "PEM",
			"ssl.truststore.location": opts.TLS.CAFile,
			"ssl.truststore.type":     "PEM",
		})
	}
	if len(opts.Users) == 0 {
		return
	}
	var plain strings.Builder
	plain.WriteString("org.apache.kafka.common.security.plain.PlainLoginModule required")
	for _, user := range slices.Sorted(maps.Keys(opts.Users)) {
		fmt.Fprintf(&plain, " user_%s=%q", user, opts.Users[user])
	}
	plain.WriteString(";")
	const scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	config["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
	for _, listener := range []string{"sasl_plaintext", "sasl_ssl"} {
		for mechanism, module := range map[string]string{"plain": plain.String(), "scram-sha-256": scram, "scram-sha-512": scram} {
			config["listener.name."+listener+"."+mechanism+".sasl.jaas.config"] = module
		}
	}
}

// addUsers stores the users' credentials for SCRAM, which brokers keep among themselves.
func (k *Kafka) addUsers() {
	k.tb.Helper()
	if len(k.opts.Users) == 0 {
		return
	}
	config := sarama.NewConfig()
	config.Version = protocol
	admin, err := sarama.NewClusterAdmin(k.Brokers(), config)
	if err != nil {
		k.tb.Fatalf("add users: %v", err)
	}
	for _, mechanism := range []sarama.ScramMechanismType{sarama.SCRAM_MECHANISM_SHA_256, sarama.SCRAM_MECHANISM_SHA_512} {
		err = errors.Join(err, k.addUsersFor(admin, mechanism)) // a request may name a user once
	}
	if err := errors.Join(err, admin.Close()); err != nil {
		k.tb.Fatalf("add users: %v", err)
	}
}

func (k *Kafka) addUsersFor(admin sarama.ClusterAdmin, mechanism sarama.ScramMechanismType) error {
	var users []sarama.AlterUserScramCredentialsUpsert
	for name, password := range k.opts.Users {
		users = append(users, sarama.AlterUserScramCredentialsUpsert{
			Name: name, Mechanism: mechanism, Iterations: 4096, Salt: []byte("salt of " + name), Password: []byte(password),
		})
	}
	results, err := admin.UpsertUserScramCredentials(users)
	for _, r := range results {
		if r.ErrorCode != sarama.ErrNoError {
			err = errors.Join(err, r.ErrorCode)
		}
	}
	return err
}
