package integration_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/servers"
)

const secret = "correct-horse-battery"

// The demo's flags for security work on real servers, on which nobody else may use the group's znodes; and nothing shows a
// secret.
func TestDemoOnSecureServers(t *testing.T) {
	ca := servers.NewTLS(t)
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TLS: ca})
	kafka := servers.StartKafka(t, servers.KafkaOptions{TLS: ca, Users: map[string]string{"alice": secret}})
	brokers := strings.Join(kafka.SecureBrokers(servers.ListenerSASLTLS), ",")
	dir := t.TempDir()
	password, wrong, digest := filepath.Join(dir, "password"), filepath.Join(dir, "wrong"), filepath.Join(dir, "digest")
	for file, content := range map[string]string{password: secret + "\n", wrong: "in" + secret, digest: "kiel:" + secret} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kafkaFlags := []string{"--kafka", brokers, "--kafka-ca", ca.CAFile, "--kafka-user", "alice", "--kafka-mechanism"}
	produce := func(file, mechanism string) (string, error) {
		args := append([]string{"produce", "--count", "5", "--rate", "0", "--kafka-password-file", file}, append(kafkaFlags, mechanism)...)
		out, err := exec.CommandContext(t.Context(), demo, args...).CombinedOutput()
		return shown(t, out), err
	}
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		if out, err := produce(password, mechanism); err != nil || !strings.Contains(out, "messages=5") {
			t.Fatalf("%s: %v: %s", mechanism, err, out)
		}
	}
	if out, err := produce(wrong, "SCRAM-SHA-512"); err == nil || !strings.Contains(out, "Authentication failed") && !strings.Contains(out, "invalid credentials") {
		t.Errorf("a wrong password: %v: %s", err, out)
	}

	tlsFlags := []string{"--zookeeper", zk.TLSAddr(), "--zookeeper-ca", ca.CAFile, "--zookeeper-cert", ca.ClientFile("alice")}
	tests := map[string]struct {
		flags    []string
		env      string
		addr     string
		stranger session.Options
		readable bool // by the stranger
	}{
		"certificate": {flags: tlsFlags, addr: zk.TLSAddr(), stranger: session.Options{TLS: ca.Client("bob")}},
		"digest":      {flags: []string{"--zookeeper", zk.Addr()}, env: "KIEL_ZOOKEEPER_DIGEST=kiel:" + secret, addr: zk.Addr()},
		"readable":    {flags: []string{"--zookeeper", zk.Addr(), "--zookeeper-digest-file", digest, "--zookeeper-acl", "readable"}, addr: zk.Addr(), readable: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root := "/" + name
			test.flags[1] += root
			args := append([]string{"consume", "--print", "value", "--group", name, "--kafka-password-file", password}, append(kafkaFlags, "SCRAM-SHA-512")...)
			seen := untilSeen(t, append(args, test.flags...), test.env, 15)
			if strings.Contains(seen, "level=ERROR") {
				t.Errorf("errors:\n%s", seen)
			}
			s, err := session.New([]string{test.addr}, test.stranger)
			if err != nil {
				t.Fatal(err)
			}
			checkStranger(t, s, root+"/kiel/groups/"+name, test.readable)
		})
	}
}

// shown returns what a process has printed, in which no secret may be.
func shown(t *testing.T, out []byte) string {
	t.Helper()
	if bytes.Contains(out, []byte(secret)) {
		t.Errorf("a secret is in:\n%s", out)
	}
	return string(out)
}

// untilSeen runs a consumer until it has printed so many messages, stops it in order, and returns its log.
func untilSeen(t *testing.T, args []string, env string, messages int) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, demo, args...)
	cmd.Env = append(os.Environ(), cmp.Or(env, "KIEL_NONE="))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 40 * time.Second
	var log bytes.Buffer
	cmd.Stderr = &log
	lines := &lineCount{want: messages, done: cancel}
	cmd.Stdout = lines
	if err := cmd.Run(); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("%v\n%s", err, log.Bytes())
	}
	if lines.want > 0 {
		t.Errorf("%d messages of %d did not come\n%s", lines.want, messages, log.Bytes())
	}
	return shown(t, log.Bytes())
}

// lineCount calls done when it has been written so many lines.
type lineCount struct {
	want int
	done func()
}

func (c *lineCount) Write(b []byte) (int, error) {
	if c.want -= bytes.Count(b, []byte("\n")); c.want <= 0 {
		c.done()
	}
	return len(b), nil
}

// checkStranger asserts what somebody else may do with a group's znodes: read at most.
func checkStranger(t *testing.T, s *session.Session, group string, readable bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() { cancel(); <-done }()
	inc := mustIncarnation(t, s)
	if _, _, err := inc.Get(ctx, group+"/partitions"); readable != (err == nil) || !readable && !errors.Is(err, session.ErrNoAuth) {
		t.Errorf("read the set: %v, may read: %v", err, readable)
	}
	if _, err := inc.Set(ctx, group+"/partitions", nil, -1); !errors.Is(err, session.ErrNoAuth) {
		t.Errorf("write the set: %v", err)
	}
	if _, err := inc.Create(ctx, group+"/members/mallory", nil, session.Ephemeral); !errors.Is(err, session.ErrNoAuth) {
		t.Errorf("join: %v", err)
	}
}
