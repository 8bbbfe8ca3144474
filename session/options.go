package session

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/defaultlog"
)

// Stat is a znode's metadata.
type Stat = zk.Stat

// ACL is one entry of a znode's access control list.
type ACL = zk.ACL

// The permissions of an ACL.
const (
	PermRead   = zk.PermRead
	PermWrite  = zk.PermWrite
	PermCreate = zk.PermCreate
	PermDelete = zk.PermDelete
	PermAdmin  = zk.PermAdmin
	PermAll    = zk.PermAll
)

// WorldACL returns an ACL that allows perms to everybody.
func WorldACL(perms int32) []ACL { return zk.WorldACL(perms) }

// AuthACL returns an ACL that allows perms to the users that the creating connection has authenticated as.
func AuthACL(perms int32) []ACL { return zk.AuthACL(perms) }

// DigestACL returns an ACL that allows perms to one user of the digest scheme.
func DigestACL(perms int32, user, password string) []ACL { return zk.DigestACL(perms, user, password) }

// Auth is one set of credentials. For the scheme "digest" the credential is "user:password". Credentials are sent in clear unless
// Options.TLS is set. Printing or logging an Auth shows the scheme and the user, never the password.
type Auth struct {
	Scheme     string
	Credential []byte
}

// String returns the scheme and, for digest, the user; never the password.
func (a Auth) String() string { return a.Scheme + ":" + a.user() + ":***" }

// LogValue returns String.
func (a Auth) LogValue() slog.Value { return slog.StringValue(a.String()) }

// MarshalText returns String, so that encoding an Options keeps the secret too.
func (a Auth) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func (a Auth) user() string {
	if a.Scheme != "digest" {
		return "***"
	}
	user, _, found := strings.Cut(string(a.Credential), ":")
	if !found {
		return "***" // without a colon it may be the password alone
	}
	return user
}

// Options of a Session. The zero value works. Printing or logging an Options shows no secret.
type Options struct {
	// Timeout is the ZooKeeper session timeout to ask for; the servers may grant another. It should be at least three ticks of
	// the servers. 0 means 10 s.
	Timeout time.Duration
	// MinSessionTimeout is the smallest timeout that any of the servers may grant (their minSessionTimeout). While a connect
	// request is unanswered, trust ends no later than two thirds of MinSessionTimeout after the request. 0 means 6 s.
	MinSessionTimeout time.Duration
	// MaxSessionTimeout is the largest timeout that any of the servers grants (their maxSessionTimeout), or, if no process asks
	// for so much, the largest that any process asks for. Packages party and recipe/partitioner wait that long for the znodes of
	// a dead process of the same name to go (see MaxExpiry), and only then report a living one. 0 means 40 s, the servers'
	// default.
	MaxSessionTimeout time.Duration
	// Chroot is put in front of every path. The znode is created when it is missing. "" means none.
	Chroot string
	// CheckPath is the znode, inside the chroot, that the proof of life checks. Its ACL must allow this session to read it. If it
	// does not allow that to everybody, a wrong password is noticed, too. "" means "/", the chroot itself.
	CheckPath string
	// Auth is presented on every connection before anything else is sent. SASL is not supported yet: Start and Run return
	// ErrAuthFailed with servers that demand it (sessionRequireClientSASLAuth, or enforce.auth.schemes=sasl).
	Auth []Auth
	// ACL is the access control list of every created znode. nil allows everything to everybody; with Auth, or a TLS client
	// certificate, nil allows everything to the authenticated user and nothing to others.
	ACL []ACL
	// TLS, when not nil, is used for all connections. An empty ServerName means the name of each host.
	TLS *tls.Config
	// Dial makes the connections, in place of a net.Dialer. It gets the addresses as they were given, unresolved.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxPacket is the largest request to send, in bytes: the servers' jute.maxbuffer less 1 KiB. 0 means 1,047,551. The session
	// keeps a buffer of that size, and 4 KiB more, to send from for as long as it lives, however small its requests are. (What it
	// receives goes through another buffer, of 16 KiB, or of the largest answer so far.)
	MaxPacket int
	// MaxAnswer is the largest answer to accept, in bytes. A read of more fails with ErrAnswerTooLarge. Servers send as much data
	// as their jute.maxbuffer allowed to store, and lists of children of any length. 0 means 16 MiB.
	MaxAnswer int
	// EphemeralBudget limits the bytes that the paths of one ZooKeeper session's ephemeral znodes take, with 4 more for each
	// path. Servers end a session in one transaction, and after one that is too large they do not start any more
	// (ZOOKEEPER-4306). 0 means 512 KiB.
	EphemeralBudget int
	// StopTimeout limits how long Close, and Run after the end of its context, wait for users (KeepOpen). 0 means 30 s.
	StopTimeout time.Duration
	// Logger receives the log. nil sends warnings and errors to slog.Default() and drops the rest; a Logger with
	// slog.DiscardHandler drops everything.
	Logger *slog.Logger
	// Registerer gets the metrics of the session, kiel_zk_… with an empty label group, for as long as the session runs. The
	// metrics of a group that uses the session show the same, with the group's name. nil registers none. Each session needs a
	// Registerer of its own, or one that adds a label: with the same one a second session fails while the first one runs.
	Registerer prometheus.Registerer
}

const (
	defaultTimeout     = 10 * time.Second
	defaultMinTimeout  = 6 * time.Second
	defaultMaxTimeout  = 40 * time.Second
	defaultStopTimeout = 30 * time.Second
	defaultMaxPacket   = 0xfffff - 1024 // the servers' default jute.maxbuffer, and room for what they add
	defaultMaxAnswer   = 16 << 20       // lists of children may be larger than any request that a server accepts
	defaultBudget      = 512 << 10
	defaultPort        = "2181"

	minTimeout   = 100 * time.Millisecond
	maxTimeout   = time.Hour
	minMaxPacket = 1024
	maxMaxPacket = 64 << 20
	minMaxAnswer = 64 << 10
	maxMaxAnswer = 1 << 30
)

