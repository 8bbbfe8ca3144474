package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kielgo/kiel/cmd/internal/connect"
)

const hush = "s3cr3t-passw0rd"

func fileOf(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBadSecurity(t *testing.T) {
	empty, password := fileOf(t, "\n"), fileOf(t, hush+"\n")
	tests := map[string]struct {
		args []string
		says string
	}{
		"key without certificate":   {[]string{"consume", "--zookeeper-key", "x"}, "--zookeeper-key needs --zookeeper-cert"},
		"missing authorities":       {[]string{"consume", "--kafka-ca", "/no/such/file"}, "--kafka-ca"},
		"no authority":              {[]string{"consume", "--zookeeper-ca", password}, "no certificate in"},
		"no certificate":            {[]string{"produce", "--kafka-cert", password}, "--kafka-cert"},
		"missing digest":            {[]string{"consume", "--zookeeper-digest-file", "/no/such/file"}, "--zookeeper-digest-file"},
		"empty digest":              {[]string{"consume", "--zookeeper-digest-file", empty}, "is empty"},
		"digest without user":       {[]string{"consume", "--zookeeper-digest-file", password}, "user:password"},
		"readable without login":    {[]string{"consume", "--zookeeper-acl", "readable"}, "needs credentials"},
		"user without password":     {[]string{"produce", "--kafka-user", "alice"}, "KIEL_KAFKA_PASSWORD"},
		"unknown mechanism":         {[]string{"produce", "--kafka-mechanism", "GSSAPI"}, "GSSAPI"},
		"password on the way there": {[]string{"produce", "--kafka-password", hush}, "unknown flag --kafka-password"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := command(t.Context(), "", tc.args...)
			if r.code != exitUsage || !strings.Contains(r.err, tc.says) {
				t.Errorf("exit code %d, want %d and %q: %s", r.code, exitUsage, tc.says, r.err)
			}
			if strings.Contains(r.out+r.err, hush) {
				t.Errorf("a secret is shown: %s%s", r.out, r.err)
			}
		})
	}
}

// Help and errors show the variables' names and not what they hold.
func TestSecretsOfTheEnvironment(t *testing.T) {
	t.Setenv(connect.DigestVariable, "alice:"+hush)
	t.Setenv(connect.PasswordVariable, hush)
	for _, args := range [][]string{
		{"consume", "--help"},
		{"produce", "--help"},
		{"produce", "--kafka", "127.0.0.1:1", "--kafka-user", "alice", "--kafka-mechanism", "PLAIN", "--count", "1"},
		{"consume", "--kafka", "127.0.0.1:1", "--kafka-user", "alice", "--zookeeper", "127.0.0.1:bad"},
	} {
		r := command(t.Context(), "", args...)
		if strings.Contains(r.out+r.err, hush) {
			t.Errorf("%v shows a secret: %s%s", args, r.out, r.err)
		}
		switch {
		case args[0] == "produce" && r.code == exitFailed:
			if !strings.Contains(r.err, "in clear, without --kafka-tls") {
				t.Errorf("no warning: %s", r.err)
			}
		case args[0] == "consume" && r.code == exitUsage:
		case r.code != exitOK || !strings.Contains(r.out, connect.PasswordVariable):
			t.Errorf("%v: exit code %d: %s%s", args, r.code, r.out, r.err)
		}
	}
}
