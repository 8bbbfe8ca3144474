package session

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Format writes String, whatever the verb.
func (a Auth) Format(f fmt.State, _ rune) { write(f, a.String()) }

// Format writes String, whatever the verb.
func (o Options) Format(f fmt.State, _ rune) { write(f, o.String()) }

// Format writes String, whatever the verb.
func (s *Session) Format(f fmt.State, _ rune) {
	if s == nil {
		write(f, "<nil>")
		return
	}
	write(f, s.String())
}

func write(w io.Writer, text string) { _, _ = io.WriteString(w, text) } // fmt.State always succeeds

// String returns the options that are set, without secrets: the schemes and users of Auth, the schemes of ACL, and only that they
// are set for the others that may hold a secret.
func (o Options) String() string {
	var parts []string
	for _, a := range o.attrs() {
		parts = append(parts, a.String())
	}
	return "{" + strings.Join(parts, " ") + "}"
}

// LogValue returns what String shows, as a group.
func (o Options) LogValue() slog.Value { return slog.GroupValue(o.attrs()...) }

func (o Options) attrs() []slog.Attr {
	var schemes, users []string
	for _, a := range o.ACL {
		schemes = append(schemes, a.Scheme)
	}
	for _, a := range o.Auth {
		users = append(users, a.String())
	}
	var attrs []slog.Attr
	for _, option := range []struct {
		set  bool
		attr slog.Attr
	}{
		{o.Timeout != 0, slog.Duration(keyTimeout, o.Timeout)},
		{o.MinSessionTimeout != 0, slog.Duration("min_session_timeout", o.MinSessionTimeout)},
		{o.Chroot != "", slog.String(keyChroot, o.Chroot)},
		{o.CheckPath != "", slog.String("check_path", o.CheckPath)},
		{o.Auth != nil, slog.Any("auth", users)},
		{o.ACL != nil, slog.Any("acl", schemes)},
		{o.TLS != nil, slog.Bool("tls", true)},
		{o.Dial != nil, slog.Bool("dial", true)},
		{o.MaxPacket != 0, slog.Int("max_packet", o.MaxPacket)},
		{o.MaxAnswer != 0, slog.Int("max_answer", o.MaxAnswer)},
		{o.EphemeralBudget != 0, slog.Int("ephemeral_budget", o.EphemeralBudget)},
		{o.StopTimeout != 0, slog.Duration("stop_timeout", o.StopTimeout)},
		{o.Logger != nil, slog.Bool("logger", true)},
	} {
		if option.set {
			attrs = append(attrs, option.attr)
		}
	}
	return attrs
}

// String returns the ZooKeeper session's id, if there is one, Stats.State, and the servers; no option and no secret. It never
// blocks.
func (s *Session) String() string {
	stats := s.Stats()
	id := ""
	if stats.SessionID != 0 {
		id = " " + sessionID(stats.SessionID)
	}
	return fmt.Sprintf("ZooKeeper session%s (%s) at %v", id, stats.State, s.servers)
}

// LogValue returns what String shows, as a group.
func (s *Session) LogValue() slog.Value {
	stats := s.Stats()
	return slog.GroupValue(
		slog.Any(keyServers, s.servers),
		slog.String("state", stats.State),
		slog.String(keySession, sessionID(stats.SessionID)),
	)
}
