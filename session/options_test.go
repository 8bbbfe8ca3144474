package session_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
)

func TestNewValidates(t *testing.T) {
	for name, c := range map[string]struct {
		servers []string
		opts    session.Options
		want    string // part of the error; "" for none
	}{
		"a host":               {[]string{"zk"}, session.Options{}, ""},
		"several, with ports":  {[]string{"zk1:2181", "zk2:2182", "zk1:2181"}, session.Options{}, ""},
		"ipv6":                 {[]string{"::1", "[::1]", "[fe80::1]:2182"}, session.Options{}, ""},
		"everything set":       {[]string{"zk"}, session.Options{Timeout: time.Second, Chroot: "/a/b", CheckPath: "/c", MaxPacket: 4096}, ""},
		"chroot of the root":   {[]string{"zk"}, session.Options{Chroot: "/"}, ""},
		"no servers":           {nil, session.Options{}, "no servers"},
		"empty server":         {[]string{""}, session.Options{}, "host is empty"},
		"no host":              {[]string{":2181"}, session.Options{}, "host is empty"},
		"a list in one string": {[]string{"a:1,b:2"}, session.Options{}, "further elements"},
		"chroot in a server":   {[]string{"zk:2181/root"}, session.Options{}, "Options.Chroot"},
		"no such port":         {[]string{"zk:65536"}, session.Options{}, "from 1 to 65535"},
		"port by name":         {[]string{"zk:zk"}, session.Options{}, "from 1 to 65535"},
		"too many colons":      {[]string{"a:b:c"}, session.Options{}, "host or host:port"},
		"negative timeout":     {[]string{"zk"}, session.Options{Timeout: -1}, "Options.Timeout"},
		"tiny timeout":         {[]string{"zk"}, session.Options{Timeout: time.Millisecond}, "Options.Timeout"},
		"huge timeout":         {[]string{"zk"}, session.Options{Timeout: 2 * time.Hour}, "Options.Timeout"},
		"smallest timeout":     {[]string{"zk"}, session.Options{MinSessionTimeout: -1}, "Options.MinSessionTimeout"},
		"chroot":               {[]string{"zk"}, session.Options{Chroot: "a"}, "Options.Chroot"},
		"check path":           {[]string{"zk"}, session.Options{CheckPath: "/a/"}, "Options.CheckPath"},
		"auth without scheme":  {[]string{"zk"}, session.Options{Auth: []session.Auth{{}}}, "Options.Auth[0]"},
		"digest without colon": {[]string{"zk"}, session.Options{Auth: []session.Auth{{Scheme: "digest", Credential: []byte("x")}}}, "user:password"},
		"empty acl":            {[]string{"zk"}, session.Options{ACL: []session.ACL{}}, "Options.ACL"},
		"tiny packet":          {[]string{"zk"}, session.Options{MaxPacket: 10}, "Options.MaxPacket"},
		"negative budget":      {[]string{"zk"}, session.Options{EphemeralBudget: -1}, "Options.EphemeralBudget"},
		"negative stop":        {[]string{"zk"}, session.Options{StopTimeout: -1}, "Options.StopTimeout"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := session.New(c.servers, c.opts)
			if (c.want == "") != (err == nil) || (s == nil) != (err != nil) {
				t.Fatalf("%v, %v", s, err)
			}
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q in it", err, c.want)
			}
		})
	}
	_, err := session.New(nil, session.Options{Timeout: -1, Chroot: "x"})
	for _, want := range []string{"no servers", "Options.Timeout", "Options.Chroot"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: not all faults at once", err)
		}
	}
}

func TestDefaultACL(t *testing.T) {
	digest := []session.Auth{{Scheme: "digest", Credential: []byte("u:p")}}
	for name, c := range map[string]struct {
		opts session.Options
		want []session.ACL
	}{
		"nothing":              {session.Options{}, session.WorldACL(session.PermAll)},
		"auth":                 {session.Options{Auth: digest}, session.AuthACL(session.PermAll)},
		"tls":                  {session.Options{TLS: &tls.Config{}}, session.WorldACL(session.PermAll)}, //nolint:gosec // New raises the version
		"tls with certificate": {session.Options{TLS: &tls.Config{Certificates: make([]tls.Certificate, 1)}}, session.AuthACL(session.PermAll)},
		"given":                {session.Options{Auth: digest, ACL: session.WorldACL(session.PermRead)}, session.WorldACL(session.PermRead)},
	} {
		s, err := session.New([]string{"zk"}, c.opts)
		if err != nil || !slices.Equal(s.ACL(), c.want) {
			t.Errorf("%s: %v, %v", name, s.ACL(), err)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	opts := session.Options{Auth: []session.Auth{
		{Scheme: "digest", Credential: []byte("ann:geheim")},
		{Scheme: "token", Credential: []byte("geheim")},
	}}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "auth", opts.Auth[0], "auths", opts.Auth)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "auth", opts.Auth[0], "auths", opts.Auth)
	encoded, err := json.Marshal(opts.Auth)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%v %+v %#v %s %v %s %s", opts, opts, opts, opts.Auth[0], &opts.Auth[0], encoded, log.String())
	if strings.Contains(text, "geheim") || strings.Contains(text, "103 101 104 101") ||
		strings.Contains(text, "0x67, 0x65, 0x68") {
		t.Errorf("the password is in %s", text)
	}
	if !strings.Contains(text, "ann") {
		t.Errorf("the user is not in %s", text)
	}
}

func TestClassify(t *testing.T) {
	join := func(errs ...error) error { return fmt.Errorf("x: %w", errors.Join(errs...)) }
	for name, c := range map[string]struct {
		err  error
		want session.Class
	}{
		"nil":                   {nil, session.ClassNone},
		"no node":               {join(session.ErrNoNode), session.ClassFatal},
		"expired":               {join(session.ErrSessionExpired), session.ClassRetryable},
		"trust":                 {join(session.ErrTrustLost), session.ClassRetryable},
		"busy":                  {join(session.ErrBusy), session.ClassRetryable},
		"uncertain":             {join(session.ErrUncertain), session.ClassUncertain},
		"uncertain and expired": {join(session.ErrSessionExpired, session.ErrUncertain), session.ClassUncertain},
		"uncertain and given up": {
			join(t.Context().Err(), session.ErrUncertain, errEnough), session.ClassUncertain,
		},
		"closed":          {join(session.ErrClosed), session.ClassFatal},
		"another's error": {errEnough, session.ClassFatal},
		"in a multi":      {join(&session.MultiError{Index: 1, Err: session.ErrBadVersion}), session.ClassFatal},
	} {
		if got := session.Classify(c.err); got != c.want || session.Retryable(c.err) != (c.want == session.ClassRetryable) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