// withDefaults returns a copy in which defaults replace all zero values.
func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.MinSessionTimeout = cmp.Or(o.MinSessionTimeout, defaultMinTimeout)
	o.MaxSessionTimeout = cmp.Or(o.MaxSessionTimeout, defaultMaxTimeout)
	o.CheckPath = cmp.Or(o.CheckPath, "/")
	if o.Chroot == "/" {
		o.Chroot = ""
	}
	o.MaxPacket = cmp.Or(o.MaxPacket, defaultMaxPacket)
	o.MaxAnswer = cmp.Or(o.MaxAnswer, defaultMaxAnswer)
	o.EphemeralBudget = cmp.Or(o.EphemeralBudget, defaultBudget)
	o.StopTimeout = cmp.Or(o.StopTimeout, defaultStopTimeout)
	o.Auth = slices.Clone(o.Auth)
	for i := range o.Auth {
		o.Auth[i].Credential = slices.Clone(o.Auth[i].Credential)
	}
	switch {
	case o.ACL != nil:
		o.ACL = slices.Clone(o.ACL)
	case o.authenticates():
		o.ACL = AuthACL(PermAll)
	default:
		o.ACL = WorldACL(PermAll)
	}
	if o.TLS != nil {
		o.TLS = o.TLS.Clone()
		o.TLS.MinVersion = max(o.TLS.MinVersion, tls.VersionTLS12)
	}
	o.Logger = defaultlog.Or(o.Logger)
	return o
}

// authenticates reports whether connections authenticate, by Auth or by a TLS client certificate.
func (o Options) authenticates() bool {
	return len(o.Auth) > 0 || o.TLS != nil && (len(o.TLS.Certificates) > 0 || o.TLS.GetClientCertificate != nil)
}

// validate checks options that have their defaults, and returns all faults at once, without the package's name.
func (o Options) validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("option "+format, args...))
	}
	for _, t := range []struct {
		name  string
		value time.Duration
	}{
		{"Timeout", o.Timeout}, {"MinSessionTimeout", o.MinSessionTimeout}, {"MaxSessionTimeout", o.MaxSessionTimeout},
	} {
		if t.value < minTimeout {
			fault("%s: %v is less than %v", t.name, t.value, minTimeout)
		}
		if t.value > maxTimeout {
			fault("%s: %v is more than %v", t.name, t.value, maxTimeout)
		}
	}
	if o.Chroot != "" {
		if err := namedFault(o.Chroot); err != nil {
			fault("Chroot: %w", err)
		}
	}
	if err := namedFault(o.CheckPath); err != nil {
		fault("CheckPath: %w", err)
	}
	for i, a := range o.Auth {
		if a.Scheme == "" {
			fault("Auth[%d]: the scheme is empty", i)
		}
		if a.Scheme == "digest" && !strings.Contains(string(a.Credential), ":") {
			fault("Auth[%d]: the credential of digest is not user:password", i)
		}
	}
	if o.ACL != nil && len(o.ACL) == 0 {
		fault("ACL: an empty list allows nothing to anybody; nil is the default")
	}
	if o.MaxPacket < minMaxPacket {
		fault("MaxPacket: %d is less than %d", o.MaxPacket, minMaxPacket)
	}
	if o.MaxPacket > maxMaxPacket {
		fault("MaxPacket: %d is more than %d", o.MaxPacket, maxMaxPacket)
	}
	if o.MaxAnswer < minMaxAnswer {
		fault("MaxAnswer: %d is less than %d", o.MaxAnswer, minMaxAnswer)
	}
	if o.MaxAnswer > maxMaxAnswer {
		fault("MaxAnswer: %d is more than %d", o.MaxAnswer, maxMaxAnswer)
	}
	if o.EphemeralBudget < 0 {
		fault("EphemeralBudget: %d is less than 0", o.EphemeralBudget)
	}
	if o.StopTimeout < 0 {
		fault("StopTimeout: %v is less than 0", o.StopTimeout)
	}
	return errors.Join(faults...)
}

// parseServers returns servers as host:port, without duplicates, or all faults at once. It accepts "host", "host:port", "::1" and
// "[::1]:port".
func parseServers(servers []string) ([]string, error) {
	if len(servers) == 0 {
		return nil, errors.New("argument servers is empty")
	}
	var parsed []string
	var faults []error
	for i, given := range servers {
		address, err := parseServer(given)
		if err != nil {
			faults = append(faults, fmt.Errorf("argument servers[%d]: %s: %w", i, quote(given), err))
			continue
		}
		if !slices.Contains(parsed, address) {
			parsed = append(parsed, address)
		}
	}
	return parsed, errors.Join(faults...)
}

func parseServer(given string) (string, error) {
	if strings.ContainsAny(given, "/, \t\r\n") {
		return "", errors.New("is not host or host:port; a chroot belongs in option Chroot, and each server in an element of its own")
	}
	host, port, err := net.SplitHostPort(given)
	if err != nil {
		bare := strings.TrimSuffix(strings.TrimPrefix(given, "["), "]")
		if strings.Contains(bare, ":") && net.ParseIP(bare) == nil {
			return "", errors.New("is not host or host:port")
		}
		host, port = bare, defaultPort
	}
	if host == "" {
		return "", errors.New("the host is empty")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("port %s is not a number from 1 to 65535", quote(port))
	}
	return net.JoinHostPort(host, port), nil
}
