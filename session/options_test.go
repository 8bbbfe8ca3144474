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

	"github.com/kielgo/kiel/internal/testonly/noerr"
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
		"no servers":           {nil, session.Options{}, "session: argument servers is empty"},
		"empty server":         {[]string{""}, session.Options{}, "host is empty"},
		"no host":              {[]string{":2181"}, session.Options{}, "host is empty"},
		"a list in one string": {[]string{"a:1,b:2"}, session.Options{}, "an element of its own"},
		"chroot in a server":   {[]string{"zk:2181/root"}, session.Options{}, "option Chroot"},
		"no such port":         {[]string{"zk:65536"}, session.Options{}, "number from 1 to 65535"},
		"port by name":         {[]string{"zk:zk"}, session.Options{}, "number from 1 to 65535"},
		"too many colons":      {[]string{"a:b:c"}, session.Options{}, "host or host:port"},
		"negative timeout":     {[]string{"zk"}, session.Options{Timeout: -1}, "option Timeout"},
		"tiny timeout":         {[]string{"zk"}, session.Options{Timeout: time.Millisecond}, "option Timeout"},
		"huge timeout":         {[]string{"zk"}, session.Options{Timeout: 2 * time.Hour}, "option Timeout"},
		"smallest timeout":     {[]string{"zk"}, session.Options{MinSessionTimeout: -1}, "option MinSessionTimeout"},
		"negative largest":     {[]string{"zk"}, session.Options{MaxSessionTimeout: -1}, "option MaxSessionTimeout"},
		"huge largest":         {[]string{"zk"}, session.Options{MaxSessionTimeout: 2 * time.Hour}, "option MaxSessionTimeout"},
		"chroot":               {[]string{"zk"}, session.Options{Chroot: "a"}, "option Chroot"},
		"check path":           {[]string{"zk"}, session.Options{CheckPath: "/a/"}, "option CheckPath"},
		"auth without scheme":  {[]string{"zk"}, session.Options{Auth: []session.Auth{{}}}, "option Auth[0]"},
		"digest without colon": {[]string{"zk"}, session.Options{Auth: []session.Auth{{Scheme: "digest", Credential: []byte("x")}}}, "user:password"},
		"empty acl":            {[]string{"zk"}, session.Options{ACL: []session.ACL{}}, "option ACL"},
		"tiny packet":          {[]string{"zk"}, session.Options{MaxPacket: 10}, "option MaxPacket"},
		"negative budget":      {[]string{"zk"}, session.Options{EphemeralBudget: -1}, "option EphemeralBudget"},
		"negative stop":        {[]string{"zk"}, session.Options{StopTimeout: -1}, "option StopTimeout"},
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
	want := "session: argument servers is empty\noption Timeout: -1ns is less than 100ms\noption Chroot: invalid path \"x\": does not begin with /"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want all faults after one name of the package:\n%s", err, want)
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
		"tls":                  {session.Options{TLS: &tls.Config{}}, session.WorldACL(session.PermAll)},
		"tls with certificate": {session.Options{TLS: &tls.Config{Certificates: make([]tls.Certificate, 1)}}, session.AuthACL(session.PermAll)},
		"given":                {session.Options{Auth: digest, ACL: session.WorldACL(session.PermRead)}, session.WorldACL(session.PermRead)},
	} {
		s, err := session.New([]string{"zk"}, c.opts)
		if err != nil || !slices.Equal(s.ACL(), c.want) {
			t.Errorf("%s: %v, %v", name, s.ACL(), err)
		}
	}
}

// Nothing that prints or logs an Auth, an Options or a Session shows a secret.
func TestSecretsAreNotPrinted(t *testing.T) {
	secret := "geheim"
	acl := session.DigestACL(session.PermAll, "ann", secret)
	opts := session.Options{
		Timeout: 7 * time.Second,
		Chroot:  "/app",
		Auth: []session.Auth{
			{Scheme: "digest", Credential: []byte("ann:" + secret)},
			{Scheme: "token", Credential: []byte(secret)},
			{Scheme: "digest", Credential: []byte(secret + secret)},
		},
		ACL: acl,
		TLS: &tls.Config{Certificates: []tls.Certificate{{PrivateKey: secret}}, MinVersion: tls.VersionTLS13},
	}
	_, hash, _ := strings.Cut(acl[0].ID, ":")
	s := must[*session.Session](t)(session.New([]string{"zk1", "zk2"}, session.Options{Chroot: "/app", Auth: opts.Auth[:2], ACL: acl}))
	holder := struct {
		Session *session.Session
		Options session.Options
		Auth    []session.Auth
	}{s, opts, opts.Auth}
	for name, values := range map[string]struct {
		values []any
		shown  []string // by every verb for text, and in both logs
	}{
		"auth":    {[]any{opts.Auth[0], &opts.Auth[0]}, []string{"digest", "ann"}},
		"auths":   {[]any{opts.Auth}, []string{"digest", "ann", "token"}},
		"options": {[]any{opts, &opts}, []string{"timeout", "/app", "ann", "token"}},
		"session": {[]any{s}, []string{"zk1:2181", "zk2:2181", "connecting"}},
		"holder":  {[]any{holder, &holder}, nil},
	} {
		for _, value := range values.values {
			texts := map[string]string{}
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
				texts[verb] = fmt.Sprintf(verb, value)
			}
			var asJSON, asText strings.Builder
			slog.New(slog.NewJSONHandler(&asJSON, nil)).Info("x", "value", value)
			slog.New(slog.NewTextHandler(&asText, nil)).Info("x", "value", value)
			texts["json log"], texts["text log"] = asJSON.String(), asText.String()
			for how, text := range texts {
				for _, hidden := range []string{secret, hash, "103 101 104 101", "0x67, 0x65, 0x68", "67656865"} {
					if strings.Contains(text, hidden) {
						t.Errorf("%s by %s: the secret is in %s", name, how, text)
					}
				}
				for _, shown := range values.shown {
					if how != "%d" && how != "%x" && !strings.Contains(text, shown) {
						t.Errorf("%s by %s: no %q in %s", name, how, shown, text)
					}
				}
			}
		}
	}
	encoded, err := json.Marshal(opts.Auth)
	if err != nil || strings.Contains(string(encoded), secret) {
		t.Errorf("%s, %v", encoded, err)
	}
}

// A Session that is printed or logged shows its state.
func TestSessionIsPrinted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.started(t.Context())
		id := fmt.Sprintf("0x%x", uint64(s.Current().SessionID()))
		if got, want := fmt.Sprint(s), "ZooKeeper session "+id+" (connected) at [zk:2181]"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		var log strings.Builder
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "zk", s)
		if want := `"zk":{"servers":["zk:2181"],"state":"connected","session_id":"` + id + `"}`; !strings.Contains(log.String(), want) {
			t.Errorf("%s, want %s in it", &log, want)
		}
		noerr.Want(t, s.Close(t.Context()))
		if got, want := fmt.Sprint(s), "ZooKeeper session (closed) at [zk:2181]"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
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
		"refused":         {join(session.ErrAuthFailed), session.ClassFatal},
		"another's error": {errEnough, session.ClassFatal},
		"in a multi":      {join(&session.MultiError{Index: 1, Err: session.ErrBadVersion}), session.ClassFatal},
	} {
		if got := session.Classify(c.err); got != c.want || session.Retryable(c.err) != (c.want == session.ClassRetryable) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
