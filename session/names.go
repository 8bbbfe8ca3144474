package session

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const maxName = 249 // Kafka's limit for topic names

// CheckGroup returns an error wrapping ErrInvalidName unless name may be a group's: 1 to 249 of A-Z a-z 0-9 . _ -
// and neither "." nor "..".
func CheckGroup(name string) error { return checkName("group", name, "") }

// CheckTopic returns an error wrapping ErrInvalidName unless name may be a topic's. The rule is CheckGroup's, which is
// Kafka's.
func CheckTopic(name string) error { return checkName("topic", name, "") }

// CheckMember returns an error wrapping ErrInvalidName unless name may be a member's: CheckGroup's rule, and ":" is
// allowed too.
func CheckMember(name string) error { return checkName("member", name, ":") }

func checkName(field, name, also string) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s name %s: %s", ErrInvalidName, field, quote(name), fmt.Sprintf(format, args...))
	}
	switch {
	case name == "":
		return bad("must not be empty")
	case name == "." || name == "..":
		return bad("must not be . or ..")
	case len(name) > maxName:
		return bad("has %d bytes, the limit is %d", len(name), maxName)
	}
	for i, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._-"+also, r):
		default:
			return bad("%q at byte %d is not one of A-Z a-z 0-9 . _ -%s", r, i, spaced(also))
		}
	}
	return nil
}

func spaced(s string) string {
	if s == "" {
		return ""
	}
	return " " + s
}

// quote escapes a value for an error text and keeps it short.
func quote(s string) string {
	const limit = 64
	if len(s) > limit {
		return fmt.Sprintf("%q…", s[:limit])
	}
	return fmt.Sprintf("%q", s)
}

// CheckPath returns an error wrapping ErrInvalidPath unless path is absolute and normal: it begins with "/", does not
// end with one (but for the root), has no empty, "." or ".." component, is valid UTF-8, and has no character that
// ZooKeeper refuses (controls, private use, the specials U+FFF0 to U+FFFF).
func CheckPath(path string) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w %s: %s", ErrInvalidPath, quote(path), fmt.Sprintf(format, args...))
	}
	switch {
	case path == "":
		return bad("must not be empty")
	case path[0] != '/':
		return bad("must begin with /")
	case path == "/":
		return nil
	case !utf8.ValidString(path):
		return bad("is not UTF-8")
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		switch part {
		case "":
			return bad("has an empty component")
		case ".", "..":
			return bad("has a component %s", part)
		}
	}
	for i, r := range path {
		switch {
		case r <= 0x1f, r >= 0x7f && r <= 0x9f, r >= 0xf000 && r <= 0xf8ff, r >= 0xfff0 && r <= 0xffff:
			return bad("%q at byte %d is not allowed in ZooKeeper", r, i)
		}
	}
	return nil
}

// Join puts path elements together with single slashes and a leading one; empty elements are dropped. It neither
// resolves nor refuses "..": CheckPath, and every call that takes a path, does.
func Join(elem ...string) string {
	var b strings.Builder
	for _, e := range elem {
		for part := range strings.SplitSeq(e, "/") {
			if part != "" {
				b.WriteByte('/')
				b.WriteString(part)
			}
		}
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}
