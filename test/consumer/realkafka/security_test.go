package realkafka_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
)

const (
	user     = "alice"
	password = "correct-horse-battery"
	mistyped = "incorrect-horse-battery"
)

// scramClient lets sarama, which leaves SCRAM to its users, authenticate with franz-go's.
type scramClient struct {
	mechanism func(scram.Auth) sasl.Mechanism
	session   sasl.Session
	first     []byte
	done      bool
}

func (c *scramClient) Begin(name, secret, _ string) (err error) {
	c.session, c.first, err = c.mechanism(scram.Auth{User: name, Pass: secret}).Authenticate(context.Background(), "")
	return err
}

func (c *scramClient) Step(challenge string) (string, error) {
	if challenge == "" {
		return string(c.first), nil
	}
	done, answer, err := c.session.Challenge([]byte(challenge))
	c.done = done
	return string(answer), err
}

func (c *scramClient) Done() bool { return c.done }

// withSASL makes clients authenticate.
func withSASL(config *sarama.Config, mechanism sarama.SASLMechanism, secret string) {
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = mechanism
	config.Net.SASL.User, config.Net.SASL.Password = user, secret
	hashes := map[sarama.SASLMechanism]func(scram.Auth) sasl.Mechanism{
		sarama.SASLTypeSCRAMSHA256: scram.Auth.AsSha256Mechanism,
		sarama.SASLTypeSCRAMSHA512: scram.Auth.AsSha512Mechanism,
	}
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{mechanism: hashes[mechanism]} }
}

func withTLS(config *sarama.Config, settings *tls.Config) {
	config.Net.TLS.Enable, config.Net.TLS.Config = true, settings
}

// secureRig makes a rig on a shared broker that has all kinds of listeners and takes short metadata alone.
func secureRig(t *testing.T, version string, partitions int32) *rig {
	t.Helper()
	kafka := all.Kafka(t, "secure Kafka "+version, servers.KafkaOptions{
		Version: version, TLS: authority(t), Users: map[string]string{user: password}, Config: map[string]string{"offset.metadata.max.bytes": "1000"},
	})
	return rigOn(t, kafka, partitions)
}

// authority signs the certificates of secure brokers.
func authority(t *testing.T) *servers.TLS {
	t.Helper()
	return servers.Share(t, &all, "certificates", servers.NewTLS)
}

// Groups consume and commit over each kind of secure connection, or are refused with an error that says why. Neither errors nor
// logs hold a password.
func TestSecurity(t *testing.T) {
	t.Parallel()
	longer(t, func(t *testing.T, version string) {
		ca, stranger := authority(t), servers.NewTLS(t)
		r := secureRig(t, version, 2)
		for name, test := range map[string]struct {
			listener  string
			mechanism sarama.SASLMechanism
			tls       bool
		}{
			"PLAIN":                  {servers.ListenerSASL, sarama.SASLTypePlaintext, false},
			"SCRAM-SHA-256":          {servers.ListenerSASL, sarama.SASLTypeSCRAMSHA256, false},
			"SCRAM-SHA-512":          {servers.ListenerSASL, sarama.SASLTypeSCRAMSHA512, false},
			"TLS":                    {servers.ListenerTLS, "", true},
			"PLAIN over TLS":         {servers.ListenerSASLTLS, sarama.SASLTypePlaintext, true},
			"SCRAM-SHA-512 over TLS": {servers.ListenerSASLTLS, sarama.SASLTypeSCRAMSHA512, true},
		} {
			brokers := r.kafka.SecureBrokers(test.listener)
			configure := func(secret string, trusted *servers.TLS) *sarama.Config {
				config := memberConfig()
				if test.mechanism != "" {
					withSASL(config, test.mechanism, secret)
				}
				if test.tls {
					withTLS(config, trusted.Client(""))
				}
				return config
			}
			t.Run(name, func(t *testing.T) { r.testSecure(t, name, brokers, configure(password, ca)) })
			if test.mechanism != "" {
				t.Run(name+", wrong password", func(t *testing.T) {
					for _, err := range r.refused(t, brokers, configure(mistyped, ca)) {
						if !errors.Is(err, sarama.ErrSASLAuthenticationFailed) {
							t.Errorf("%v: no ErrSASLAuthenticationFailed", err)
						}
					}
				})
			}
			if test.tls {
				t.Run(name+", unknown authority", func(t *testing.T) {
					for _, err := range r.refused(t, brokers, configure(password, stranger)) {
						if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
							t.Errorf("%v: no x509.UnknownAuthorityError", err)
						}
					}
				})
			}
		}
	})
}

