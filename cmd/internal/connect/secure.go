package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/kielgo/kiel/session"
)

// Environment variables that hold secrets. There is no flag for a secret: other users of the machine see command lines.
const (
	DigestVariable   = "KIEL_ZOOKEEPER_DIGEST"
	PasswordVariable = "KIEL_KAFKA_PASSWORD" //nolint:gosec // a name, no secret
)

// TLSFlags are how to speak TLS with servers, for ZooKeeper and for Kafka.
type TLSFlags struct {
	TLS  bool   `env:"TLS" help:"Use TLS. So do a CA and a certificate."`
	CA   string `env:"CA" placeholder:"FILE" help:"Authorities whose servers to trust, PEM, instead of the system's."`
	Cert string `env:"CERT" placeholder:"FILE" help:"Certificate to show to the servers, PEM."`
	Key  string `env:"KEY" placeholder:"FILE" help:"Its private key, PEM; by default in the same file."`
}

// config returns nil if TLS is not to be used. The flags' names begin with prefix, for errors.
func (f TLSFlags) config(prefix string) (*tls.Config, error) {
	if f.Key != "" && f.Cert == "" {
		return nil, Usage(fmt.Errorf("--%s-key needs --%s-cert", prefix, prefix))
	}
	if !f.TLS && f.CA == "" && f.Cert == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, Usage(fmt.Errorf("--%s-ca: %w", prefix, err))
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, Usage(fmt.Errorf("--%s-ca: no certificate in %s", prefix, f.CA))
		}
	}
	if f.Cert != "" {
		key := f.Key
		if key == "" {
			key = f.Cert
		}
		pair, err := tls.LoadX509KeyPair(f.Cert, key)
		if err != nil {
			return nil, Usage(fmt.Errorf("--%s-cert: %w", prefix, err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Secure sets what the flags say of credentials, TLS and access to znodes.
func (f ZooKeeperFlags) Secure(opts *session.Options) (err error) {
	if opts.TLS, err = f.ZooKeeperTLS.config("zookeeper"); err != nil {
		return err
	}
	credential, err := secret("zookeeper-digest-file", f.DigestFile, DigestVariable)
	if err != nil {
		return err
	}
	if credential != "" {
		opts.Auth = []session.Auth{{Scheme: "digest", Credential: []byte(credential)}}
	}
	switch {
	case f.ACL == "open":
		opts.ACL = session.WorldACL(session.PermAll)
	case f.ACL == "readable" && credential == "" && f.ZooKeeperTLS.Cert == "":
		return Usage(errors.New("--zookeeper-acl readable needs credentials: --zookeeper-digest-file or --zookeeper-cert"))
	case f.ACL == "readable":
		opts.ACL = append(session.AuthACL(session.PermAll), session.WorldACL(session.PermRead)...)
	}
	return nil
}

// Secure sets what the flags say of credentials and TLS. It calls inClear if a password goes in clear; see [InClear].
func (f KafkaFlags) Secure(config *sarama.Config, inClear func()) error {
	settings, err := f.KafkaTLS.config("kafka")
	if err != nil {
		return err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = settings != nil, settings
	if f.User == "" {
		return nil
	}
	password, err := secret("kafka-password-file", f.PasswordFile, PasswordVariable)
	if err != nil {
		return err
	}
	if password == "" {
		return Usage(fmt.Errorf("--kafka-user needs a password, in --kafka-password-file or $%s", PasswordVariable))
	}
	if f.Mechanism == sarama.SASLTypePlaintext && settings == nil {
		inClear()
	}
	s := &config.Net.SASL
	s.Enable, s.Mechanism, s.User, s.Password = true, sarama.SASLMechanism(f.Mechanism), f.User, password
	s.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{mechanism: f.Mechanism} }
	return nil
}

// InClear warns of a password that goes in clear.
const InClear = "the password goes to Kafka in clear, without --kafka-tls"

// secret returns the content of the file or, if no file is named, of the environment variable. A line's end does not count.
func secret(flag, file, variable string) (string, error) {
	if file == "" {
		return os.Getenv(variable), nil
	}
	content, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return "", Usage(fmt.Errorf("--%s: %w", flag, err))
	}
	text := strings.TrimRight(string(content), "\r\n")
	if text == "" {
		return "", Usage(fmt.Errorf("--%s: %s is empty", flag, file))
	}
	return text, nil
}

// scramClient has sarama, which leaves SCRAM to its users, authenticate with franz-go's.
type scramClient struct {
	mechanism string
	session   sasl.Session
	first     []byte
	done      bool
}

func (c *scramClient) Begin(user, password, _ string) (err error) {
	auth := scram.Auth{User: user, Pass: password}
	mechanism := auth.AsSha512Mechanism()
	if c.mechanism == sarama.SASLTypeSCRAMSHA256 {
		mechanism = auth.AsSha256Mechanism()
	}
	c.session, c.first, err = mechanism.Authenticate(context.Background(), "")
	return err
}

func (c *scramClient) Step(challenge string) (answer string, err error) {
	if challenge == "" {
		return string(c.first), nil
	}
	done, response, err := c.session.Challenge([]byte(challenge))
	c.done = done
	return string(response), err
}

func (c *scramClient) Done() bool { return c.done }