// A client that logs in where the listener wants no login, or in another way than it offers, is told so: sarama says that it has
// run out of brokers.
func TestLoginMistakes(t *testing.T) {
	t.Parallel()
	r := secureRig(t, servers.Kafka4, 1)
	plain, login, secure := r.kafka.Brokers(), r.kafka.SecureBrokers(servers.ListenerSASL), r.kafka.SecureBrokers(servers.ListenerSASLTLS)
	for name, test := range map[string]struct {
		brokers   []string
		mechanism sarama.SASLMechanism
		says      string
	}{
		"no login wanted":            {plain, sarama.SASLTypePlaintext, "does not expect SASL"},
		"no login given":             {login, "", "does it expect SASL, or TLS?"},
		"no login given over TLS":    {secure, "", "does it expect SASL?"},
		"another mechanism":          {login, sarama.SASLTypeOAuth, `does not offer the SASL mechanism "OAUTHBEARER"`},
		"another mechanism over TLS": {secure, sarama.SASLTypeOAuth, `does not offer the SASL mechanism "OAUTHBEARER"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := memberConfig()
			if test.mechanism != "" {
				withSASL(config, test.mechanism, password)
				config.Net.SASL.TokenProvider = oneToken{}
			}
			if test.brokers[0] == secure[0] {
				withTLS(config, authority(t).Client(""))
			}
			for _, err := range r.refused(t, test.brokers, config) {
				if text := err.Error(); !strings.Contains(text, test.says) || !strings.Contains(text, test.brokers[0]) {
					t.Errorf("%q names neither the mistake nor the listener %s", text, test.brokers[0])
				}
			}
		})
	}
}

// oneToken gives the same token always.
type oneToken struct{}

func (oneToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: password}, nil
}

// testSecure has one member consume and commit, and the next ones, which other constructors make, go on there.
func (r *rig) testSecure(t *testing.T, name string, brokers []string, config *sarama.Config) {
	logs := &logtest.Log{}
	secure := &rig{t: t, kafka: r.kafka, zk: r.zk, brokers: brokers, topic: r.topic, config: config, logger: logger(logs)}
	secure.group = r.group + "-" + strings.ReplaceAll(name, " ", "-")
	r.t = t
	before := r.written
	r.produce(10, 0, 1)
	a := secure.member("a")
	until(t, "all messages", func() bool { return a.count.Load() >= 2*int64(before+10) })
	a.leave()
	errs := a.errors()

	client, err := sarama.NewClient(brokers, config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, construct := range map[string]func(*session.Session, consumer.Options) (*consumer.Group, error){
		"NewGroup": func(_ *session.Session, opts consumer.Options) (*consumer.Group, error) {
			return consumer.NewGroup([]string{r.zk}, brokers, secure.group, opts)
		},
		"NewFromClient": func(zk *session.Session, opts consumer.Options) (*consumer.Group, error) {
			opts.Config = nil
			return consumer.NewFromClient(zk, client, secure.group, opts)
		},
	} {
		secure.construct = construct
		b := secure.member("b")
		until(t, name+" is open", func() bool { return b.open.Load() == 2 })
		r.produce(1, 0, 1)
		until(t, name+" goes on at the end", func() bool { return b.count.Load() >= 2 })
		b.leave()
		errs = append(errs, b.errors()...)
	}
	if len(errs) > 0 {
		t.Errorf("errors: %v", errs)
	}
	checkSecrets(t, logs.String())
}

// refused returns why Consume ended, which it must at once, and why NewGroup failed.
func (r *rig) refused(t *testing.T, brokers []string, config *sarama.Config) []error {
	logs := &logtest.Log{}
	config.Metadata.Retry.Max = 1 // Kafka answers a wrong password after a pause
	zk, err := session.New([]string{r.zk}, session.Options{Logger: logger(logs)})
	if err != nil {
		t.Fatal(err)
	}
	opts := consumer.Options{Config: config, Logger: logger(logs)}
	group, err := consumer.New(zk, brokers, "refused", opts)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	errs := []error{group.Consume(ctx, []string{r.topic}, &member{})}
	if ctx.Err() != nil {
		t.Fatal("Consume did not end by itself")
	}
	_, err = consumer.NewGroup([]string{r.zk}, brokers, "refused", opts)
	errs = append(errs, err)
	for _, err := range errs {
		if !errors.Is(err, sarama.ErrOutOfBrokers) {
			t.Errorf("%v: no ErrOutOfBrokers", err)
			continue
		}
		checkSecrets(t, err.Error())
		t.Log(err)
	}
	checkSecrets(t, logs.String())
	return errs
}

// logger logs at every level.
func logger(to *logtest.Log) *slog.Logger {
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func checkSecrets(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{password, mistyped} {
		if strings.Contains(text, secret) {
			t.Errorf("a password is in:\n%s", text)
		}
	}
}
